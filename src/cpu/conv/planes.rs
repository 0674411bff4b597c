//! The gradient of the weight of a convolution with one channel a group: products of lines.

#![allow(unsafe_code, reason = "sums by pointer over checked layouts")]

use super::super::lines::Shared;
use super::frame::{Block, Frames};
use super::gather::copy_lines;
use super::tasks::{Bytes, extents};
use super::{Geometry, Phase};
use crate::cpu::gemm::{Dots, SLACK, WindowElement};
use crate::cpu::{pool, slice};
use crate::{DType, Device, Element, Result, Tensor};

/// Elements of lines that cost less in one run with what is between them than each by itself.
const SHORT: usize = 32;

/// The gradient `[outputs, taps]`; both tensors are dense.
///
/// # Errors
/// If memory cannot be had.
pub(super) fn by_lines<T: WindowElement + Element>(
    grad: &Tensor,
    x: &Tensor,
    g: &Geometry,
    phase: &Phase,
    dtype: DType,
) -> Result<Tensor> {
    let frames = Frames::new(g, phase);
    // The same blocks for any number of threads, or sums would be rounded otherwise.
    let (count, units) = extents(&frames, g, Bytes::of(size_of::<T>()), 1);
    let taps = phase.taps.len();
    let out = Tensor::empty(&[g.outputs as i64, taps as i64], dtype, Device::CPU)?;
    let to = Shared::at(out.data_ptr());
    let og = g.outputs / g.groups;
    let lines = Lines {
        frames,
        grad: slice(grad),
        x: slice(x),
        units,
        count,
    };
    pool::parallel_for(g.groups, 1, |range| {
        let mut rooms = Rooms::default();
        for group in range {
            // SAFETY: the sums of one group a step.
            let sums = unsafe {
                std::slice::from_raw_parts_mut(
                    to.get().cast::<T>().add(group * og * taps),
                    og * taps,
                )
            };
            let whole = lines.count[1] < SHORT;
            lines.group(group, &mut rooms, whole, sums);
            // The zeros between lines are times what is not theirs: numbers, or all is summed again without them.
            if whole && !sums.iter().all(|v| v.to_scalar().to_f64().is_finite()) {
                lines.group(group, &mut rooms, false, sums);
            }
        }
    });
    Ok(out)
}

/// What a thread works in.
#[derive(Default)]
struct Rooms<T> {
    frame: Vec<T>,
    /// The block that has its zeros in the frame.
    framed: Option<Block>,
    gradient: Vec<T>,
    /// Where lines that are summed begin in the frame, and how far from there each tap is.
    lines: Vec<usize>,
    taps: Vec<usize>,
    /// What the rooms are laid out for: whole blocks or lines; slices, lines and columns.
    laid: Option<(bool, usize, [usize; 2])>,
}

/// Gradients and images, both dense, cut into blocks.
struct Lines<'a, T> {
    frames: Frames<'a>,
    grad: &'a [T],
    x: &'a [T],
    units: usize,
    count: [usize; 2],
}

impl<T: WindowElement + Element> Lines<'_, T> {
    /// The sums of a group, over each line by itself, or `whole` blocks of lines with zeros between them.
    fn group(&self, group: usize, rooms: &mut Rooms<T>, whole: bool, sums: &mut [T]) {
        let (frames, g) = (&self.frames, self.frames.g);
        let [depth, h, w] = frames.phase.count;
        let (plane, all) = (g.size.iter().product::<usize>(), g.positions());
        let (og, taps) = (g.outputs / g.groups, frames.phase.taps.len());
        sums.fill(T::default());
        for b in blocks(
            [g.batch * depth, h, w],
            [self.units, self.count[0], self.count[1]],
        ) {
            let s = frames.sizes(&b);
            // Runs of a slice, their lengths, and how far they are apart.
            let (runs, each, pitch) = if whole {
                (b.count[0], b.count[1], s.pitch)
            } else {
                let all = b.count[0] * b.count[1];
                (1, all, all)
            };
            let lines = if whole { s.lines } else { 1 };
            let start = |slice: usize, run: usize| (slice * lines + run) * pitch;
            let laid = (whole, b.units, b.count);
            if rooms.laid != Some(laid) {
                rooms.laid = Some(laid);
                rooms.frame.resize(frames.room(&b, 1), T::default());
                rooms.taps = frames.table(&b, 0..1);
                rooms.gradient.clear();
                let end = start(b.units - 1, runs - 1) + each;
                rooms.gradient.resize(end + SLACK, T::default());
                rooms.lines.clear();
                let line = |i| (i / b.count[0] * s.lines + i % b.count[0]) * s.pitch;
                let count = if whole { 1 } else { b.units * b.count[0] };
                rooms.lines.extend((0..count).map(line));
            }
            let zeros = !rooms.framed.is_some_and(|a| frames.alike(&a, &b));
            rooms.framed = Some(b);
            let steps = (plane * g.inputs, plane, 1);
            // SAFETY: channel and gradients lie in the dense tensors, the rooms were made for the block.
            unsafe {
                let x = self.x.as_ptr().add(group * plane);
                frames.fill(&b, 1, x, steps, rooms.frame.as_mut_ptr(), zeros);
                for o in 0..og {
                    for (i, (image, d)) in frames.slices(&b).enumerate() {
                        let at = (d * h + b.first[0]) * w + b.first[1];
                        let from = (image * g.outputs + group * og + o) * all + at;
                        let from = self.grad.as_ptr().add(from);
                        let to = rooms.gradient.as_mut_ptr().add(start(i, 0));
                        copy_lines(from, to, [w, pitch], runs, each);
                    }
                    T::window_dots(Dots {
                        g: rooms.gradient.as_ptr(),
                        width: if whole { s.flat } else { b.count[1] },
                        x: rooms.frame.as_ptr(),
                        lines: &rooms.lines,
                        taps: &rooms.taps,
                        sums: sums.as_mut_ptr().add(o * taps),
                    });
                }
            }
        }
    }
}

/// All blocks of slices, lines and columns.
fn blocks(
    [all, h, w]: [usize; 3],
    [units, lines, width]: [usize; 3],
) -> impl Iterator<Item = Block> {
    let units = (0..all)
        .step_by(units)
        .map(move |u| (u, units.min(all - u)));
    units.flat_map(move |(unit, units)| {
        (0..h).step_by(lines).flat_map(move |top| {
            (0..w).step_by(width).map(move |left| Block {
                unit,
                units,
                first: [top, left],
                count: [lines.min(h - top), width.min(w - left)],
            })
        })
    })
}
