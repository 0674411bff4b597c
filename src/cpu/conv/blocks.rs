//! Convolutions as products with windows that are gathered into blocks (im2col).

#![allow(unsafe_code, reason = "gathers windows through checked layouts")]

use super::super::lines::by_size;
use super::super::room::Rooms;
use super::gather::{gather, gather_last, scatter, split_lines, weights};
use super::{Geometry, Operands, Phase};
use crate::cpu::{copy, matrix, pool};
use crate::{Device, Result, Scalar, Tensor};

/// Bytes of gathered windows at a time.
pub(super) const BLOCK: usize = 480 << 10;

/// One phase of a convolution; the input is laid out as the geometry says, the bias dense.
///
/// # Errors
/// If memory cannot be had.
pub(super) fn blocks(o: &Operands, g: &Geometry, phase: &Phase) -> Result<()> {
    let split = !g.channels_last && phase.advance[2] > 1;
    let work = Work {
        out: o.out,
        x: if split {
            split_lines(o.x, phase.advance[2] as usize)?
        } else {
            o.x.clone()
        },
        w: weights(o.w, g, phase, g.channels_last)?,
        bias: o.bias,
        g,
        phase,
    };
    let total = phase.count.iter().product::<usize>();
    let cuts = work.cuts(total);
    let tasks = cuts.tasks(g);
    let (plain, room) = (phase.is_plain(g) && cuts.images() == 1, cuts.room());
    let pieces = phase.step != [1; 3] || cuts.images() > 1;
    let at_once = if tasks < pool::num_threads() {
        1
    } else {
        tasks
    };
    let rooms = Rooms::new(at_once, || {
        let columns = work.room(!plain, work.depth() * room)?;
        Ok([columns, work.room(pieces, g.outputs / g.groups * room)?])
    })?;
    let run = |task: usize, [columns, piece]: &[Option<Tensor>; 2]| {
        work.block(&cuts.block(g, task), columns.as_ref(), piece.as_ref())
    };
    if tasks < pool::num_threads() {
        return rooms.with(|room| (0..tasks).try_for_each(|task| run(task, room)));
    }
    rooms.run(tasks, 1, run)
}

/// Positions of one group of one image, or all of several.
pub(super) struct Block {
    pub n: usize,
    images: usize,
    group: usize,
    pub p0: usize,
    pub p1: usize,
}

/// Positions that every block has, where there are so many: products of fewer may go another way, and then how many threads
/// there are would decide in which order sums are made.
const FEWEST: usize = 32;

/// How positions and images are cut into blocks, alike in size.
pub(super) struct Cuts {
    /// Positions of an image.
    total: usize,
    /// Blocks of an image's positions.
    positions: usize,
    /// Parts of the images.
    parts: usize,
    batch: usize,
}

impl Cuts {
    /// The most images of a block.
    pub(super) fn images(&self) -> usize {
        self.batch.div_ceil(self.parts)
    }

    /// The most positions of a block.
    pub(super) fn room(&self) -> usize {
        let units = (self.total / FEWEST).div_ceil(self.positions) * FEWEST;
        self.total.min(units + FEWEST - 1) * self.images()
    }

    pub(super) fn tasks(&self, g: &Geometry) -> usize {
        self.parts * g.groups * self.positions
    }

    fn block(&self, g: &Geometry, task: usize) -> Block {
        let (unit, cut) = (task / self.positions, task % self.positions);
        let (part, group) = (unit / g.groups, unit % g.groups);
        let position = |i: usize| match i {
            i if i == self.positions => self.total,
            i => self.total / FEWEST * i / self.positions * FEWEST,
        };
        let image = |i: usize| self.batch * i / self.parts;
        Block {
            n: image(part),
            images: image(part + 1) - image(part),
            group,
            p0: position(cut),
            p1: position(cut + 1),
        }
    }
}

/// What the blocks of a phase have in common.
pub(super) struct Work<'a> {
    pub out: &'a Tensor,
    pub x: Tensor,
    pub w: Tensor,
    pub bias: Option<&'a Tensor>,
    pub g: &'a Geometry,
    pub phase: &'a Phase,
}

fn dims(a: usize, b: usize) -> crate::Dims {
    crate::Dims::from([a as i64, b as i64])
}

/// A matrix in a tensor's memory, `offset` elements on.
pub(super) fn matrix_in(
    t: &Tensor,
    shape: (usize, usize),
    strides: (usize, usize),
    offset: usize,
) -> Tensor {
    let (shape, strides) = (dims(shape.0, shape.1), dims(strides.0, strides.1));
    t.view_with(shape, strides, t.offset() + offset as i64)
}

impl Work<'_> {
    /// Elements of a window.
    pub(super) fn depth(&self) -> usize {
        self.g.inputs / self.g.groups * self.phase.taps.len()
    }

    /// How so many positions of each image are cut: into as many as fit the caches, and fewer if threads would have nothing to
    /// do.
    pub(super) fn cuts(&self, total: usize) -> Cuts {
        let (positions, parts) = (self.positions(total), self.parts(total));
        Cuts {
            total,
            positions: total.div_ceil(positions).min(total / FEWEST).max(1),
            parts: parts.min(self.g.batch * total / FEWEST).max(1),
            batch: self.g.batch,
        }
    }

    fn positions(&self, total: usize) -> usize {
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

    /// Into how many parts the images are cut: several are gathered at a time where they are small, so that weights are packed
    /// less often.
    fn parts(&self, total: usize) -> usize {
        let g = self.g;
        let few = if self.phase.is_plain(g) { 64 } else { 192 };
        if total == 0 || total >= few {
            return g.batch;
        }
        let parts = g.batch.div_ceil((384 / total).max(1));
        parts
            .max(pool::num_threads().div_ceil(g.groups))
            .min(g.batch)
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
