//! The gradient of the weight of a convolution with one channel a group: products of lines.

#![allow(unsafe_code, reason = "sums by pointer over checked layouts")]

use super::super::lines::Shared;
use super::frame::{Block, Frames};
use super::gather::copy_line;
use super::windows::extents;
use super::{Geometry, Phase};
use crate::cpu::gemm::{Dots, SLACK, WindowElement};
use crate::cpu::{pool, slice};
use crate::{DType, Device, Element, Result, Tensor};

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
    let (count, units) = extents(&frames, g, size_of::<T>());
    let taps = phase.taps.len();
    let out = Tensor::empty(&[g.outputs as i64, taps as i64], dtype, Device::CPU)?;
    let (from_grad, with) = (slice::<T>(grad), slice::<T>(x));
    let to = Shared::at(out.data_ptr());
    let og = g.outputs / g.groups;
    let [depth, h, w] = phase.count;
    let (plane, all) = (g.size.iter().product::<usize>(), g.positions());
    let steps = (plane * g.inputs, plane, 1);
    pool::parallel_for(g.groups, 1, |range| {
        let (mut frame, mut lines, mut gradient) = (Vec::new(), Vec::new(), Vec::new());
        for group in range {
            // SAFETY: the sums of one group a step.
            let sums = unsafe { to.get().cast::<T>().add(group * og * taps) };
            for i in 0..og * taps {
                // SAFETY: as above.
                unsafe { sums.add(i).write(T::default()) };
            }
            for b in blocks([g.batch * depth, h, w], [units, count[0], count[1]]) {
                let s = frames.sizes(&b);
                let each = b.count[0] * b.count[1];
                frame.resize(frames.room(&b, 1), T::default());
                gradient.resize(b.units * each + SLACK, T::default());
                lines.clear();
                for slice in 0..b.units {
                    lines.extend((0..b.count[0]).map(|row| (slice * s.lines + row) * s.pitch));
                }
                // SAFETY: channel and gradients lie in the dense tensors, the rooms were made for the block.
                unsafe {
                    frames.fill(
                        &b,
                        1,
                        with.as_ptr().add(group * plane),
                        steps,
                        frame.as_mut_ptr(),
                        true,
                    );
                    for o in 0..og {
                        for (i, (image, d)) in frames.slices(&b).enumerate() {
                            let at = (d * h + b.first[0]) * w + b.first[1];
                            let from = (image * g.outputs + group * og + o) * all + at;
                            let from = from_grad.as_ptr().add(from);
                            copy_line(from, gradient.as_mut_ptr().add(i * each), each);
                        }
                        T::window_dots(Dots {
                            g: gradient.as_ptr(),
                            width: b.count[1],
                            x: frame.as_ptr(),
                            lines: &lines,
                            taps: &frames.table(&b, 1),
                            sums: sums.add(o * taps),
                        });
                    }
                }
            }
        }
    });
    Ok(out)
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
