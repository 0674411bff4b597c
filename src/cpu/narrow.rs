//! Conversions to and from the storage-only types: 8-bit floats and complex of halves.

#![allow(unsafe_code, reason = "reads and writes tensor memory of any layout")]

use crate::cpu::copy::Cast as _;
use crate::cpu::simd::simd_fn;
use crate::{DType, Result, bail};
use half::f16;
use num_complex::Complex64;

/// An 8-bit float format.
trait Format: Copy {
    /// Mantissa bits.
    const MAN: u32;
    /// What is added to exponents.
    const BIAS: i32;
    /// Infinities exist (e5m2 only).
    const INF: bool;
    /// NaN is the single code 0x80, and there is no negative zero (the "fnuz" formats).
    const UZ: bool;
    /// The largest number.
    const LARGEST: u32 = match (Self::INF, Self::UZ) {
        (true, _) => 0x7b,
        (false, true) => 0x7f,
        (false, false) => 0x7e,
    };
}
macro_rules! formats {
    ($($t:ident $d:ident $man:literal $bias:literal $inf:literal $uz:literal)+) => {
        $(
            #[derive(Clone, Copy)]
            struct $t;
            impl Format for $t {
                const MAN: u32 = $man;
                const BIAS: i32 = $bias;
                const INF: bool = $inf;
                const UZ: bool = $uz;
            }
        )+
        /// What `$e` is for the format `F` of a type, if that is an 8-bit float.
        macro_rules! by_format {
            ($dtype:expr, $F:ident => $e:expr) => {
                match $dtype {
                    $(DType::$d => { type $F = $t; Some($e) })+
                    _ => None,
                }
            };
        }
    };
}
formats! {
    E4M3FN F8E4M3FN 3 7 false false
    E5M2 F8E5M2 2 15 true false
    E4M3FNUZ F8E4M3FNUZ 3 8 false true
    E5M2FNUZ F8E5M2FNUZ 2 16 false true
}

/// Two to a power that single precision has.
const fn two_to(e: i32) -> f32 {
    f32::from_bits(((127 + e) as u32) << 23)
}

/// The number of a code, branch-free.
#[inline(always)]
fn decode<F: Format>(bits: u8) -> f32 {
    const NAN: u32 = f32::NAN.to_bits();
    let code = u32::from(bits) & 0x7f;
    let sign = (u32::from(bits) & 0x80) << 24;
    let normal = (code << (23 - F::MAN)) + (((127 - F::BIAS) as u32) << 23);
    // Smaller numbers are multiples of the least.
    let small = (code as i32 as f32 * const { two_to(1 - F::BIAS - F::MAN as i32) }).to_bits();
    let mut made = sign | if code < 1 << F::MAN { small } else { normal };
    if F::INF {
        made = if code == 0x7c {
            sign | f32::INFINITY.to_bits()
        } else {
            made
        };
        made = if code > 0x7c { NAN } else { made };
    } else if F::UZ {
        made = if bits == 0x80 { NAN } else { made };
    } else {
        made = if code == 0x7f { NAN } else { made };
    }
    f32::from_bits(made)
}

/// The code of a number, branch-free. Rounds to nearest even; overflow gives infinity where it exists, the largest value in
/// e4m3fn, else NaN.
#[inline(always)]
fn encode<F: Format>(v: f32) -> u8 {
    let shift = 23 - F::MAN;
    let bits = v.to_bits() & 0x7fff_ffff;
    let sign = v.to_bits() >> 24 & 0x80;
    let moved = bits.wrapping_sub(((127 - F::BIAS) as u32) << 23);
    let half = (1 << (shift - 1)) - 1 + (moved >> shift & 1);
    let normal = moved.wrapping_add(half) >> shift;
    // A sum with this is rounded to a multiple of the least number.
    let by = const { two_to(1 - F::BIAS - F::MAN as i32 + 23) };
    let small = (f32::from_bits(bits) + by)
        .to_bits()
        .wrapping_sub(by.to_bits());
    let code = if bits < ((128 - F::BIAS) as u32) << 23 {
        small
    } else {
        normal
    };
    let nan = if F::UZ { 0x80 } else { sign | 0x7f };
    let over = match (F::INF, F::UZ) {
        (true, _) => sign | 0x7c,
        (false, true) => nan,
        (false, false) => sign | 0x7e,
    };
    let signed = if F::UZ && code == 0 { 0 } else { sign | code };
    let made = if code > F::LARGEST { over } else { signed };
    (if bits > 0x7f80_0000 { nan } else { made }) as u8
}

simd_fn! { wide
    fn decode_all<F: Format>(to: &mut [f32], from: &[u8]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = decode::<F>(from);
        }
    }
}

simd_fn! { wide
    fn encode_all<F: Format>(to: &mut [u8], from: &[f32]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = encode::<F>(from);
        }
    }
}

unsafe fn decode_row<F: Format>(dst: *mut u8, sd: isize, src: *const u8, ss: isize, n: usize) {
    // SAFETY: the caller gives n elements on both sides.
    unsafe {
        let to = dst.cast::<f32>();
        if sd == 4 && ss == 1 && to.is_aligned() {
            let to = std::slice::from_raw_parts_mut(to, n);
            return decode_all::<F>(to, std::slice::from_raw_parts(src, n));
        }
        for i in 0..n as isize {
            let to = dst.offset(i * sd).cast::<f32>();
            to.write_unaligned(decode::<F>(*src.offset(i * ss)));
        }
    }
}

unsafe fn encode_row<F: Format>(dst: *mut u8, sd: isize, src: *const u8, ss: isize, n: usize) {
    // SAFETY: as above.
    unsafe {
        let from = src.cast::<f32>();
        if sd == 1 && ss == 4 && from.is_aligned() {
            let to = std::slice::from_raw_parts_mut(dst, n);
            return encode_all::<F>(to, std::slice::from_raw_parts(from, n));
        }
        for i in 0..n as isize {
            let from = src.offset(i * ss).cast::<f32>().read_unaligned();
            *dst.offset(i * sd) = encode::<F>(from);
        }
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
            _ => {
                let v = by_format!(d, F => decode::<F>(*p));
                Complex64::new(v.map_or(0.0, f64::from), 0.0)
            }
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
                if let Some(code) = by_format!(d, F => encode::<F>(v.re as f32)) {
                    *p = code;
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

/// Whether a type is an 8-bit float with a mantissa.
const fn is_eight(d: DType) -> bool {
    by_format!(d, F => F::MAN).is_some()
}

/// Whether elements of a type are numbers that can be converted.
pub(super) fn known(d: DType) -> bool {
    !d.is_storage_only() || is_eight(d) || d == DType::F8E8M0FNU
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
    let single = match (from, to) {
        (_, DType::F32) => by_format!(from, F => decode_row::<F> as Row),
        (DType::F32, _) => by_format!(to, F => encode_row::<F> as Row),
        _ => None,
    };
    if let Some(row) = single {
        return Ok(row);
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

/// Whether single precision has all that elements of one type can give of the other.
const fn goes_through_single(from: DType, to: DType) -> bool {
    let other = if is_eight(from) { to } else { from };
    (is_eight(from) || is_eight(to)) && !matches!(other, DType::C32 | DType::F8E8M0FNU)
}

unsafe fn row<const A: u8, const B: u8>(
    dst: *mut u8,
    sd: isize,
    src: *const u8,
    ss: isize,
    n: usize,
) {
    const BLOCK: usize = 512;
    let (from, to) = const { (DType::ALL[A as usize], DType::ALL[B as usize]) };
    if const { goes_through_single(DType::ALL[A as usize], DType::ALL[B as usize]) }
        && let (Ok(widen), Ok(narrow)) = (
            super::copy::converter(from, DType::F32),
            super::copy::converter(DType::F32, to),
        )
    {
        let mut room = [0f32; BLOCK];
        let room = room.as_mut_ptr().cast::<u8>();
        for at in (0..n).step_by(BLOCK) {
            let m = BLOCK.min(n - at);
            // SAFETY: the caller gives n elements on both sides; the room holds a block.
            unsafe {
                widen(room, 4, src.offset(at as isize * ss), ss, m);
                narrow(dst.offset(at as isize * sd), sd, room, 4, m);
            }
        }
        return;
    }
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
        for d in DType::ALL.iter().copied().filter(|&d| is_eight(d)) {
            let codes: Vec<u8> = (0..=255).collect();
            let (mut wide, mut back) = (vec![0f32; 256], vec![0u8; 256]);
            // SAFETY: 256 elements on each side.
            unsafe {
                let from = codes.as_ptr();
                converter(d, DType::F32).unwrap()(wide.as_mut_ptr().cast(), 4, from, 1, 256);
                let from = wide.as_ptr().cast();
                converter(DType::F32, d).unwrap()(back.as_mut_ptr(), 1, from, 4, 256);
            }
            for (code, (v, &back)) in codes.iter().zip(wide.iter().zip(&back)) {
                if !v.is_nan() {
                    assert_eq!(back, *code, "{d} {code:#x} {v}");
                }
            }
        }
    }

    #[test]
    fn halves_are_rounded_to_even() {
        let least = two_to(-9);
        for (v, code) in [
            (0.5, 0),
            (0.51, 1),
            (1.5, 2),
            (2.5, 2),
            (7.5, 8),
            (17.0, 16),
            (19.0, 18),
        ] {
            assert_eq!(encode::<E4M3FN>(v * least), code, "{v}");
            assert_eq!(encode::<E4M3FN>(-v * least), code | 0x80, "{v}");
        }
        assert_eq!(encode::<E4M3FN>(1e9), 0x7e);
        assert_eq!(
            [encode::<E5M2>(61440.0), encode::<E5M2>(61439.9)],
            [0x7c, 0x7b]
        );
        assert_eq!(
            [encode::<E5M2FNUZ>(-1e-9), encode::<E5M2FNUZ>(1e9)],
            [0, 0x80]
        );
    }
}
