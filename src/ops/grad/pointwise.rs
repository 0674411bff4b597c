//! Gradients of pointwise operators that are more than a line.

use crate::ops::core::op::{OpDef, compose};
use crate::ops::f;
use crate::ops::grad::kept;
use crate::{DType, Result, Scalar, Tensor};
use std::f64::consts::PI;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.scale",
        "(Tensor grad, Scalar by)",
        0,
        |a| Ok(kept(scale(a.grad, a.by)?, a.grad)),
        "The gradient times a number; times one it is the gradient itself.",
    )
    .samples("f32[3], 2.0; f32[3], 1"),
    compose(
        "_grad.converted_back",
        "(Tensor grad, dtype dtype, device device)",
        0,
        |a| {
            // What real numbers are part of is looked at, not copied.
            let grad = if a.grad.dtype().is_complex() && !a.dtype.is_complex() {
                f::real(a.grad)?
            } else {
                a.grad.clone()
            };
            let made = f::ToDevice::new(&grad)
                .device(a.device)
                .dtype(a.dtype)
                .call()?;
            Ok(kept(made, a.grad))
        },
        "The gradient of a conversion.",
    )
    .samples("f32[3], f64, dev; c64[3], c128, dev"),
    compose(
        "_grad.sgn",
        "(Tensor self, Tensor grad, Tensor result)",
        0,
        |a| sgn(a.input, a.grad, a.result),
        "The gradient of sgn.",
    )
    .samples("f32[3], f32[3], f32[3]; c64[3], c64[3], c64[3]"),
    compose(
        "_grad.pow_scalar",
        "(Tensor grad, Tensor self, Scalar exponent)",
        0,
        |a| pow_scalar(a.grad, a.input, a.exponent),
        "The gradient of a power by its base, if the exponent is a number.",
    )
    .samples("f32[3], f32[3], 3"),
    compose(
        "_grad.pow_base",
        "(Tensor grad, Operand self, Operand exponent)",
        0,
        pow_base,
        "The gradient of a power by its base.",
    )
    .samples("f32[3], f32[3], 3; f32[3], f32[3].pos, f32[3]"),
    compose(
        "_grad.pow_exponent",
        "(Tensor grad, Operand self, Tensor exponent, Tensor result)",
        0,
        pow_exponent,
        "The gradient of a power by its exponent.",
    )
    .samples("f32[3], f32[3].pos, f32[3], f32[3]; f32[3], 2.0, f32[3], f32[3]"),
    compose(
        "_grad.sinc",
        "(Tensor grad, Tensor self)",
        0,
        |a| sinc(a.grad, a.input),
        "The gradient of sinc.",
    )
    .samples("f32[3], f32[3]"),
    compose(
        "_grad.angle",
        "(Tensor grad, Tensor self)",
        0,
        |a| angle(a.grad, a.input),
        "The gradient of angle.",
    )
    .samples("f32[3], f32[3]; f32[3], c64[3]"),
    compose(
        "_grad.i1",
        "(Tensor grad, Tensor self, Tensor result)",
        0,
        |a| {
            check_bessel(a.input, "i1_backward")?;
            bessel(a.grad, a.input, |x| {
                f::sub(&f::i0(x)?, &f::mul(a.result, &f::reciprocal(x)?)?)
            })
        },
        "The gradient of special.i1.",
    )
    .samples("f32[3], f32[3], f32[3]"),
    compose(
        "_grad.i1e",
        "(Tensor grad, Tensor self, Tensor result)",
        0,
        |a| {
            check_bessel(a.input, "i1e_backward")?;
            bessel(a.grad, a.input, |x| {
                let slope = f::add(&f::sgn(x)?, &f::reciprocal(x)?)?;
                f::sub(&f::special_i0e(x)?, &f::mul(a.result, &slope)?)
            })
        },
        "The gradient of special.i1e.",
    )
    .samples("f32[3], f32[3], f32[3]"),
    compose(
        "_grad.copysign",
        "(Tensor grad, Tensor self, Tensor result)",
        0,
        |a| {
            let ratio = f::div(a.result, a.input)?;
            let none = f::eq(a.input, 0i64)?;
            f::MaskedFill::new(&ratio, &none, 0i64).call_()?;
            f::mul(a.grad, &ratio)
        },
        "The gradient of copysign by its magnitude.",
    )
    .samples("f32[3], f32[3], f32[3]"),
];

/// The gradient times a number.
pub fn scale(grad: &Tensor, by: Scalar) -> Result<Tensor> {
    if by == Scalar::Int(1) || by == Scalar::Float(1.0) {
        return Ok(grad.clone());
    }
    f::mul(grad, by)
}

fn sgn(x: &Tensor, grad: &Tensor, result: &Tensor) -> Result<Tensor> {
    if !x.dtype().is_complex() {
        return f::zeros_like(grad);
    }
    let size = f::abs(x)?;
    let part = f::real(&f::mul(&f::div(grad, &size)?, &f::conj(result)?)?)?;
    let across = f::sub(&f::div(grad, &size)?, &f::mul(&part, result)?)?;
    f::masked_fill(&across, &f::eq(&size, 0i64)?, 0i64)
}

fn pow_scalar(grad: &Tensor, x: &Tensor, exponent: Scalar) -> Result<Tensor> {
    if exponent.to_c64().norm() == 0.0 {
        return f::zeros_like(grad);
    }
    let (exponent, less) = match exponent {
        Scalar::Complex(c) => (exponent, Scalar::Complex(c - 1.0)),
        s => (Scalar::Float(s.to_f64()), Scalar::Float(s.to_f64() - 1.0)),
    };
    let slope = f::mul(&f::pow(x, less)?, exponent)?;
    f::mul(grad, &f::conj(&slope)?)
}

fn pow_base(a: &calls::_GradPowBase) -> Result<Tensor> {
    use crate::ops::core::typed::Operand;
    match (a.input, a.exponent) {
        (Operand::Tensor(x), Operand::Scalar(n)) => pow_scalar(a.grad, x, n),
        (x, n) => {
            let slope = f::mul(n, &f::pow(x, &f::sub(n, 1i64)?)?)?;
            let made = f::mul(a.grad, &f::conj(&slope)?)?;
            match n {
                Operand::Tensor(n) => f::where_(&f::eq(n, 0i64)?, 0.0, &made),
                Operand::Scalar(_) => Ok(made),
            }
        }
    }
}

fn pow_exponent(a: &calls::_GradPowExponent) -> Result<Tensor> {
    use crate::ops::core::typed::Operand;
    let (grad, result) = (a.grad, a.result);
    match a.input {
        Operand::Scalar(x) => {
            let base = x.to_c64();
            let turns = matches!(x, Scalar::Complex(_)) || a.exponent.dtype().is_complex();
            let log = if base.norm() > 0.0 && turns {
                Scalar::Complex(base.ln())
            } else {
                Scalar::Float(x.to_f64().ln())
            };
            let slope = f::conj(&f::mul(result, log)?)?;
            if base.norm() > 0.0 {
                return f::mul(grad, &slope);
            }
            f::mul(grad, &f::where_(&is_natural(a.exponent)?, 0.0, &slope)?)
        }
        Operand::Tensor(x) => {
            let natural = is_natural(a.exponent)?;
            let flat = f::logical_and(&f::eq(x, 0i64)?, &natural)?;
            let log = f::log(&x.to_dtype(result.dtype())?)?;
            let slope = f::conj(&f::mul(result, &log)?)?;
            f::mul(grad, &f::where_(&flat, 0.0, &slope)?)
        }
    }
}

/// Where zero to the power of these exponents is flat: where they are real and not negative.
fn is_natural(exponent: &Tensor) -> Result<Tensor> {
    if !exponent.dtype().is_complex() {
        return f::ge(exponent, 0i64);
    }
    let real = f::eq(&f::imag(exponent)?, 0i64)?;
    f::logical_and(&real, &f::ge(&f::real(exponent)?, 0i64)?)
}

fn sinc(grad: &Tensor, x: &Tensor) -> Result<Tensor> {
    let turn = f::mul(x, PI)?;
    let top = f::sub(&f::mul(&turn, &f::cos(&turn)?)?, &f::sin(&turn)?)?;
    let square = f::mul(&f::mul(x, x)?, PI)?;
    let made = f::mul(grad, &f::conj(&f::div(&top, &square)?)?)?;
    // Of numbers so small that their square is 0, too.
    f::masked_fill(&made, &f::eq(&square, 0i64)?, 0i64)
}

fn angle(grad: &Tensor, x: &Tensor) -> Result<Tensor> {
    if !x.dtype().is_complex() {
        return f::zeros_like(x);
    }
    let size = f::abs(x)?;
    let (re, im) = (f::real(x)?, f::imag(x)?);
    let none = f::eq(&size, 0i64)?;
    let square = f::masked_fill(&f::mul(&size, &size)?, &none, 1i64)?;
    let by_re = f::div(&f::mul(&f::neg(&im)?, grad)?, &square)?;
    let by_im = f::div(&f::mul(&re, grad)?, &square)?;
    let made = f::complex(&by_re, &by_im)?;
    f::masked_fill(&made, &none, 0i64)
}

/// PyTorch has these for two types alone.
fn check_bessel(x: &Tensor, kernel: &str) -> Result<()> {
    x.dtype()
        .check_kernel(matches!(x.dtype(), DType::F32 | DType::F64), kernel)
}

/// A slope that divides by x, which is one half near 0.
fn bessel(grad: &Tensor, x: &Tensor, slope: impl Fn(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    let eps = x.dtype().epsilon();
    let far = f::gt(&f::abs(x)?, eps)?;
    let safe = f::where_(&far, x, eps)?;
    f::mul(grad, &f::where_(&far, &slope(&safe)?, 0.5)?)
}
