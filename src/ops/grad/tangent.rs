//! Tangents of results that do not follow from the gradient's text.

use crate::ops::core::op::{OpDef, Ret, compose};
use crate::ops::f;
use crate::{Result, Tensor};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.cholesky_tangent",
        "(Tensor A_t, Tensor L, bool upper)",
        0,
        cholesky,
        "The tangent of the Cholesky factor: L times the lower part of L^-1 A_t L^-H, whose diagonal counts half.",
    )
    .samples("f64[3, 3], f64[3, 3].spd, False; c128[2, 3, 3], c128[2, 3, 3].spd, True"),
    compose(
        "_grad.cholesky_inverse_tangent",
        "(Tensor L_t, Tensor L, Tensor inverse, bool upper)",
        0,
        cholesky_inverse,
        "The tangent of an inverse by the Cholesky factor: the inverse on both sides of that of L L^H.",
    )
    .samples("f64[3, 3], f64[3, 3].spd, f64[3, 3].spd, False; c64[3, 3], c64[3, 3], c64[3, 3], True"),
    compose(
        "_grad.eigh_tangent",
        "(Tensor A_t, Tensor eigenvalues, Tensor eigenvectors) -> (Tensor values_t, Tensor vectors_t)",
        0,
        eigh,
        "The tangents of eigenvalues and eigenvectors of a Hermitian matrix.",
    )
    .samples("f64[3, 3], f64[3], f64[3, 3]; c64[3, 3], f32[3], c64[3, 3]"),
    compose(
        "_grad.logsumexp_tangent",
        "(Tensor self_t, Tensor self, int[] dim, bool keepdim)",
        0,
        logsumexp,
        "The mean of tangents, weighted by the exponentials.",
    )
    .samples("f32[2, 3], f32[2, 3], [1], False; c64[2, 3], c64[2, 3], [0, 1], True"),
    compose(
        "_grad.polar_tangent",
        "(Tensor abs_t, Tensor angle_t, Tensor abs, Tensor angle)",
        0,
        |a| {
            let (cos, sin) = (f::cos(a.angle)?, f::sin(a.angle)?);
            let across = f::mul(a.angle_t, a.abs)?;
            let re = f::sub(&f::mul(a.abs_t, &cos)?, &f::mul(&across, &sin)?)?;
            let im = f::add(&f::mul(a.abs_t, &sin)?, &f::mul(&across, &cos)?)?;
            f::complex(&re, &im)
        },
        "The tangent of complex numbers by those of their absolute values and angles.",
    )
    .samples("f32[3], f32[3], f32[3], f32[3]"),
    compose(
        "_grad.logcumsumexp_tangent",
        "(Tensor self_t, Tensor self, int dim)",
        0,
        logcumsumexp,
        "The running mean of tangents, weighted by the exponentials.",
    )
    .samples("f32[2, 3], f32[2, 3], 1; c64[3], c64[3], 0; f32[()], f32[()], 0"),
    compose(
        "_grad.vector_norm_tangent",
        "(Tensor self_t, Tensor self, Scalar ord, Tensor result, int[1]? dim, bool keepdim)",
        0,
        vector_norm,
        "The tangent of a norm: the gradient's real part along the tangent.",
    )
    .samples("f32[2, 3], f32[2, 3], 3.0, f32[2].pos, [1], False; c64[3], c64[3], 2, f32[()].pos, None, False"),
];

fn cholesky(a: &calls::_GradCholeskyTangent) -> Result<Tensor> {
    let l = if a.upper { f::mH(a.L)? } else { a.L.clone() };
    let left = f::linalg_solve_triangular(&l, a.A_t, false)?;
    let both = f::LinalgSolveTriangular::new(&f::mH(&l)?, &left, true)
        .left(false)
        .call()?;
    let half = f::mul(&f::tril(&both)?, 0.5)?;
    let below = f::mul(&f::Tril::new(&both).diagonal(-1).call()?, 0.5)?;
    let made = f::matmul(&l, &f::add(&half, &below)?)?;
    if a.upper { f::mH(&made) } else { Ok(made) }
}

fn cholesky_inverse(a: &calls::_GradCholeskyInverseTangent) -> Result<Tensor> {
    let of = |t: &Tensor| if a.upper { f::mH(t) } else { Ok(t.clone()) };
    let product = f::matmul(&of(a.L_t)?, &f::mH(&of(a.L)?)?)?;
    let half = f::matmul(&f::matmul(a.inverse, &product)?, a.inverse)?;
    f::neg(&f::add(&half, &f::mH(&half)?)?)
}

fn eigh(a: &calls::_GradEighTangent) -> Result<Ret> {
    let (l, v) = (a.eigenvalues, a.eigenvectors);
    let inner = f::matmul(&f::mH(v)?, &f::matmul(a.A_t, v)?)?;
    let diagonal = f::Diagonal::new(&inner).dim1(-2).dim2(-1).call()?;
    let apart = f::sub(&f::unsqueeze(l, -2)?, &f::unsqueeze(l, -1)?)?;
    // Ones on the diagonal, whose quotients do not count.
    let apart = f::add(&apart, &f::diag_embed(&f::ones_like(l)?)?)?;
    let turned = f::div(&f::sub(&inner, &f::diag_embed(&diagonal)?)?, &apart)?;
    Ok(Ret::Tuple(vec![
        f::real(&diagonal)?,
        f::matmul(v, &turned)?,
    ]))
}

/// Exponentials relative to that of the largest real part along dimensions.
fn weights(x: &Tensor, dim: &[i64]) -> Result<Tensor> {
    if x.numel() == 0 {
        return f::exp(x);
    }
    let most = f::Amax::new(&f::real(x)?).dim(dim).keepdim(true).call()?;
    let most = f::NanToNum::new(&most).posinf(0.0).neginf(0.0).call()?;
    f::exp(&f::sub(x, &most)?)
}

fn logsumexp(a: &calls::_GradLogsumexpTangent) -> Result<Tensor> {
    let weights = weights(a.input, a.dim)?;
    let sum = |t: &Tensor| f::SumDim::new(t, a.dim).keepdim(a.keepdim).call();
    f::div(&sum(&f::mul(a.self_t, &weights)?)?, &sum(&weights)?)
}

fn vector_norm(a: &calls::_GradVectorNormTangent) -> Result<Tensor> {
    let ones = f::ones_like(a.result)?;
    let by = f::_grad_vector_norm(&ones, a.input, a.ord, a.result, a.dim, a.keepdim)?;
    let along = f::real(&f::mul(&f::conj(&by)?, a.self_t)?)?;
    let sum = f::SumDim::new(&along, a.dim).keepdim(a.keepdim);
    f::to_dtype(&sum.call()?, a.result.dtype())
}

fn logcumsumexp(a: &calls::_GradLogcumsumexpTangent) -> Result<Ret> {
    if a.input.ndim() == 0 {
        return Ok(Ret::Same(0));
    }
    let weights = if a.input.dtype().is_complex() {
        f::exp(a.input)?
    } else {
        weights(a.input, &[a.dim])?
    };
    let sums = f::cumsum(&f::mul(&weights, a.self_t)?, a.dim)?;
    // PyTorch keeps sums that vanish from dividing by zero so.
    let all = f::add(&f::cumsum(&weights, a.dim)?, 1e-13)?;
    f::div(&sums, &all).map(Ret::One)
}
