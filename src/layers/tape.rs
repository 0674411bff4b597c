//! A counter of calls: how often each leaf ran, and how many bytes it made.

use super::{Layer, Next, Sees};
use crate::ops::{Call, Ret, table};
use crate::{Result, Tensor, mode};
use std::cell::RefCell;

/// What was counted of one operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// How often it was called.
    pub calls: u64,
    /// Floating-point operations, where the row knows them.
    pub flops: u64,
    /// Bytes of its results; views make none.
    pub bytes: u64,
}

thread_local! {
    static COUNTS: RefCell<Vec<Count>> = const { RefCell::new(Vec::new()) };
}

/// Counts the leaves of the calls that pass.
pub struct Tape;

impl Layer for Tape {
    fn sees(&self) -> Sees {
        Sees::Leaves
    }

    fn wants(&self, _: u32, on: u32) -> bool {
        on & mode::COUNTING != 0
    }

    fn call(&self, c: Call, next: Next) -> Result<Ret> {
        let op = c.args.op;
        let flops = op.def.flops.map_or(0, |f| f(c.args));
        let ret = next.call(c)?;
        let bytes: u64 = match &ret {
            _ if op.is_view() => 0,
            Ret::One(t) => bytes_of(t),
            Ret::Tuple(list) | Ret::List(list) => list.iter().map(bytes_of).sum(),
            _ => 0,
        };
        COUNTS.with_borrow_mut(|counts| {
            if counts.len() <= op.id {
                counts.resize(table().len(), Count::default());
            }
            let count = &mut counts[op.id];
            count.calls += 1;
            count.flops += flops;
            count.bytes += bytes;
        });
        Ok(ret)
    }
}

fn bytes_of(t: &Tensor) -> u64 {
    t.storage().nbytes() as u64
}

/// Counts the calls that `f` makes: each operator that ran, with what was counted of it.
pub fn counted<R>(f: impl FnOnce() -> R) -> (R, Vec<(&'static str, Count)>) {
    let before = COUNTS.take();
    let on = start();
    let result = f();
    mode::set_layers(on);
    let counts = COUNTS.replace(before);
    (result, named(&counts))
}

/// Starts counting on this thread, and returns the layers that were on.
pub fn start() -> u32 {
    mode::set_layers(mode::layers() | mode::COUNTING)
}

/// Ends counting, and gives what was counted since it started.
pub fn stop() -> Vec<(&'static str, Count)> {
    mode::set_layers(mode::layers() & !mode::COUNTING);
    named(&COUNTS.take())
}

fn named(counts: &[Count]) -> Vec<(&'static str, Count)> {
    counts
        .iter()
        .zip(table())
        .filter(|(c, _)| c.calls > 0)
        .map(|(c, op)| (op.def.name, *c))
        .collect()
}
