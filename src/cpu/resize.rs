//! Resampling along dimensions: each output element is a weighted sum of a few input elements, one dimension after
//! the other.

#![allow(unsafe_code, reason = "walks lines of dense tensors")]

use super::adjoint::Adjoint;
use super::lines::{Shared, by_size};
use super::taps::{Axis, Mode, fixed_point, narrow, nearest, wide};
use super::{copy, pool};
use crate::cpu::simd::simd_fn;
use crate::{DType, Device, Result, Tensor, ensure};
use smallvec::{SmallVec, smallvec};

/// The inputs of one output index: the first, and the weights (positions are clamped to the input beforehand).
#[derive(Clone, Debug, Default)]
pub struct Taps {
    /// Positions and weights.
    pub parts: SmallVec<[(usize, f64); 2]>,
}

/// Real numbers with fused multiply-add.
pub trait Real: Copy + Default + std::ops::Mul<Output = Self> {
    /// The nearest number of the type.
    fn of(v: f64) -> Self;
    /// `self + a * b`, rounded once.
    fn fma(self, a: Self, b: Self) -> Self;
}
impl Real for f32 {
    #[inline(always)]
    fn of(v: f64) -> Self {
        v as f32
    }
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        a.mul_add(b, self)
    }
}
impl Real for f64 {
    #[inline(always)]
    fn of(v: f64) -> Self {
        v
    }
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        a.mul_add(b, self)
    }
}

simd_fn! { wide
    /// `out[i] += x[i] * w`.
    pub fn weigh<T: Real>(out: &mut [T], x: &[T], w: T) {
        for (o, &v) in out.iter_mut().zip(x) {
            *o = o.fma(v, w);
        }
    }
}

simd_fn! { wide
    /// `out[i] = x[i] * a + y[i] * b`.
    pub fn blend<T: Real>(out: &mut [T], x: &[T], a: T, y: &[T], b: T) {
        for ((o, &v), &u) in out.iter_mut().zip(x).zip(y) {
            *o = (u * b).fma(v, a);
        }
    }
}

/// Where the parts of results are, and their weights: as many rows of both as there are parts.
pub struct Picks<T> {
    at: Vec<u32>,
    weights: Vec<T>,
    /// All positions lie below this.
    end: usize,
}

impl<T> Picks<T> {
    /// For rows of positions and weights.
    #[must_use]
    pub fn new(at: Vec<u32>, weights: Vec<T>) -> Self {
        let end = at.iter().max().map_or(0, |&last| last as usize + 1);
        Self { at, weights, end }
    }

    /// Whether no result has a part.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }
}

// Not `wide`: instructions that gather are slower than as many loads.
simd_fn! { stream
    /// `out[i]`: the sum of `x[at] * w` over the `i`-th entries of all rows, as long as `out` each.
    ///
    /// # Panics
    /// If a position is beyond `x`.
    pub fn pick<T: Real>(out: &mut [T], x: &[T], picks: &Picks<T>) {
        let (n, at, w) = (out.len(), &picks.at[..], &picks.weights[..]);
        assert!(picks.end <= x.len(), "positions within the line");
        // SAFETY: no position is beyond the end.
        let get = |i: u32| unsafe { *x.get_unchecked(i as usize) };
        let rows = || at.chunks_exact(n).zip(w.chunks_exact(n));
        for (k, (at, w)) in rows().enumerate() {
            for ((o, &i), &w) in out.iter_mut().zip(at).zip(w) {
                *o = if k == 0 { get(i) * w } else { o.fma(get(i), w) };
            }
        }
    }
}

/// Resamples dimension `dim` of the dense row-major `x` (f32 or f64) by `taps`, into `to` if that is what it comes to.
///
/// # Errors
/// If memory cannot be had.
fn along(x: &Tensor, dim: usize, taps: &[Taps], to: &Tensor) -> Result<Tensor> {
    let shape = x.shape().with(dim, taps.len() as i64);
    let out = if *to.shape() == shape && !x.shares_storage(to) {
        super::lines::results(to, x.dtype())?
    } else {
        Tensor::empty(&shape, x.dtype(), Device::CPU)?
    };
    let outer: i64 = shape[..dim].iter().product();
    let inner: i64 = shape[dim + 1..].iter().product();
    if x.dtype() == DType::F32 {
        lines::<f32>(
            &out,
            x,
            outer as usize,
            x.shape()[dim] as usize,
            inner as usize,
            taps,
        );
    } else {
        lines::<f64>(
            &out,
            x,
            outer as usize,
            x.shape()[dim] as usize,
            inner as usize,
            taps,
        );
    }
    Ok(out)
}

fn lines<T: Real + crate::Element>(
    out: &Tensor,
    x: &Tensor,
    outer: usize,
    size: usize,
    inner: usize,
    taps: &[Taps],
) {
    let x = super::slice::<T>(x);
    let (n, to) = (taps.len(), Shared::at(out.data_ptr()));
    // As many parts everywhere: a part that is missing is the half of another.
    let most = taps.iter().map(|t| t.parts.len()).max().unwrap_or(0);
    let (mut at, mut weights) = (vec![0u32; most * n], vec![T::default(); most * n]);
    for (j, tap) in taps.iter().enumerate() {
        let mut parts = tap.parts.clone();
        while let (true, Some(last)) = (parts.len() < most, parts.last_mut()) {
            last.1 /= 2.0;
            let half = *last;
            parts.push(half);
        }
        for (k, &(i, w)) in parts.iter().enumerate() {
            (at[k * n + j], weights[k * n + j]) = (i as u32, T::of(w));
        }
    }
    let picks = Picks::new(at, weights);
    let (at, weights) = (&picks.at, &picks.weights);
    pool::parallel_for(outer, (16384 / (n * inner).max(1)).max(1), |r| {
        for o in r {
            // SAFETY: one block of the result a task.
            let out = unsafe {
                std::slice::from_raw_parts_mut(to.get().cast::<T>().add(o * n * inner), n * inner)
            };
            let x = &x[o * size * inner..(o + 1) * size * inner];
            if inner == 1 {
                pick(out, x, &picks);
                continue;
            }
            for (j, line) in out.chunks_exact_mut(inner).enumerate() {
                let part = |k: usize| {
                    let i = at[k * n + j] as usize;
                    (&x[i * inner..(i + 1) * inner], weights[k * n + j])
                };
                let mut k = most % 2;
                if k == 1 {
                    line.fill(T::default());
                    weigh(line, part(0).0, part(0).1);
                } else if most >= 2 {
                    let ((x, a), (y, b)) = (part(0), part(1));
                    blend(line, x, a, y, b);
                    k = 2;
                }
                for k in k..most {
                    weigh(line, part(k).0, part(k).1);
                }
            }
        }
    });
}

/// Copies chosen positions of the three middle dimensions of the dense `x` `[outer, d, h, w, inner]` to the dense `out`.
fn choose(x: &Tensor, places: &[Vec<usize>; 3], size: [usize; 3], inner: usize, out: &Tensor) {
    let [pd, ph, pw] = places;
    let outer = x.numel() as usize / (size.iter().product::<usize>() * inner).max(1);
    let (from, to, item) = (
        Shared::at(x.data_ptr()),
        Shared::at(out.data_ptr()),
        x.dtype().size(),
    );
    let rows = outer * pd.len() * ph.len();
    by_size!(item, E => {
        let width = pw.len() * inner;
        pool::parallel_for(rows, (16384 / width.max(1)).max(1), |r| {
            for row in r.clone() {
                let (o, d, h) = (row / (pd.len() * ph.len()), row / ph.len() % pd.len(), row % ph.len());
                // SAFETY: source and target lines lie within the dense tensors; one target line a step.
                unsafe {
                    let target = to.get().cast::<E>().add(row * width);
                    if h > 0 && row > r.start && ph[h] == ph[h - 1] {
                        std::ptr::copy_nonoverlapping(target.sub(width), target, width);
                        continue;
                    }
                    let line = from.get().cast::<E>().add(((o * size[0] + pd[d]) * size[1] + ph[h]) * size[2] * inner);
                    if inner == 1 {
                        for (i, &w) in pw.iter().enumerate() {
                            *target.add(i) = *line.add(w);
                        }
                    } else {
                        for (i, &w) in pw.iter().enumerate() {
                            std::ptr::copy_nonoverlapping(line.add(w * inner), target.add(i * inner), inner);
                        }
                    }
                }
            }
        })
    });
}

/// The tensor in the dtype that it is resampled in.
///
/// # Errors
/// If memory cannot be had.
fn working(x: &Tensor) -> Result<Tensor> {
    copy::dense(x, computed_in(x))
}

/// The dtype that a tensor is resampled in.
pub(super) fn computed_in(x: &Tensor) -> DType {
    if x.dtype() == DType::F64 {
        DType::F64
    } else {
        DType::F32
    }
}

/// A resampling of the spatial dimensions, those behind batch and channels.
#[derive(Clone, Debug)]
pub struct Resampling {
    /// How values between elements are made.
    pub mode: Mode,
    /// Each spatial dimension.
    pub axes: Vec<Axis>,
    /// Filters as wide as the step, so that no input is skipped.
    pub antialias: bool,
    /// Channels are innermost in memory.
    pub channels_last: bool,
}

impl Resampling {
    /// Resamples `x` into `out`.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn run(&self, x: &Tensor, out: &Tensor) -> Result<()> {
        if out.numel() == 0 {
            return Ok(());
        }
        let (order, back) = self.orders();
        let (x, to) = (x.permuted(&order), out.permuted(&order));
        let made = match self.mode {
            Mode::Nearest | Mode::NearestExact => self.chosen(&x, &to)?,
            _ => self.weighed(&x, &to)?,
        };
        super::lines::put(out, &made.permuted(&back))
    }

    /// The gradient of the input from that of the result, one dimension after the other.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn run_backward(&self, grad: &Tensor, out: &Tensor) -> Result<()> {
        if out.numel() == 0 {
            return Ok(());
        }
        let (order, back) = self.orders();
        let first = if self.channels_last { 1 } else { 2 };
        let mut sum = working(&grad.permuted(&order))?;
        for (i, &axis) in self.axes.iter().enumerate() {
            if self.keeps(axis) {
                continue;
            }
            let adjoint = Adjoint::of(&self.taps(axis)?, axis.size as usize);
            sum = adjoint.along(&sum, first + i)?;
        }
        copy::copy(out, &sum.permuted(&back))
    }

    /// The dimensions in the order of memory, and back.
    pub(super) fn orders(&self) -> (Vec<usize>, Vec<usize>) {
        let n = self.axes.len();
        if self.channels_last {
            return (
                std::iter::once(0).chain(2..n + 2).chain([1]).collect(),
                [0, n + 1].into_iter().chain(1..n + 1).collect(),
            );
        }
        ((0..n + 2).collect(), (0..n + 2).collect())
    }

    /// The weights along a dimension.
    ///
    /// # Errors
    /// If the tables of such a dimension do not fit into memory.
    pub fn taps(&self, axis: Axis) -> Result<Vec<Taps>> {
        // Weights of outputs, of inputs for gradients, and both once more side by side.
        const EACH: usize = 2 * std::mem::size_of::<Taps>();
        let count = (axis.size.max(axis.out) as usize).checked_mul(EACH);
        let mut room: Vec<u8> = Vec::new();
        ensure!(
            axis.size <= i64::from(u32::MAX) && count.is_some_and(|n| room.try_reserve(n).is_ok()),
            Memory,
            "the weights of resampling {} elements to {} do not fit into memory",
            axis.size,
            axis.out
        );
        Ok(self.each(axis).collect())
    }

    /// The weights of one output after the other.
    fn each(&self, axis: Axis) -> Box<dyn Iterator<Item = Taps>> {
        let one = |at: Vec<usize>| {
            let tap = |i| Taps {
                parts: smallvec![(i, 1.0)],
            };
            Box::new(at.into_iter().map(tap))
        };
        match self.mode {
            Mode::Nearest => one(nearest(axis, false)),
            Mode::NearestExact => one(nearest(axis, true)),
            mode if self.antialias => Box::new(wide(axis, mode)),
            mode => Box::new(narrow(axis, mode)),
        }
    }

    /// Whether all elements along a dimension stay what and where they are.
    pub(super) fn keeps(&self, axis: Axis) -> bool {
        let own = |(j, t): (usize, Taps)| t.parts.len() == 1 && t.parts[0] == (j, 1.0);
        axis.size == axis.out && self.each(axis).enumerate().all(own)
    }

    /// Single elements of the input, in `to` if that is dense.
    fn chosen(&self, x: &Tensor, to: &Tensor) -> Result<Tensor> {
        let n = self.axes.len();
        let x = copy::dense(x, x.dtype())?;
        let axis = |i: usize| (i + n).checked_sub(3).map(|i| self.axes[i]);
        let exact = self.mode == Mode::NearestExact;
        let places =
            std::array::from_fn(|i| axis(i).map_or_else(|| vec![0], |a| nearest(a, exact)));
        let size = std::array::from_fn(|i| axis(i).map_or(1, |a| a.size as usize));
        let inner = if self.channels_last {
            x.shape()[n + 1] as usize
        } else {
            1
        };
        let out = super::lines::results(to, x.dtype())?;
        choose(&x, &places, size, inner, &out);
        Ok(out)
    }

    /// Weighed sums of elements, one dimension after the other, the last in `to` if that is dense and of their type.
    fn weighed(&self, x: &Tensor, to: &Tensor) -> Result<Tensor> {
        let first = if self.channels_last { 1 } else { 2 };
        let mut y = working(x)?;
        for (i, &axis) in self.axes.iter().enumerate().rev() {
            if self.keeps(axis) {
                continue;
            }
            let taps = self.taps(axis)?;
            y = if to.dtype() == DType::U8 {
                let fresh = along(&y, first + i, &fixed_point(taps), to)?;
                round_bytes(&fresh);
                fresh
            } else {
                along(&y, first + i, &taps, to)?
            };
        }
        Ok(y)
    }
}

/// Rounds a result of [`along`] to whole numbers from 0 to 255, in its place.
fn round_bytes(t: &Tensor) {
    let all = super::slice_mut::<f32>(t);
    let (count, to) = (all.len().div_ceil(super::iter::GRAIN), Shared::new(all));
    pool::parallel_for(count, 1, |r| {
        let start = r.start * super::iter::GRAIN;
        let end = t.numel() as usize;
        // SAFETY: every task has its own part.
        let part = unsafe { to.part(start, end.min(r.end * super::iter::GRAIN) - start) };
        whole_bytes(part);
    });
}

simd_fn! { stream
    fn whole_bytes(row: &mut [f32]) {
        for v in row {
            *v = (*v + 0.5).floor().clamp(0.0, 255.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_no_memory_holds_are_refused() {
        let resampling = |size, out| {
            let axes = vec![Axis::plain(size, out)];
            let r = Resampling {
                mode: Mode::Linear,
                axes,
                antialias: false,
                channels_last: false,
            };
            r.taps(r.axes[0]).map(|taps| taps.len())
        };
        assert_eq!(resampling(4, 8).unwrap(), 8);
        for (size, out) in [(4, 1 << 60), (1 << 60, 4), (1 << 40, 4)] {
            assert!(resampling(size, out).is_err());
        }
    }
}
