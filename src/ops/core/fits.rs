//! Which numbers the elements of a type can hold.

use crate::{DType, Result, Scalar, Tensor, ensure};

/// The name of a type in range errors.
pub fn c_name(d: DType) -> &'static str {
    match d {
        DType::U8 => "uint8_t",
        DType::I8 => "int8_t",
        DType::I16 => "int16_t",
        DType::U16 => "uint16_t",
        DType::U32 => "uint32_t",
        DType::U64 => "uint64_t",
        DType::I64 => "int64_t",
        other => other.cpp_name(),
    }
}

/// Whether a number can be converted to a type without overflow, by PyTorch's rules: negative integers wrap in unsigned ones.
fn fits(s: Scalar, d: DType) -> bool {
    let (lo, hi) = match d {
        DType::U8 => (0.0, 255.0),
        DType::U16 => (0.0, 65535.0),
        DType::U32 => (0.0, f64::from(u32::MAX)),
        DType::U64 => (0.0, u64::MAX as f64),
        DType::I8 => (-128.0, 127.0),
        DType::I16 => (-32768.0, 32767.0),
        DType::I32 => (f64::from(i32::MIN), f64::from(i32::MAX)),
        DType::I64 => (i64::MIN as f64, i64::MAX as f64),
        DType::F16 | DType::C32 => (-65504.0, 65504.0),
        DType::BF16 => (-3.389_531_389_251_535_5e38, 3.389_531_389_251_535_5e38),
        DType::F32 | DType::C64 => (-f64::from(f32::MAX), f64::from(f32::MAX)),
        _ => (f64::NEG_INFINITY, f64::INFINITY),
    };
    let holds =
        |v: f64| ((d.is_float() || d.is_complex()) && !v.is_finite()) || (v >= lo && v <= hi);
    match s {
        _ if d == DType::Bool => true,
        Scalar::Complex(c) if d.is_complex() => holds(c.re) && holds(c.im),
        Scalar::Complex(c) => c.im == 0.0 && holds(c.re),
        Scalar::Int(i) if lo == 0.0 => i.unsigned_abs() as f64 <= hi,
        Scalar::UInt(u) if d == DType::I64 => i64::try_from(u).is_ok(),
        s => holds(s.to_f64()),
    }
}

/// Refuses a number that a dtype cannot hold.
///
/// # Errors
/// PyTorch's text.
pub fn check_fits(s: Scalar, d: DType) -> Result<()> {
    ensure!(
        fits(s, d),
        Runtime,
        "value cannot be converted to type {} without overflow",
        c_name(d)
    );
    Ok(())
}

/// Refuses a number that a tensor cannot be filled with: a single element of 16 bits takes what it is rounded to, and so do
/// several complex ones of 16 bits a part.
///
/// # Errors
/// PyTorch's text.
pub fn check_filling(s: Scalar, d: DType, numel: i64) -> Result<()> {
    let through = match d {
        DType::F16 | DType::BF16 if numel == 1 => DType::F64,
        DType::C32 if numel != 1 => DType::C64,
        d => d,
    };
    check_fits(s, through)
}

/// A number as it is assigned to elements of a dtype: those of 16 bits take infinity for what they cannot hold.
///
/// # Errors
/// As [`check_fits`] for other dtypes.
fn assigned(s: Scalar, d: DType) -> Result<Scalar> {
    match s {
        Scalar::Float(v) if matches!(d, DType::F16 | DType::BF16) && !fits(s, d) => {
            Ok(Scalar::Float(v.signum() * f64::INFINITY))
        }
        s => check_fits(s, d).map(|()| s),
    }
}

/// A number as it is assigned to elements of a tensor, and the dtype that it has beside them: quantised ones take real numbers.
///
/// # Errors
/// If the dtype cannot hold it.
pub fn assigned_to(s: Scalar, t: &Tensor) -> Result<(Scalar, DType)> {
    let d = match t.dtype() {
        d if d.is_quantized() => DType::F32,
        d => d,
    };
    Ok((assigned(s, d)?, d))
}
