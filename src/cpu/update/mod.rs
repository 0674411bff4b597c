//! Steps of optimizers: parameters, gradients and state as one flat range, of which every element is read and written once.

pub(crate) mod device;
mod number;
pub(crate) mod room;
pub(crate) mod rules;
mod sweep;
mod unscale;

use super::{copy, pool, slice, slice_mut};
use crate::mixed::Set as Numbers;
use crate::{Result, Tensor, bail, dims};
use half::{bf16, f16};
pub(crate) use number::Rounding;
use number::{Each, Last, Stored};
use smallvec::SmallVec;
use std::ops::Deref;
use std::sync::{Mutex, PoisonError};
use sweep::sweep;
pub(crate) use unscale::{unscale, unscale_checked};

/// What a step makes of one element of a parameter.
pub(crate) trait Update: Copy + Send + Sync + Beside {
    /// How many tensors of state it has, at most three.
    const STATES: usize;
    /// The parameter and its state after the step; entries beyond the update's own states are ignored.
    fn step<S: Stored, R: Rounding>(self, p: S::In, g: S::In, s: States<S>) -> Stepped<S>;
}

/// An update with its numbers, without its type.
pub(crate) trait Step: Send + Sync {
    /// How many tensors of state it has.
    fn states(&self) -> usize;
    /// See [`Beside`].
    fn rule(&self) -> Rule;
    /// One step of these elements in single precision, rounded to halves after every operation if they stand for such.
    fn single(&self, elements: Elements<'_, f32>, halves: bool);
    /// The same of short ones, which are read and written as they are.
    fn short(&self, elements: Elements<'_, bf16>, rounds: Rounds);
    /// The same in double precision.
    fn double(&self, elements: Elements<'_, f64>);
}

impl<U: Update> Step for U {
    fn states(&self) -> usize {
        U::STATES
    }
    fn rule(&self) -> Rule {
        self.device()
    }
    fn single(&self, elements: Elements<'_, f32>, halves: bool) {
        match halves {
            false => sweep::<f32, f32, U, Last>(*self, elements),
            true => sweep::<f32, f16, U, Each>(*self, elements),
        }
    }
    fn short(&self, elements: Elements<'_, bf16>, rounds: Rounds) {
        match rounds {
            Rounds::Each => sweep::<bf16, bf16, U, Each>(*self, elements),
            Rounds::Last => sweep::<bf16, bf16, U, Last>(*self, elements),
        }
    }
    fn double(&self, elements: Elements<'_, f64>) {
        sweep::<f64, f64, U, Last>(*self, elements);
    }
}

/// When results in 16-bit floats are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounds {
    /// After every operation, as where each is a call of its own.
    Each,
    /// When they are stored.
    Last,
}

/// An update as devices beside the host make it.
pub(crate) trait Beside {
    /// The rule with its numbers.
    fn device(&self) -> Rule;
}

/// A rule for devices beside the host: how gradients enter it, statements that change `p` and the states by `g`, and its numbers `v`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// How the gradient and the parameter come into it.
    pub entry: rules::Entry,
    /// The statements, in the device's language.
    pub text: &'static str,
    /// The numbers.
    pub numbers: [f64; 8],
}

/// What a parameter has beside its gradient.
pub(crate) type States<S> = [<S as Stored>::In; 3];
/// A parameter after a step, and its state.
pub(crate) type Stepped<S> = (<S as Stored>::In, States<S>);

/// Elements of a task: enough to be worth handing to a worker, few enough to share them out evenly.
const TASK: usize = 1 << 14;
/// Elements below which nothing is handed to workers.
const ALONE: usize = 1 << 16;

/// One parameter with its gradient and state.
pub(crate) struct Set<'a> {
    /// Its update.
    pub update: &'a dyn Step,
    /// The parameter.
    pub p: &'a Tensor,
    /// Its gradient.
    pub g: &'a Tensor,
    /// Its state.
    pub s: SmallVec<[&'a Tensor; 3]>,
}

/// A dense tensor seen as a line: itself, or one made of it. Small, as there are several of each parameter.
enum Line<'a> {
    There(&'a Tensor),
    Made(Box<Tensor>),
}

impl Line<'_> {
    fn made(t: Tensor) -> Self {
        Self::Made(Box::new(t))
    }
}

impl Deref for Line<'_> {
    type Target = Tensor;

    fn deref(&self) -> &Tensor {
        match self {
            Self::There(t) => t,
            Self::Made(t) => t,
        }
    }
}

/// A set whose tensors are dense and lie alike, as flat ranges, with what has to be copied back.
struct Flat<'a> {
    update: &'a dyn Step,
    g: Line<'a>,
    /// The parameter, then the state.
    written: SmallVec<[Line<'a>; 4]>,
    back: Vec<(&'a Tensor, Tensor)>,
}

/// Makes one step of all parameters, which are of the floating types.
///
/// # Errors
/// If memory cannot be had, or state lies over its parameter.
pub(crate) fn run(sets: Vec<Set<'_>>, rounds: Rounds) -> Result<()> {
    let mut flats = sets.into_iter().map(flat).collect::<Result<Vec<_>>>()?;
    if apart(&flats) {
        all(&flats, rounds);
    } else {
        // Parameters that share memory change one after the other.
        for flat in &mut flats {
            let one = std::slice::from_mut(flat);
            if !apart(one) {
                one[0].g = Line::made(copy::converted(&one[0].g, one[0].g.dtype())?);
            }
            if !apart(one) {
                bail!(
                    Runtime,
                    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single \
                     memory location. Please clone() the tensor before performing the operation."
                );
            }
            all(one, rounds);
        }
    }
    for (to, from) in flats.iter().flat_map(|f| &f.back) {
        copy::copy(to, from)?;
    }
    Ok(())
}

/// A dense tensor's elements in the order of memory.
fn line(t: &Tensor) -> Line<'_> {
    if t.is_contiguous() {
        return Line::There(t);
    }
    Line::made(line_of(t))
}

fn line_of(t: &Tensor) -> Tensor {
    t.view_with([t.numel()].into(), [1].into(), t.offset())
}

fn flat(set: Set<'_>) -> Result<Flat<'_>> {
    let Set { update, p, g, s } = set;
    let mut back = Vec::new();
    let mut written = SmallVec::new();
    for t in std::iter::once(p).chain(s) {
        if lies(t, p) {
            written.push(line(t));
            continue;
        }
        let made = aside(t, p)?;
        written.push(Line::made(line_of(&made)));
        back.push((t, made));
    }
    let g = if lies(g, p) {
        line(g)
    } else {
        Line::made(line_of(&aside(g, p)?))
    };
    Ok(Flat {
        update,
        g,
        written,
        back,
    })
}

/// Whether a tensor can be seen as a line beside its parameter; otherwise a copy is.
fn lies(t: &Tensor, p: &Tensor) -> bool {
    let rows = p.is_contiguous();
    let as_p = rows || dims::is_dense(p.shape(), p.strides());
    !t.is_lazy() && (rows && t.is_contiguous() || as_p && t.strides() == p.strides())
}

/// A copy that lies as the parameter, or in rows if that has gaps.
fn aside(t: &Tensor, p: &Tensor) -> Result<Tensor> {
    let strides = if dims::is_dense(p.shape(), p.strides()) {
        p.strides().clone()
    } else {
        dims::contiguous_strides(p.shape())
    };
    let made = Tensor::empty_strided(p.shape().clone(), strides, t.dtype(), p.device())?;
    copy::copy(&made, t)?;
    Ok(made)
}

/// Whether nothing that is written lies over anything else.
fn apart(flats: &[Flat<'_>]) -> bool {
    // Mostly each tensor has a storage of its own.
    let mut seen = Numbers::with_capacity_and_hasher(flats.len() * 5, Default::default());
    let mut alone = |t: &Tensor| seen.insert(t.storage().id());
    if flats
        .iter()
        .all(|f| alone(&f.g) && f.written.iter().all(|t| alone(t)))
    {
        return true;
    }
    let mut ranges: Vec<(usize, usize, bool)> = Vec::with_capacity(flats.len() * 4);
    let mut add = |t: &Tensor, written| {
        let start = t.data_ptr() as usize;
        ranges.push((start, start + bytes(t), written));
    };
    for flat in flats {
        flat.written.iter().for_each(|t| add(t, true));
        add(&flat.g, false);
    }
    ranges.sort_unstable();
    are_apart(ranges)
}

/// Bytes of a tensor's elements.
fn bytes(t: &Tensor) -> usize {
    t.numel() as usize * t.dtype().size()
}

/// Whether none of these ranges, in order and each with whether it is written, that is written lies over another.
fn are_apart(ranges: Vec<(usize, usize, bool)>) -> bool {
    let (mut read_to, mut written_to) = (0, 0);
    ranges.into_iter().all(|(start, end, written)| {
        let free = start >= written_to && (!written || start >= read_to);
        if written {
            written_to = written_to.max(end);
        } else {
            read_to = read_to.max(end);
        }
        free || start == end
    })
}

/// Every element of all sets, those of a type together.
fn all(flats: &[Flat<'_>], rounds: Rounds) {
    typed::<f32>(flats, rounds);
    typed::<f64>(flats, rounds);
    typed::<bf16>(flats, rounds);
    typed::<f16>(flats, rounds);
}

/// A part of a parameter with all that belongs to it; what is left over from the state is empty.
struct Task<'t, S> {
    update: &'t dyn Step,
    elements: Elements<'t, S>,
}

/// Neighbouring elements of a parameter, its gradient and its state.
pub(crate) struct Elements<'t, S> {
    p: &'t mut [S],
    g: &'t [S],
    s: [&'t mut [S]; 3],
}

fn typed<S: Stored>(flats: &[Flat<'_>], rounds: Rounds) {
    let mut tasks = Vec::new();
    for flat in flats.iter().filter(|f| f.g.dtype() == S::DTYPE) {
        cut::<S>(flat, &mut tasks);
    }
    let elements: usize = tasks.iter().map(|t| t.elements.p.len()).sum();
    if elements < ALONE {
        tasks.iter_mut().for_each(|task| work(task, rounds));
        return;
    }
    let tasks: Vec<_> = tasks.into_iter().map(Mutex::new).collect();
    pool::parallel_for(tasks.len(), 1, |range| {
        for task in &tasks[range] {
            // Nobody else has this task: the lock only says so.
            work(
                &mut task.lock().unwrap_or_else(PoisonError::into_inner),
                rounds,
            );
        }
    });
}

fn work<S: Stored>(task: &mut Task<'_, S>, rounds: Rounds) {
    let Elements { p, g, s } = &mut task.elements;
    let s = s.each_mut().map(|s| &mut **s);
    S::step(task.update, Elements { p, g, s }, rounds);
}

/// The parts of a set; sets do not overlap.
fn cut<'t, S: Stored>(flat: &'t Flat<'_>, tasks: &mut Vec<Task<'t, S>>) {
    let mut states = flat.written[1..]
        .iter()
        .map(|t| slice_mut::<S>(t).chunks_mut(TASK));
    let mut states = [states.next(), states.next(), states.next()];
    let parts = slice_mut::<S>(&flat.written[0]).chunks_mut(TASK);
    for (p, g) in parts.zip(slice::<S>(&flat.g).chunks(TASK)) {
        let s = states
            .each_mut()
            .map(|s| s.as_mut().and_then(Iterator::next).unwrap_or_default());
        tasks.push(Task {
            update: flat.update,
            elements: Elements { p, g, s },
        });
    }
}
