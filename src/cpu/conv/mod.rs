//! Convolutions: products with windows that are read where they lie ([`windows`]), or gathered into blocks (im2col) where that
//! does not suit; one channel a group with the channels innermost is summed directly.
//!
//! A transposed convolution is a few ordinary ones, one for each residue of the output position modulo the stride.

#![allow(unsafe_code, reason = "gathers windows through checked layouts")]

mod backward;
mod direct;
mod fold;
mod frame;
mod gather;
mod pieces;
mod pixels;
mod planes;
pub mod room;
mod tiles;
mod windows;
mod winograd;
mod winograd_backward;

use super::lines::by_size;
use super::room::Rooms;
use super::{copy, matrix, pool};
use crate::{DType, Device, Result, Scalar, Tensor};
use backward::innermost;
pub use backward::weight_gradient;
use direct::{direct, repeated, turned};
pub use fold::fold;
pub use gather::columns;
use gather::{gather, gather_last, scatter, split_lines, weights};
use windows::{suits, windows};

/// Sizes of a convolution; missing leading dimensions have size 1.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Images.
    pub batch: usize,
    /// Channels of the input.
    pub inputs: usize,
    /// Channels of the output.
    pub outputs: usize,
    /// Groups of channels.
    pub groups: usize,
    /// Spatial sizes of the input.
    pub size: [usize; 3],
    /// Spatial sizes of the output.
    pub out: [usize; 3],
    /// Sizes of the window.
    pub window: [usize; 3],
    /// Steps of the window.
    pub stride: [i64; 3],
    /// Zeros in front.
    pub pad: [i64; 3],
    /// Steps within the window.
    pub dilation: [i64; 3],
    /// Gradient-like direction: each input is spread over a window.
    pub transposed: bool,
    /// Channels innermost in memory.
    pub channels_last: bool,
    /// Whether numbers are integers whose sums fit their type: in no way that would round.
    pub exact: bool,
}

/// One place in the window: which weight, and where the input lies relative to the output's position.
#[derive(Clone, Copy)]
struct Tap {
    weight: usize,
    at: [i64; 3],
}

/// An ordinary convolution with output positions `first + step * t`.
struct Phase {
    taps: Vec<Tap>,
    /// Input steps for each `t`.
    advance: [i64; 3],
    first: [usize; 3],
    step: [usize; 3],
    count: [usize; 3],
}

impl Phase {
    /// The window is one element and the output as large as the input: the input is the block.
    fn is_plain(&self, g: &Geometry) -> bool {
        let one = self.taps.len() == 1 && self.taps[0].at == [0; 3];
        one && self.advance == [1; 3] && self.count == g.size
    }
}

impl Geometry {
    fn positions(&self) -> usize {
        self.out.iter().product()
    }

    fn taps_where(&self, at: impl Fn(usize, i64) -> Option<i64>) -> Vec<Tap> {
        let [kd, kh, kw] = self.window;
        let mut taps = Vec::with_capacity(kd * kh * kw);
        for d in 0..kd {
            for h in 0..kh {
                for w in 0..kw {
                    if let (Some(a), Some(b), Some(c)) =
                        (at(0, d as i64), at(1, h as i64), at(2, w as i64))
                    {
                        taps.push(Tap {
                            weight: (d * kh + h) * kw + w,
                            at: [a, b, c],
                        });
                    }
                }
            }
        }
        taps
    }

    fn phases(&self) -> Vec<Phase> {
        if !self.transposed {
            let taps = self.taps_where(|i, k| Some(k * self.dilation[i] - self.pad[i]));
            return vec![Phase {
                taps,
                advance: self.stride,
                first: [0; 3],
                step: [1; 3],
                count: self.out,
            }];
        }
        let step = self.stride.map(|s| s as usize);
        let mut phases = Vec::new();
        for d in 0..step[0].min(self.out[0]) {
            for h in 0..step[1].min(self.out[1]) {
                for w in 0..step[2].min(self.out[2]) {
                    let first = [d, h, w];
                    let taps = self.taps_where(|i, k| {
                        let v = first[i] as i64 + self.pad[i] - k * self.dilation[i];
                        (v.rem_euclid(self.stride[i]) == 0).then(|| v.div_euclid(self.stride[i]))
                    });
                    let count = std::array::from_fn(|i| (self.out[i] - first[i]).div_ceil(step[i]));
                    phases.push(Phase {
                        taps,
                        advance: [1; 3],
                        first,
                        step,
                        count,
                    });
                }
            }
        }
        phases
    }
}

/// Where the indices `t` in `0..count` with `0 <= t * advance + at < size` begin and end.
#[inline(always)]
fn inside(count: usize, advance: i64, at: i64, size: usize) -> (usize, usize) {
    let lo = if at >= 0 {
        0
    } else {
        (-at + advance - 1) / advance
    };
    let hi = if at >= size as i64 {
        0
    } else {
        (size as i64 - 1 - at) / advance + 1
    };
    let hi = hi.clamp(0, count as i64);
    (lo.clamp(0, hi) as usize, hi as usize)
}

/// The convolution of `x` with `w` (and `bias`) into `out`, which is dense in the geometry's format.
///
/// # Errors
/// If memory cannot be had, or the dtype has no products.
pub fn convolve(
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    g: &Geometry,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let x = if g.channels_last {
        innermost(x, x.dtype())?
    } else {
        copy::dense(x, x.dtype())?
    };
    if g.channels_last && g.groups == g.inputs && g.inputs > 1 && out.dtype().is_float() {
        if !g.transposed {
            let (x, g) = repeated(&x, g)?;
            return channels(out, &x, w, bias, &g);
        }
        if g.outputs == g.inputs
            && let Some((x, w, g)) = turned(&x, w, g)?
        {
            return channels(out, &x, &w, bias, &g);
        }
    }
    let phases = g.phases();
    if out.dtype().is_reduced_float() && phases.iter().any(|p| suits(g, p, DType::F32)) {
        return wider(out, &x, w, bias, |out, x, w, bias| {
            convolve_phases(out, x, w, bias, g, &phases)
        });
    }
    convolve_phases(out, &x, w, bias, g, &phases)
}

/// All phases of a convolution of `x`, which is laid out as the geometry says.
fn convolve_phases(
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    g: &Geometry,
    phases: &[Phase],
) -> Result<()> {
    let bias = bias.map(|b| copy::dense(b, b.dtype())).transpose()?;
    let bias = bias.as_ref();
    for phase in phases {
        let plan = winograd::Plan::of(g, phase, out.dtype(), pool::num_threads());
        if let Some(plan) = plan
            && winograd::winograd(&plan, out, x, w, bias, g, phase)?
        {
            continue;
        }
        match out.dtype() {
            d if !suits(g, phase, d) => blocks(out, x, w, bias, g, phase)?,
            DType::F32 => windows::<f32>(out, x, w, bias, g, phase)?,
            _ => windows::<f64>(out, x, w, bias, g, phase)?,
        }
    }
    Ok(())
}

/// Computes in single precision what is rounded once.
fn wider(
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    f: impl Fn(&Tensor, &Tensor, &Tensor, Option<&Tensor>) -> Result<()>,
) -> Result<()> {
    let wide = |t: &Tensor| copy::converted(t, DType::F32);
    let (shape, strides) = (out.shape().clone(), out.strides().clone());
    let sum = Tensor::empty_strided(shape, strides, DType::F32, Device::CPU)?;
    let bias = bias.map(wide).transpose()?;
    f(&sum, &wide(x)?, &wide(w)?, bias.as_ref())?;
    copy::copy(out, &sum)
}

/// One channel a group, in single or double precision; `x` is laid out as the geometry says.
fn channels(
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    g: &Geometry,
) -> Result<()> {
    if matches!(out.dtype(), DType::F32 | DType::F64) {
        return direct(out, x, w, bias, g);
    }
    wider(out, x, w, bias, |out, x, w, bias| {
        direct(out, x, w, bias, g)
    })
}

/// Bytes of gathered windows at a time.
const BLOCK: usize = 480 << 10;

fn blocks(
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    g: &Geometry,
    phase: &Phase,
) -> Result<()> {
    let split = !g.channels_last && phase.advance[2] > 1;
    let work = Work {
        out,
        x: if split {
            split_lines(x, phase.advance[2] as usize)?
        } else {
            x.clone()
        },
        w: weights(w, g, phase, g.channels_last)?,
        bias,
        g,
        phase,
    };
    let total = phase.count.iter().product::<usize>();
    let (width, images) = (work.width(total), work.images(total));
    let cuts = total.div_ceil(width);
    let tasks = g.batch.div_ceil(images) * g.groups * cuts;
    let (plain, room) = (phase.is_plain(g) && images == 1, width * images);
    let pieces = phase.step != [1; 3] || images > 1;
    let at_once = if tasks < pool::num_threads() {
        1
    } else {
        tasks
    };
    let rooms = Rooms::new(at_once, || {
        let columns = work.room(!plain, work.depth() * room)?;
        Ok([columns, work.room(pieces, g.outputs / g.groups * room)?])
    })?;
    let run =
        |range: std::ops::Range<usize>, [columns, piece]: &[Option<Tensor>; 2]| -> Result<()> {
            for task in range {
                let (unit, p0) = (task / cuts, task % cuts * width);
                let (n, group) = (unit / g.groups * images, unit % g.groups);
                let p1 = total.min(p0 + width);
                let block = Block {
                    n,
                    images: images.min(g.batch - n),
                    group,
                    p0,
                    p1,
                };
                work.block(&block, columns.as_ref(), piece.as_ref())?;
            }
            Ok(())
        };
    if tasks < pool::num_threads() {
        return rooms.with(|room| run(0..tasks, room));
    }
    let failed = std::sync::Mutex::new(None);
    pool::parallel_for(tasks, 1, |r| {
        if let (Err(e), Ok(mut slot)) = (rooms.with(|room| run(r, room)), failed.lock()) {
            *slot = Some(e);
        }
    });
    failed.into_inner().ok().flatten().map_or(Ok(()), Err)
}

/// Positions of one group of one image, or all of several.
struct Block {
    n: usize,
    images: usize,
    group: usize,
    p0: usize,
    p1: usize,
}

/// What the blocks of a phase have in common.
struct Work<'a> {
    out: &'a Tensor,
    x: Tensor,
    w: Tensor,
    bias: Option<&'a Tensor>,
    g: &'a Geometry,
    phase: &'a Phase,
}

fn dims(a: usize, b: usize) -> crate::Dims {
    crate::Dims::from([a as i64, b as i64])
}

/// A matrix in a tensor's memory, `offset` elements on.
fn matrix_in(t: &Tensor, shape: (usize, usize), strides: (usize, usize), offset: usize) -> Tensor {
    let (shape, strides) = (dims(shape.0, shape.1), dims(strides.0, strides.1));
    t.view_with(shape, strides, t.offset() + offset as i64)
}

impl Work<'_> {
    /// Elements of a window.
    fn depth(&self) -> usize {
        self.g.inputs / self.g.groups * self.phase.taps.len()
    }

    /// Positions of a block, of so many: as many as fit the caches, and fewer if threads would have nothing to do.
    fn width(&self, total: usize) -> usize {
        let (g, depth) = (self.g, self.depth());
        let bytes = (depth * self.out.dtype().size()).max(1);
        let mut width = if self.phase.is_plain(self.g) {
            total
        } else {
            // Weights are packed for each block: not for too few positions.
            let width = (BLOCK / bytes).max(256);
            total.div_ceil(total.div_ceil(width)).next_multiple_of(32)
        };
        let (units, shares) = (g.batch * g.groups, pool::num_threads() * 3);
        let work = total * (g.outputs / g.groups) * depth;
        if units * total.div_ceil(width.max(1)) < shares && work > 1 << 18 {
            let share = (units * total).div_ceil(shares).next_multiple_of(32);
            width = width.min(share).max(96);
        }
        width.clamp(1, total.max(1))
    }

    /// How many images are gathered at a time, of so many positions each: several where they are small, so that weights are
    /// packed less often.
    fn images(&self, total: usize) -> usize {
        let g = self.g;
        let few = if self.phase.is_plain(g) { 64 } else { 192 };
        if total == 0 || total >= few {
            return 1;
        }
        let parts = g.batch.div_ceil((384 / total).max(1));
        let parts = parts.max(pool::num_threads().div_ceil(g.groups));
        g.batch.div_ceil(parts.min(g.batch).max(1)).max(1)
    }

    /// Memory for so many elements, if it is needed.
    fn room(&self, needed: bool, n: usize) -> Result<Option<Tensor>> {
        let make = || Tensor::empty(&[n as i64], self.out.dtype(), Device::CPU);
        needed.then(make).transpose()
    }

    fn block(&self, b: &Block, columns: Option<&Tensor>, piece: Option<&Tensor>) -> Result<()> {
        let first = b.group * (self.g.outputs / self.g.groups);
        let block = if self.g.channels_last {
            self.by_pixels(b, columns, piece)?
        } else {
            self.by_planes(b, columns, piece)?
        };
        if piece.is_some() {
            let len = b.p1 - b.p0;
            for i in 0..b.images {
                let part = block.narrowed(1, (i * len) as i64, len as i64);
                scatter(self.out, &part, self.phase, b, b.n + i, first);
            }
        }
        Ok(())
    }

    /// The product `[position][channel]`; gives the block as `[channel][position]`.
    fn by_pixels(
        &self,
        b: &Block,
        columns: Option<&Tensor>,
        piece: Option<&Tensor>,
    ) -> Result<Tensor> {
        let (g, depth, len) = (self.g, self.depth(), (b.p1 - b.p0) * b.images);
        let (og, cg, pixel) = (g.outputs / g.groups, g.inputs / g.groups, g.inputs);
        let plane = g.size.iter().product::<usize>();
        let offset = b.n * plane * pixel + b.group * cg;
        let a = match columns {
            None => matrix_in(&self.x, (len, cg), (pixel, 1), offset + b.p0 * pixel),
            Some(room) => {
                // SAFETY: the image lies in `x`, the block has room.
                by_size!(self.out.dtype().size(), E => for i in 0..b.images { unsafe {
                    let from = self.x.data_ptr().cast::<E>().add(offset + i * plane * pixel);
                    let to = room.data_ptr().cast::<E>().add(i * (b.p1 - b.p0) * depth);
                    gather_last::<E>(from, cg, pixel, g.size, self.phase, b.p0, b.p1, to);
                }});
                matrix_in(room, (len, depth), (depth, 1), 0)
            }
        };
        let k = matrix_in(&self.w, (depth, og), (og, 1), b.group * og * depth);
        let at = (b.n * g.positions() + b.p0) * g.outputs + b.group * og;
        let c = match piece {
            None => matrix_in(self.out, (len, og), (g.outputs, 1), at),
            Some(room) => matrix_in(room, (len, og), (og, 1), 0),
        };
        let bias = self
            .bias
            .map(|t| t.narrowed(0, (b.group * og) as i64, og as i64));
        matrix::product(&c, &a, &k, Scalar::Int(1), Scalar::Int(0), bias.as_ref())?;
        Ok(c.swapped(0, 1))
    }

    /// The product `[channel][position]`.
    fn by_planes(
        &self,
        b: &Block,
        columns: Option<&Tensor>,
        piece: Option<&Tensor>,
    ) -> Result<Tensor> {
        let (g, phase, depth) = (self.g, self.phase, self.depth());
        let (each, len) = (b.p1 - b.p0, (b.p1 - b.p0) * b.images);
        let (og, cg) = (g.outputs / g.groups, g.inputs / g.groups);
        let plane = g.size.iter().product::<usize>();
        let offset = (b.n * g.inputs + b.group * cg) * plane;
        let k = match columns {
            None => matrix_in(&self.x, (cg, len), (plane, 1), offset + b.p0),
            Some(room) => {
                // SAFETY: the planes lie in `x`, the block has room.
                by_size!(self.out.dtype().size(), E => for i in 0..b.images { unsafe {
                    let from = self.x.data_ptr().cast::<E>().add(offset + i * g.inputs * plane);
                    let to = room.data_ptr().cast::<E>().add(i * each);
                    gather::<E>(from, cg, g.size, phase, b.p0, b.p1, phase.advance[2] > 1, len, to);
                }});
                matrix_in(room, (depth, len), (len, 1), 0)
            }
        };
        let (first, all) = (b.group * og, g.positions());
        let a = matrix_in(&self.w, (og, depth), (depth, 1), first * depth);
        let at = (b.n * g.outputs + first) * all + b.p0;
        let c = match piece {
            None => matrix_in(self.out, (og, len), (all, 1), at),
            Some(room) => matrix_in(room, (og, len), (len, 1), 0),
        };
        if let Some(bias) = self.bias {
            copy::copy(&c, &matrix_in(bias, (og, 1), (1, 1), first))?;
        }
        let beta = Scalar::Int(i64::from(self.bias.is_some()));
        matrix::product(&c, &a, &k, Scalar::Int(1), beta, None)?;
        Ok(c)
    }
}
