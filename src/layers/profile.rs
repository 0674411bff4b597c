//! Notes of every call: what ran, when and inside what, on which shapes, and how many bytes and operations it was.

use super::tape::{bytes_of, flops_of};
use super::{Layer, Next};
use crate::ops::op::Op;
use crate::ops::{Arg, Call, Form, Ret};
use crate::tensor::{Grads, Node, Place};
use crate::{DType, Dims, Result, Tensor, mode};
use std::borrow::Cow;
use std::cell::RefCell;
use std::time::Instant;

/// What ran.
#[derive(Clone, Debug)]
pub enum What {
    /// An operator: its row's name, and whether it wrote its argument, or `out=`.
    Call(&'static str, bool, bool),
    /// A node of the graph, while a walk comes by (`true`: all that is done there), by its name.
    Node(Cow<'static, str>, bool),
    /// What the user named.
    Mark(String),
}

/// One argument, as far as it is noted.
#[derive(Clone, Debug)]
pub enum Given {
    /// A tensor.
    Tensor(Dims, DType),
    /// A list of tensors.
    Tensors(Vec<(Dims, DType)>),
    /// Anything else.
    Other,
}

/// Something that ran.
#[derive(Clone, Debug)]
pub struct Event {
    /// What it was.
    pub what: What,
    /// Nanoseconds from the start of the notes to its start.
    pub start: u64,
    /// The same to its end.
    pub end: u64,
    /// How many events it is inside of.
    pub depth: u32,
    /// Its arguments, if they are noted.
    pub given: Vec<Given>,
    /// Floating-point operations, where the row knows them.
    pub flops: u64,
    /// Bytes of the storages that it made itself.
    pub bytes: u64,
    /// The number of the node that it makes (the next of the thread), or runs.
    pub sequence: Option<u64>,
}

struct Notes {
    begin: Instant,
    shapes: bool,
    events: Vec<Event>,
    /// The events that go on.
    open: Vec<usize>,
}

impl Notes {
    fn now(&self) -> u64 {
        u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn enter(&mut self, what: What, given: Vec<Given>, sequence: Option<u64>) -> usize {
        let at = self.events.len();
        let depth = self.open.len() as u32;
        self.open.push(at);
        let start = self.now();
        self.events.push(Event {
            what,
            start,
            end: start,
            depth,
            given,
            flops: 0,
            bytes: 0,
            sequence,
        });
        at
    }

    /// Ends an event, and those inside of it that nobody ended.
    fn leave(&mut self, at: usize, flops: u64, bytes: u64) {
        let now = self.now();
        while self.open.last().is_some_and(|open| *open >= at) {
            let Some(open) = self.open.pop() else { break };
            self.events[open].end = now;
        }
        if let Some(event) = self.events.get_mut(at) {
            event.flops += flops;
            event.bytes += bytes;
        }
    }
}

thread_local! {
    static NOTES: RefCell<Option<Notes>> = const { RefCell::new(None) };
}

/// Notes the calls that pass.
pub struct Profile;

impl Layer for Profile {
    fn call(&self, c: Call, next: Next) -> Result<Ret> {
        let op = c.args.op;
        let what = What::Call(
            op.def.name,
            c.form.target().is_some(),
            matches!(c.form, Form::Out(_)),
        );
        let at = NOTES.with_borrow_mut(|notes| {
            let notes = notes.as_mut()?;
            let given = if notes.shapes {
                c.args.values.iter().map(given).collect()
            } else {
                Vec::new()
            };
            let sequence = mode::records().then(Node::next_seq);
            Some(notes.enter(what, given, sequence))
        });
        let guard = Guard(at);
        let flops = flops_of(c.args).unwrap_or(0);
        let fresh = matches!(c.form, Form::New) && is_leaf(op);
        let mut owned = Vec::new();
        if fresh {
            c.args.for_each_tensor(|_, t| owned.push(t.storage().id()));
        }
        let ret = next.call(c)?;
        let new = |t: &&&Tensor| fresh && !owned.contains(&t.storage().id());
        let bytes = ret.look().iter().filter(new).map(|t| bytes_of(t)).sum();
        guard.end(flops, bytes);
        Ok(ret)
    }
}

fn is_leaf(op: &Op) -> bool {
    use crate::ops::op::Body;
    matches!(op.def.body, Body::Kernel(_) | Body::Become(_))
}

fn given(value: &Arg) -> Given {
    let seen = |t: &Tensor| (t.shape().clone(), t.dtype());
    match value {
        Arg::Tensor(t) => {
            let (shape, dtype) = seen(t);
            Given::Tensor(shape, dtype)
        }
        Arg::Tensors(list) => Given::Tensors(list.iter().map(|t| seen(t)).collect()),
        Arg::OptTensors(list) => Given::Tensors(list.iter().flatten().map(|t| seen(t)).collect()),
        _ => Given::Other,
    }
}

/// Ends an event where it is left, by an error too.
struct Guard(Option<usize>);

impl Guard {
    fn end(mut self, flops: u64, bytes: u64) {
        if let Some(at) = self.0.take() {
            leave(at, flops, bytes);
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(at) = self.0.take() {
            leave(at, 0, 0);
        }
    }
}

/// What a node makes of gradients.
pub(super) fn run(link: &Place, node: &Node, grads: &mut Grads) -> Result<Grads> {
    if mode::layers() & mode::PROFILING == 0 {
        return node.body().apply(link, grads);
    }
    let shown = grads.clone();
    noted(node, false, &shown, || node.body().apply(link, grads))
}

/// Runs `f` as the visit of a node (`whole`) or the node itself, if this thread's calls are noted.
pub(super) fn noted<R>(
    node: &Node,
    whole: bool,
    grads: &[Option<Tensor>],
    f: impl FnOnce() -> R,
) -> R {
    if mode::layers() & mode::PROFILING == 0 {
        return f();
    }
    let _guard = Guard(NOTES.with_borrow_mut(|notes| {
        let notes = notes.as_mut()?;
        let shapes = notes.shapes && !whole;
        let given = grads.iter().filter(|_| shapes).map(|g| match g {
            Some(t) => Given::Tensor(t.shape().clone(), t.dtype()),
            None => Given::Other,
        });
        let given = given.collect();
        let what = What::Node(node.body().name(), whole);
        Some(notes.enter(what, given, Some(node.seq())))
    }));
    f()
}

/// Enters what the user named; gives its number, or nothing if this thread's calls are not noted.
pub fn enter(name: &str) -> Option<usize> {
    NOTES.with_borrow_mut(|notes| {
        let what = What::Mark(name.to_owned());
        Some(notes.as_mut()?.enter(what, Vec::new(), None))
    })
}

/// Leaves an event.
pub fn leave(at: usize, flops: u64, bytes: u64) {
    NOTES.with_borrow_mut(|notes| {
        if let Some(notes) = notes {
            notes.leave(at, flops, bytes);
        }
    });
}

/// Starts to note the calls of this thread; false if they are noted already.
pub fn start(shapes: bool) -> bool {
    let new = NOTES.with_borrow_mut(|notes| {
        let new = notes.is_none();
        if new {
            *notes = Some(Notes {
                begin: Instant::now(),
                shapes,
                events: Vec::new(),
                open: Vec::new(),
            });
        }
        new
    });
    if new {
        mode::set_layers(mode::layers() | mode::PROFILING);
    }
    new
}

/// Ends the notes: the events in the order of their starts, and how long the notes were taken, in nanoseconds.
pub fn stop() -> (Vec<Event>, u64) {
    mode::set_layers(mode::layers() & !mode::PROFILING);
    NOTES.with_borrow_mut(|notes| {
        let Some(mut notes) = notes.take() else {
            return (Vec::new(), 0);
        };
        let now = notes.now();
        notes.leave(0, 0, 0);
        (notes.events, now)
    })
}
