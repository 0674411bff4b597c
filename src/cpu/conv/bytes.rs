//! Convolutions of quantised numbers: windows are read where they lie, in copies of pixels as they are, and their products with
//! weights are sums of words of four bytes.

#![allow(unsafe_code, reason = "products by pointer over checked layouts")]

use super::Geometry;
use super::backward::innermost;
use super::frame::{Block, Frames};
use super::tasks::{Bytes, Tasks, worth_copies};
use crate::cpu::gemm::tiled::{Kind, Rows, SIDE, Tiled, WORDS, has_bytes};
use crate::cpu::lines::Shared;
use crate::cpu::quantize::rescaled_line;
use crate::cpu::simd::simd_fn;
use crate::cpu::{copy, pool, slice, slice_mut, transpose};
use crate::{DType, Device, Result, Tensor, bail};
use std::ops::Range;

/// Elements of copies, and sums.
const BYTES: Bytes = Bytes { copy: 1, sum: 4 };
/// Bytes of a word.
const EACH: usize = 4;
/// Bytes along k of a step.
const STEP: usize = EACH * WORDS;
/// Outputs whose weights are packed together.
const OUTPUTS: usize = 2 * SIDE;
/// Steps between which sums are stored, where there are more than twice as many.
const PART: usize = 8;
/// Bytes of weights that meet all positions of a block before the next do.
const STRIP: usize = 256 << 10;
/// Terms of a sum up to which it fits into 32 bits, whatever the zero points.
const MOST: usize = (i32::MAX / (510 * 383)) as usize;

/// What is done to sums.
#[derive(Clone, Copy, Debug)]
pub struct Ends<'a> {
    /// The input's zero point.
    pub from: u8,
    /// Those of the weights: one, or one for each output.
    pub zeros: &'a Tensor,
    /// Factors, one or as many.
    pub factors: &'a Tensor,
    /// What is added before, one or as many.
    pub biases: &'a Tensor,
    /// The result's zero point.
    pub zero: i64,
    /// What it is at least.
    pub low: i64,
}

/// Whether a convolution is one for words of bytes: they must not be mostly padding.
#[must_use]
pub fn suits(g: &Geometry) -> bool {
    let (og, cg) = (g.outputs / g.groups.max(1), g.inputs / g.groups.max(1));
    let Some(phase) = g.phases().into_iter().next().filter(|_| !g.transposed) else {
        return false;
    };
    has_bytes()
        && cg > 0
        && og.next_multiple_of(SIDE) <= 2 * og
        && cg * phase.taps.len() <= MOST
        && worth_copies(g, &phase, BYTES)
}

/// A convolution by words of bytes.
struct Words<'a> {
    frames: &'a Frames<'a>,
    out: Shared<u8>,
    x: &'a [u8],
    /// Bytes of a pixel of a copy.
    pixel: usize,
    /// The runs of taps.
    runs: &'a [Vec<usize>],
    /// Packed weights `[group][step][word][output]`.
    w: &'a [u32],
    /// Steps along k.
    steps: usize,
    /// From one row of weights to the next.
    lane: usize,
    /// What is taken from every sum of an output.
    own: &'a [i32],
    /// How often the sum of its inputs is taken from each, if from any.
    each: Option<&'a [i32]>,
    factors: &'a [f32],
    biases: &'a [f32],
    from: u8,
    ends: (f32, f32),
}

/// One number for each output.
fn all<T: Copy>(numbers: &[T], outputs: usize) -> Vec<T> {
    (0..outputs).map(|o| numbers[o % numbers.len()]).collect()
}

/// The convolution of bytes with weights `w` of signed bytes into `out`, of bytes.
///
/// # Errors
/// If a zero point is no byte, or memory cannot be had.
pub fn convolve(out: &Tensor, x: &Tensor, w: &Tensor, g: &Geometry, e: &Ends) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let g = &Geometry {
        channels_last: true,
        ..g.clone()
    };
    let (x, w) = (innermost(x, DType::U8)?, innermost(w, DType::I8)?);
    let order: Vec<usize> = std::iter::once(0).chain(2..out.ndim()).chain([1]).collect();
    let turned = out.permuted(&order);
    let made = crate::cpu::lines::results(&turned, DType::U8)?;
    let zeros = copy::dense(e.zeros, DType::I64)?;
    if let Some(far) = slice::<i64>(&zeros).iter().find(|z| z.unsigned_abs() > 255) {
        bail!(Runtime, "zero_point {far} is no byte");
    }
    let zeros: Vec<i32> = slice::<i64>(&zeros).iter().map(|&z| z as i32).collect();
    let zeros = all(&zeros, g.outputs);
    let dense = |t: &Tensor| copy::dense(t, DType::F32);
    let (factors, biases) = (dense(e.factors)?, dense(e.biases)?);
    let (factors, biases) = (
        all(slice::<f32>(&factors), g.outputs),
        all(slice::<f32>(&biases), g.outputs),
    );
    let shifted = zeros.iter().any(|&z| z != 0);
    let phases = g.phases();
    let phase = &phases[0];
    let frames = Frames::new(g, phase);
    let runs = frames.runs();
    let cg = g.inputs / g.groups;
    let packing = Packing {
        w: slice::<i8>(&w),
        runs: &runs,
        outputs: g.outputs / g.groups,
        channels: cg,
        pixel: cg.next_multiple_of(EACH),
        taps: phase.taps.len(),
        ones: shifted,
    };
    let packed = packing.packed(g.groups)?;
    let own = own(slice::<i8>(&w), cg * phase.taps.len(), &zeros, e.from);
    let tasks = Tasks::new(frames, BYTES);
    let words = Words {
        frames: &tasks.frames,
        out: Shared::new(slice_mut::<u8>(&made)),
        x: slice(&x),
        pixel: packing.pixel,
        runs: &runs,
        w: words_of(&packed),
        steps: packing.steps(),
        lane: packing.lane(),
        own: &own,
        each: shifted.then_some(&zeros[..]),
        factors: &factors,
        biases: &biases,
        from: e.from,
        ends: (e.zero as f32, e.low as f32),
    };
    let tiles: Vec<usize> = (0..packing.outputs).step_by(OUTPUTS).collect();
    tasks.run(&tiles, Rooms::default, |block, group, outputs, rooms| {
        words.block(block, group, outputs, rooms);
    });
    crate::cpu::lines::put(&turned, &made)
}

fn words_of(t: &Tensor) -> &[u32] {
    // SAFETY: a dense tensor of 32-bit integers.
    unsafe { std::slice::from_raw_parts(t.data_ptr().cast_const().cast(), t.numel() as usize) }
}

simd_fn! { wide
    fn sum_of(w: &[i8]) -> i32 {
        w.iter().map(|&w| i32::from(w)).sum()
    }
}

/// What the input's zero point takes from the sums of each output, of `count` products.
fn own(w: &[i8], count: usize, zeros: &[i32], from: u8) -> Vec<i32> {
    let less = |(row, &zero): (&[i8], &i32)| {
        i32::from(from).wrapping_mul(sum_of(row).wrapping_sub(zero.wrapping_mul(count as i32)))
    };
    w.chunks_exact(count).zip(zeros).map(less).collect()
}

/// The steps along k of a run of taps whose pixels have so many bytes.
fn steps_of(run: &[usize], pixel: usize) -> usize {
    (run.len() * pixel).div_ceil(STEP)
}

/// How weights `[output][tap][channel]` become words.
struct Packing<'a> {
    w: &'a [i8],
    runs: &'a [Vec<usize>],
    /// Outputs of a group.
    outputs: usize,
    /// Channels of a group, and bytes that a pixel has for them.
    channels: usize,
    pixel: usize,
    taps: usize,
    /// Whether a column of ones sums the inputs.
    ones: bool,
}

impl Packing<'_> {
    fn columns(&self) -> usize {
        self.outputs + usize::from(self.ones)
    }

    /// Sixteen rows of words do not share sets of the first cache.
    fn lane(&self) -> usize {
        self.columns().next_multiple_of(OUTPUTS) | SIDE
    }

    fn steps(&self) -> usize {
        self.runs.iter().map(|run| steps_of(run, self.pixel)).sum()
    }

    /// The weights of all groups `[group][step][word][output]`.
    fn packed(&self, groups: usize) -> Result<Tensor> {
        let (words, lane) = (self.steps() * WORDS, self.lane());
        let size = groups * words * lane + OUTPUTS;
        let to = Tensor::empty(&[size as i64], DType::I32, Device::CPU)?;
        let start = Shared::new(slice_mut::<i32>(&to));
        let pieces = self.columns().div_ceil(OUTPUTS);
        pool::parallel_for(groups * pieces, 1, |range| {
            let mut rows = vec![0u8; OUTPUTS * words * EACH];
            for i in range {
                let (group, first) = (i / pieces, i % pieces * OUTPUTS);
                let count = OUTPUTS.min(self.columns() - first);
                for (o, row) in (first..first + count).zip(rows.chunks_exact_mut(words * EACH)) {
                    self.row(group, o, row);
                }
                // SAFETY: the columns of each piece are written by one task, and lie within the tensor.
                unsafe {
                    let to = start.get().add(group * words * lane + first);
                    let from = (rows.as_ptr(), words);
                    transpose::plane(EACH, (to.cast(), lane), from, [count, words]);
                }
            }
        });
        Ok(to)
    }

    /// The bytes of one output, or of the column of ones.
    fn row(&self, group: usize, o: usize, to: &mut [u8]) {
        let mut at = 0;
        for run in self.runs {
            for (i, &tap) in run.iter().enumerate() {
                let to = &mut to[at + i * self.pixel..][..self.channels];
                if o == self.outputs {
                    to.fill(1);
                    continue;
                }
                let from = ((group * self.outputs + o) * self.taps + tap) * self.channels;
                let from = &self.w[from..from + self.channels];
                to.iter_mut().zip(from).for_each(|(to, &w)| *to = w as u8);
            }
            at += steps_of(run, self.pixel) * STEP;
        }
    }
}

/// What a thread works in.
#[derive(Default)]
struct Rooms {
    /// The block that the places are for.
    block: Option<Block>,
    /// Where steps begin in copies, and in the weights.
    windows: Vec<usize>,
    places: Vec<usize>,
    frame: Vec<u32>,
    sums: Vec<i32>,
    /// Sums of the inputs of each position.
    inputs: Vec<i32>,
}

simd_fn! { wide
    /// Takes what zero points add to the sums of a position.
    fn less(sums: &mut [i32], own: &[i32]) {
        for (sum, &own) in sums.iter_mut().zip(own) {
            *sum = sum.wrapping_sub(own);
        }
    }
}

simd_fn! { wide
    /// The same, and the sum of the inputs so often as an output says.
    fn less_inputs(sums: &mut [i32], own: &[i32], each: &[i32], inputs: i32) {
        for ((sum, &own), &each) in sums.iter_mut().zip(own).zip(each) {
            *sum = sum.wrapping_sub(own).wrapping_sub(each.wrapping_mul(inputs));
        }
    }
}

impl Words<'_> {
    /// Places for blocks like this one, and room.
    fn prepare(&self, b: &Block, rooms: &mut Rooms) {
        let words = self.pixel / EACH;
        let table = self.frames.table(b, 0..1);
        rooms.windows.clear();
        for run in self.runs {
            let steps = steps_of(run, self.pixel);
            let first = table[run[0]] * words;
            rooms.windows.extend((0..steps).map(|i| first + i * WORDS));
        }
        rooms.places = (0..self.steps).map(|i| i * WORDS * self.lane).collect();
        let places = self.frames.planes() * self.frames.sizes(b).plane;
        rooms.frame.resize((places + SIDE) * words + 2 * WORDS, 0);
    }

    /// Some outputs of a block of positions.
    fn block(&self, b: &Block, group: usize, outputs: Range<usize>, rooms: &mut Rooms) {
        let g = self.frames.g;
        let (og, cg) = (g.outputs / g.groups, g.inputs / g.groups);
        let flat = self.frames.sizes(b).flat;
        let same = |k: &Block| (k.units, k.count) == (b.units, b.count);
        if !rooms.block.as_ref().is_some_and(same) {
            self.prepare(b, rooms);
        }
        rooms.block = Some(*b);
        let frame = rooms.frame.as_mut_ptr().cast::<u8>();
        // SAFETY: the room holds what the layout of the block says.
        unsafe {
            let x = (self.x.as_ptr().add(group * cg), g.inputs);
            self.frames
                .fill_pixels(b, cg, x, (frame, self.pixel), self.from);
        }
        let w = &self.w[group * self.steps * WORDS * self.lane..];
        if self.each.is_some() {
            let pitch = self.product(flat, w, og..og + 1, rooms);
            let sums = rooms.sums.chunks_exact(pitch).take(flat);
            rooms.inputs.clear();
            rooms.inputs.extend(sums.map(|sums| sums[0]));
        }
        let strip = (STRIP / (self.steps * STEP))
            .next_multiple_of(OUTPUTS)
            .max(OUTPUTS);
        for first in outputs.clone().step_by(strip) {
            let some = first..outputs.end.min(first + strip);
            let pitch = self.product(flat, w, some.clone(), rooms);
            self.finish(
                b,
                group * og + some.start..group * og + some.end,
                pitch,
                rooms,
            );
        }
    }

    /// Products of all positions with some columns of the weights; from one row of sums to the next.
    fn product(&self, flat: usize, w: &[u32], columns: Range<usize>, rooms: &mut Rooms) -> usize {
        let pitch = columns.len().next_multiple_of(OUTPUTS);
        rooms.sums.resize(flat.next_multiple_of(SIDE) * pitch, 0);
        let product = Tiled {
            kind: Kind::Unsigned,
            m: flat,
            n: columns.len(),
            a: Rows::windows(rooms.frame.as_ptr(), self.pixel / EACH, &rooms.windows),
            b: w[columns.start..].as_ptr(),
            places: &rooms.places,
            lane: self.lane,
            part: if self.steps > 2 * PART {
                PART
            } else {
                self.steps
            },
            c: rooms.sums.as_mut_ptr().cast(),
            pitch,
            add: false,
        };
        // SAFETY: copy, weights and sums have whole tiles.
        unsafe { product.run() };
        pitch
    }

    /// Sums as integers of the result, at their places.
    fn finish(&self, b: &Block, outputs: Range<usize>, pitch: usize, rooms: &mut Rooms) {
        let (g, s) = (self.frames.g, self.frames.sizes(b));
        let positions = g.out.iter().product::<usize>();
        let own = &self.own[outputs.clone()];
        let each = self.each.map(|each| &each[outputs.clone()]);
        let (factors, biases) = (
            &self.factors[outputs.clone()],
            &self.biases[outputs.clone()],
        );
        for (slice, (image, depth)) in self.frames.slices(b).enumerate() {
            for row in 0..b.count[0] {
                let line = (depth * g.out[1] + b.first[0] + row) * g.out[2] + b.first[1];
                let from = (slice * s.lines + row) * s.pitch;
                for i in 0..b.count[1] {
                    let sums = &mut rooms.sums[(from + i) * pitch..][..outputs.len()];
                    match each {
                        Some(each) => less_inputs(sums, own, each, rooms.inputs[from + i]),
                        None => less(sums, own),
                    }
                    let at = (image * positions + line + i) * g.outputs + outputs.start;
                    // SAFETY: no other task has these outputs of this position.
                    let to = unsafe { self.out.part(at, outputs.len()) };
                    rescaled_line(to, sums, factors, biases, self.ends);
                }
            }
        }
    }
}
