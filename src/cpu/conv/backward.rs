//! The gradient of a convolution's weight: the result's gradient times the gathered windows of the input.

#![allow(unsafe_code, reason = "gathers windows through checked layouts")]

use super::super::lines::{Shared, by_size};
use super::blocks::{BLOCK, matrix_in};
use super::gather::{gather, gather_last, split_lines};
use super::pieces::{reach, segments, sum_pixels, tile};
use super::pixels::Pixels;
use super::planes::by_lines;
use super::windows::suits;
use super::winograd_backward::Backward;
use super::{Geometry, Phase, pairs_backward};
use crate::cpu::dense::number::Real;
use crate::cpu::gemm::WindowElement;
use crate::cpu::room::Rooms;
use crate::cpu::{copy, fill, matrix, pool, slice};
use crate::{DType, Device, Dims, Result, Scalar, Tensor, dims};

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
    let made = match (on_tiles(grad, x, g, phase)?, wide) {
        (Some(made), _) => made,
        (None, DType::F32) => summed::<f32>(grad, x, g, phase, wide)?,
        (None, DType::F64) => summed::<f64>(grad, x, g, phase, wide)?,
        (None, _) => Products::new(grad, x, g, phase, wide)?.run()?,
    };
    let strides = dims::contiguous_strides(out.shape());
    copy::copy(
        out,
        &made.view_with(out.shape().clone(), strides, made.offset()),
    )
}

/// The gradient of bf16 in single precision, in the order of the weight, if there are tiles and they are of use.
fn on_tiles(grad: &Tensor, x: &Tensor, g: &Geometry, phase: &Phase) -> Result<Option<Tensor>> {
    let Some(plan) = pairs_backward::Plan::of(g, phase, grad.dtype()) else {
        return Ok(None);
    };
    plan.run(&laid(grad, grad.dtype(), g)?, &laid(x, x.dtype(), g)?)
}

/// A tensor that is dense as the geometry says.
fn laid(t: &Tensor, dtype: DType, g: &Geometry) -> Result<Tensor> {
    if g.channels_last {
        innermost(t, dtype)
    } else {
        copy::dense(t, dtype)
    }
}

/// The gradient in single or double precision, in the order of the weight.
fn summed<T: Real + WindowElement>(
    grad: &Tensor,
    x: &Tensor,
    g: &Geometry,
    phase: &Phase,
    wide: DType,
) -> Result<Tensor> {
    let depthwise = g.groups == g.inputs && g.inputs > 1;
    if depthwise && g.channels_last && g.outputs == g.inputs {
        return by_vectors::<T>(grad, x, g, phase, wide);
    }
    if depthwise && suits(g, phase, wide) {
        return by_lines::<T>(
            &copy::dense(grad, wide)?,
            &copy::dense(x, wide)?,
            g,
            phase,
            wide,
        );
    }
    let (grad, x) = (laid(grad, wide, g)?, laid(x, wide, g)?);
    if let Some(plan) = Backward::of(g, phase, wide)
        && let Some(made) = plan.run(&grad, &x)?
    {
        return Ok(made);
    }
    match Pixels::<T>::new(&grad, &x, g, phase) {
        Some(pixels) => pixels.run(wide),
        None => Products::new(&grad, &x, g, phase, wide)?.run(),
    }
}

/// One channel a group, with the channels innermost: lines of pixels are vectors. `[outputs, taps]`.
fn by_vectors<T: Real>(
    grad: &Tensor,
    x: &Tensor,
    g: &Geometry,
    phase: &Phase,
    wide: DType,
) -> Result<Tensor> {
    let (grad, x) = (innermost(grad, wide)?, innermost(x, wide)?);
    let (from, with) = (slice::<T>(&grad), slice::<T>(&x));
    let (taps, c, plane) = (phase.taps.len(), g.inputs, g.size.iter().product::<usize>());
    let (tile, threads) = (tile(g, phase), pool::num_threads());
    let sums = Tensor::empty(&[taps as i64, tile as i64], wide, Device::CPU)?;
    fill(&sums, Scalar::Int(0))?;
    let to = Shared::at(sums.data_ptr());
    // Tasks have some elements of some taps; those of several pixels stay together.
    let width = if tile == c {
        c.div_ceil(threads).next_multiple_of(16)
    } else {
        tile
    };
    let parts = tile.div_ceil(width);
    let cut = taps.div_ceil(threads.div_ceil(parts)).max(1);
    let segments = segments(g, phase);
    let reaches = [tile, reach(g, phase)];
    pool::parallel_items(parts * taps.div_ceil(cut), |task| {
        let (start, first) = (task % parts * width, task / parts * cut);
        let len = width.min(tile - start);
        // SAFETY: these elements of the sums are this task's alone.
        let mut sums: Vec<&mut [T]> = (first..taps.min(first + cut))
            .map(|k| unsafe {
                let begin = to.get().cast::<T>().add(k * tile + start);
                std::slice::from_raw_parts_mut(begin, len)
            })
            .collect();
        let mut met = Vec::with_capacity(taps);
        for row in 0..g.batch * g.out[0] * g.out[1] {
            let (n, d) = (row / (g.out[0] * g.out[1]), row / g.out[1] % g.out[0]);
            let line = &from[row * g.out[2] * c..][..g.out[2] * c];
            let image = &with[n * plane * c..][..plane * c];
            for s in &segments {
                s.met(g, phase, [d, row % g.out[1]], &mut met);
                met.retain_mut(|m| {
                    m.tap = m.tap.wrapping_sub(first);
                    m.tap < sums.len()
                });
                let grads = &line[s.lo * c + start..s.hi * c];
                sum_pixels(&mut sums, grads, &image[start..], reaches, &met);
            }
        }
    });
    for k in 0..taps {
        // SAFETY: a row of the sums, which nobody else has any more.
        let row =
            unsafe { std::slice::from_raw_parts_mut(to.get().cast::<T>().add(k * tile), tile) };
        let (pixel, others) = row.split_at_mut(c);
        for other in others.chunks_exact(c) {
            pixel.iter_mut().zip(other).for_each(|(a, &b)| *a += b);
        }
    }
    copy::dense(&sums.narrowed(1, 0, c as i64).swapped(0, 1), wide)
}

/// A dense tensor with the channels innermost: itself if it is laid out so.
///
/// # Errors
/// If memory cannot be had.
pub(super) fn innermost(t: &Tensor, dtype: DType) -> Result<Tensor> {
    let order: Vec<usize> = std::iter::once(0).chain(2..t.ndim()).chain([1]).collect();
    copy::dense(&t.permuted(&order), dtype)
}

/// How the gradient is cut into products of matrices.
pub(super) struct Cut {
    /// Both tensors have their channels innermost, and positions of several images follow each other.
    pub(super) pixels: bool,
    /// Input channels of a task.
    pub(super) channels: usize,
    /// Positions of a product.
    pub(super) len: usize,
    /// Products of a task, over all shares.
    blocks: usize,
}

impl Cut {
    pub(super) fn new(g: &Geometry, phase: &Phase, wide: DType) -> Self {
        let pixels = g.channels_last || g.positions() < FEW;
        let taps = phase.taps.len();
        let channels = (COLUMNS / taps.max(1)).clamp(1, g.inputs / g.groups);
        let bytes = (channels * taps * wide.size()).max(1);
        let images = if pixels { g.batch } else { 1 };
        let total = images * g.positions();
        let len = ((BLOCK / bytes).max(96) / 32 * 32).min(total);
        Self {
            pixels,
            channels,
            len,
            blocks: total.div_ceil(len) * (g.batch / images),
        }
    }

    /// Parts of the sum over all positions, for so many tasks.
    pub(super) fn shares(&self, tasks: usize) -> usize {
        (SHARES / tasks).clamp(1, self.blocks)
    }
}

/// The products.
struct Products<'a> {
    grad: Tensor,
    x: Tensor,
    g: &'a Geometry,
    phase: &'a Phase,
    wide: DType,
    cut: Cut,
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
        let cut = Cut::new(g, phase, wide);
        let laid = |t: &Tensor| {
            if cut.pixels {
                innermost(t, wide)
            } else {
                copy::dense(t, wide)
            }
        };
        let x = laid(x)?;
        let split = !cut.pixels && phase.advance[2] > 1;
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
            cut,
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
        let cuts = cg.div_ceil(self.cut.channels);
        let tasks = g.groups * cuts;
        let shares = self.cut.shares(tasks);
        let shape = [shares, g.groups, og, cg, taps].map(|v| v as i64);
        let parts = Tensor::empty(&shape, self.wide, Device::CPU)?;
        let depth = self.cut.channels * taps;
        let rooms = Rooms::new(shares * tasks, || {
            let sum = Tensor::empty(&[(og * depth) as i64], self.wide, Device::CPU)?;
            let windows = [(depth * self.cut.len) as i64];
            let windows =
                (!self.phase.is_plain(g)).then(|| Tensor::empty(&windows, self.wide, Device::CPU));
            Ok((sum, windows.transpose()?))
        })?;
        rooms.run(shares * tasks, 1, |i, room| {
            let (share, unit) = (i / tasks, i % tasks);
            let first = unit % cuts * self.cut.channels;
            let task = Task {
                group: unit / cuts,
                first,
                channels: self.cut.channels.min(cg - first),
            };
            let blocks = self.cut.blocks;
            let range = share * blocks / shares..(share + 1) * blocks / shares;
            let to = parts
                .selected(0, share as i64)
                .selected(0, task.group as i64);
            let to = to.narrowed(1, first as i64, task.channels as i64);
            self.add(&to, &task, range, room)
        })?;
        drop(rooms);
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
    fn add(
        &self,
        to: &Tensor,
        task: &Task,
        blocks: std::ops::Range<usize>,
        (sum, windows): &(Tensor, Option<Tensor>),
    ) -> Result<()> {
        let (og, taps) = (self.g.outputs / self.g.groups, self.phase.taps.len());
        let depth = task.channels * taps;
        let sum = matrix_in(sum, (og, depth), (depth, 1), 0);
        fill(&sum, Scalar::Int(0))?;
        for block in blocks {
            let (a, b) = if self.cut.pixels {
                self.by_pixels(task, block, windows.as_ref())
            } else {
                self.by_planes(task, block, windows.as_ref())
            };
            matrix::product(&sum, &a, &b, Scalar::Int(1), Scalar::Int(1), None)?;
        }
        let shape = Dims::from([og, task.channels, taps].map(|v| v as i64));
        let strides = if self.cut.pixels {
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
        let cuts = all.div_ceil(self.cut.len);
        let (n, p0) = (block / cuts, block % cuts * self.cut.len);
        let p1 = all.min(p0 + self.cut.len);
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
        let r0 = block * self.cut.len;
        let r1 = (g.batch * all).min(r0 + self.cut.len);
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
