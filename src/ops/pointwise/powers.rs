//! Powers of two as factors.

use crate::ops::f;
use crate::{DType, Result, Scalar, Tensor};

/// A float times a whole power of two, which is rounded once and may be beyond all numbers of its type.
///
/// # Errors
/// If the operands do not broadcast.
pub fn ldexp(x: &Tensor, exponent: &Tensor) -> Result<Tensor> {
    let d = x.dtype();
    if !d.is_float() || !exponent.dtype().is_integral(false) {
        return f::mul(x, &f::pow(2.0, exponent)?);
    }
    // No step but the last leaves the range of numbers, or what it gives stays outside; narrower types need one alone.
    let step = if d == DType::F64 { 700.0 } else { 600.0 };
    let mut left = exponent.to_dtype(DType::F64)?;
    let mut steps = Vec::new();
    while steps.len() < if d == DType::F64 { 3 } else { 1 } {
        let part = f::Clamp::new(&left)
            .min(Scalar::Float(-step))
            .max(Scalar::Float(step))
            .call()?;
        left = f::sub(&left, &part)?;
        steps.push(part);
    }
    let mut made = x.to_dtype(DType::F64)?;
    for part in steps.iter().rev() {
        made = f::mul(&made, &f::pow(2.0, part)?)?;
    }
    made.to_dtype(d)
}
