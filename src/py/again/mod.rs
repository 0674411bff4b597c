//! Calls of tensors on meshes, run again as they ran before: by the operator, its plain arguments, and how each tensor and
//! its pieces lie. The first call of a kind goes to Python and is noted (`layers/trace.rs`); the next ones do not.
//!
//! Below autograd a call comes down to calls of pieces. A composite that is recorded for gradients comes down to calls of
//! tensors on the mesh, each of which is recorded, and asked for here in turn.

mod moved;
mod ways;
mod whole;
mod words;

use super::object::{PyTensor, wrap};
use super::watch;
use super::wrappers::{self, Kind, Pieces};
use crate::layers::trace::{self, Level, Noting, Trace};
use crate::mixed::Map;
use crate::ops::args::{Arg, Args};
use crate::ops::op::Body;
use crate::ops::{Call, Form, Ret};
use crate::{DType, Device, Dims, Result, Storage, Tensor, mode};
use pyo3::prelude::*;
use pyo3::types::PyList;
use smallvec::SmallVec;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use words::Words;

/// Calls that are remembered at most.
const LIMIT: usize = 1 << 14;
/// Layers of the thread under which what runs below a call is the same each time.
const HARMLESS: u32 =
    mode::COUNTING | mode::FAKING | mode::PROFILING | mode::AUTOCAST | mode::COMPOSING;

/// A result: how it looks as a whole, and the places of its pieces.
struct Made {
    kind: Arc<Kind>,
    shape: Dims,
    strides: Dims,
    dtype: DType,
    device: Device,
    nbytes: usize,
    places: Vec<usize>,
}

enum Whole {
    /// A new tensor on the mesh.
    Made(Box<Made>),
    /// What a step gave.
    Step(usize),
}

enum Results {
    Same(usize),
    One(Whole),
    Tuple(Vec<Whole>),
    Gaps(Vec<Option<Whole>>),
    List(Vec<Whole>),
}

/// What calls of a kind do.
enum Known {
    /// Python passes them on.
    Passed,
    Runs(Trace, Results),
}

type Calls = Map<Words, Arc<Known>>;

static CALLS: LazyLock<Mutex<Calls>> = LazyLock::new(Mutex::default);
/// What else decides what calls do: a number that Python sets.
static CONTEXT: AtomicU64 = AtomicU64::new(0);

fn calls() -> MutexGuard<'static, Calls> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// How many calls Python answers right now.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Says that Python answers a call, until it is dropped.
pub struct Answering;

impl Answering {
    pub fn now() -> Self {
        DEPTH.set(DEPTH.get() + 1);
        Self
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// A call of tensors on meshes: what it is known by, the tensors and their pieces.
pub struct Asked {
    level: Level,
    words: Words,
    wholes: SmallVec<[Arc<Pieces>; 4]>,
    tensors: SmallVec<[Tensor; 4]>,
}

/// Whether nobody stands between a call and what it came down to before.
fn is_quiet() -> bool {
    mode::layers() & !HARMLESS == 0 && watch::state() == 0 && DEPTH.get() == 0
}

/// What of the thread's settings decides what calls do.
fn settings() -> u64 {
    u64::from(mode::grad_enabled())
        | u64::from(mode::inference()) << 1
        | (mode::default_dtype() as u64) << 8
        | u64::from(mode::layers() & mode::FAKING) << 16
        | u64::from(mode::default_device().word()) << 48
}

impl Asked {
    fn new(level: Level) -> Self {
        Self {
            level,
            words: Words::new(),
            wholes: SmallVec::new(),
            tensors: SmallVec::new(),
        }
    }

    /// Notes a tensor; false if it does not lie on a mesh.
    fn tensor(&mut self, t: &Tensor) -> bool {
        if !t.is_python() {
            return false;
        }
        let Some(pieces) = wrappers::pieces(t.storage()) else {
            return false;
        };
        let words = &mut self.words;
        words.push(words::TENSOR | u64::from(t.requires_grad()));
        words.push(pieces.kind.number);
        words::push_layout(words, t);
        words.push(pieces.locals.len() as u64);
        pieces
            .locals
            .iter()
            .for_each(|l| words::push_layout(words, l));
        // Which of the tensors before has the same pieces.
        let first = |p: &Arc<Pieces>| match (p.locals.first(), pieces.locals.first()) {
            (Some(a), Some(b)) => a.lies_as(b),
            _ => false,
        };
        let same = self.wholes.iter().position(first);
        self.words.push(same.map_or(0, |i| i as u64 + 1));
        self.wholes.push(pieces);
        if self.level == Level::Recorded {
            self.tensors.push(t.clone());
        }
        true
    }

    fn tensors<'t>(&mut self, list: impl ExactSizeIterator<Item = Option<&'t Tensor>>) -> bool {
        self.words.push(words::LIST | list.len() as u64);
        list.into_iter().all(|t| match t {
            Some(t) => self.tensor(t),
            None => {
                self.words.push(u64::MAX);
                true
            }
        })
    }

    /// Notes an argument; false if calls with it are not remembered.
    fn argument(&mut self, a: &Arg) -> bool {
        match a {
            Arg::Tensor(t) => self.tensor(t),
            Arg::Tensors(l) => self.tensors(l.iter().map(|t| Some(*t))),
            Arg::OptTensors(l) => self.tensors(l.iter().copied()),
            a => words::push(&mut self.words, a),
        }
    }

    fn all(&mut self, args: &Args) -> bool {
        args.values.iter().all(|a| self.argument(a))
    }

    /// A call that can be remembered, which a composite `within` may make.
    pub fn of(c: &Call, within: Option<&'static str>) -> Option<Self> {
        let kind = match c.form {
            Form::New => 0,
            Form::InPlace(_) => 1,
            Form::Within(_) => 2,
            Form::Out(_) => return None,
        };
        let (mut wrapped, mut wanted) = (false, false);
        c.args.for_each_tensor(|_, t| {
            wrapped |= t.is_python();
            wanted |= t.requires_grad();
        });
        let composite = matches!(c.args.op.def.body, Body::Compose(_) | Body::Forward(_));
        // What composites do inside of others may depend on those.
        let inside = composite && mode::layers() & mode::COMPOSING != 0;
        if !is_quiet() || !wrapped || inside {
            return None;
        }
        let level = match composite && wanted && mode::grad_enabled() {
            true => Level::Recorded,
            false => Level::Plain,
        };
        let mut asked = Self::new(level);
        let name = within.map_or(0, |w| w.as_ptr() as u64);
        asked.words.extend([
            (c.args.op.id as u64) << 8 | kind,
            settings(),
            name,
            CONTEXT.load(Relaxed),
        ]);
        asked.all(c.args).then_some(asked)
    }

    /// What the steps are given: pieces, or in a composite that is recorded the tensors themselves.
    fn given(&self) -> impl Iterator<Item = &Tensor> {
        let pieces = match self.level {
            Level::Plain => self.wholes.as_slice(),
            Level::Recorded => &[],
        };
        pieces.iter().flat_map(|p| &p.locals).chain(&self.tensors)
    }

    /// Whether calls that Python makes for this one are as any other.
    pub fn is_open(&self) -> bool {
        self.level == Level::Recorded
    }

    /// What the call gives, if one like it ran before; `Some(None)`: it is passed on.
    pub fn known(&self) -> Option<Result<Option<Ret>>> {
        let known = calls().get(&self.words).cloned()?;
        Some(match &*known {
            Known::Passed => Ok(None),
            Known::Runs(trace, results) => {
                let places = trace.run(self.given().cloned());
                places.and_then(|p| results.made(&p)).map(Some)
            }
        })
    }

    /// Starts to note what the call comes down to.
    pub fn start(&self) -> Noting {
        Noting::start(self.level, self.given())
    }

    /// Remembers what the call came down to, or that Python passed it on if that cannot be said.
    pub fn remember(self, noting: Noting, ret: Option<&Ret>, passed: bool) {
        let found = ret.and_then(|ret| self.found(noting, ret));
        let known = found.or_else(|| passed.then_some(Known::Passed));
        let mut calls = calls();
        if calls.len() >= LIMIT {
            calls.clear();
        }
        if let Some(known) = known {
            calls.insert(self.words, Arc::new(known));
        }
    }

    fn found(&self, noting: Noting, ret: &Ret) -> Option<Known> {
        let outs = ret.look();
        let mut each: Vec<Whole> = Vec::with_capacity(outs.len());
        let trace = match self.wholes.is_empty() || self.is_open() {
            true => {
                let (trace, places) = noting.finish(&outs)?;
                each.extend(places.into_iter().map(Whole::Step));
                trace
            }
            false => {
                let wholes = outs.iter().map(|t| wrappers::pieces(t.storage()));
                let wholes = wholes.collect::<Option<Vec<_>>>()?;
                let given = |p: &Arc<Pieces>| self.wholes.iter().any(|w| Arc::ptr_eq(w, p));
                if wholes.iter().any(given) {
                    return None;
                }
                let locals: Vec<&Tensor> = wholes.iter().flat_map(|p| &p.locals).collect();
                let (trace, places) = noting.finish(&locals)?;
                let mut places = places.into_iter();
                for (t, pieces) in outs.iter().zip(&wholes) {
                    let places = places.by_ref().take(pieces.locals.len()).collect();
                    each.push(Whole::Made(Box::new(Made::of(t, pieces, places)?)));
                }
                trace
            }
        };
        Some(Known::Runs(trace, Results::of(ret, each)?))
    }
}

impl Made {
    fn of(t: &Tensor, pieces: &Pieces, places: Vec<usize>) -> Option<Self> {
        let plain = t.offset() == 0 && !t.is_lazy() && !t.requires_grad();
        plain.then(|| Self {
            kind: pieces.kind.clone(),
            shape: t.shape().clone(),
            strides: t.strides().clone(),
            dtype: t.dtype(),
            device: t.device(),
            nbytes: t.storage().nbytes(),
            places,
        })
    }

    fn tensor(&self, places: &[Option<Tensor>]) -> Result<Tensor> {
        let piece = |i: &usize| places.get(*i).cloned().flatten();
        let locals: Option<Vec<Tensor>> = self.places.iter().map(piece).collect();
        let Some(locals) = locals else {
            return Err(crate::err!(Runtime, "a piece of a result is gone"));
        };
        let storage = Storage::hollow(self.nbytes, self.device);
        let kind = self.kind.clone();
        let pieces = Pieces { kind, locals };
        wrappers::register_pieces(&storage, Arc::new(pieces));
        let (shape, strides) = (self.shape.clone(), self.strides.clone());
        Ok(Tensor::checked(storage, shape, strides, 0, self.dtype)?.with_python(true))
    }
}

impl Whole {
    fn tensor(&self, places: &[Option<Tensor>]) -> Result<Tensor> {
        match self {
            Self::Made(made) => made.tensor(places),
            Self::Step(i) => {
                let found = places.get(*i).cloned().flatten();
                found.ok_or_else(|| crate::err!(Runtime, "a result of a step is gone"))
            }
        }
    }
}

impl Results {
    fn of(ret: &Ret, each: Vec<Whole>) -> Option<Self> {
        let mut each = each.into_iter();
        Some(match ret {
            Ret::Same(i) => Self::Same(*i),
            Ret::One(_) => Self::One(each.next()?),
            Ret::Tuple(_) => Self::Tuple(each.collect()),
            Ret::List(_) => Self::List(each.collect()),
            Ret::Gaps(l) => {
                let gap = |t: &Option<Tensor>| t.as_ref().and_then(|_| each.next());
                Self::Gaps(l.iter().map(gap).collect())
            }
            Ret::Value(_) | Ret::Become(_) => return None,
        })
    }

    fn made(&self, places: &[Option<Tensor>]) -> Result<Ret> {
        let one = |m: &Whole| m.tensor(places);
        let all = |l: &[Whole]| l.iter().map(one).collect::<Result<Vec<_>>>();
        Ok(match self {
            Self::Same(i) => Ret::Same(*i),
            Self::One(m) => Ret::One(one(m)?),
            Self::Tuple(l) => Ret::Tuple(all(l)?),
            Self::List(l) => Ret::List(all(l)?),
            Self::Gaps(l) => {
                let gap = |m: &Option<Whole>| m.as_ref().map(one).transpose();
                Ret::Gaps(l.iter().map(gap).collect::<Result<_>>()?)
            }
        })
    }
}

/// Forgets what calls on meshes came down to.
#[pyfunction]
fn _forget_calls() {
    let gone = std::mem::take(&mut *calls());
    drop(gone);
    whole::forget();
}

/// How many kinds of calls on meshes are remembered.
#[pyfunction]
fn _known_calls() -> usize {
    calls().len()
}

/// Sets what decides about calls besides themselves, and returns what it was.
#[pyfunction]
fn _calls_context(number: u64) -> u64 {
    CONTEXT.swap(number, Relaxed)
}

/// Says that the call that goes on cannot be run again by what it comes down to.
#[pyfunction]
fn _trace_void() {
    trace::void();
}

/// What runs from now on is part of what a call comes down to as `bits` say (0: it is not); returns what was before.
#[pyfunction]
fn _trace_select(bits: u32) -> u32 {
    trace::select(bits)
}

/// Has `f` called with these tensors whenever the call that goes on is run again.
#[pyfunction]
fn _trace_tell(f: Py<PyAny>, tensors: Vec<Bound<'_, PyTensor>>) {
    if !trace::is_on() {
        return;
    }
    let given: Vec<Tensor> = tensors.iter().map(|t| t.get().get().clone()).collect();
    let listener = move |told: &[Tensor]| {
        Python::attach(|py| -> PyResult<()> {
            let told = told.iter().map(|t| wrap(py, t.clone()));
            let told = told.collect::<PyResult<Vec<_>>>()?;
            f.call1(py, (PyList::new(py, told)?,))?;
            Ok(())
        })
        .map_err(super::error::carried)
    };
    trace::tell(Arc::new(listener), &given);
}

/// Registers the functions.
pub fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    macro_rules! add {
        ($($f:ident)+) => { $(m.add_function(wrap_pyfunction!($f, m)?)?;)+ };
    }
    m.add_function(wrap_pyfunction!(moved::_moved, m)?)?;
    m.add_function(wrap_pyfunction!(ways::_of_piece, m)?)?;
    m.add_function(wrap_pyfunction!(ways::_to_piece, m)?)?;
    m.add_function(wrap_pyfunction!(ways::_elsewhere, m)?)?;
    m.add_function(wrap_pyfunction!(whole::_on_mesh, m)?)?;
    m.add_function(wrap_pyfunction!(whole::_pieces, m)?)?;
    m.add_function(wrap_pyfunction!(whole::_part, m)?)?;
    add!(_forget_calls _known_calls _calls_context _trace_void _trace_select _trace_tell);
    Ok(())
}
