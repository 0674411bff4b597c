//! Convolutions: windows are gathered into blocks (im2col) and multiplied; one channel a group is summed directly.
//!
//! A transposed convolution is a few ordinary ones, one for each residue of the output position modulo the stride.

#![allow(unsafe_code, reason = "gathers windows through checked layouts")]

use super::{copy, matrix, pool};
use crate::{DType, Device, Result, Scalar, Tensor, simd_fn};

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

/// A raw pointer that several threads write different parts behind.
#[derive(Clone, Copy)]
struct Shared(*mut u8);
// SAFETY: threads write different blocks.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}
impl Shared {
    fn get(self) -> *mut u8 {
        self.0
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

/// Windows of planes as rows `[channel][tap]` of positions `p0..p1`.
///
/// # Safety
/// `src` points at dense planes of the geometry's size, `dst` has room for all rows.
unsafe fn gather<E: Copy + Default>(
    src: *const E,
    channels: usize,
    size: [usize; 3],
    phase: &Phase,
    p0: usize,
    p1: usize,
    dst: *mut E,
) {
    let [_, ch, cw] = phase.count;
    let len = p1 - p0;
    let mut row = dst;
    for c in 0..channels {
        // SAFETY: the caller's.
        let plane = unsafe { src.add(c * size[0] * size[1] * size[2]) };
        for tap in &phase.taps {
            let (lo, hi) = inside(cw, phase.advance[2], tap.at[2], size[2]);
            let mut p = p0;
            let mut to = row;
            while p < p1 {
                let (d, h, w0) = (p / (ch * cw), p / cw % ch, p % cw);
                let w1 = cw.min(w0 + p1 - p);
                let (y, x) = (
                    d as i64 * phase.advance[0] + tap.at[0],
                    h as i64 * phase.advance[1] + tap.at[1],
                );
                // SAFETY: rows have `len` elements; sources are checked to lie within the plane.
                unsafe {
                    if y < 0 || y >= size[0] as i64 || x < 0 || x >= size[1] as i64 {
                        for i in 0..w1 - w0 {
                            *to.add(i) = E::default();
                        }
                    } else {
                        let line = plane.add((y as usize * size[1] + x as usize) * size[2]);
                        let (a, b) = (lo.clamp(w0, w1), hi.clamp(w0, w1).max(lo.clamp(w0, w1)));
                        for i in w0..a {
                            *to.add(i - w0) = E::default();
                        }
                        if phase.advance[2] == 1 {
                            if b > a {
                                std::ptr::copy_nonoverlapping(
                                    line.offset(a as isize + tap.at[2] as isize),
                                    to.add(a - w0),
                                    b - a,
                                );
                            }
                        } else if phase.advance[2] == 2 && b > a {
                            let from = line.offset(a as isize * 2 + tap.at[2] as isize);
                            every_other(
                                std::slice::from_raw_parts_mut(to.add(a - w0), b - a),
                                std::slice::from_raw_parts(from, (b - a) * 2 - 1),
                            );
                        } else {
                            let mut from =
                                a as isize * phase.advance[2] as isize + tap.at[2] as isize;
                            for i in a..b {
                                *to.add(i - w0) = *line.offset(from);
                                from += phase.advance[2] as isize;
                            }
                        }
                        for i in b..w1 {
                            *to.add(i - w0) = E::default();
                        }
                    }
                    to = to.add(w1 - w0);
                }
                p += w1 - w0;
            }
            // SAFETY: within `dst`.
            row = unsafe { row.add(len) };
        }
    }
}

/// Windows of an image with channels innermost as rows of positions `[position][tap][channel]`.
///
/// # Safety
/// As [`gather`]; `src` points at the group's first channel, pixels lie `pixel` elements apart.
#[allow(clippy::too_many_arguments)]
unsafe fn gather_last<E: Copy + Default>(
    src: *const E,
    channels: usize,
    pixel: usize,
    size: [usize; 3],
    phase: &Phase,
    p0: usize,
    p1: usize,
    dst: *mut E,
) {
    let [_, ch, cw] = phase.count;
    let mut to = dst;
    for p in p0..p1 {
        let t = [p / (ch * cw), p / cw % ch, p % cw];
        for tap in &phase.taps {
            let at: [i64; 3] = std::array::from_fn(|i| t[i] as i64 * phase.advance[i] + tap.at[i]);
            let good = (0..3).all(|i| at[i] >= 0 && at[i] < size[i] as i64);
            // SAFETY: the pixel lies within the image, `dst` has room.
            unsafe {
                if good {
                    let index =
                        (at[0] as usize * size[1] + at[1] as usize) * size[2] + at[2] as usize;
                    std::ptr::copy_nonoverlapping(src.add(index * pixel), to, channels);
                } else {
                    for i in 0..channels {
                        *to.add(i) = E::default();
                    }
                }
                to = to.add(channels);
            }
        }
    }
}

macro_rules! by_size {
    ($size:expr, $E:ident => $e:expr) => {
        match $size {
            1 => { type $E = u8; $e }
            2 => { type $E = u16; $e }
            4 => { type $E = u32; $e }
            8 => { type $E = u64; $e }
            _ => { type $E = [u64; 2]; $e }
        }
    };
}

/// The windows of a dense `[batch, channels, ...]` tensor as `[batch, channels * taps, positions]` (`unfold`).
///
/// # Errors
/// If memory cannot be had.
pub fn columns(out: &Tensor, x: &Tensor, g: &Geometry) -> Result<()> {
    let phases = g.phases();
    let Some(phase) = phases.first() else {
        return Ok(());
    };
    let (x, item) = (copy::dense(x, x.dtype())?, x.dtype().size());
    let (plane, rows) = (
        g.size.iter().product::<usize>(),
        phase.taps.len() * g.positions(),
    );
    let (from, to) = (Shared(x.data_ptr()), Shared(out.data_ptr()));
    pool::parallel_for(g.batch * g.inputs, (16384 / rows.max(1)).max(1), |r| {
        for i in r {
            // SAFETY: plane and rows lie within the dense tensors.
            by_size!(item, E => unsafe {
                gather::<E>(from.get().cast::<E>().add(i * plane), 1, g.size, phase, 0, g.positions(), to.get().cast::<E>().add(i * rows));
            });
        }
    });
    Ok(())
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
    let view = if g.transposed {
        w.view_with(
            [groups, o, c, k].into(),
            [c * o * k, k, o * k, 1].into(),
            w.offset(),
        )
    } else {
        w.view_with(
            [groups, o, c, k].into(),
            [o * c * k, c * k, k, 1].into(),
            w.offset(),
        )
    };
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
            scatter(out, &c.swapped(0, 1), g, phase, b, first)?;
        }
        return Ok(());
    }
    let offset = (b.n * g.inputs + b.group * cg) * plane;
    let k = match columns {
        None => x.view_with(dims(cg, len), dims(plane, 1), x.offset() + i(offset + b.p0)),
        Some(buffer) => {
            // SAFETY: the planes lie in `x`, the block has room.
            by_size!(item, E => unsafe {
                gather::<E>(x.data_ptr().cast::<E>().add(offset), cg, g.size, phase, b.p0, b.p1, buffer.data_ptr().cast());
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
        scatter(out, &c, g, phase, b, first)?;
    }
    Ok(())
}

/// Puts a block `[channel][position]` of a phase into its places.
fn scatter(
    out: &Tensor,
    block: &Tensor,
    g: &Geometry,
    phase: &Phase,
    b: &Block,
    first: usize,
) -> Result<()> {
    let [_, ch, cw] = phase.count;
    let s = out.strides();
    let nd = out.ndim() - 2;
    let spatial: [i64; 3] =
        std::array::from_fn(|i| if i + nd >= 3 { s[2 + i + nd - 3] } else { 0 });
    let mut p = b.p0;
    while p < b.p1 {
        let t = [p / (ch * cw), p / cw % ch, p % cw];
        let len = (cw - t[2]).min(b.p1 - p);
        let at: i64 = (0..3)
            .map(|i| (phase.first[i] + phase.step[i] * t[i]) as i64 * spatial[i])
            .sum();
        let offset = out.offset() + b.n as i64 * s[0] + first as i64 * s[1] + at;
        let rows = block.shape()[0];
        let to = out.view_with(
            [rows, len as i64].into(),
            [s[1], spatial[2] * phase.step[2] as i64].into(),
            offset,
        );
        copy::copy(&to, &block.narrowed(1, (p - b.p0) as i64, len as i64))?;
        p += len;
    }
    let _ = g;
    Ok(())
}

/// One channel a group: sums without gathering.
fn direct(out: &Tensor, x: &Tensor, w: &Tensor, bias: Option<&Tensor>, g: &Geometry) -> Result<()> {
    let phases = g.phases();
    let Some(phase) = phases.first() else {
        return Ok(());
    };
    let multiplier = g.outputs / g.groups;
    let taps = phase.taps.len();
    let w = copy::dense(w, w.dtype())?;
    let bias = bias.map(|b| copy::dense(b, b.dtype())).transpose()?;
    let plane: usize = g.size.iter().product();
    macro_rules! run {
        ($t:ty) => {{
            let (src, ws) = (Shared(x.data_ptr()), super::slice::<$t>(&w));
            let bs = bias.as_ref().map(|b| super::slice::<$t>(b));
            let dst = Shared(out.data_ptr());
            if g.channels_last && multiplier == 1 {
                let c = g.inputs;
                // Weights as [tap][channel], so that a pixel's channels are one vector operation.
                let turned: Vec<$t> = (0..taps * c).map(|i| ws[i % c * taps + i / c]).collect();
                let rows = g.batch * g.out[0] * g.out[1];
                pool::parallel_for(rows, (32768 / (g.out[2] * c * taps).max(1)).max(1), |r| {
                    for row in r {
                        let (n, d, h) = (row / (g.out[0] * g.out[1]), row / g.out[1] % g.out[0], row % g.out[1]);
                        // SAFETY: image and row lie within the dense tensors.
                        let (image, line) = unsafe {
                            (std::slice::from_raw_parts(src.get().cast::<$t>().add(n * plane * c), plane * c),
                             std::slice::from_raw_parts_mut(dst.get().cast::<$t>().add(row * g.out[2] * c), g.out[2] * c))
                        };
                        for (wx, pixel) in line.chunks_exact_mut(c).enumerate() {
                            match bs { Some(b) => pixel.copy_from_slice(b), None => pixel.fill(0.0) }
                            for (k, tap) in phase.taps.iter().enumerate() {
                                let t = [d, h, wx];
                                let at: [i64; 3] = std::array::from_fn(|i| t[i] as i64 * phase.advance[i] + tap.at[i]);
                                if (0..3).all(|i| at[i] >= 0 && at[i] < g.size[i] as i64) {
                                    let q = ((at[0] as usize * g.size[1] + at[1] as usize) * g.size[2] + at[2] as usize) * c;
                                    axpy_each::<$t>(pixel, &image[q..q + c], &turned[k * c..(k + 1) * c]);
                                }
                            }
                        }
                    }
                });
                return Ok(());
            }
            if !g.channels_last {
                let positions = g.positions();
                pool::parallel_for(g.batch * g.outputs, (32768 / (positions * taps).max(1)).max(1), |r| {
                    for i in r {
                        let (n, o) = (i / g.outputs, i % g.outputs);
                        // SAFETY: planes of the dense tensors; one output plane a step.
                        let (from, to) = unsafe {
                            (std::slice::from_raw_parts(src.get().cast::<$t>().add((n * g.inputs + o / multiplier) * plane), plane),
                             std::slice::from_raw_parts_mut(dst.get().cast::<$t>().add(i * positions), positions))
                        };
                        slide::<$t>(to, from, &ws[o * taps..(o + 1) * taps], &phase.taps, phase.advance, g.size, g.out, bs.map_or(0.0, |b| b[o]));
                    }
                });
                return Ok(());
            }
            let step = if g.channels_last { g.inputs } else { 1 };
            let ostep = if g.channels_last { g.outputs } else { 1 };
            let positions = g.positions();
            pool::parallel_for(g.batch * g.outputs, (32768 / (positions * taps).max(1)).max(1), |r| {
                let mut line = vec![0.0 as $t; g.out[2]];
                for i in r {
                    let (n, o) = (i / g.outputs, i % g.outputs);
                    let c = o / multiplier;
                    let start = if g.channels_last { n * plane * g.inputs + c } else { (n * g.inputs + c) * plane };
                    let to = if g.channels_last { n * positions * g.outputs + o } else { i * positions };
                    for row in 0..g.out[0] * g.out[1] {
                        let (d, h) = (row / g.out[1], row % g.out[1]);
                        line.fill(bs.map_or(0.0, |b| b[o]));
                        for (k, tap) in phase.taps.iter().enumerate() {
                            let (y, z) = (d as i64 * phase.advance[0] + tap.at[0], h as i64 * phase.advance[1] + tap.at[1]);
                            if y < 0 || y >= g.size[0] as i64 || z < 0 || z >= g.size[1] as i64 {
                                continue;
                            }
                            let (lo, hi) = inside(g.out[2], phase.advance[2], tap.at[2], g.size[2]);
                            if lo >= hi {
                                continue;
                            }
                            let x0 = lo as i64 * phase.advance[2] + tap.at[2];
                            let from = start + ((y as usize * g.size[1] + z as usize) * g.size[2] + x0 as usize) * step;
                            let stride = phase.advance[2] as usize * step;
                            // SAFETY: `inside` keeps all sources within the row of the plane.
                            let source = unsafe { std::slice::from_raw_parts(src.get().cast::<$t>().add(from), (hi - lo - 1) * stride + 1) };
                            axpy::<$t>(&mut line[lo..hi], source, stride, ws[o * taps + k]);
                        }
                        for (j, v) in line.iter().enumerate() {
                            // SAFETY: positions of this output channel, which no other task writes.
                            unsafe { *dst.get().cast::<$t>().add(to + (row * g.out[2] + j) * ostep) = *v };
                        }
                    }
                }
            });
        }};
    }
    if out.dtype() == DType::F32 {
        run!(f32)
    } else {
        run!(f64)
    }
    Ok(())
}

/// Real numbers with fused multiply-add.
trait Real: Copy {
    fn fma(self, a: Self, b: Self) -> Self;
}
impl Real for f32 {
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        a.mul_add(b, self)
    }
}
impl Real for f64 {
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        a.mul_add(b, self)
    }
}

/// `C` neighbouring outputs of a row, from the starts of their lines and the weights.
#[inline(always)]
fn chunk<T: Real, const C: usize, const STEP: usize>(
    out: &mut [T],
    x: &[T],
    lines: &[(usize, T)],
    shift: usize,
    bias: T,
) {
    let mut sum = [bias; C];
    for &(start, w) in lines {
        let from = &x[start + shift..][..(C - 1) * STEP + 1];
        for i in 0..C {
            sum[i] = sum[i].fma(from[i * STEP], w);
        }
    }
    out[..C].copy_from_slice(&sum);
}

/// The outputs `lo..hi` of a row, for which all lines lie within the input; the last chunk overlaps its neighbour.
#[inline(always)]
fn middle<T: Real, const STEP: usize>(out: &mut [T], x: &[T], lines: &[(usize, T)], bias: T) {
    let n = out.len();
    macro_rules! by {
        ($c:literal) => {
            for j in (0..n).step_by($c) {
                let j = j.min(n - $c);
                chunk::<T, $c, STEP>(&mut out[j..], x, lines, j * STEP, bias);
            }
        };
    }
    if n >= 16 {
        by!(16);
    } else if n >= 8 {
        by!(8);
    } else {
        by!(1);
    }
}

simd_fn! { wide
    /// A plane of outputs from a plane of inputs.
    #[allow(clippy::too_many_arguments)]
    fn slide<T: Real>(out: &mut [T], x: &[T], w: &[T], taps: &[Tap], advance: [i64; 3], size: [usize; 3], count: [usize; 3], bias: T) {
        // Columns that all taps have an input for.
        let (mut lo, mut hi) = (0, count[2]);
        for tap in taps {
            let (a, b) = inside(count[2], advance[2], tap.at[2], size[2]);
            (lo, hi) = (lo.max(a), hi.min(b));
        }
        hi = hi.max(lo);
        // Other steps than 1 and 2 are rare: all columns are made like those at the edges.
        if advance[2] > 2 {
            (lo, hi) = (0, 0);
        }
        let mut lines: Vec<(usize, T)> = Vec::with_capacity(taps.len());
        for (row, to) in out.chunks_exact_mut(count[2]).enumerate() {
            lines.clear();
            let base = [(row / count[1]) as i64 * advance[0], (row % count[1]) as i64 * advance[1]];
            for edge in (0..lo.min(count[2])).chain(hi..count[2]) {
                let at = edge as i64 * advance[2];
                let mut sum = bias;
                for (tap, &k) in taps.iter().zip(w) {
                    let p = [base[0] + tap.at[0], base[1] + tap.at[1], at + tap.at[2]];
                    if (0..3).all(|i| p[i] >= 0 && p[i] < size[i] as i64) {
                        sum = sum.fma(x[(p[0] as usize * size[1] + p[1] as usize) * size[2] + p[2] as usize], k);
                    }
                }
                to[edge] = sum;
            }
            if lo >= hi {
                continue;
            }
            for (tap, &k) in taps.iter().zip(w) {
                let (y, z) = (base[0] + tap.at[0], base[1] + tap.at[1]);
                if y >= 0 && y < size[0] as i64 && z >= 0 && z < size[1] as i64 {
                    let x0 = (lo as i64 * advance[2] + tap.at[2]) as usize;
                    lines.push(((y as usize * size[1] + z as usize) * size[2] + x0, k));
                }
            }
            if advance[2] == 1 {
                middle::<T, 1>(&mut to[lo..hi], x, &lines, bias);
            } else {
                middle::<T, 2>(&mut to[lo..hi], x, &lines, bias);
            }
        }
    }
}

simd_fn! { wide
    /// `out[i] = x[2 i]`.
    fn every_other<E: Plain>(out: &mut [E], x: &[E]) {
        for (o, v) in out.iter_mut().zip(x.chunks(2)) {
            *o = v[0];
        }
    }
}

/// What windows are gathered as: bits of some size.
trait Plain: Copy + Default {}
impl<T: Copy + Default> Plain for T {}

simd_fn! { wide
    /// `out[i] += x[i * step] * w`.
    fn axpy<T: Real>(out: &mut [T], x: &[T], step: usize, w: T) {
        if step == 1 {
            for (o, &v) in out.iter_mut().zip(x) {
                *o = o.fma(v, w);
            }
        } else {
            for (o, v) in out.iter_mut().zip(x.chunks(step)) {
                *o = o.fma(v[0], w);
            }
        }
    }
}

simd_fn! { wide
    /// `out[i] += x[i] * w[i]`.
    fn axpy_each<T: Real>(out: &mut [T], x: &[T], w: &[T]) {
        for ((o, &v), &k) in out.iter_mut().zip(x).zip(w) {
            *o = o.fma(v, k);
        }
    }
}

/// Adds gathered windows `[batch, channels * taps, positions]` back into planes (`fold`); `out` is zero beforehand.
///
/// # Errors
/// If memory cannot be had.
pub fn fold(out: &Tensor, columns: &Tensor, g: &Geometry) -> Result<()> {
    let d = out.dtype();
    let wide = if d.is_reduced_float() {
        DType::F32
    } else if d == DType::Bool {
        DType::U8
    } else {
        d
    };
    let columns = copy::dense(columns, wide)?;
    let sum = if wide == d {
        out.clone()
    } else {
        Tensor::empty(out.shape(), wide, Device::CPU)?
    };
    super::fill(&sum, Scalar::Int(0))?;
    let phases = g.phases();
    let Some(phase) = phases.first() else {
        return Ok(());
    };
    let (plane, rows, positions) = (
        g.size.iter().product::<usize>(),
        phase.taps.len(),
        g.positions(),
    );
    macro_rules! add {
        ($t:ty) => {{
            let from = super::slice::<$t>(&columns);
            let to = Shared(sum.data_ptr());
            pool::parallel_for(
                g.batch * g.inputs,
                (16384 / (rows * positions).max(1)).max(1),
                |r| {
                    for i in r {
                        // SAFETY: one plane a task.
                        let out = unsafe {
                            std::slice::from_raw_parts_mut(
                                to.get().cast::<$t>().add(i * plane),
                                plane,
                            )
                        };
                        for (k, tap) in phase.taps.iter().enumerate() {
                            let row = &from[(i * rows + k) * positions..][..positions];
                            for (p, &v) in row.iter().enumerate() {
                                let t = [
                                    p / (g.out[1] * g.out[2]),
                                    p / g.out[2] % g.out[1],
                                    p % g.out[2],
                                ];
                                let at: [i64; 3] = std::array::from_fn(|j| {
                                    t[j] as i64 * phase.advance[j] + tap.at[j]
                                });
                                if (0..3).all(|j| at[j] >= 0 && at[j] < g.size[j] as i64) {
                                    out[(at[0] as usize * g.size[1] + at[1] as usize)
                                        * g.size[2]
                                        + at[2] as usize] += v;
                                }
                            }
                        }
                    }
                },
            );
        }};
    }
    match wide {
        DType::F32 => add!(f32),
        DType::F64 => add!(f64),
        DType::C64 => add!(num_complex::Complex32),
        DType::C128 => add!(num_complex::Complex64),
        _ => add!(u8),
    }
    if wide == d {
        Ok(())
    } else {
        copy::copy(out, &sum)
    }
}
