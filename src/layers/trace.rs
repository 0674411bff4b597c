//! What a call comes down to, noted once and run again on other tensors: the leaves that ran below it, in their order,
//! what was told of them, and when what they made went.
//!
//! There are two levels of calls: those that autograd has seen, and those that it is still to see, as a composite makes them.
//! Who asks for a trace answers for the rest: that calls of one key come down to the same leaves.

use super::{Layer, Next};
use crate::ops::core::args::{Arg, Args, OwnedArg};
use crate::ops::core::dispatch;
use crate::ops::op::Op;
use crate::ops::{Call, Form, Ret};
use crate::storage::Witness;
use crate::{DType, Dims, Result, Tensor, err, mode};
use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Who is told something of the tensors of a trace, whenever it runs.
pub type Listener = Arc<dyn Fn(&[Tensor]) -> Result<()> + Send + Sync>;

/// An argument of a step: tensors by their places.
enum Given {
    One(usize),
    List(Vec<usize>),
    Gaps(Vec<Option<usize>>),
    Fixed(OwnedArg),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    New,
    InPlace,
    Within,
}

enum Step {
    /// A leaf; what it makes goes to places from `first` on.
    Leaf {
        op: &'static Op,
        kind: Kind,
        given: Vec<Given>,
        first: usize,
    },
    Tell(Listener, Vec<usize>),
    /// These are needed no more.
    Drop(Vec<usize>),
}

/// The steps of a call, whose tensors are numbered: first those that it was given, then what the steps made.
pub struct Trace {
    steps: Vec<Step>,
    places: usize,
}

/// A tensor that may be gone: where it lies.
struct Look {
    storage: usize,
    shape: Dims,
    strides: Dims,
    offset: i64,
    dtype: DType,
    lazy: u32,
}

impl Look {
    fn of(t: &Tensor) -> Self {
        Self {
            storage: t.storage().id(),
            shape: t.shape().clone(),
            strides: t.strides().clone(),
            offset: t.offset(),
            dtype: t.dtype(),
            lazy: t.glance() & mode::LAZY,
        }
    }

    fn is(&self, t: &Tensor) -> bool {
        self.storage == t.storage().id()
            && self.offset == t.offset()
            && self.dtype == t.dtype()
            && self.lazy == t.glance() & mode::LAZY
            && self.shape == *t.shape()
            && self.strides == *t.strides()
    }
}

struct State {
    steps: Vec<Step>,
    looks: Vec<Option<Look>>,
    attended: HashSet<usize>,
    void: bool,
}

/// A trace that is being noted.
pub struct Notes(Mutex<State>);

impl Witness for Notes {
    fn gone(&self, id: usize) {
        let mut state = self.state();
        state.attended.remove(&id);
        let mut places = Vec::new();
        for (at, look) in state.looks.iter_mut().enumerate() {
            if look.as_ref().is_some_and(|l| l.storage == id) {
                *look = None;
                places.push(at);
            }
        }
        state.steps.push(Step::Drop(places));
    }

    fn resized(&self, _: usize, _: usize) {}
}

/// Which calls are noted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Those below autograd.
    Plain,
    /// Those that are recorded for gradients.
    Recorded,
}

impl Level {
    fn bit(self) -> u32 {
        match self {
            Self::Plain => mode::TRACING,
            Self::Recorded => mode::COMPOSING,
        }
    }

    /// Notes calls, or does not; returns what was before.
    fn switch(self, on: bool) -> bool {
        let bit = if on { self.bit() } else { 0 };
        mode::set_layers(mode::layers() & !self.bit() | bit) & self.bit() != 0
    }

    fn current(self) -> Option<Arc<Notes>> {
        NOTES.with_borrow(|n| n[self as usize].clone())
    }

    fn set(self, notes: Option<Arc<Notes>>) {
        self.switch(notes.is_some());
        let before = NOTES.with_borrow_mut(|n| std::mem::replace(&mut n[self as usize], notes));
        drop(before);
    }
}

thread_local! {
    static NOTES: RefCell<[Option<Arc<Notes>>; 2]> = const { RefCell::new([None, None]) };
}

/// Notes the leaves of this thread until it is finished or dropped.
pub struct Noting(Level, Arc<Notes>);

impl Drop for Noting {
    fn drop(&mut self) {
        self.0.set(None);
    }
}

impl Noting {
    /// Starts to note a call that was given these tensors.
    #[must_use]
    pub fn start<'t>(level: Level, given: impl IntoIterator<Item = &'t Tensor>) -> Self {
        let notes = Arc::new(Notes(Mutex::new(State {
            steps: Vec::new(),
            looks: given.into_iter().map(|t| Some(Look::of(t))).collect(),
            attended: HashSet::new(),
            void: false,
        })));
        level.set(Some(notes.clone()));
        Self(level, notes)
    }

    /// The trace, and the places of the tensors that the call gave; nothing if it cannot be run again.
    #[must_use]
    pub fn finish(self, results: &[&Tensor]) -> Option<(Trace, Vec<usize>)> {
        let mut state = self.1.state();
        let outs: Option<Vec<usize>> = results.iter().map(|t| state.place(t)).collect();
        let steps = std::mem::take(&mut state.steps);
        let places = state.looks.len();
        (!state.void).then_some((Trace { steps, places }, outs?))
    }
}

/// Says that what goes on cannot be run again.
pub fn void() {
    for level in [Level::Plain, Level::Recorded] {
        if let Some(notes) = level.current() {
            notes.state().void = true;
        }
    }
}

/// Whether a trace of what is below autograd is being noted on this thread.
#[must_use]
pub fn is_on() -> bool {
    mode::layers() & mode::TRACING != 0
}

/// What runs from now on is noted as these bits say, or not at all; returns what was before.
pub fn select(bits: u32) -> u32 {
    let mut before = 0;
    for level in [Level::Plain, Level::Recorded] {
        let on = bits & level.bit() != 0 && level.current().is_some();
        before |= if level.switch(on) { level.bit() } else { 0 };
    }
    before
}

/// Somebody is to be told of these tensors, whenever this is run again.
pub fn tell(to: Listener, tensors: &[Tensor]) {
    if !is_on() {
        return;
    }
    if let Some(notes) = Level::Plain.current() {
        let mut state = notes.state();
        let places: Option<Vec<usize>> = tensors.iter().map(|t| state.place(t)).collect();
        match places {
            Some(places) => state.steps.push(Step::Tell(to, places)),
            None => state.void = true,
        }
    }
}

impl State {
    fn place(&self, t: &Tensor) -> Option<usize> {
        let found = |look: &Option<Look>| look.as_ref().is_some_and(|l| l.is(t));
        self.looks.iter().position(found)
    }

    fn given(&self, args: &Args) -> Option<Vec<Given>> {
        let given = |v: &Arg| {
            Some(match v {
                Arg::Tensor(t) => Given::One(self.place(t)?),
                Arg::Tensors(list) => {
                    Given::List(list.iter().map(|t| self.place(t)).collect::<Option<_>>()?)
                }
                Arg::OptTensors(list) => {
                    let place = |t: &Option<&Tensor>| match t {
                        Some(t) => self.place(t).map(Some),
                        None => Some(None),
                    };
                    Given::Gaps(list.iter().map(place).collect::<Option<_>>()?)
                }
                v => Given::Fixed(v.to_owned()),
            })
        };
        args.values.iter().map(given).collect()
    }
}

/// What a leaf gives, in order, with gaps; nothing for what no trace can hold.
fn made(ret: &Ret) -> Option<Vec<Option<&Tensor>>> {
    Some(match ret {
        Ret::One(t) => vec![Some(t)],
        Ret::Tuple(list) | Ret::List(list) => list.iter().map(Some).collect(),
        Ret::Gaps(list) => list.iter().map(Option::as_ref).collect(),
        Ret::Same(_) => Vec::new(),
        Ret::Value(_) | Ret::Become(_) => return None,
    })
}

impl Notes {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(self: &Arc<Self>, op: &'static Op, kind: Kind, given: Vec<Given>, ret: &Ret) {
        let Some(made) = made(ret) else {
            self.state().void = true;
            return;
        };
        let mut state = self.state();
        let first = state.looks.len();
        let known: HashSet<usize> = state.looks.iter().flatten().map(|l| l.storage).collect();
        state.looks.extend(made.iter().map(|t| t.map(Look::of)));
        state.steps.push(Step::Leaf {
            op,
            kind,
            given,
            first,
        });
        let new = |t: &&Tensor| !known.contains(&t.storage().id());
        for t in made.into_iter().flatten().filter(new) {
            if state.attended.insert(t.storage().id()) {
                t.storage().tell(Arc::downgrade(self) as Weak<dyn Witness>);
            }
        }
    }
}

/// Notes the leaves that pass, and not what they do inside.
pub struct Tracing(pub Level);

impl Layer for Tracing {
    fn call(&self, c: Call, next: Next) -> Result<Ret> {
        let Some(notes) = self.0.current() else {
            return next.call(c);
        };
        let kind = match c.form {
            Form::New => Some(Kind::New),
            Form::InPlace(_) => Some(Kind::InPlace),
            Form::Within(_) => Some(Kind::Within),
            Form::Out(_) => None,
        };
        let given = notes.state().given(c.args);
        let op = c.args.op;
        self.0.switch(false);
        let ret = next.call(c);
        self.0.switch(true);
        let ret = ret?;
        match kind.zip(given) {
            Some((kind, given)) => notes.note(op, kind, given, &ret),
            None => notes.state().void = true,
        }
        Ok(ret)
    }
}

type Places = Vec<Option<Tensor>>;

fn at(places: &Places, i: usize) -> Result<&Tensor> {
    let found = places.get(i).and_then(Option::as_ref);
    found.ok_or_else(|| err!(Runtime, "a trace needs a tensor that is gone"))
}

impl Given {
    fn argument<'t>(&'t self, places: &'t Places) -> Result<Arg<'t>> {
        Ok(match self {
            Self::One(i) => Arg::Tensor(at(places, *i)?),
            Self::List(list) => {
                Arg::Tensors(list.iter().map(|i| at(places, *i)).collect::<Result<_>>()?)
            }
            Self::Gaps(list) => {
                let one = |i: &Option<usize>| i.map(|i| at(places, i)).transpose();
                Arg::OptTensors(list.iter().map(one).collect::<Result<_>>()?)
            }
            Self::Fixed(OwnedArg::Str(s)) => Arg::Str(s),
            Self::Fixed(OwnedArg::Plain(v)) => v.clone(),
            Self::Fixed(_) => Arg::None,
        })
    }
}

fn leaf(op: &'static Op, kind: Kind, given: &[Given], places: &Places) -> Result<Ret> {
    let mut args = Args::empty(op);
    for v in given {
        args.values.push(v.argument(places)?);
    }
    let form = match kind {
        Kind::New => Form::New,
        Kind::InPlace => Form::InPlace(args.tensor(0)?),
        Kind::Within => Form::Within(args.tensor(0)?),
    };
    dispatch::call(Call { args: &args, form })
}

impl Trace {
    /// Runs the steps on other tensors: what the call gives, by the places that [`Noting::finish`] said.
    ///
    /// # Errors
    /// What a step reports.
    pub fn run(&self, given: impl IntoIterator<Item = Tensor>) -> Result<Vec<Option<Tensor>>> {
        let mut places: Places = Vec::with_capacity(self.places);
        places.extend(given.into_iter().map(Some));
        places.resize(self.places, None);
        for step in &self.steps {
            match step {
                Step::Leaf {
                    op,
                    kind,
                    given,
                    first,
                } => {
                    let ret = leaf(op, *kind, given, &places)?;
                    put(ret, &mut places, *first);
                }
                Step::Tell(to, list) => {
                    let told = list.iter().map(|i| at(&places, *i).cloned());
                    to(&told.collect::<Result<Vec<_>>>()?)?;
                }
                Step::Drop(list) => list.iter().for_each(|i| places[*i] = None),
            }
        }
        Ok(places)
    }
}

/// Puts what a step made in its places.
fn put(ret: Ret, places: &mut Places, first: usize) {
    let mut put = |i: usize, t: Option<Tensor>| {
        if let Some(place) = places.get_mut(first + i) {
            *place = t;
        }
    };
    match ret {
        Ret::One(t) => put(0, Some(t)),
        Ret::Tuple(list) | Ret::List(list) => {
            (0..).zip(list).for_each(|(i, t)| put(i, Some(t)));
        }
        Ret::Gaps(list) => (0..).zip(list).for_each(|(i, t)| put(i, t)),
        Ret::Same(_) | Ret::Value(_) | Ret::Become(_) => {}
    }
}
