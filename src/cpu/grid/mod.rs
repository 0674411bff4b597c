//! Sampling of images and volumes at the places of a grid, and its backward: each result is a weighted sum of a few elements,
//! the product of one-dimensional weights.

#![allow(unsafe_code, reason = "walks planes of dense tensors")]

mod places;

use super::lines::Shared;
use super::norm::{by_type, compute_type};
use super::room::Room;
use super::simd::simd_fn;
use super::{copy, lines, pool, slice, slice_mut};
use crate::{DType, Device, Result, Scalar, Tensor};
use places::{Pairs, RUN, Read, Reads, Real};
use std::ops::Range;

/// How values between elements are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On the line between neighbours.
    Linear,
    /// The nearest element.
    Nearest,
    /// On a cubic curve through four neighbours.
    Cubic,
}

/// What lies outside of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outside {
    /// Zeros.
    Zeros,
    /// The element at the edge.
    Border,
    /// The mirror image.
    Reflection,
}

/// A sampling: the grid holds a place in every last dimension, -1 to 1 from one end of the image to the other.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// How values between elements are made.
    pub mode: Mode,
    /// What lies outside.
    pub outside: Outside,
    /// -1 and 1 are the middles of the elements at the ends, else their edges.
    pub align: bool,
}

// Not `wide`: instructions that gather are slower than as many loads.
simd_fn! { stream
    /// Weighted sums of elements of a plane, which have zeros around them.
    fn sums<T: Real>(plane: &[T], at: &[[i64; RUN]], weight: &[[T; RUN]], to: &mut [T]) {
        let mut all = [T::default(); RUN];
        for (at, weight) in at.iter().zip(weight) {
            for j in 0..RUN {
                // SAFETY: places beyond the plane are negative, and the plane is not empty.
                let v = unsafe { *plane.get_unchecked(at[j].max(0) as usize) };
                all[j] += if at[j] < 0 { T::default() } else { v } * weight[j];
            }
        }
        to.copy_from_slice(&all[..to.len()]);
    }
}

// Not `wide`, as above.
simd_fn! { stream
    /// The same of a plane whose first element is finite, so that it adds nothing where it has no weight.
    fn near_sums<T: Real>(plane: &[T], near: &[([i64; RUN], [T; RUN])], to: &mut [T]) {
        let mut all = [T::default(); RUN];
        for (at, weight) in near {
            for j in 0..RUN {
                // SAFETY: places are in the plane, which is not empty.
                all[j] += unsafe { *plane.get_unchecked(at[j] as usize) } * weight[j];
            }
        }
        to.copy_from_slice(&all[..to.len()]);
    }
}

// Not `wide`, as above.
simd_fn! { stream
    /// The same of two neighbours at once, and the products in the order of [`near_sums`].
    fn pair_sums<T: Real>(plane: &[T], pairs: &[Pairs<T>], single: &[Read<T>], to: &mut [T]) {
        let mut all = [T::default(); RUN];
        for pairs in pairs {
            let mut read = [[T::default(); 2]; RUN];
            for (read, &at) in read.iter_mut().zip(&pairs.at) {
                // SAFETY: both neighbours are in the plane.
                *read = unsafe { *plane.as_ptr().add(at as usize).cast::<[T; 2]>() };
            }
            for j in 0..RUN {
                let first = all[j] + read[j][0] * pairs.weight[0][j];
                all[j] = first + read[j][1] * pairs.weight[1][j];
            }
        }
        for r in single {
            all[r.place] += plane[r.at] * r.weight;
        }
        to.copy_from_slice(&all[..to.len()]);
    }
}

// Not `wide`, as above.
simd_fn! { stream
    /// Adds how much samples change along some dimensions, of one channel, times their gradients.
    fn add_slopes<T: Real>(plane: &[T], at: &[[i64; RUN]], slopes: &[[[T; RUN]; 3]], dims: Range<usize>, grads: &[T; RUN], to: &mut [[T; RUN]; 3]) {
        for (at, slopes) in at.iter().zip(slopes) {
            let mut times = [T::default(); RUN];
            for j in 0..RUN {
                // SAFETY: places beyond the plane are negative, and the plane is not empty.
                let v = unsafe { *plane.get_unchecked(at[j].max(0) as usize) };
                times[j] = if at[j] < 0 { T::default() } else { v } * grads[j];
            }
            for d in dims.clone() {
                for j in 0..RUN {
                    to[d][j] += times[j] * slopes[d][j];
                }
            }
        }
    }
}

/// The elements that a run of places reads, place after place.
fn inside<T: Real>(reads: &Reads<T>, places: usize, list: &mut Vec<Read<T>>) {
    list.clear();
    for place in 0..places {
        for (at, weight) in reads.at.iter().zip(&reads.weight) {
            if let Ok(at) = usize::try_from(at[place]) {
                let weight = weight[place];
                list.push(Read { at, weight, place });
            }
        }
    }
}

impl Sampling {
    /// The samples of `x` `[batch, channels, ...]` at `grid` `[batch, ..., dimensions]` into `out` `[batch, channels, ...]`.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn forward(&self, out: &Tensor, x: &Tensor, grid: &Tensor) -> Result<()> {
        if out.numel() == 0 {
            return Ok(());
        }
        let wide = compute_type(x.dtype());
        let dense = lines::results(out, wide)?;
        let (x, grid) = (copy::dense(x, wide)?, copy::dense(grid, wide)?);
        by_type!(wide, T => self.forward_in::<T>(&dense, &x, &grid));
        lines::put(out, &dense)
    }

    /// What [`Sampling::forward`] takes.
    ///
    /// # Errors
    /// If a size overflows.
    pub fn forward_room(
        &self,
        room: &mut Room,
        out: &Tensor,
        operands: [&Tensor; 2],
    ) -> Result<()> {
        if out.numel() == 0 {
            return Ok(());
        }
        let wide = compute_type(out.dtype());
        room.operands(operands.map(Some), std::slice::from_ref(out), wide)
    }

    /// What [`Sampling::backward`] takes.
    ///
    /// # Errors
    /// If a size overflows.
    pub fn backward_room(
        &self,
        room: &mut Room,
        outs: &[Tensor],
        operands: [&Tensor; 3],
    ) -> Result<()> {
        let wide = compute_type(operands[1].dtype());
        for out in outs {
            room.empty(out.shape(), wide)?;
        }
        room.all_dense(operands.map(Some), wide)
    }

    fn forward_in<T: Real>(&self, out: &Tensor, x: &Tensor, grid: &Tensor) {
        let l = Layout::of(x, grid);
        let (from, places, to) = (
            slice::<T>(x),
            slice::<T>(grid),
            Shared::new(slice_mut::<T>(out)),
        );
        pool::parallel_for(
            l.batch * l.places,
            (2048 / l.channels.max(1)).max(16),
            |r| {
                let runs = r.len().div_ceil(RUN).min(RUNS);
                let mut reads: Vec<_> = (0..runs).map(|_| Reads::new()).collect();
                let mut i = r.start;
                while i < r.end {
                    let (n, p) = (i / l.places, i % l.places);
                    let end = r.end.min(i + RUNS * RUN).min(i - p + l.places);
                    let mut found: [Found; RUNS] = Default::default();
                    for c in n * l.channels..(n + 1) * l.channels {
                        let plane = &from[c * l.volume..][..l.volume];
                        let some = reads.iter_mut().zip(&mut found);
                        for (start, (reads, found)) in (i..end).step_by(RUN).zip(some) {
                            let run = start..end.min(start + RUN);
                            let places = &places[run.start * l.dims..run.end * l.dims];
                            // SAFETY: the places of these samples in the dense result.
                            let to = unsafe { to.part(c * l.places + p + (start - i), run.len()) };
                            self.samples(plane, places, &l, reads, found, to);
                        }
                    }
                    i = end;
                }
            },
        );
    }

    /// The samples of a plane at a run of places; what is read is found as it is needed.
    fn samples<T: Real>(
        &self,
        plane: &[T],
        places: &[T],
        l: &Layout,
        reads: &mut Reads<T>,
        found: &mut Found,
        to: &mut [T],
    ) {
        let finite = |v: T| v - v == T::default();
        if self.mode == Mode::Linear && l.size[2] > 1 && finite(plane[0]) && finite(plane[1]) {
            if !std::mem::replace(&mut found.pairs, true) {
                reads.find_pairs(self, places, l);
            }
            return pair_sums(plane, &reads.pairs, &reads.single, to);
        }
        if !std::mem::replace(&mut found.all, true) {
            reads.find(self, places, l, false);
            reads.find_near();
        }
        if finite(plane[0]) {
            near_sums(plane, &reads.near, to);
        } else {
            sums(plane, &reads.at, &reads.weight, to);
        }
    }

    /// The gradients of the image (if it is asked for) and of the grid.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn backward(
        &self,
        to_x: Option<&Tensor>,
        to_grid: &Tensor,
        grad: &Tensor,
        x: &Tensor,
        grid: &Tensor,
    ) -> Result<()> {
        let wide = compute_type(x.dtype());
        let sum_x = match to_x {
            Some(t) => Some(Tensor::empty(t.shape(), wide, Device::CPU)?),
            None => None,
        };
        let sum_grid = Tensor::empty(to_grid.shape(), wide, Device::CPU)?;
        for t in sum_x.iter().chain([&sum_grid]) {
            super::fill(t, Scalar::Int(0))?;
        }
        let operands = [grad, x, grid].map(|t| copy::dense(t, wide));
        let [grad, x, grid] = operands;
        let (grad, x, grid) = (grad?, x?, grid?);
        if grad.numel() > 0 {
            by_type!(wide, T => self.backward_in::<T>(sum_x.as_ref(), &sum_grid, &grad, &x, &grid));
        }
        if let (Some(to), Some(sum)) = (to_x, &sum_x) {
            copy::copy(to, sum)?;
        }
        copy::copy(to_grid, &sum_grid)
    }

    /// Images are summed each by one task.
    fn backward_in<T: Real>(
        &self,
        to_x: Option<&Tensor>,
        to_grid: &Tensor,
        grad: &Tensor,
        x: &Tensor,
        grid: &Tensor,
    ) {
        let l = Layout::of(x, grid);
        let (from, places, grads) = (slice::<T>(x), slice::<T>(grid), slice::<T>(grad));
        let to_x = to_x.map(|t| Shared::at(t.data_ptr()));
        let to_grid = Shared::at(to_grid.data_ptr());
        pool::parallel_items(l.batch, |n| {
            let image = n * l.channels * l.volume..(n + 1) * l.channels * l.volume;
            let from = &from[image.clone()];
            // SAFETY: the sums of one image, which no other task writes.
            let mut sums = to_x.map(|t| unsafe {
                let start = t.get().cast::<T>().add(image.start);
                std::slice::from_raw_parts_mut(start, image.len())
            });
            let (mut reads, mut list) = (Reads::new(), Vec::new());
            for p in (0..l.places).step_by(RUN) {
                let run = n * l.places + p..n * l.places + l.places.min(p + RUN);
                let at = run.start * l.dims..run.end * l.dims;
                let sloped = self.mode != Mode::Nearest;
                reads.find(self, &places[at.clone()], &l, sloped);
                if sums.is_some() {
                    inside(&reads, run.len(), &mut list);
                }
                let mut slopes = [[T::default(); RUN]; 3];
                for c in 0..l.channels {
                    let plane = c * l.volume..(c + 1) * l.volume;
                    let grads = &grads[(n * l.channels + c) * l.places + p..][..run.len()];
                    let mut line = [T::default(); RUN];
                    line[..run.len()].copy_from_slice(grads);
                    let along = 3 - l.dims..3;
                    if sloped {
                        add_slopes(
                            &from[plane.clone()],
                            &reads.at,
                            &reads.slopes,
                            along,
                            &line,
                            &mut slopes,
                        );
                    }
                    if let Some(sums) = &mut sums {
                        let sums = &mut sums[plane];
                        for r in &list {
                            sums[r.at] += line[r.place] * r.weight;
                        }
                    }
                }
                // SAFETY: the coordinates of these places in the dense gradient.
                let to = unsafe {
                    let start = to_grid.get().cast::<T>().add(at.start);
                    std::slice::from_raw_parts_mut(start, at.len())
                };
                for (j, to) in to.chunks_exact_mut(l.dims).enumerate() {
                    for (dim, to) in to.iter_mut().enumerate() {
                        *to = slopes[2 - dim][j];
                    }
                }
            }
        });
    }
}

/// Runs of places that meet a channel while it is in the first cache.
const RUNS: usize = 16;

/// What of a run of places is found already.
#[derive(Default)]
struct Found {
    pairs: bool,
    all: bool,
}

/// Sizes of the tensors.
struct Layout {
    batch: usize,
    channels: usize,
    /// Spatial sizes of the image; those that it lacks are 1.
    size: [usize; 3],
    volume: usize,
    /// Places of the grid for each image.
    places: usize,
    dims: usize,
}

impl Layout {
    fn of(x: &Tensor, grid: &Tensor) -> Self {
        let dims = x.ndim() - 2;
        let size = std::array::from_fn(|i| {
            if i + dims < 3 {
                1
            } else {
                x.shape()[i + dims - 1] as usize
            }
        });
        let spatial = &grid.shape()[1..grid.ndim() - 1];
        Self {
            batch: x.shape()[0] as usize,
            channels: x.shape()[1] as usize,
            size,
            volume: size.iter().product(),
            places: spatial.iter().product::<i64>() as usize,
            dims,
        }
    }
}
