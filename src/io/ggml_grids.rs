//! The number types of GGUF files whose magnitudes come from fixed tables: `IQ1`, `IQ2` and `IQ3`.
//!
//! Eight (or four) numbers at a time are a row of a table, and signs or an offset of their own. Layouts, formulas and the tables'
//! content are those of ggml (`ggml-quants.c`, `ggml-common.h`).

use super::ggml::{half, word};
use half::f16;

/// The tables one after another: a row is a little-endian 16-bit number that holds eight indices of two bits, or four of four bits,
/// the first lowest.
const ROWS: &[u8; 2 * 4608] = include_bytes!("ggml_grids.bin");

/// One of the tables.
struct Grid {
    /// Rows before it.
    start: usize,
    /// Bits of an index.
    bits: u32,
    /// What the indices stand for.
    values: &'static [i8],
}

const TWO: &[i8] = &[0x08, 0x19, 0x2b, 0];
const ONE: &[i8] = &[-1, 0, 1, 0];
const IQ2_XXS: Grid = grid(0, 2, TWO);
const IQ2_XS: Grid = grid(256, 2, TWO);
const IQ2_S: Grid = grid(768, 2, TWO);
const IQ1: Grid = grid(1792, 2, ONE);
const IQ3_XXS: Grid = grid(3840, 4, &[4, 12, 20, 28, 36, 44, 52, 62]);
const IQ3_S: Grid = grid(4096, 4, &[1, 3, 5, 7, 9, 11, 13, 15]);

const fn grid(start: usize, bits: u32, values: &'static [i8]) -> Grid {
    Grid {
        start,
        bits,
        values,
    }
}

impl Grid {
    /// The numbers of a row, which has as many as `y`.
    fn row(&self, row: usize, y: &mut [f32], f: impl Fn(usize, f32) -> f32) {
        let at = 2 * (self.start + row);
        let packed = u16::from_le_bytes([ROWS[at], ROWS[at + 1]]);
        for (k, y) in y.iter_mut().enumerate() {
            let index = packed >> (self.bits as usize * k) & ((1 << self.bits) - 1);
            *y = f(k, f32::from(self.values[usize::from(index)]));
        }
    }

    /// The same, where set bits say which are negative.
    fn signed(&self, row: usize, y: &mut [f32], scale: f32, signs: u8) {
        self.row(row, y, |k, x| match signs >> k & 1 {
            0 => scale * x,
            _ => -(scale * x),
        });
    }
}

/// Eight signs as seven bits: the last makes the number of negative ones even.
fn even(bits: u32) -> u8 {
    let seven = (bits & 127) as u8;
    seven | ((seven.count_ones() as u8 & 1) << 7)
}

fn short(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}

/// The four-bit number `i` of those that begin at `at`.
fn nibble(b: &[u8], at: usize, i: usize) -> f32 {
    f32::from(b[at + i / 2] >> (4 * (i % 2)) & 15)
}

pub(super) fn iq2_xxs(b: &[u8], y: &mut [f32]) {
    let d = half(b, 0);
    for (g, y) in y.chunks_exact_mut(32).enumerate() {
        let at = 2 + 8 * g;
        let signs = word(b, at + 4);
        let scale = d * (0.5 + (signs >> 28) as f32) * 0.25;
        for (l, y) in y.chunks_exact_mut(8).enumerate() {
            IQ2_XXS.signed(usize::from(b[at + l]), y, scale, even(signs >> (7 * l)));
        }
    }
}

pub(super) fn iq2_xs(b: &[u8], y: &mut [f32]) {
    let d = half(b, 0);
    for (i, y) in y.chunks_exact_mut(8).enumerate() {
        let q = short(b, 2 + 2 * i);
        let scale = d * (0.5 + nibble(b, 66, i / 2)) * 0.25;
        IQ2_XS.signed(usize::from(q & 511), y, scale, even(u32::from(q >> 9)));
    }
}

pub(super) fn iq2_s(b: &[u8], y: &mut [f32]) {
    let d = half(b, 0);
    for (i, y) in y.chunks_exact_mut(8).enumerate() {
        let high = b[66 + i / 4] >> (2 * (i % 4)) & 3;
        let scale = d * (0.5 + nibble(b, 74, i / 2)) * 0.25;
        IQ2_S.signed(joined(b[2 + i], high), y, scale, b[34 + i]);
    }
}

pub(super) fn iq3_xxs(b: &[u8], y: &mut [f32]) {
    let d = half(b, 0);
    for (i, y) in y.chunks_exact_mut(8).enumerate() {
        let signs = word(b, 66 + i / 4 * 4);
        let scale = d * (0.5 + (signs >> 28) as f32) * 0.5;
        let signs = even(signs >> (7 * (i % 4)));
        for (l, y) in y.chunks_exact_mut(4).enumerate() {
            IQ3_XXS.signed(usize::from(b[2 + 2 * i + l]), y, scale, signs >> (4 * l));
        }
    }
}

pub(super) fn iq3_s(b: &[u8], y: &mut [f32]) {
    let d = half(b, 0);
    for (i, y) in y.chunks_exact_mut(4).enumerate() {
        let high = b[66 + i / 8] >> (i % 8) & 1;
        let scale = d * (1.0 + 2.0 * nibble(b, 106, i / 8));
        let signs = b[74 + i / 2] >> (4 * (i % 2));
        IQ3_S.signed(joined(b[2 + i], high), y, scale, signs);
    }
}

pub(super) fn iq1_s(b: &[u8], y: &mut [f32]) {
    let d = half(b, 0);
    for (i, y) in y.chunks_exact_mut(8).enumerate() {
        let h = short(b, 34 + i / 4 * 2);
        let scale = d * f32::from(2 * (h >> 12 & 7) + 1);
        let shift = if h >> 15 == 0 { 0.125 } else { -0.125 };
        let high = (h >> (3 * (i % 4)) & 7) as u8;
        IQ1.row(joined(b[2 + i], high), y, |_, x| scale * (x + shift));
    }
}

pub(super) fn iq1_m(b: &[u8], y: &mut [f32]) {
    let scales = [48, 50, 52, 54].map(|at| short(b, at));
    // The four highest bits of each are a quarter of the half-precision scale.
    let d = scales.iter().rev().fold(0, |d, s| d << 4 | s >> 12);
    let d = f16::from_bits(d).to_f32();
    for (i, y) in y.chunks_exact_mut(8).enumerate() {
        let scale = d * f32::from(2 * (scales[i / 8] >> (3 * (i / 2 % 4)) & 7) + 1);
        let high = b[32 + i / 2] >> (4 * (i % 2)) & 15;
        let shift = if high & 8 == 0 { 0.125 } else { -0.125 };
        IQ1.row(joined(b[i], high & 7), y, |_, x| scale * (x + shift));
    }
}

fn joined(low: u8, high: u8) -> usize {
    usize::from(low) | usize::from(high) << 8
}
