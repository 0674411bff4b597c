//! Convolutions of quantised numbers: windows are read where they lie, in copies of pixels as they are, and their products with
//! weights are sums of words of four bytes.

#![allow(unsafe_code, reason = "products by pointer over checked layouts")]

use super::backward::innermost;
use super::frame::{Block, Frames};
use super::tasks::{Bytes, Tasks, worth_copies};
use super::{Geometry, Phase};
use crate::cpu::gemm::tiled::{Kind, Rows, SIDE, Tiled, WORDS, has_bytes};
use crate::cpu::lines::Shared;
use crate::cpu::quantize::{Columns, rescaled_rows};
use crate::cpu::room::Room;
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
    has_weights(og, cg * phase.taps.len()) && worth_copies(g, &phase, BYTES).is_some()
}

/// The same of weights alone: so many outputs of a group, each of which sums so many products.
fn has_weights(outputs: usize, products: usize) -> bool {
    has_bytes() && (1..=MOST).contains(&products) && outputs.next_multiple_of(SIDE) <= 2 * outputs
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
    w: &'a [i32],
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

/// The convolution of bytes with weights `w` of signed bytes, which may be [`packed`] already, into `out`, of bytes.
///
/// # Errors
/// If a zero point is no byte, packed weights are of another size, or memory cannot be had.
pub fn convolve(
    out: &Tensor,
    x: &Tensor,
    (w, packed): (&Tensor, Option<&Tensor>),
    g: &Geometry,
    e: &Ends,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let g = &read_by_pixels(g);
    let x = innermost(x, DType::U8)?;
    let turned = pixels(out);
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
    let packing = Packing::of(g, phase, &runs);
    let packed = match packed {
        Some(p) if p.numel() as usize == packing.size(g) => copy::dense(p, DType::I32)?,
        Some(_) => bail!(Runtime, "packed weights are of another convolution"),
        None => packing.packed(w, g)?,
    };
    let (packed, sums) = slice::<i32>(&packed).split_at(packing.words(g));
    let count = (packing.channels * packing.taps) as i32;
    let from = i32::from(e.from);
    // What the input's zero point takes from the sums of each output.
    let own =
        |(&sum, &zero): (&i32, &i32)| from.wrapping_mul(sum.wrapping_sub(count.wrapping_mul(zero)));
    let own: Vec<i32> = sums.iter().zip(&zeros).map(own).collect();
    let tasks = Tasks::new(frames, BYTES);
    let words = Words {
        frames: &tasks.frames,
        out: Shared::new(slice_mut::<u8>(&made)),
        x: slice(&x),
        pixel: packing.pixel,
        runs: &runs,
        w: packed,
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

/// Elements of [`packed`] weights of a convolution: none of such that are not read so, whatever the images.
#[must_use]
pub fn size_of_packed(g: &Geometry) -> usize {
    let phases = g.phases();
    let runs = Frames::new(g, &phases[0]).runs();
    let packing = Packing::of(g, &phases[0], &runs);
    if has_weights(packing.outputs, packing.channels * packing.taps) {
        packing.size(g)
    } else {
        0
    }
}

/// The weights of a convolution as [`convolve`] reads them, and behind them their sums.
///
/// # Errors
/// If memory cannot be had.
pub fn packed(w: &Tensor, g: &Geometry) -> Result<Tensor> {
    let phases = g.phases();
    let runs = Frames::new(g, &phases[0]).runs();
    Packing::of(g, &phases[0], &runs).packed(w, g)
}

/// What [`packed`] makes and takes.
///
/// # Errors
/// If a size overflows.
pub fn packed_room(room: &mut Room, w: &Tensor, g: &Geometry) -> Result<Tensor> {
    let phases = g.phases();
    let runs = Frames::new(g, &phases[0]).runs();
    let size = Packing::of(g, &phases[0], &runs).size(g) as i64;
    room.keep(|room| {
        room.dense(&pixels(w), DType::I8)?;
        room.empty(&[size], DType::I32)
    })
}

/// What [`convolve`] takes.
///
/// # Errors
/// If a size overflows.
pub fn room(
    room: &mut Room,
    out: &Tensor,
    x: &Tensor,
    (w, packed): (&Tensor, Option<&Tensor>),
    g: &Geometry,
    e: &Ends,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let g = &read_by_pixels(g);
    room.all_dense([x, out].map(pixels).iter().map(Some), DType::U8)?;
    room.dense(e.zeros, DType::I64)?;
    room.all_dense([Some(e.factors), Some(e.biases)], DType::F32)?;
    match packed {
        Some(p) => room.dense(p, DType::I32),
        None => packed_room(room, w, g),
    }
    .map(drop)
}

fn read_by_pixels(g: &Geometry) -> Geometry {
    Geometry {
        channels_last: true,
        ..g.clone()
    }
}

/// A tensor with its channels as the last dimension.
fn pixels(t: &Tensor) -> Tensor {
    let order: Vec<usize> = std::iter::once(0).chain(2..t.ndim()).chain([1]).collect();
    t.permuted(&order)
}

simd_fn! { wide
    fn sum_of(w: &[i8]) -> i32 {
        w.iter().map(|&w| i32::from(w)).sum()
    }
}

/// The steps along k of a run of taps whose pixels have so many bytes.
fn steps_of(run: &[usize], pixel: usize) -> usize {
    (run.len() * pixel).div_ceil(STEP)
}

/// How weights `[output][tap][channel]` become words.
struct Packing<'a> {
    runs: &'a [Vec<usize>],
    /// Outputs of a group.
    outputs: usize,
    /// Channels of a group, and bytes that a pixel has for them.
    channels: usize,
    pixel: usize,
    taps: usize,
}

impl<'a> Packing<'a> {
    fn of(g: &Geometry, phase: &Phase, runs: &'a [Vec<usize>]) -> Self {
        let channels = g.inputs / g.groups;
        Self {
            runs,
            outputs: g.outputs / g.groups,
            channels,
            pixel: channels.next_multiple_of(EACH),
            taps: phase.taps.len(),
        }
    }

    /// Columns of a group: its outputs, and one of ones, which sums the inputs.
    fn columns(&self) -> usize {
        self.outputs + 1
    }

    /// Words of all groups, with what the last tile reads behind them.
    fn words(&self, g: &Geometry) -> usize {
        g.groups * self.steps() * WORDS * self.lane() + OUTPUTS
    }

    /// The same with the sums of the weights.
    fn size(&self, g: &Geometry) -> usize {
        self.words(g) + g.outputs
    }

    /// Sixteen rows of words do not share sets of the first cache.
    fn lane(&self) -> usize {
        self.columns().next_multiple_of(OUTPUTS) | SIDE
    }

    fn steps(&self) -> usize {
        self.runs.iter().map(|run| steps_of(run, self.pixel)).sum()
    }

    /// The weights of all groups `[group][step][word][output]`, and the sum of each output's.
    fn packed(&self, w: &Tensor, g: &Geometry) -> Result<Tensor> {
        let groups = g.groups;
        let w = innermost(w, DType::I8)?;
        let w = slice::<i8>(&w);
        let (words, lane) = (self.steps() * WORDS, self.lane());
        let to = Tensor::empty(&[self.size(g) as i64], DType::I32, Device::CPU)?;
        slice_mut::<i32>(&to).fill(0);
        let sums = w.chunks_exact((self.taps * self.channels).max(1));
        let ends = &mut slice_mut::<i32>(&to)[self.words(g)..];
        ends.iter_mut()
            .zip(sums)
            .for_each(|(to, row)| *to = sum_of(row));
        let start = Shared::new(slice_mut::<i32>(&to));
        let pieces = self.columns().div_ceil(OUTPUTS);
        pool::parallel_for(groups * pieces, 1, |range| {
            let mut rows = vec![0u8; OUTPUTS * words * EACH];
            for i in range {
                let (group, first) = (i / pieces, i % pieces * OUTPUTS);
                let count = OUTPUTS.min(self.columns() - first);
                for (o, row) in (first..first + count).zip(rows.chunks_exact_mut(words * EACH)) {
                    self.row(w, group * self.outputs, o, row);
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

    /// The bytes of one output of a group, whose outputs begin at `first`, or of the column of ones.
    fn row(&self, w: &[i8], first: usize, o: usize, to: &mut [u8]) {
        let mut at = 0;
        for run in self.runs {
            for (i, &tap) in run.iter().enumerate() {
                let to = &mut to[at + i * self.pixel..][..self.channels];
                if o == self.outputs {
                    to.fill(1);
                    continue;
                }
                let from = ((first + o) * self.taps + tap) * self.channels;
                let from = &w[from..from + self.channels];
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
    /// Takes the sum of the inputs of a position so often as each output says.
    fn less_inputs(sums: &mut [i32], each: &[i32], inputs: i32) {
        for (sum, &each) in sums.iter_mut().zip(each) {
            *sum = sum.wrapping_sub(each.wrapping_mul(inputs));
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
    fn product(&self, flat: usize, w: &[i32], columns: Range<usize>, rooms: &mut Rooms) -> usize {
        let pitch = columns.len().next_multiple_of(OUTPUTS);
        rooms.sums.resize(flat.next_multiple_of(SIDE) * pitch, 0);
        let product = Tiled {
            kind: Kind::Unsigned,
            m: flat,
            n: columns.len(),
            a: Rows::windows(rooms.frame.as_ptr(), self.pixel / EACH, &rooms.windows),
            b: w[columns.start..].as_ptr().cast(),
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
        let columns = Columns {
            own: &self.own[outputs.clone()],
            factors: &self.factors[outputs.clone()],
            biases: &self.biases[outputs.clone()],
            ends: self.ends,
        };
        let n = b.count[1];
        for (slice, (image, depth)) in self.frames.slices(b).enumerate() {
            for row in 0..b.count[0] {
                let line = (depth * g.out[1] + b.first[0] + row) * g.out[2] + b.first[1];
                let from = (slice * s.lines + row) * s.pitch;
                let sums = &mut rooms.sums[from * pitch..(from + n) * pitch];
                if let Some(each) = self.each {
                    let each = &each[outputs.clone()];
                    for (sums, &inputs) in sums.chunks_exact_mut(pitch).zip(&rooms.inputs[from..]) {
                        less_inputs(sums, each, inputs);
                    }
                }
                let at = (image * positions + line) * g.outputs + outputs.start;
                // The line's positions lie within the result, and no other task has these outputs of them.
                let to = self.out.get().wrapping_add(at);
                rescaled_rows(to, g.outputs, sums, pitch, columns);
            }
        }
    }
}
