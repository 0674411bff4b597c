//! The gradient of a convolution's weight: the result's gradient times the gathered windows of the input.

#![allow(unsafe_code, reason = "gathers windows through checked layouts")]

use super::super::lines::Shared;
use super::direct::{Real, axpy_each};
use super::gather::{by_size, gather, gather_last, part_start, split_lines};
use super::{BLOCK, Geometry, Phase, Tap, inside, matrix_in};
use crate::cpu::simd::simd_fn;
use crate::cpu::{copy, fill, matrix, pool, slice};
use crate::{DType, Device, Dims, Element, Result, Scalar, Tensor, dims};

/// Columns of the gradient of one task: as many as stay in the cache.
const COLUMNS: usize = 288;

/// Images with fewer positions are gathered several at a time, pixel after pixel.
const FEW: usize = 32;

/// Parts of the sum over all positions, for gradients of few columns.
const SHARES: usize = 8;

/// The gradient of the weight of the ordinary convolution of `x` whose result has the gradient `grad`, into `out`
/// `[outputs, inputs of a group, window...]`.
///
/// # Errors
/// If memory cannot be had, or the dtype has no products.
pub fn weight_gradient(out: &Tensor, grad: &Tensor, x: &Tensor, g: &Geometry) -> Result<()> {
    let wide = if out.dtype().is_reduced_float() {
        DType::F32
    } else {
        out.dtype()
    };
    let phases = g.phases();
    let Some(phase) = phases.first().filter(|_| grad.numel() > 0) else {
        return fill(out, Scalar::Int(0));
    };
    let depthwise = g.groups == g.inputs && g.inputs > 1;
    let made = match wide {
        DType::F32 if depthwise => by_channels::<f32>(grad, x, g, phase, wide)?,
        DType::F64 if depthwise => by_channels::<f64>(grad, x, g, phase, wide)?,
        _ => Products::new(grad, x, g, phase, wide)?.run()?,
    };
    let strides = dims::contiguous_strides(out.shape());
    copy::copy(
        out,
        &made.view_with(out.shape().clone(), strides, made.offset()),
    )
}

/// One channel a group: `[outputs, taps]`, each the sum of the products of two planes.
fn by_channels<T: Real + Element>(
    grad: &Tensor,
    x: &Tensor,
    g: &Geometry,
    phase: &Phase,
    wide: DType,
) -> Result<Tensor> {
    if g.channels_last && g.outputs == g.inputs {
        return by_vectors::<T>(grad, x, g, phase, wide);
    }
    let (grad, x) = (copy::dense(grad, wide)?, copy::dense(x, wide)?);
    let x = if phase.advance[2] > 1 {
        split_lines(&x, phase.advance[2] as usize)?
    } else {
        x
    };
    let taps = phase.taps.len();
    let out = Tensor::empty(&[g.outputs as i64, taps as i64], wide, Device::CPU)?;
    fill(&out, Scalar::Int(0))?;
    let (plane, positions) = (g.size.iter().product::<usize>(), g.positions());
    let (from, with, to) = (
        slice::<T>(&grad),
        slice::<T>(&x),
        Shared::at(out.data_ptr()),
    );
    pool::parallel_for(g.outputs, 1, |r| {
        for o in r {
            // SAFETY: the sums of one output channel a step.
            let sums =
                unsafe { std::slice::from_raw_parts_mut(to.get().cast::<T>().add(o * taps), taps) };
            let channel = o / (g.outputs / g.groups);
            for n in 0..g.batch {
                let grad = &from[(n * g.outputs + o) * positions..][..positions];
                let x = &with[(n * g.inputs + channel) * plane..][..plane];
                dots::<T>(sums, grad, x, &phase.taps, phase.advance, g.size, g.out);
            }
        }
    });
    Ok(out)
}

/// As [`by_channels`] with the channels innermost: those of a pixel are one vector operation.
fn by_vectors<T: Real + Element>(
    grad: &Tensor,
    x: &Tensor,
    g: &Geometry,
    phase: &Phase,
    wide: DType,
) -> Result<Tensor> {
    let (grad, x) = (innermost(grad, wide)?, innermost(x, wide)?);
    let (from, with) = (slice::<T>(&grad), slice::<T>(&x));
    let (taps, all, plane) = (phase.taps.len(), g.inputs, g.size.iter().product::<usize>());
    let sums = Tensor::empty(&[taps as i64, all as i64], wide, Device::CPU)?;
    fill(&sums, Scalar::Int(0))?;
    let to = Shared::at(sums.data_ptr());
    let width = all.div_ceil(pool::num_threads()).next_multiple_of(16);
    pool::parallel_items(all.div_ceil(width), |part| {
        let channels = part * width..all.min((part + 1) * width);
        for p in 0..g.batch * g.positions() {
            let (n, at) = (p / g.positions(), p % g.positions());
            let t = [
                at / (g.out[1] * g.out[2]),
                at / g.out[2] % g.out[1],
                at % g.out[2],
            ];
            let grad = &from[p * all..(p + 1) * all][channels.clone()];
            for (k, tap) in phase.taps.iter().enumerate() {
                let at: [i64; 3] =
                    std::array::from_fn(|i| t[i] as i64 * phase.advance[i] + tap.at[i]);
                if (0..3).any(|i| at[i] < 0 || at[i] >= g.size[i] as i64) {
                    continue;
                }
                let [d, h, w] = at.map(|a| a as usize);
                let q = n * plane + (d * g.size[1] + h) * g.size[2] + w;
                // SAFETY: these channels of the sums are this task's alone.
                let sum = unsafe {
                    let start = to.get().cast::<T>().add(k * all + channels.start);
                    std::slice::from_raw_parts_mut(start, channels.len())
                };
                axpy_each::<T>(sum, &with[q * all..(q + 1) * all][channels.clone()], grad);
            }
        }
    });
    copy::dense(&sums.swapped(0, 1), wide)
}

/// A dense tensor with the channels innermost: itself if it is laid out so.
///
/// # Errors
/// If memory cannot be had.
pub(super) fn innermost(t: &Tensor, dtype: DType) -> Result<Tensor> {
    let order: Vec<usize> = std::iter::once(0).chain(2..t.ndim()).chain([1]).collect();
    copy::dense(&t.permuted(&order), dtype)
}

simd_fn! { wide
    /// Adds for each tap the products of a plane of gradients with the elements that the tap reads. The lines of `x` are
    /// as [`split_lines`] leaves them.
    fn dots<T: Real>(sums: &mut [T], grad: &[T], x: &[T], taps: &[Tap], advance: [i64; 3], size: [usize; 3], count: [usize; 3]) {
        let step = advance[2];
        for (sum, tap) in sums.iter_mut().zip(taps) {
            let (lo, hi) = inside(count[2], step, tap.at[2], size[2]);
            if lo >= hi {
                continue;
            }
            let part = part_start(tap.at[2].rem_euclid(step) as usize, step as usize, size[2]);
            let first = (lo as i64 + part as i64 + tap.at[2].div_euclid(step)) as usize;
            let start = |row: usize| {
                let y = (row / count[1]) as i64 * advance[0] + tap.at[0];
                let z = (row % count[1]) as i64 * advance[1] + tap.at[1];
                let good = y >= 0 && y < size[0] as i64 && z >= 0 && z < size[1] as i64;
                good.then(|| (y as usize * size[1] + z as usize) * size[2] + first)
            };
            let lines = grad.chunks_exact(count[2]).enumerate().filter_map(|(row, line)| {
                start(row).map(|at| (&line[lo..hi], &x[at..at + hi - lo]))
            });
            *sum = *sum + match hi - lo {
                16.. => products::<T, 16>(lines),
                8.. => products::<T, 8>(lines),
                4.. => products::<T, 4>(lines),
                _ => products::<T, 1>(lines),
            };
        }
    }
}

/// The sum of the products of lines of at least `C` elements; the last chunk of a line overlaps its neighbour.
#[inline(always)]
fn products<'a, T: Real + 'a, const C: usize>(
    lines: impl Iterator<Item = (&'a [T], &'a [T])>,
) -> T {
    let mut lanes = [T::default(); C];
    for (a, b) in lines {
        let n = a.len();
        let mut at = 0;
        while at + C <= n {
            let (u, v) = (&a[at..at + C], &b[at..at + C]);
            for i in 0..C {
                lanes[i] = lanes[i].fma(u[i], v[i]);
            }
            at += C;
        }
        if at < n {
            let (u, v, done) = (&a[n - C..], &b[n - C..], at + C - n);
            for i in 0..C {
                let (u, v) = if i < done {
                    (T::default(), T::default())
                } else {
                    (u[i], v[i])
                };
                lanes[i] = lanes[i].fma(u, v);
            }
        }
    }
    lanes.iter().fold(T::default(), |a, &b| a + b)
}

/// How the gradient is cut into products of matrices.
struct Products<'a> {
    grad: Tensor,
    x: Tensor,
    g: &'a Geometry,
    phase: &'a Phase,
    wide: DType,
    /// Both tensors have their channels innermost, and positions of several images follow each other.
    pixels: bool,
    /// Input channels of a task.
    channels: usize,
    /// Positions of a product.
    len: usize,
    /// Products of a task, over all shares.
    blocks: usize,
}

/// Some channels of a group.
struct Task {
    group: usize,
    first: usize,
    channels: usize,
}

impl<'a> Products<'a> {
    fn new(
        grad: &Tensor,
        x: &Tensor,
        g: &'a Geometry,
        phase: &'a Phase,
        wide: DType,
    ) -> Result<Self> {
        let pixels = g.channels_last || g.positions() < FEW;
        let laid = |t: &Tensor| {
            if pixels {
                innermost(t, wide)
            } else {
                copy::dense(t, wide)
            }
        };
        let taps = phase.taps.len();
        let channels = (COLUMNS / taps.max(1)).clamp(1, g.inputs / g.groups);
        let bytes = (channels * taps * wide.size()).max(1);
        let total = if pixels {
            g.batch * g.positions()
        } else {
            g.positions()
        };
        let len = ((BLOCK / bytes).max(96) / 32 * 32).min(total);
        let blocks = total.div_ceil(len) * if pixels { 1 } else { g.batch };
        let x = laid(x)?;
        let split = !pixels && phase.advance[2] > 1;
        Ok(Self {
            grad: laid(grad)?,
            x: if split {
                split_lines(&x, phase.advance[2] as usize)?
            } else {
                x
            },
            g,
            phase,
            wide,
            pixels,
            channels,
            len,
            blocks,
        })
    }

    /// The gradient `[outputs, inputs of a group, taps]`, dense.
    fn run(&self) -> Result<Tensor> {
        let g = self.g;
        let (og, cg, taps) = (
            g.outputs / g.groups,
            g.inputs / g.groups,
            self.phase.taps.len(),
        );
        let cuts = cg.div_ceil(self.channels);
        let tasks = g.groups * cuts;
        let shares = (SHARES / tasks).clamp(1, self.blocks);
        let shape = [shares, g.groups, og, cg, taps].map(|v| v as i64);
        let parts = Tensor::empty(&shape, self.wide, Device::CPU)?;
        let failed = std::sync::Mutex::new(None);
        pool::parallel_items(shares * tasks, |i| {
            let (share, unit) = (i / tasks, i % tasks);
            let first = unit % cuts * self.channels;
            let task = Task {
                group: unit / cuts,
                first,
                channels: self.channels.min(cg - first),
            };
            let range = share * self.blocks / shares..(share + 1) * self.blocks / shares;
            let to = parts
                .selected(0, share as i64)
                .selected(0, task.group as i64);
            let to = to.narrowed(1, first as i64, task.channels as i64);
            if let (Err(e), Ok(mut slot)) = (self.add(&to, &task, range), failed.lock()) {
                *slot = Some(e);
            }
        });
        if let Some(e) = failed.into_inner().ok().flatten() {
            return Err(e);
        }
        if shares == 1 {
            return Ok(parts);
        }
        let count = g.outputs * cg * taps;
        let ones = Tensor::empty(&[1, shares as i64], self.wide, Device::CPU)?;
        fill(&ones, Scalar::Int(1))?;
        let sum = Tensor::empty(&[1, count as i64], self.wide, Device::CPU)?;
        let parts = matrix_in(&parts, (shares, count), (count, 1), 0);
        matrix::product(&sum, &ones, &parts, Scalar::Int(1), Scalar::Int(0), None)?;
        Ok(sum)
    }

    /// Puts the sum of some products to `[output, channel, tap]`.
    fn add(&self, to: &Tensor, task: &Task, blocks: std::ops::Range<usize>) -> Result<()> {
        let (og, taps) = (self.g.outputs / self.g.groups, self.phase.taps.len());
        let depth = task.channels * taps;
        let sum = Tensor::empty(&[og as i64, depth as i64], self.wide, Device::CPU)?;
        fill(&sum, Scalar::Int(0))?;
        let room = if self.phase.is_plain(self.g) {
            None
        } else {
            let room = Tensor::empty(&[(depth * self.len) as i64], self.wide, Device::CPU)?;
            Some(room)
        };
        for block in blocks {
            let (a, b) = if self.pixels {
                self.by_pixels(task, block, room.as_ref())
            } else {
                self.by_planes(task, block, room.as_ref())
            };
            matrix::product(&sum, &a, &b, Scalar::Int(1), Scalar::Int(1), None)?;
        }
        let shape = Dims::from([og, task.channels, taps].map(|v| v as i64));
        let strides = if self.pixels {
            [depth, 1, task.channels]
        } else {
            [depth, taps, 1]
        };
        copy::copy(
            to,
            &sum.view_with(shape, strides.map(|v| v as i64).into(), 0),
        )
    }

    /// Gradients `[output, position]` and elements `[position, channel and tap]` of a block of one image.
    fn by_planes(&self, task: &Task, block: usize, room: Option<&Tensor>) -> (Tensor, Tensor) {
        let (g, phase, all) = (self.g, self.phase, self.g.positions());
        let (og, plane) = (g.outputs / g.groups, g.size.iter().product::<usize>());
        let cuts = all.div_ceil(self.len);
        let (n, p0) = (block / cuts, block % cuts * self.len);
        let p1 = all.min(p0 + self.len);
        let len = p1 - p0;
        let at = (n * g.outputs + task.group * og) * all + p0;
        let a = matrix_in(&self.grad, (og, len), (all, 1), at);
        let channel = n * g.inputs + task.group * (g.inputs / g.groups) + task.first;
        let b = match room {
            None => matrix_in(
                &self.x,
                (task.channels, len),
                (plane, 1),
                channel * plane + p0,
            ),
            Some(room) => {
                // SAFETY: the planes lie in `x`, the block has room.
                by_size!(self.wide.size(), E => unsafe {
                    let from = self.x.data_ptr().cast::<E>().add(channel * plane);
                    gather::<E>(from, task.channels, g.size, phase, p0, p1, phase.advance[2] > 1, len, room.data_ptr().cast());
                });
                matrix_in(room, (task.channels * phase.taps.len(), len), (len, 1), 0)
            }
        };
        (a, b.swapped(0, 1))
    }

    /// Gradients `[output, position]` and elements `[position, tap and channel]` of a block of positions of all images.
    fn by_pixels(&self, task: &Task, block: usize, room: Option<&Tensor>) -> (Tensor, Tensor) {
        let (g, phase, all) = (self.g, self.phase, self.g.positions());
        let (og, plane) = (g.outputs / g.groups, g.size.iter().product::<usize>());
        let r0 = block * self.len;
        let r1 = (g.batch * all).min(r0 + self.len);
        let len = r1 - r0;
        let at = r0 * g.outputs + task.group * og;
        let a = matrix_in(&self.grad, (len, og), (g.outputs, 1), at);
        let channel = task.group * (g.inputs / g.groups) + task.first;
        let b = match room {
            None => matrix_in(
                &self.x,
                (len, task.channels),
                (g.inputs, 1),
                r0 * g.inputs + channel,
            ),
            Some(room) => {
                let depth = task.channels * phase.taps.len();
                let mut r = r0;
                while r < r1 {
                    let (n, p0) = (r / all, r % all);
                    let p1 = all.min(p0 + r1 - r);
                    // SAFETY: the image lies in `x`, the block has room.
                    by_size!(self.wide.size(), E => unsafe {
                        let from = self.x.data_ptr().cast::<E>().add(n * plane * g.inputs + channel);
                        let to = room.data_ptr().cast::<E>().add((r - r0) * depth);
                        gather_last::<E>(from, task.channels, g.inputs, g.size, phase, p0, p1, to);
                    });
                    r += p1 - p0;
                }
                matrix_in(room, (len, depth), (depth, 1), 0)
            }
        };
        (a.swapped(0, 1), b)
    }
}
