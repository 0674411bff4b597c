//! Windows of an image as rows of a matrix (im2col).

#![allow(unsafe_code, reason = "gathers windows through checked layouts")]

use super::super::lines::{Shared, by_size};
use super::{Block, Geometry, Phase, inside};
use crate::cpu::simd::simd_fn;
use crate::cpu::{copy, pool};
use crate::{Device, Result, Tensor};

/// Windows of planes as rows `[channel][tap]` of positions `p0..p1`.
///
/// With `split`, the lines of the planes are as [`split_lines`] left them. Rows begin `pitch` elements after each other.
///
/// # Safety
/// `src` points at dense planes of the geometry's size, `dst` has room for all rows.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn gather<E: Copy + Default>(
    src: *const E,
    channels: usize,
    size: [usize; 3],
    phase: &Phase,
    p0: usize,
    p1: usize,
    split: bool,
    pitch: usize,
    dst: *mut E,
) {
    let [_, ch, cw] = phase.count;
    let step = phase.advance[2];
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
                // SAFETY: rows have room; sources are checked to lie within the plane.
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
                        if step == 1 || split {
                            // Position t * step + at is in part `at mod step`, t + at / step places on.
                            let at = tap.at[2];
                            let part =
                                part_start(at.rem_euclid(step) as usize, step as usize, size[2]);
                            let from = part as isize + at.div_euclid(step) as isize;
                            if b > a {
                                let line = line.offset(a as isize + from);
                                copy_line(line, to.add(a - w0), b - a);
                            }
                        } else {
                            let mut from = a as isize * step as isize + tap.at[2] as isize;
                            for i in a..b {
                                *to.add(i - w0) = *line.offset(from);
                                from += step as isize;
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
            row = unsafe { row.add(pitch) };
        }
    }
}

/// Copies neighbouring elements; few ones without a call, as two pieces that may overlap.
///
/// # Safety
/// Both sides have `n` elements and do not overlap.
#[inline(always)]
pub(super) unsafe fn copy_line<E: Copy>(from: *const E, to: *mut E, n: usize) {
    // SAFETY: the caller's; no piece is longer than the line.
    unsafe {
        match n {
            0 => {}
            1 => ends::<E, 1>(from, to, n),
            2..4 => ends::<E, 2>(from, to, n),
            4..8 => ends::<E, 4>(from, to, n),
            8..16 => ends::<E, 8>(from, to, n),
            16..33 => ends::<E, 16>(from, to, n),
            33..65 => ends::<E, 32>(from, to, n),
            _ => std::ptr::copy_nonoverlapping(from, to, n),
        }
    }
}

/// Copies a line of `n` elements as its first and its last `N`, which may overlap and leave nothing out.
#[inline(always)]
unsafe fn ends<E: Copy, const N: usize>(from: *const E, to: *mut E, n: usize) {
    // SAFETY: the caller's.
    unsafe {
        let first = from.cast::<[E; N]>().read_unaligned();
        let last = from.add(n - N).cast::<[E; N]>().read_unaligned();
        to.cast::<[E; N]>().write_unaligned(first);
        to.add(n - N).cast::<[E; N]>().write_unaligned(last);
    }
}

simd_fn! { stream
    /// Copies `rows` lines of `n` elements, which are `steps` apart. Both sides have the lines and do not overlap.
    pub(super) fn copy_lines<E: Copy>(from: *const E, to: *mut E, steps: [usize; 2], rows: usize, n: usize) {
        // The length is looked at once, not for each line.
        macro_rules! lines {
            ($copy:expr) => {
                for r in 0..rows {
                    $copy(from.add(r * steps[0]), to.add(r * steps[1]), n);
                }
            };
        }
        // SAFETY: the lines are there; no piece is longer than one.
        unsafe {
            match n {
                4..8 => lines!(ends::<E, 4>),
                8..16 => lines!(ends::<E, 8>),
                16..33 => lines!(ends::<E, 16>),
                33..65 => lines!(ends::<E, 32>),
                _ => lines!(copy_line),
            }
        }
    }
}

/// The weights of a phase, for each group `[output][input][tap]`, or `[tap][input][output]`.
pub(super) fn weights(w: &Tensor, g: &Geometry, phase: &Phase, last: bool) -> Result<Tensor> {
    let (og, cg, taps) = (
        g.outputs / g.groups,
        g.inputs / g.groups,
        g.window.iter().product::<usize>(),
    );
    let all = phase.taps.len() == taps;
    if all && g.transposed && !last {
        return turned_weights(w, [g.groups, cg, og, taps]);
    }
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
        &if last {
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

/// The weights `[group, input, output, tap]` of a transposed convolution as `[group, output, input, tap]`.
///
/// # Errors
/// If memory cannot be had.
fn turned_weights(w: &Tensor, [groups, c, o, k]: [usize; 4]) -> Result<Tensor> {
    let w = copy::dense(w, w.dtype())?;
    let shape = [groups, o, c, k].map(|v| v as i64);
    let out = Tensor::empty(&shape, w.dtype(), crate::Device::CPU)?;
    if out.numel() == 0 {
        return Ok(out);
    }
    let (from, to) = (Shared::at(w.data_ptr()), Shared::at(out.data_ptr()));
    // Some outputs at a time, so that reading and writing both go on where they were.
    let cuts = o.div_ceil(OUTPUTS);
    pool::parallel_for(groups * cuts, 1, |r| {
        for i in r {
            let (g, first) = (i / cuts, i % cuts * OUTPUTS);
            let last = o.min(first + OUTPUTS);
            by_size!(w.dtype().size(), E => {
                let (from, to) = (from.get().cast::<E>(), to.get().cast::<E>());
                for c1 in 0..c {
                    let from = from.wrapping_add(((g * c + c1) * o + first) * k);
                    let to = to.wrapping_add(((g * o + first) * c + c1) * k);
                    copy_lines(from, to, [k, c * k], last - first, k);
                }
            });
        }
    });
    Ok(out)
}

/// Outputs whose weights are turned at a time.
const OUTPUTS: usize = 16;

/// Windows of an image with channels innermost as rows of positions `[position][tap][channel]`.
///
/// # Safety
/// As [`gather`]; `src` points at the group's first channel, pixels lie `pixel` elements apart.
#[allow(clippy::too_many_arguments)]
pub(super) unsafe fn gather_last<E: Copy + Default>(
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
    let (from, to) = (Shared::at(x.data_ptr()), Shared::at(out.data_ptr()));
    pool::parallel_for(g.batch * g.inputs, (16384 / rows.max(1)).max(1), |r| {
        for i in r {
            // SAFETY: plane and rows lie within the dense tensors.
            by_size!(item, E => unsafe {
                gather::<E>(from.get().cast::<E>().add(i * plane), 1, g.size, phase, 0, g.positions(), false, g.positions(), to.get().cast::<E>().add(i * rows));
            });
        }
    });
    Ok(())
}

/// Where the part of a line of `n` elements begins that holds every `step`-th from `part` on.
#[inline(always)]
pub(super) fn part_start(part: usize, step: usize, n: usize) -> usize {
    part * (n / step) + part.min(n % step)
}

/// A dense tensor whose lines are taken apart: every `step`-th element from the first on, then from the second on, and
/// so forth. A window that moves by `step` then reads neighbours.
///
/// # Errors
/// If memory cannot be had.
pub(super) fn split_lines(x: &Tensor, step: usize) -> Result<Tensor> {
    let out = Tensor::empty(x.shape(), x.dtype(), crate::Device::CPU)?;
    let n = x.shape()[x.ndim() - 1] as usize;
    let (from, to) = (Shared::at(x.data_ptr()), Shared::at(out.data_ptr()));
    let lines = (x.numel() as usize).checked_div(n).unwrap_or(0);
    pool::parallel_for(lines, (16384 / n.max(1)).max(1), |r| {
        for i in r {
            by_size!(x.dtype().size(), E => {
                // SAFETY: line i of both dense tensors; every place of the target is below its length.
                unsafe {
                    let (from, to) = (from.get().cast::<E>().add(i * n), to.get().cast::<E>().add(i * n));
                    for part in 0..step.min(n) {
                        let to = to.add(part_start(part, step, n));
                        for k in 0..(n - part).div_ceil(step) {
                            *to.add(k) = *from.add(part + k * step);
                        }
                    }
                }
            });
        }
    });
    Ok(out)
}

/// Puts a block `[channel][position]` of image `n` of a phase into its places.
pub(super) fn scatter(
    out: &Tensor,
    block: &Tensor,
    phase: &Phase,
    b: &Block,
    n: usize,
    first: usize,
) {
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
        let offset = n as i64 * s[0] + first as i64 * s[1] + at;
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
