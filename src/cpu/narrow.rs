//! Conversions to and from the storage-only types: 8-bit floats and complex of halves.

#![allow(unsafe_code, reason = "reads and writes tensor memory of any layout")]

use crate::cpu::copy::Cast as _;
use crate::{DType, Result, bail};
use half::f16;
use num_complex::Complex64;

/// The parts of an 8-bit float format: exponent bits, mantissa bits, bias, and how it spells infinity and NaN.
struct Format {
    exp: u32,
    man: u32,
    bias: i32,
    /// Infinities exist (e5m2 only).
    inf: bool,
    /// NaN is the single code 0x80, and there is no negative zero (the "fnuz" formats).
    uz: bool,
}

impl Format {
    const fn new(exp: u32, man: u32, bias: i32, inf: bool, uz: bool) -> Self {
        Self {
            exp,
            man,
            bias,
            inf,
            uz,
        }
    }
}

fn format(d: DType) -> Option<Format> {
    Some(match d {
        DType::F8E4M3FN => Format::new(4, 3, 7, false, false),
        DType::F8E5M2 => Format::new(5, 2, 15, true, false),
        DType::F8E4M3FNUZ => Format::new(4, 3, 8, false, true),
        DType::F8E5M2FNUZ => Format::new(5, 2, 16, false, true),
        _ => return None,
    })
}

fn decode(f: &Format, bits: u8) -> f32 {
    if f.uz && bits == 0x80 {
        return f32::NAN;
    }
    let sign = if bits & 0x80 != 0 { -1.0 } else { 1.0 };
    let man = u32::from(bits) & ((1 << f.man) - 1);
    let exp = (u32::from(bits) >> f.man) & ((1 << f.exp) - 1);
    let top = (1 << f.exp) - 1;
    if f.inf && exp == top {
        return if man == 0 {
            sign * f32::INFINITY
        } else {
            f32::NAN
        };
    }
    if !f.inf && !f.uz && exp == top && man == (1 << f.man) - 1 {
        return f32::NAN;
    }
    let scale = |e: i32| (f64::from(e)).exp2() as f32;
    if exp == 0 {
        sign * man as f32 * scale(1 - f.bias - f.man as i32)
    } else {
        sign * (man + (1 << f.man)) as f32 * scale(exp as i32 - f.bias - f.man as i32)
    }
}

/// Rounds to nearest even; overflow gives infinity where it exists, the largest value in e4m3fn, else NaN.
fn encode(f: &Format, v: f32) -> u8 {
    let sign = if v.is_sign_negative() { 0x80u8 } else { 0 };
    let nan = if f.uz { 0x80 } else { sign | 0x7f };
    if v.is_nan() {
        return nan;
    }
    let overflow = match (f.inf, f.uz) {
        (true, _) => sign | 0x7c,
        (false, true) => nan,
        (false, false) => sign | 0x7e,
    };
    let a = f64::from(v.abs());
    if a.is_infinite() {
        return overflow;
    }
    if a == 0.0 {
        return if f.uz { 0 } else { sign };
    }
    let e = (a.log2().floor() as i32).max(1 - f.bias);
    let mut units = (a / f64::from(e - f.man as i32).exp2()).round_ties_even();
    let mut e = e;
    if units >= f64::from(1u32 << (f.man + 1)) {
        units /= 2.0;
        e += 1;
    }
    let units = units as u32;
    let code = if units < (1 << f.man) {
        units
    } else {
        (((e + f.bias) as u32) << f.man) + (units - (1 << f.man))
    };
    let largest = match (f.inf, f.uz) {
        (true, _) => 0x7b,
        (false, true) => 0x7f,
        (false, false) => 0x7e,
    };
    if code > largest {
        return overflow;
    }
    if code == 0 && f.uz {
        0
    } else {
        sign | code as u8
    }
}

/// Any element as a complex double.
fn load(d: DType, p: *const u8) -> Complex64 {
    crate::with_dtype!(d, [bool int uint half float complex] => T, {
        // SAFETY: the caller's pointer is to an element of this dtype.
        return crate::Element::to_scalar(unsafe { <T as crate::Element>::load(p.cast()) }).to_c64();
    }, else {});
    // SAFETY: as above, by the sizes of the remaining dtypes.
    unsafe {
        match d {
            DType::C32 => {
                let [re, im] = p.cast::<[f16; 2]>().read_unaligned();
                Complex64::new(re.to_f64(), im.to_f64())
            }
            DType::F8E8M0FNU => {
                let v = if *p == 255 {
                    f64::NAN
                } else {
                    f64::from(i32::from(*p) - 127).exp2()
                };
                Complex64::new(v, 0.0)
            }
            _ => Complex64::new(format(d).map_or(0.0, |f| f64::from(decode(&f, *p))), 0.0),
        }
    }
}

/// Writes a number as an element; nothing, if the type has no numbers. There is room for one behind the pointer.
pub(super) fn store(d: DType, p: *mut u8, v: Complex64) {
    crate::with_dtype!(d, [bool int uint half float complex] => T, {
        // SAFETY: the caller's pointer is to an element of this dtype.
        unsafe { p.cast::<T>().write_unaligned(v.cast()) };
        return;
    }, else {});
    // SAFETY: as above, by the sizes of the remaining dtypes.
    unsafe {
        match d {
            DType::C32 => p
                .cast::<[f16; 2]>()
                .write_unaligned([f16::from_f32(v.re as f32), f16::from_f32(v.im as f32)]),
            DType::F8E8M0FNU => *p = e8m0(v.re as f32),
            _ => {
                if let Some(f) = format(d) {
                    *p = encode(&f, v.re as f32);
                }
            }
        }
    }
}

/// The power of two nearest to a float; ties and above round up, NaN and infinity are 255.
fn e8m0(v: f32) -> u8 {
    let bits = v.to_bits();
    let exp = (bits >> 23 & 0xff) as u8;
    if exp == 255 {
        return 255;
    }
    let (guard, rest) = (bits & 0x40_0000 != 0, bits & 0x3f_ffff != 0);
    if guard && (exp > 0 || rest) {
        exp + 1
    } else {
        exp
    }
}

/// Whether elements of a type are numbers that can be converted.
pub(super) fn known(d: DType) -> bool {
    !d.is_storage_only() || format(d).is_some() || d == DType::F8E8M0FNU
}

/// The row function between two dtypes of which one is narrow.
///
/// # Errors
/// If one has no numbers (quantised and packed types).
pub fn converter(
    from: DType,
    to: DType,
) -> Result<unsafe fn(*mut u8, isize, *const u8, isize, usize)> {
    if !known(from) || !known(to) {
        return Err(if known(from) { to } else { from }.no_kernel("copy_"));
    }
    macro_rules! rows {
        ($($d:ident)+) => {
            match (from, to) {
                $((DType::$d, _) => from_narrow::<{ DType::$d as u8 }>(to),
                (_, DType::$d) => to_narrow::<{ DType::$d as u8 }>(from),)+
                _ => bail!(NotImplemented, "\"copy_\" from {from} to {to} is not implemented"),
            }
        };
    }
    Ok(rows!(C32 F8E4M3FN F8E5M2 F8E4M3FNUZ F8E5M2FNUZ F8E8M0FNU))
}

type Row = unsafe fn(*mut u8, isize, *const u8, isize, usize);

unsafe fn row<const A: u8, const B: u8>(
    dst: *mut u8,
    sd: isize,
    src: *const u8,
    ss: isize,
    n: usize,
) {
    let (from, to) = (DType::ALL[A as usize], DType::ALL[B as usize]);
    for i in 0..n as isize {
        store(
            to,
            dst.wrapping_offset(i * sd),
            load(from, src.wrapping_offset(i * ss)),
        );
    }
}

macro_rules! pick {
    ($d:expr, |$B:ident| $e:expr, [$($v:ident)+]) => {
        match $d { $(DType::$v => { const $B: u8 = DType::$v as u8; $e })+ _ => unreachable_row }
    };
}

unsafe fn unreachable_row(_: *mut u8, _: isize, _: *const u8, _: isize, _: usize) {}

fn from_narrow<const A: u8>(to: DType) -> Row {
    pick!(to, |B| row::<A, B>, [Bool U8 I8 I16 I32 I64 U16 U32 U64 F16 BF16 F32 F64 C32 C64 C128 F8E4M3FN F8E5M2 F8E4M3FNUZ F8E5M2FNUZ F8E8M0FNU])
}

fn to_narrow<const B: u8>(from: DType) -> Row {
    pick!(from, |A| row::<A, B>, [Bool U8 I8 I16 I32 I64 U16 U32 U64 F16 BF16 F32 F64 C32 C64 C128])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives_a_round_trip() {
        for d in [
            DType::F8E4M3FN,
            DType::F8E5M2,
            DType::F8E4M3FNUZ,
            DType::F8E5M2FNUZ,
        ] {
            let f = format(d).unwrap();
            for code in 0..=255u8 {
                let v = decode(&f, code);
                if !v.is_nan() {
                    assert_eq!(encode(&f, v), code, "{d} {code:#x} {v}");
                }
            }
        }
    }
}
