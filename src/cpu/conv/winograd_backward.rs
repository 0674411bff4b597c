//! Gradients of weights of 3 x 3 windows by the transpose of Winograd's F(2 x 2, 3 x 3): coefficients of the input meet those of
//! the result's gradient in one product a coefficient, summed over all tiles.

#![allow(unsafe_code, reason = "rooms are read and written by pointer")]

use super::super::lines::Shared;
use super::frame::Frames;
use super::tiles::{Side, squares};
use super::winograd::{Plan, has_wild};
use super::{Geometry, Phase};
use crate::cpu::gemm::coefficients::{COEFFICIENTS as ALL, Sums, to_weights};
use crate::cpu::gemm::{Mat, MatMut, SLACK, gemm};
use crate::cpu::room::Rooms;
use crate::cpu::{pool, slice};
use crate::{DType, Device, Result, Tensor};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Bytes of the coefficients of a block.
const BLOCK: usize = 4 << 20;

/// How the sum is cut into blocks, which does not depend on the threads.
pub(super) struct Backward<'a> {
    g: &'a Geometry,
    plan: Plan,
    /// The result's gradient as an input, and its tiles.
    results: Geometry,
    squares: Phase,
}

impl<'a> Backward<'a> {
    /// The plan, if this way is the faster one.
    pub(super) fn of(g: &'a Geometry, phase: &Phase, dtype: DType) -> Option<Self> {
        let (cg, og) = (g.inputs / g.groups, g.outputs / g.groups);
        let [depth, h, w] = phase.count;
        let (slices, all) = (
            g.batch * depth,
            g.batch * depth * h.div_ceil(2) * w.div_ceil(2),
        );
        let these = ALL * all + 400 + 350 * all / og.max(1) + 350 * all / cg.max(1);
        if g.transposed || these > 9 * slices * h * w {
            return None;
        }
        let most = (BLOCK / (4 * ALL * (cg + og).max(1))).clamp(64, 512);
        let plan = Plan::cut(g, phase, dtype, most)?;
        let results = Geometry {
            inputs: g.outputs,
            size: g.out,
            ..g.clone()
        };
        let squares = squares([0; 3], 2, plan.tiles.count);
        Some(Self {
            g,
            plan,
            results,
            squares,
        })
    }

    /// From one coefficient of the weights to the next.
    fn matrix(&self) -> usize {
        let n = self.g.outputs / self.g.groups * (self.g.inputs / self.g.groups);
        n.next_multiple_of(16) + 16
    }

    /// The input and the result's gradient.
    fn sides<'s>(&'s self, x: &'s [f32], grad: &'s [f32]) -> [Side<'s>; 2] {
        let block = self.plan.largest();
        let input = Frames::new(self.g, &self.plan.tiles);
        let result = Frames::new(&self.results, &self.squares);
        [Side::new(input, x, &block), Side::new(result, grad, &block)]
    }

    /// Elements that the sums, the coefficients of a block, and each copy take; and how many copies there are.
    pub(super) fn rooms(&self) -> [usize; 4] {
        let [input, grad] = self.sides(&[], &[]);
        let block = self.plan.largest();
        let copy = input.room(&block).max(grad.room(&block));
        let coefficients = ALL * (input.each + grad.each);
        [
            ALL * self.matrix() + SLACK,
            coefficients,
            copy,
            input.copies() + grad.copies(),
        ]
    }

    /// The gradient `[outputs, inputs of a group, taps]` of tensors that are laid out as the geometry says; nothing if something
    /// is not finite.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub(super) fn run(&self, grad: &Tensor, x: &Tensor) -> Result<Option<Tensor>> {
        let g = self.g;
        let (og, cg) = (g.outputs / g.groups, g.inputs / g.groups);
        let empty = |n: usize| Tensor::empty(&[n as i64], DType::F32, Device::CPU);
        let made = empty(g.outputs * cg * 9)?;
        let [sums, coefficients, copy, tasks] = self.rooms();
        let (sums, coefficients) = (empty(sums)?, empty(coefficients)?);
        let rooms = Rooms::new(tasks, || empty(copy))?;
        let sides = self.sides(slice::<f32>(x), slice::<f32>(grad));
        let [at, sum, to] = [&coefficients, &sums, &made].map(|t| Shared::at(t.data_ptr()));
        let (end, broken) = (ALL * sides[0].each, AtomicBool::new(false));
        for group in 0..g.groups {
            for i in 0..self.plan.blocks(g) {
                let block = self.plan.block(g, i);
                pool::parallel_items(tasks, |task| {
                    let inputs = sides[0].copies();
                    let (side, copy, begin) = if task < inputs {
                        (&sides[0], task, 0)
                    } else {
                        (&sides[1], task - inputs, end)
                    };
                    let done = rooms.with(|room| {
                        let (frame, to) = (room.data_ptr().cast(), at.get().cast::<f32>());
                        // SAFETY: every task has its own channels, and a copy of its own.
                        unsafe {
                            side.analyse(&block, (group, copy), frame, to.add(begin), true);
                        }
                        Ok(())
                    });
                    if done.is_err() {
                        broken.store(true, Relaxed);
                    }
                });
                let n = block.units * block.count[0] * block.count[1];
                let first = if i == 0 { 0.0 } else { 1.0 };
                pool::parallel_items(ALL, |e| {
                    // SAFETY: within the coefficients.
                    let [b, a] = [e * sides[0].each, end + e * sides[1].each]
                        .map(|n| unsafe { at.get().cast::<f32>().add(n).cast_const() });
                    let row = sides[0].row as isize;
                    // SAFETY: every task has a matrix of its own.
                    unsafe {
                        let c = sum.get().cast::<f32>().add(e * self.matrix());
                        let (a, b) = (Mat::new(a, row, 1), Mat::new(b, 1, row));
                        gemm(
                            og,
                            cg,
                            n,
                            1.0,
                            a,
                            b,
                            first,
                            MatMut::new(c, cg as isize, 1),
                            None,
                        );
                    }
                });
            }
            pool::parallel_for(og, (4096 / cg).max(1), |rows| {
                // SAFETY: every task has its own outputs.
                unsafe {
                    let start = rows.start * cg;
                    to_weights(Sums {
                        from: sum.get().cast::<f32>().add(start),
                        each: self.matrix(),
                        n: rows.len() * cg,
                        places: &self.plan.places,
                        to: to.get().cast::<f32>().add((group * og * cg + start) * 9),
                    });
                }
            });
        }
        let whole = !broken.load(Relaxed) && !has_wild(slice::<f32>(&made));
        Ok(whole.then_some(made))
    }
}
