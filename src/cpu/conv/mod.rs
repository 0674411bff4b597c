//! Convolutions: windows are gathered into blocks (im2col) and multiplied; one channel a group is summed directly.
//!
//! A transposed convolution is a few ordinary ones, one for each residue of the output position modulo the stride.

#![allow(unsafe_code, reason = "gathers windows through checked layouts")]

mod direct;
mod fold;
mod gather;

use super::{copy, matrix, pool};
use crate::{DType, Device, Result, Scalar, Tensor};
use direct::direct;
pub use fold::fold;
pub use gather::columns;
use gather::{by_size, gather, gather_last, split_lines};

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
        pixels(x)?
    } else {
        copy::dense(x, x.dtype())?
    };
    let depthwise = g.groups == g.inputs && g.inputs > 1 && !g.transposed;
    if depthwise && matches!(out.dtype(), DType::F32 | DType::F64) {
        return direct(out, &x, w, bias, g);
    }
    if depthwise && out.dtype().is_reduced_float() {
        let wide = |t: &Tensor| copy::converted(t, DType::F32);
        let sum = Tensor::empty_strided(
            out.shape().clone(),
            out.strides().clone(),
            DType::F32,
            Device::CPU,
        )?;
        direct(
            &sum,
            &wide(&x)?,
            &wide(w)?,
            bias.map(wide).transpose()?.as_ref(),
            g,
        )?;
        return copy::copy(out, &sum);
    }
    let bias = bias.map(|b| copy::dense(b, b.dtype())).transpose()?;
    g.phases()
        .iter()
        .try_for_each(|phase| blocks(out, &x, w, bias.as_ref(), g, phase))
}

/// A tensor with the channels innermost: itself if it is laid out so.
fn pixels(t: &Tensor) -> Result<Tensor> {
    let order: Vec<usize> = std::iter::once(0).chain(2..t.ndim()).chain([1]).collect();
    copy::dense(&t.permuted(&order), t.dtype())
}

/// The weights of a phase, for each group `[output][input][tap]`, or `[tap][input][output]` with channels last.
fn weights(w: &Tensor, g: &Geometry, phase: &Phase) -> Result<Tensor> {
    let (og, cg, taps) = (
        g.outputs / g.groups,
        g.inputs / g.groups,
        g.window.iter().product::<usize>(),
    );
    let all = phase.taps.len() == taps;
    let w = copy::dense(w, w.dtype())?;
    let (groups, o, c, k) = (g.groups as i64, og as i64, cg as i64, taps as i64);
    // As [group, output, input, tap].
    let strides = if g.transposed {
        [c * o * k, k, o * k, 1]
    } else {
        [o * c * k, c * k, k, 1]
    };
    let view = w.view_with([groups, o, c, k].into(), strides.into(), w.offset());
    let view = if all { view } else { chosen(&view, phase)? };
    copy::dense(
        &if g.channels_last {
            view.permuted(&[0, 3, 2, 1])
        } else {
            view
        },
        w.dtype(),
    )
}

/// The taps of a phase from `[group, output, input, tap]`.
fn chosen(w: &Tensor, phase: &Phase) -> Result<Tensor> {
    let n = phase.taps.len() as i64;
    let out = Tensor::empty(
        &[w.shape()[0], w.shape()[1], w.shape()[2], n],
        w.dtype(),
        Device::CPU,
    )?;
    for (i, tap) in phase.taps.iter().enumerate() {
        copy::copy(
            &out.narrowed(3, i as i64, 1),
            &w.narrowed(3, tap.weight as i64, 1),
        )?;
    }
    Ok(out)
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
    let (og, cg) = (g.outputs / g.groups, g.inputs / g.groups);
    let (taps, total, item) = (
        phase.taps.len(),
        phase.count.iter().product::<usize>(),
        out.dtype().size(),
    );
    let depth = cg * taps;
    let w = weights(w, g, phase)?;
    // The window is one element and the output as large as the input: the input is the block.
    let plain =
        taps == 1 && phase.advance == [1; 3] && phase.taps[0].at == [0; 3] && phase.count == g.size;
    let split = !g.channels_last && phase.advance[2] > 1;
    let parts;
    let x = if split {
        parts = split_lines(x, phase.advance[2] as usize)?;
        &parts
    } else {
        x
    };
    let whole = phase.step == [1; 3];
    let units = g.batch * g.groups;
    let threads = pool::num_threads();
    let mut width = if plain {
        total
    } else {
        (BLOCK / (depth * item).max(1)).max(96) / 32 * 32
    };
    if units * total.div_ceil(width) < threads * 3 && total * og * depth > 1 << 18 {
        width = width
            .min((units * total).div_ceil(threads * 3).next_multiple_of(32))
            .max(96);
    }
    let width = width.clamp(1, total.max(1));
    let cuts = total.div_ceil(width);
    let run = |range: std::ops::Range<usize>| -> Result<()> {
        let columns = if plain {
            None
        } else {
            Some(Tensor::empty(
                &[(depth * width) as i64],
                out.dtype(),
                Device::CPU,
            )?)
        };
        let piece = if whole {
            None
        } else {
            Some(Tensor::empty(
                &[(og * width) as i64],
                out.dtype(),
                Device::CPU,
            )?)
        };
        for task in range {
            let (unit, p0) = (task / cuts, task % cuts * width);
            let (n, group) = (unit / g.groups, unit % g.groups);
            let p1 = total.min(p0 + width);
            let block = Block { n, group, p0, p1 };
            one(
                out,
                x,
                &w,
                bias,
                g,
                phase,
                &block,
                columns.as_ref(),
                piece.as_ref(),
            )?;
        }
        Ok(())
    };
    if units * cuts < threads {
        return run(0..units * cuts);
    }
    let failed = std::sync::Mutex::new(None);
    pool::parallel_for(units * cuts, 1, |r| {
        if let (Err(e), Ok(mut slot)) = (run(r), failed.lock()) {
            *slot = Some(e);
        }
    });
    failed.into_inner().ok().flatten().map_or(Ok(()), Err)
}

struct Block {
    n: usize,
    group: usize,
    p0: usize,
    p1: usize,
}

#[allow(clippy::too_many_arguments)]
fn one(
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    g: &Geometry,
    phase: &Phase,
    b: &Block,
    columns: Option<&Tensor>,
    piece: Option<&Tensor>,
) -> Result<()> {
    let (og, cg) = (g.outputs / g.groups, g.inputs / g.groups);
    let (taps, len, all) = (phase.taps.len(), b.p1 - b.p0, g.positions());
    let (depth, plane, item) = (
        cg * taps,
        g.size.iter().product::<usize>(),
        out.dtype().size(),
    );
    let i = |v: usize| v as i64;
    let dims = |a: usize, b: usize| crate::Dims::from([a as i64, b as i64]);
    let weight_at = w.offset() + i(b.group * og * depth);
    let first = b.group * og;
    let bias = bias.map(|t| t.view_with([i(og)].into(), [1].into(), t.offset() + i(first)));
    let (one, zero) = (Scalar::Int(1), Scalar::Int(0));
    if g.channels_last {
        let (pixel, offset) = (g.inputs, b.n * plane * g.inputs + b.group * cg);
        let a = match columns {
            None => x.view_with(
                dims(len, cg),
                dims(pixel, 1),
                x.offset() + i(offset + b.p0 * pixel),
            ),
            Some(buffer) => {
                // SAFETY: the image lies in `x`, the block has room.
                by_size!(item, E => unsafe {
                    gather_last::<E>(x.data_ptr().cast::<E>().add(offset), cg, pixel, g.size, phase, b.p0, b.p1, buffer.data_ptr().cast());
                });
                buffer.view_with(dims(len, depth), dims(depth, 1), 0)
            }
        };
        let k = w.view_with(dims(depth, og), dims(og, 1), weight_at);
        let c = match piece {
            None => out.view_with(
                dims(len, og),
                dims(g.outputs, 1),
                out.offset() + i((b.n * all + b.p0) * g.outputs + first),
            ),
            Some(buffer) => buffer.view_with(dims(len, og), dims(og, 1), 0),
        };
        matrix::product(&c, &a, &k, one, zero, bias.as_ref())?;
        if piece.is_some() {
            scatter(out, &c.swapped(0, 1), phase, b, first);
        }
        return Ok(());
    }
    let offset = (b.n * g.inputs + b.group * cg) * plane;
    let k = match columns {
        None => x.view_with(dims(cg, len), dims(plane, 1), x.offset() + i(offset + b.p0)),
        Some(buffer) => {
            // SAFETY: the planes lie in `x`, the block has room.
            by_size!(item, E => unsafe {
                gather::<E>(x.data_ptr().cast::<E>().add(offset), cg, g.size, phase, b.p0, b.p1, phase.advance[2] > 1, buffer.data_ptr().cast());
            });
            buffer.view_with(dims(depth, len), dims(len, 1), 0)
        }
    };
    let a = w.view_with(dims(og, depth), dims(depth, 1), weight_at);
    let c = match piece {
        None => out.view_with(
            dims(og, len),
            dims(all, 1),
            out.offset() + i((b.n * g.outputs + first) * all + b.p0),
        ),
        Some(buffer) => buffer.view_with(dims(og, len), dims(len, 1), 0),
    };
    match &bias {
        None => matrix::product(&c, &a, &k, one, zero, None)?,
        Some(bias) => {
            copy::copy(&c, &bias.view_with(dims(og, 1), dims(1, 1), bias.offset()))?;
            matrix::product(&c, &a, &k, one, one, None)?;
        }
    }
    if piece.is_some() {
        scatter(out, &c, phase, b, first);
    }
    Ok(())
}

/// Puts a block `[channel][position]` of a phase into its places.
fn scatter(out: &Tensor, block: &Tensor, phase: &Phase, b: &Block, first: usize) {
    let [_, ch, cw] = phase.count;
    let s = out.strides();
    let nd = out.ndim() - 2;
    let spatial: [i64; 3] =
        std::array::from_fn(|i| if i + nd >= 3 { s[2 + i + nd - 3] } else { 0 });
    let step = spatial[2] as isize * phase.step[2] as isize;
    let (row_step, item_step) = (block.strides()[0] as isize, block.strides()[1] as isize);
    let channels = block.shape()[0] as usize;
    let mut p = b.p0;
    while p < b.p1 {
        let t = [p / (ch * cw), p / cw % ch, p % cw];
        let len = (cw - t[2]).min(b.p1 - p);
        let at: i64 = (0..3)
            .map(|i| (phase.first[i] + phase.step[i] * t[i]) as i64 * spatial[i])
            .sum();
        let offset = b.n as i64 * s[0] + first as i64 * s[1] + at;
        by_size!(out.dtype().size(), E => {
            let to = out.data_ptr().cast::<E>().wrapping_offset(offset as isize);
            let from = block.data_ptr().cast::<E>().wrapping_offset((p - b.p0) as isize * item_step);
            for c in 0..channels as isize {
                let (to, from) = (to.wrapping_offset(c * s[1] as isize), from.wrapping_offset(c * row_step));
                for i in 0..len as isize {
                    // SAFETY: both rows lie within their tensors; no other task has these places.
                    unsafe { *to.offset(i * step) = *from.offset(i * item_step) };
                }
            }
        });
        p += len;
    }
}
