//! The other direction of maps that take few elements along a dimension: each input element is the weighted sum of the
//! outputs it went into. Backward of resampling and of padding.

#![allow(unsafe_code, reason = "walks lines of dense tensors")]

use super::lines::Shared;
use super::resize::{Picks, Real, Taps, blend, pick, weigh};
use super::room::Room;
use super::{pool, slice};
use crate::{DType, Device, Element, Result, Tensor};

/// For each input element along a dimension, the outputs that read it and their weights.
pub struct Adjoint {
    starts: Vec<usize>,
    parts: Vec<(usize, f64)>,
}

impl Adjoint {
    /// From the inputs of each output, of `size` inputs in all.
    #[must_use]
    pub fn of(taps: &[Taps], size: usize) -> Self {
        let all = || {
            let outputs = taps.iter().enumerate();
            outputs.flat_map(|(j, t)| t.parts.iter().map(move |&(i, w)| (i, j, w)))
        };
        Self::turned(all, size)
    }

    /// From the one input of each output.
    #[must_use]
    pub fn of_places(places: &[usize], size: usize) -> Self {
        Self::turned(
            || places.iter().enumerate().map(|(j, &i)| (i, j, 1.0)),
            size,
        )
    }

    /// From all inputs, output after output, each with its weight.
    fn turned<I: Iterator<Item = (usize, usize, f64)>>(all: impl Fn() -> I, size: usize) -> Self {
        let mut starts = vec![0; size + 1];
        all().for_each(|(i, ..)| starts[i + 1] += 1);
        for i in 0..size {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut parts = vec![(0, 0.0); starts[size]];
        for (i, j, w) in all() {
            parts[next[i]] = (j, w);
            next[i] += 1;
        }
        Self { starts, parts }
    }

    /// The map itself: from the inputs of each output, whose weighted sum it is.
    #[must_use]
    pub fn of_outputs(taps: &[Taps]) -> Self {
        let mut starts = vec![0; taps.len() + 1];
        for (i, t) in taps.iter().enumerate() {
            starts[i + 1] = starts[i] + t.parts.len();
        }
        let parts = taps.iter().flat_map(|t| t.parts.iter().copied()).collect();
        Self { starts, parts }
    }

    /// Where the entries of each sum begin, and all entries: places and weights.
    #[must_use]
    pub fn parts(&self) -> (&[usize], &[(usize, f64)]) {
        (&self.starts, &self.parts)
    }

    /// How many inputs there are.
    fn size(&self) -> usize {
        self.starts.len() - 1
    }

    /// True if each input went into the output of its own place alone.
    fn is_identity(&self, outputs: i64) -> bool {
        let own = |i: usize| self.starts[i] == i && self.parts[i] == (i, 1.0);
        self.size() as i64 == outputs
            && self.parts.len() == self.size()
            && (0..self.size()).all(own)
    }

    /// Sums the gradients of the outputs, dense lines along `dim` of a tensor of single or double precision.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn along(&self, grad: &Tensor, dim: usize) -> Result<Tensor> {
        if self.is_identity(grad.shape()[dim]) {
            return Ok(grad.clone());
        }
        let shape = grad.shape().with(dim, self.size() as i64);
        let out = Tensor::empty(&shape, grad.dtype(), Device::CPU)?;
        let inner: i64 = shape[dim + 1..].iter().product();
        let outputs = grad.shape()[dim] as usize;
        if out.numel() == 0 {
            return Ok(out);
        }
        if grad.dtype() == DType::F32 {
            self.lines::<f32>(&out, grad, outputs, inner as usize);
        } else {
            self.lines::<f64>(&out, grad, outputs, inner as usize);
        }
        Ok(out)
    }

    /// What [`Adjoint::along`] makes, of a tensor that is no longer needed then.
    ///
    /// # Errors
    /// If a size overflows.
    pub fn along_room(&self, room: &mut Room, grad: Tensor, dim: usize) -> Result<Tensor> {
        if self.is_identity(grad.shape()[dim]) {
            return Ok(grad);
        }
        let made = room.empty(&grad.shape().with(dim, self.size() as i64), grad.dtype())?;
        room.free(&grad);
        Ok(made)
    }

    fn lines<T: Real + Element>(&self, out: &Tensor, grad: &Tensor, outputs: usize, inner: usize) {
        let (from, to) = (slice::<T>(grad), Shared::at(out.data_ptr()));
        let weights: Vec<T> = self.parts.iter().map(|p| T::of(p.1)).collect();
        let size = self.size();
        // Whole rows at a time where each is one line, else the lines of `inner` elements that a row has.
        let (width, rows) = if inner == 1 {
            (size, out.numel() as usize / size)
        } else {
            (inner, out.numel() as usize / inner)
        };
        let plan = if inner == 1 {
            Row::of(self)
        } else {
            Row::default()
        };
        pool::parallel_for(rows, (16384 / width).max(1), |r| {
            // SAFETY: these rows of the result are this task's alone.
            let out = unsafe {
                let start = to.get().cast::<T>().add(r.start * width);
                std::slice::from_raw_parts_mut(start, r.len() * width)
            };
            for (row, out) in r.zip(out.chunks_exact_mut(width)) {
                if inner == 1 {
                    plan.sum(out, &from[row * outputs..][..outputs]);
                    continue;
                }
                let (block, i) = (row / size, row % size);
                let grad = &from[block * outputs * inner..][..outputs * inner];
                let weights = &weights[self.starts[i]..self.starts[i + 1]];
                sum(out, grad, self.inputs(i), weights);
            }
        });
    }
}

impl Adjoint {
    /// The outputs that read an input.
    fn inputs(&self, i: usize) -> &[(usize, f64)] {
        &self.parts[self.starts[i]..self.starts[i + 1]]
    }

    /// The run that begins at an input, unless it is short.
    fn run(&self, to: usize) -> Option<Run> {
        let single = |i: usize| match self.inputs(i) {
            [(j, 1.0)] => Some(*j),
            _ => None,
        };
        let from = single(to)?;
        let len = (to..self.size())
            .take_while(|&i| single(i) == Some(from + i - to))
            .count();
        (len >= SHORT).then_some(Run { to, from, len })
    }
}

/// The sum of some of the lines that `grad` holds.
fn sum<T: Real>(out: &mut [T], grad: &[T], parts: &[(usize, f64)], weights: &[T]) {
    let inner = out.len();
    let line = |k: usize| &grad[parts[k].0 * inner..][..inner];
    let first = match parts {
        [] => {
            out.fill(T::default());
            0
        }
        [(_, 1.0)] => {
            out.copy_from_slice(line(0));
            1
        }
        [_] => {
            out.fill(T::default());
            0
        }
        _ => {
            blend(out, line(0), weights[0], line(1), weights[1]);
            2
        }
    };
    for k in first..parts.len() {
        weigh(out, line(k), weights[k]);
    }
}

/// Elements of a row that are those of the gradient, one after the other.
#[derive(Clone, Copy)]
struct Run {
    to: usize,
    from: usize,
    len: usize,
}

/// How a row of single elements is made: runs are copied, all others summed.
#[derive(Default)]
struct Row<T> {
    runs: Vec<Run>,
    rest: Vec<Sums<T>>,
}

/// Neighbours in a row. Their first parts stand beside each other, then their second ones, and so forth.
struct Sums<T> {
    to: usize,
    len: usize,
    picks: Picks<T>,
}

impl<T: Real> Sums<T> {
    /// With as many parts everywhere: a part that is missing is the half of another.
    fn of(a: &Adjoint, range: std::ops::Range<usize>) -> Self {
        let (to, len) = (range.start, range.len());
        let most = range.clone().map(|i| a.inputs(i).len()).max().unwrap_or(0);
        let (mut at, mut weights) = (vec![0; most * len], vec![T::default(); most * len]);
        for i in range {
            let mut parts = a.inputs(i).to_vec();
            while let (true, Some(last)) = (parts.len() < most, parts.last_mut()) {
                last.1 /= 2.0;
                let half = *last;
                parts.push(half);
            }
            for (k, (j, w)) in parts.into_iter().enumerate() {
                (at[k * len + i - to], weights[k * len + i - to]) = (j as u32, T::of(w));
            }
        }
        let picks = Picks::new(at, weights);
        Self { to, len, picks }
    }
}

/// Shorter runs are summed like what lies around them.
const SHORT: usize = 8;

impl<T: Real> Row<T> {
    fn of(a: &Adjoint) -> Self {
        let (mut runs, mut rest) = (Vec::new(), Vec::new());
        let mut i = 0;
        while i < a.size() {
            let to = i;
            if let Some(run) = a.run(i) {
                i += run.len;
                runs.push(run);
                continue;
            }
            let empty = a.inputs(i).is_empty();
            while i < a.size() && a.inputs(i).is_empty() == empty && a.run(i).is_none() {
                i += 1;
            }
            rest.push(Sums::of(a, to..i));
        }
        Self { runs, rest }
    }

    fn sum(&self, out: &mut [T], grad: &[T]) {
        for run in &self.runs {
            out[run.to..run.to + run.len].copy_from_slice(&grad[run.from..run.from + run.len]);
        }
        for s in &self.rest {
            let out = &mut out[s.to..s.to + s.len];
            if s.picks.is_empty() {
                out.fill(T::default());
            } else {
                pick(out, grad, &s.picks);
            }
        }
    }
}
