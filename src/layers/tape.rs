//! A counter of calls: how often each leaf ran, and how many bytes it made.

use super::{Layer, Next, program};
use crate::ops::op::{Body, KernelBody};
use crate::ops::{Args, Call, Op, Ret, table};
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
    /// One list of counts, by operator number, for each counter that is on; the innermost last.
    static COUNTS: RefCell<Vec<Vec<Count>>> = const { RefCell::new(Vec::new()) };
}

/// Counts the leaves of the calls that pass.
pub struct Tape;

impl Layer for Tape {
    fn call(&self, c: Call, next: Next) -> Result<Ret> {
        noted(c, |c| next.call(c))
    }
}

/// Runs a leaf by `below`, counts it, and notes a kernel as a step of the program that is recorded.
#[inline]
pub(super) fn noted(c: Call, below: impl FnOnce(Call) -> Result<Ret>) -> Result<Ret> {
    let op = c.args.op;
    let counts = COUNTS.with_borrow(|lists| !lists.is_empty());
    let flops = flops_of(c.args)?;
    let done = match op.is_view() {
        true => below(c),
        false => program::step(c, flops, below),
    };
    if counts && let Ok(ret) = &done {
        count(op, flops, ret);
    }
    done
}

/// Notes a call in all lists.
#[cold]
fn count(op: &Op, flops: u64, ret: &Ret) {
    let new = |_: &&&Tensor| !op.is_view() && !matches!(ret, Ret::Become(_));
    let bytes = (ret.look().iter().filter(new).map(|t| bytes_of(t))).fold(0, u64::saturating_add);
    COUNTS.with_borrow_mut(|lists| {
        for counts in lists {
            let count = &mut counts[op.id];
            count.calls += 1;
            count.flops = count.flops.saturating_add(flops);
            count.bytes = count.bytes.saturating_add(bytes);
        }
    });
}

/// Bytes of a tensor's storage.
pub(super) fn bytes_of(t: &Tensor) -> u64 {
    t.storage().nbytes() as u64
}

/// Floating-point operations of a call, where its row knows them.
pub(super) fn flops_of(args: &Args) -> Result<u64> {
    match args.op.def.body {
        Body::Kernel(KernelBody { flops: Some(f), .. }) => f(args),
        _ => Ok(0),
    }
}

/// Counts the leaves of the calls that `f` makes on this thread: each operator that ran, with what was counted of it.
pub fn counted<R>(f: impl FnOnce() -> R) -> (R, Vec<(&'static str, Count)>) {
    struct Stop;
    impl Drop for Stop {
        fn drop(&mut self) {
            stop();
        }
    }
    start();
    let guard = Stop;
    let result = f();
    std::mem::forget(guard);
    (result, stop())
}

/// Starts another counter on this thread.
pub fn start() {
    COUNTS.with_borrow_mut(|lists| lists.push(vec![Count::default(); table().len()]));
    mode::set_layers(mode::layers() | mode::COUNTING);
}

/// Switches the layer off if nobody counts or records any more.
pub(super) fn settle() {
    if !program::is_on() && COUNTS.with_borrow(Vec::is_empty) {
        mode::set_layers(mode::layers() & !mode::COUNTING);
    }
}

/// Ends the newest counter, and gives what it counted; nothing if there is none.
pub fn stop() -> Vec<(&'static str, Count)> {
    let (counts, more) =
        COUNTS.with_borrow_mut(|lists| (lists.pop().unwrap_or_default(), !lists.is_empty()));
    if !more {
        settle();
    }
    counts
        .into_iter()
        .zip(table())
        .filter(|(c, _)| c.calls > 0)
        .map(|(c, op)| (op.def.name, c))
        .collect()
}
