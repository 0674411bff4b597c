//! The number types of GGUF files: plain ones, and blocks of quantised numbers that share scales.
//!
//! Layouts and formulas are those of ggml's reference implementation (`ggml-quants.c`, `ggml-common.h`).

use super::ggml_grids as grids;
use crate::{DType, Result, bail, ensure, err};
use half::f16;

macro_rules! kinds {
    ($($kind:ident $number:literal $name:literal $count:literal $bytes:literal;)+) => {
        /// A number type of ggml.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, non_camel_case_types, reason = "the names are ggml's")]
        pub enum Kind { $($kind),+ }

        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Kind] = &[$(Kind::$kind),+];

            /// The kind of this number in a file.
            #[must_use]
            pub fn from_number(number: u32) -> Option<Self> {
                match number { $($number => Some(Self::$kind),)+ _ => None }
            }

            /// ggml's name: `Q4_K`.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Self::$kind => $name),+ }
            }

            /// Elements of a block.
            #[must_use]
            pub fn block(self) -> usize {
                match self { $(Self::$kind => $count),+ }
            }

            /// Bytes of a block.
            #[must_use]
            pub fn block_bytes(self) -> usize {
                match self { $(Self::$kind => $bytes),+ }
            }
        }
    };
}

kinds! {
    F32 0 "F32" 1 4;
    F16 1 "F16" 1 2;
    Q4_0 2 "Q4_0" 32 18;
    Q4_1 3 "Q4_1" 32 20;
    Q5_0 6 "Q5_0" 32 22;
    Q5_1 7 "Q5_1" 32 24;
    Q8_0 8 "Q8_0" 32 34;
    Q8_1 9 "Q8_1" 32 36;
    Q2_K 10 "Q2_K" 256 84;
    Q3_K 11 "Q3_K" 256 110;
    Q4_K 12 "Q4_K" 256 144;
    Q5_K 13 "Q5_K" 256 176;
    Q6_K 14 "Q6_K" 256 210;
    Q8_K 15 "Q8_K" 256 292;
    IQ2_XXS 16 "IQ2_XXS" 256 66;
    IQ2_XS 17 "IQ2_XS" 256 74;
    IQ3_XXS 18 "IQ3_XXS" 256 98;
    IQ1_S 19 "IQ1_S" 256 50;
    IQ4_NL 20 "IQ4_NL" 32 18;
    IQ3_S 21 "IQ3_S" 256 110;
    IQ2_S 22 "IQ2_S" 256 82;
    IQ4_XS 23 "IQ4_XS" 256 136;
    I8 24 "I8" 1 1;
    I16 25 "I16" 1 2;
    I32 26 "I32" 1 4;
    I64 27 "I64" 1 8;
    F64 28 "F64" 1 8;
    IQ1_M 29 "IQ1_M" 256 56;
    BF16 30 "BF16" 1 2;
    TQ1_0 34 "TQ1_0" 256 54;
    TQ2_0 35 "TQ2_0" 256 66;
    MXFP4 39 "MXFP4" 32 17;
    NVFP4 40 "NVFP4" 64 36;
    Q1_0 41 "Q1_0" 128 18;
    Q2_0 42 "Q2_0" 64 18;
}

/// The values of 4-bit numbers in `IQ4_NL` and `IQ4_XS`.
const IQ4: [i8; 16] = [
    -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
];
/// Twice the values of the 4-bit floats of `MXFP4` and `NVFP4`.
const FP4: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

impl Kind {
    /// The dtype whose elements the file holds as they are; none for blocks.
    #[must_use]
    pub fn dtype(self) -> Option<DType> {
        Some(match self {
            Self::F32 => DType::F32,
            Self::F16 => DType::F16,
            Self::BF16 => DType::BF16,
            Self::F64 => DType::F64,
            Self::I8 => DType::I8,
            Self::I16 => DType::I16,
            Self::I32 => DType::I32,
            Self::I64 => DType::I64,
            _ => return None,
        })
    }

    /// The bytes of 32-bit floats that blocks stand for.
    ///
    /// # Errors
    /// If the bytes are not whole blocks, or the kind has none.
    pub fn dequantize(self, bytes: &[u8]) -> Result<Vec<u8>> {
        let (count, size) = (self.block(), self.block_bytes());
        ensure!(
            bytes.len().is_multiple_of(size),
            Checkpoint,
            "{} bytes are not whole blocks of {size}",
            bytes.len()
        );
        let decode: fn(&[u8], &mut [f32]) = match self {
            Self::Q4_0 => q4_0,
            Self::Q4_1 => q4_1,
            Self::Q5_0 => q5_0,
            Self::Q5_1 => q5_1,
            Self::Q8_0 => q8_0,
            Self::Q8_1 => q8_1,
            Self::Q2_K => q2_k,
            Self::Q3_K => q3_k,
            Self::Q4_K => q4_k,
            Self::Q5_K => q5_k,
            Self::Q6_K => q6_k,
            Self::Q8_K => q8_k,
            Self::IQ4_NL => iq4_nl,
            Self::IQ4_XS => iq4_xs,
            Self::TQ1_0 => tq1_0,
            Self::TQ2_0 => tq2_0,
            Self::IQ1_S => grids::iq1_s,
            Self::IQ1_M => grids::iq1_m,
            Self::IQ2_XXS => grids::iq2_xxs,
            Self::IQ2_XS => grids::iq2_xs,
            Self::IQ2_S => grids::iq2_s,
            Self::IQ3_XXS => grids::iq3_xxs,
            Self::IQ3_S => grids::iq3_s,
            Self::MXFP4 => mxfp4,
            Self::NVFP4 => nvfp4,
            Self::Q1_0 => q1_0,
            Self::Q2_0 => q2_0,
            plain => bail!(Value, "{} numbers are not in blocks", plain.name()),
        };
        let blocks = bytes.len() / size;
        let total = blocks
            .checked_mul(count * 4)
            .ok_or_else(|| err!(Memory, "a tensor that is too large"))?;
        let mut out = Vec::new();
        out.try_reserve_exact(total)
            .map_err(|_| err!(Memory, "no memory for {total} bytes of floats"))?;
        let mut floats = [0f32; 256];
        for block in bytes.chunks_exact(size) {
            let floats = &mut floats[..count];
            decode(block, floats);
            for f in floats {
                out.extend_from_slice(&f.to_le_bytes());
            }
        }
        Ok(out)
    }
}

/// The half-precision number at `at`.
pub(super) fn half(b: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([b[at], b[at + 1]]).to_f32()
}

fn single(b: &[u8], at: usize) -> f32 {
    f32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

pub(super) fn word(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}

fn q4_0(b: &[u8], y: &mut [f32]) {
    let d = half(b, 0);
    for i in 0..16 {
        let q = b[2 + i];
        y[i] = d * (f32::from(q & 15) - 8.0);
        y[i + 16] = d * (f32::from(q >> 4) - 8.0);
    }
}

fn q4_1(b: &[u8], y: &mut [f32]) {
    let (d, m) = (half(b, 0), half(b, 2));
    for i in 0..16 {
        let q = b[4 + i];
        y[i] = d * f32::from(q & 15) + m;
        y[i + 16] = d * f32::from(q >> 4) + m;
    }
}

/// The two 5-bit numbers of byte `i`, whose fifth bits are in `high`.
fn five(q: u8, high: u32, i: usize) -> (f32, f32) {
    let low = u32::from(q & 15) | ((high >> i) << 4) & 16;
    let top = u32::from(q >> 4) | (high >> (i + 12)) & 16;
    (low as f32, top as f32)
}

fn q5_0(b: &[u8], y: &mut [f32]) {
    let (d, high) = (half(b, 0), word(b, 2));
    for i in 0..16 {
        let (low, top) = five(b[6 + i], high, i);
        y[i] = d * (low - 16.0);
        y[i + 16] = d * (top - 16.0);
    }
}

fn q5_1(b: &[u8], y: &mut [f32]) {
    let (d, m, high) = (half(b, 0), half(b, 2), word(b, 4));
    for i in 0..16 {
        let (low, top) = five(b[8 + i], high, i);
        y[i] = d * low + m;
        y[i + 16] = d * top + m;
    }
}

fn q8_0(b: &[u8], y: &mut [f32]) {
    let d = half(b, 0);
    for (y, &q) in y.iter_mut().zip(&b[2..]) {
        *y = d * f32::from(q as i8);
    }
}

fn q8_1(b: &[u8], y: &mut [f32]) {
    let d = half(b, 0);
    for (y, &q) in y.iter_mut().zip(&b[4..]) {
        *y = d * f32::from(q as i8);
    }
}

fn q8_k(b: &[u8], y: &mut [f32]) {
    let d = single(b, 0);
    for (y, &q) in y.iter_mut().zip(&b[4..260]) {
        *y = d * f32::from(q as i8);
    }
}

fn q2_k(b: &[u8], y: &mut [f32]) {
    let (scales, qs) = (&b[..16], &b[16..80]);
    let (d, min) = (half(b, 80), half(b, 82));
    for (group, y) in y.chunks_exact_mut(16).enumerate() {
        // Eight groups of 16 share 32 bytes, two bits each.
        let (part, shift) = (group / 8, (group % 8) / 2 * 2);
        let from = part * 32 + group % 2 * 16;
        let (scale, low) = (
            d * f32::from(scales[group] & 15),
            min * f32::from(scales[group] >> 4),
        );
        for (y, &q) in y.iter_mut().zip(&qs[from..from + 16]) {
            *y = scale * f32::from((q >> shift) & 3) - low;
        }
    }
}

fn q3_k(b: &[u8], y: &mut [f32]) {
    let (mask, qs, packed, d) = (&b[..32], &b[32..96], &b[96..108], half(b, 108));
    for (group, y) in y.chunks_exact_mut(16).enumerate() {
        let (part, plane) = (group / 8, group % 8 / 2);
        let from = part * 32 + group % 2 * 16;
        let bit = part * 4 + plane;
        // Scales have six bits: four in one place, two in another.
        let low = if group < 8 {
            packed[group] & 15
        } else {
            packed[group - 8] >> 4
        };
        let top = (packed[8 + group % 4] >> (group / 4 * 2)) & 3;
        let scale = d * (f32::from(low | top << 4) - 32.0);
        for (i, y) in y.iter_mut().enumerate() {
            let q = (qs[from + i] >> (plane * 2)) & 3;
            let set = mask[group % 2 * 16 + i] >> bit & 1;
            *y = scale * (f32::from(q) - if set == 1 { 0.0 } else { 4.0 });
        }
    }
}

/// The scale and minimum of group `j` of eight, of six bits each.
fn scale_min(packed: &[u8], j: usize) -> (f32, f32) {
    let (scale, min) = if j < 4 {
        (packed[j] & 63, packed[j + 4] & 63)
    } else {
        (
            (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4,
            (packed[j + 4] >> 4) | (packed[j] >> 6) << 4,
        )
    };
    (f32::from(scale), f32::from(min))
}

fn q4_k(b: &[u8], y: &mut [f32]) {
    let (d, min, packed, qs) = (half(b, 0), half(b, 2), &b[4..16], &b[16..]);
    for (group, y) in y.chunks_exact_mut(32).enumerate() {
        let (scale, low) = scale_min(packed, group);
        let (scale, low) = (d * scale, min * low);
        let shift = group % 2 * 4;
        for (y, &q) in y.iter_mut().zip(&qs[group / 2 * 32..]) {
            *y = scale * f32::from((q >> shift) & 15) - low;
        }
    }
}

fn q5_k(b: &[u8], y: &mut [f32]) {
    let (d, min, packed) = (half(b, 0), half(b, 2), &b[4..16]);
    let (high, qs) = (&b[16..48], &b[48..]);
    for (group, y) in y.chunks_exact_mut(32).enumerate() {
        let (scale, low) = scale_min(packed, group);
        let (scale, low) = (d * scale, min * low);
        let shift = group % 2 * 4;
        for (i, y) in y.iter_mut().enumerate() {
            let q = (qs[group / 2 * 32 + i] >> shift) & 15;
            let fifth = (high[i] >> group & 1) << 4;
            *y = scale * f32::from(q | fifth) - low;
        }
    }
}

fn q6_k(b: &[u8], y: &mut [f32]) {
    let (low, high, scales, d) = (&b[..128], &b[128..192], &b[192..208], half(b, 208));
    for (half, y) in y.chunks_exact_mut(128).enumerate() {
        let (low, high) = (&low[half * 64..], &high[half * 32..]);
        for (i, y) in y.iter_mut().enumerate() {
            // Four rows of 32; two rows share the bytes of their low halves.
            let (row, column) = (i / 32, i % 32);
            let nibble = (low[column + row % 2 * 32] >> (row / 2 * 4)) & 15;
            let top = (high[column] >> (row * 2)) & 3;
            let scale = f32::from(scales[half * 8 + i / 16] as i8);
            *y = d * scale * (f32::from(nibble | top << 4) - 32.0);
        }
    }
}

fn iq4_nl(b: &[u8], y: &mut [f32]) {
    let d = half(b, 0);
    for i in 0..16 {
        let q = b[2 + i];
        y[i] = d * f32::from(IQ4[usize::from(q & 15)]);
        y[i + 16] = d * f32::from(IQ4[usize::from(q >> 4)]);
    }
}

fn iq4_xs(b: &[u8], y: &mut [f32]) {
    let (d, high) = (half(b, 0), u16::from_le_bytes([b[2], b[3]]));
    let (low, qs) = (&b[4..8], &b[8..]);
    for (group, y) in y.chunks_exact_mut(32).enumerate() {
        let scale =
            u16::from(low[group / 2] >> (group % 2 * 4) & 15) | (high >> (group * 2) & 3) << 4;
        let d = d * (f32::from(scale) - 32.0);
        for i in 0..16 {
            let q = qs[group * 16 + i];
            y[i] = d * f32::from(IQ4[usize::from(q & 15)]);
            y[i + 16] = d * f32::from(IQ4[usize::from(q >> 4)]);
        }
    }
}

/// The ternary digit in the top bits of `q`, multiplied so that digit `n` is there.
fn trit(q: u8, n: usize) -> f32 {
    const POWERS: [u8; 6] = [1, 3, 9, 27, 81, 243];
    let q = q.wrapping_mul(POWERS[n]);
    f32::from((u16::from(q) * 3) >> 8) - 1.0
}

fn tq1_0(b: &[u8], y: &mut [f32]) {
    let (qs, qh, d) = (&b[..48], &b[48..52], half(b, 52));
    let mut at = 0;
    let rows = [(0..32, 5), (32..48, 5)].into_iter();
    for (range, digits) in rows {
        for n in 0..digits {
            for &q in &qs[range.clone()] {
                y[at] = trit(q, n) * d;
                at += 1;
            }
        }
    }
    for n in 0..4 {
        for &q in qh {
            y[at] = trit(q, n) * d;
            at += 1;
        }
    }
}

fn tq2_0(b: &[u8], y: &mut [f32]) {
    let d = half(b, 64);
    for (part, y) in y.chunks_exact_mut(128).enumerate() {
        for (i, y) in y.iter_mut().enumerate() {
            let q = b[part * 32 + i % 32] >> (i / 32 * 2) & 3;
            *y = (f32::from(q) - 1.0) * d;
        }
    }
}

fn mxfp4(b: &[u8], y: &mut [f32]) {
    // The exponent is of 2, and the table holds doubled values.
    let d = match b[0] {
        0 => f32::from_bits(0x0020_0000),
        1 => f32::from_bits(0x0040_0000),
        e => f32::from_bits((u32::from(e) - 1) << 23),
    };
    for i in 0..16 {
        let q = b[1 + i];
        y[i] = d * f32::from(FP4[usize::from(q & 15)]);
        y[i + 16] = d * f32::from(FP4[usize::from(q >> 4)]);
    }
}

/// Half the value of an unsigned 8-bit float: four bits of exponent, three of mantissa. Its NaN counts as zero.
fn half_of_e4m3(b: u8) -> f32 {
    let (exponent, mantissa) = (i32::from(b >> 3 & 15), f32::from(b & 7));
    match (b, exponent) {
        (0x7f, _) => 0.0,
        (_, 0) => mantissa * f32::powi(2.0, -10),
        _ => (1.0 + mantissa / 8.0) * f32::powi(2.0, exponent - 8),
    }
}

fn nvfp4(b: &[u8], y: &mut [f32]) {
    for (part, y) in y.chunks_exact_mut(16).enumerate() {
        let d = half_of_e4m3(b[part]);
        for i in 0..8 {
            let q = b[4 + 8 * part + i];
            y[i] = d * f32::from(FP4[usize::from(q & 15)]);
            y[i + 8] = d * f32::from(FP4[usize::from(q >> 4)]);
        }
    }
}

fn q1_0(b: &[u8], y: &mut [f32]) {
    let d = half(b, 0);
    for (i, y) in y.iter_mut().enumerate() {
        *y = if b[2 + i / 8] >> (i % 8) & 1 == 1 {
            d
        } else {
            -d
        };
    }
}

fn q2_0(b: &[u8], y: &mut [f32]) {
    let d = half(b, 0);
    for (i, y) in y.iter_mut().enumerate() {
        *y = d * (f32::from(b[2 + i / 4] >> (2 * (i % 4)) & 3) - 1.0);
    }
}
