//! Numbers taken apart and put together: mantissa and exponent, real and imaginary part.

use crate::cpu::{parts, special};
use crate::ops::core::op::{Cast, F, FMO, O, OpDef, OutSpec, Plan, X, compose, kernel};
use crate::ops::f;
use crate::ops::pointwise::rule::result_layout;
use crate::{DType, Result, Tensor, cpu, dims, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "frexp",
        "(Tensor self) -> (Tensor mantissa, Tensor exponent)",
        FMO | X,
        body!(frexp_rule, frexp, scratch: |a, _, outs, room| {
            room.dense(a.input, DType::F64)?;
            room.dense(&outs[0], DType::F64)?;
            room.dense(&outs[1], DType::I32).map(drop)
        }),
        "Mantissa and exponent of 2.",
    )
    .alike(1)
    .samples("f32[3, 4]")
    .grad("self: grad / exponent.exp2()"),
    kernel(
        "complex",
        "(Tensor real, Tensor imag)",
        F | O | X,
        body!(complex_rule, |a, _, outs| parts::join(
            &outs[0], a.real, a.imag
        ), cuda: |a, _, outs| kernels::arrange::parts(&outs[0], [a.real, a.imag])),
        "Complex numbers from real and imaginary parts.",
    )
    .samples("f16[()], f16[()]")
    .grad("real: real(grad); imag: imag(grad)"),
    compose(
        "polar",
        "(Tensor abs, Tensor angle)",
        F | O | X,
        polar,
        "Complex numbers from absolute values and angles.",
    )
    .samples("f32[5].pos, f32[5]")
    .grad("abs: real(grad.conj() * sgn(result)); angle: real(grad.conj() * _grad.turned(result)); jvp: _grad.polar_tangent(abs_t, angle_t, abs, angle)")
    .amp(Cast::Single, Cast::Kept),
];

fn frexp_rule(a: &calls::Frexp) -> Result<Plan> {
    let t = a.input;
    ensure!(
        t.dtype().is_float() && !t.dtype().is_storage_only(),
        Runtime,
        "torch.frexp() only supports floating-point dtypes"
    );
    let strides = dims::preserved_strides(t.shape(), t.strides());
    let spec = |dtype| OutSpec {
        shape: t.shape().clone(),
        strides: strides.clone(),
        dtype,
    };
    Ok(Plan {
        outs: [spec(t.dtype()), spec(DType::I32)].into_iter().collect(),
        device: None,
    })
}

fn frexp(a: &calls::Frexp, (): &(), outs: &[Tensor]) -> Result<()> {
    let wide = cpu::copy::dense(a.input, DType::F64)?;
    cpu::lines::written::<f64>(&outs[0], |mantissas| {
        cpu::lines::written::<i32>(&outs[1], |exponents| {
            let to = mantissas.iter_mut().zip(exponents);
            for ((mantissa, exponent), &x) in to.zip(cpu::slice::<f64>(&wide)) {
                (*mantissa, *exponent) = special::frexp(x);
            }
            Ok(())
        })
    })
}

/// Two real tensors of one type that has complex numbers.
fn check_parts(x: &Tensor, y: &Tensor) -> Result<()> {
    let fine = |d| matches!(d, DType::F16 | DType::F32 | DType::F64);
    ensure!(
        fine(x.dtype()) && fine(y.dtype()),
        Runtime,
        "Expected both inputs to be Half, Float or Double tensors but got {} and {}",
        x.dtype().scalar_type(),
        y.dtype().scalar_type()
    );
    ensure!(
        x.dtype() == y.dtype(),
        Runtime,
        "Expected object of scalar type {} but got scalar type {} for second argument",
        x.dtype().scalar_type(),
        y.dtype().scalar_type()
    );
    Ok(())
}

fn complex_rule(a: &calls::Complex) -> Result<Plan> {
    check_parts(a.real, a.imag)?;
    let (shape, strides) = result_layout(&[a.real.into(), a.imag.into()])?;
    Ok(Plan::one(shape, strides, a.real.dtype().to_complex()))
}

fn polar(a: &calls::Polar) -> Result<Tensor> {
    check_parts(a.abs, a.angle)?;
    let d = a.abs.dtype();
    d.check_kernel(d != DType::F16, "polar_cpu")?;
    let real = f::mul(a.abs, &f::cos(a.angle)?)?;
    let imag = f::mul(a.abs, &f::sin(a.angle)?)?;
    f::complex(&real, &imag)
}
