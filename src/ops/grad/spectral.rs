//! Gradients of orthogonal factorisations and of functions of matrices.
//!
//! Formulas: Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation" (2008),
//! and Townsend, "Differentiating the singular value decomposition" (2016), with the conjugates that complex numbers want.

use crate::ops::core::helpers::{has_no_values, item};
use crate::ops::core::op::{OpDef, compose};
use crate::ops::f;
use crate::ops::grad::linalg::symmetric;
use crate::ops::grad::reduce::like;
use crate::{Result, Scalar, Tensor, bail, ensure, mode};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.qr",
        "(Tensor? gQ, Tensor? gR, Tensor Q, Tensor R, str mode)",
        0,
        qr,
        "The gradient of a QR factorisation.",
    )
    .samples("f64[3, 2], f64[2, 2], f64[3, 2], f64[2, 2], 'reduced'"),
    compose(
        "_grad.eigh",
        "(Tensor? gL, Tensor? gV, Tensor L, Tensor V)",
        0,
        eigh,
        "The gradient of eigenvalues and eigenvectors of a symmetric matrix.",
    )
    .samples("f64[3], f64[3, 3], f64([1., 2., 4.]), f64[3, 3]; f64[3], None, f64([1., 2., 4.]), f64[3, 3]"),
    compose(
        "_grad.svd",
        "(Tensor? gU, Tensor? gS, Tensor? gVh, Tensor U, Tensor S, Tensor Vh, bool full_matrices)",
        0,
        svd,
        "The gradient of a singular value decomposition.",
    )
    .samples("f64[3, 2], f64[2], f64[2, 2], f64[3, 2], f64([2., 1.]), f64[2, 2], False"),
    compose(
        "_grad.pinv",
        "(Tensor grad, Tensor result, Tensor A)",
        0,
        |a| pinv(a.grad, a.result, a.A),
        "The gradient of a pseudo-inverse.",
    )
    .samples("f64[2, 3], f64[2, 3], f64[3, 2]; f64[3, 2], f64[3, 2], f64[2, 3]"),
    compose(
        "_grad.matrix_exp",
        "(Tensor grad, Tensor A)",
        0,
        |a| matrix_exp(a.grad, a.A),
        "The gradient of a matrix exponential.",
    )
    .samples("f64[3, 3], f64[3, 3]"),
];

/// The diagonal of each matrix times a number.
fn with_diagonal_times(t: &Tensor, by: f64) -> Result<Tensor> {
    let diagonal = f::LinalgDiagonal::new(t).call()?;
    f::add(t, &f::DiagEmbed::new(&f::mul(&diagonal, by - 1.0)?).call()?)
}

fn qr(a: &calls::_GradQr) -> Result<Tensor> {
    let (q, r) = (a.Q, a.R);
    if a.mode == "r" {
        bail!(
            Runtime,
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use linalg.qr(A, \
             mode='reduced') if you are going to differentiate through linalg.qr."
        );
    }
    let (m, n) = (q.size(-2)?, r.size(-1)?);
    if a.mode == "complete" && m > n {
        bail!(
            Runtime,
            "The QR decomposition is not differentiable when mode='complete' and nrows > ncols."
        );
    }
    if m >= n {
        return tall_qr([a.gQ, a.gR], q, r);
    }
    // A wide matrix is [X | Y], and R is [U | V]: X = Q U, and Y = Q V.
    let (u, v) = (f::narrow(r, -1, 0, m)?, f::narrow(r, -1, m, n - m)?);
    let (gu, gv) = match a.gR {
        Some(g) => (f::narrow(g, -1, 0, m)?, f::narrow(g, -1, m, n - m)?),
        None => (f::zeros_like(&u)?, f::zeros_like(&v)?),
    };
    let by_y = f::matmul(q, &gv)?;
    let through = f::matmul(&f::matmul(q, &v)?, &f::mH(&gv)?)?;
    let gq = match a.gQ {
        Some(g) => f::add(g, &through)?,
        None => through,
    };
    let by_x = tall_qr([Some(&gq), Some(&gu)], q, &u)?;
    f::Cat::new(&[by_x, by_y][..]).dim(-1).call()
}

fn tall_qr([gq, gr]: [Option<&Tensor>; 2], q: &Tensor, r: &Tensor) -> Result<Tensor> {
    let mut inner = match gr {
        Some(g) => f::matmul(g, &f::mH(r)?)?,
        None => like(q, r.shape())?,
    };
    if let Some(g) = gq {
        inner = f::sub(&inner, &f::matmul(&f::mH(q)?, g)?)?;
    }
    let upper = f::triu(&inner)?;
    let even = with_diagonal_times(&symmetric(&upper)?, 0.5)?;
    let mut made = f::matmul(q, &even)?;
    if let Some(g) = gq {
        made = f::add(&made, g)?;
    }
    f::LinalgSolveTriangular::new(&f::mH(r)?, &made, false)
        .left(false)
        .call()
}

/// The differences of numbers, ones on the diagonal.
pub(super) fn gaps(values: &Tensor) -> Result<Tensor> {
    let apart = f::sub(&f::unsqueeze(values, -2)?, &f::unsqueeze(values, -1)?)?;
    f::add(&apart, &f::DiagEmbed::new(&f::ones_like(values)?).call()?)
}

fn eigh(a: &calls::_GradEigh) -> Result<Tensor> {
    let (l, v) = (a.L, a.V);
    let turned = f::mH(v)?;
    let by_values = match a.gL {
        Some(g) => Some(f::to_dtype(g, v.dtype())?),
        None => None,
    };
    let Some(gv) = a.gV else {
        let Some(g) = by_values else {
            return f::zeros_like(v);
        };
        return f::matmul(&f::mul(v, &f::unsqueeze(&g, -2)?)?, &turned);
    };
    let along = f::matmul(&turned, gv)?;
    check_phase(
        &along,
        "linalg_eigh_backward: The eigenvectors",
        "quantity, so it is ill-defined",
    )?;
    // Vectors of length one turn, and do nothing else.
    let turn = f::mul(&skew(&along)?, 0.5)?;
    let inner = f::div(&turn, &gaps(l)?)?;
    let off = with_diagonal_times(&inner, 0.0)?;
    let inner = match by_values {
        Some(g) => f::add(&off, &f::DiagEmbed::new(&g).call()?)?,
        None => off,
    };
    f::matmul(v, &f::matmul(&inner, &turned)?)
}

/// Complex vectors have any phase: refuses what depends on it, which an imaginary diagonal of the vectors times their gradient
/// says. Values that nobody can read are believed.
pub(super) fn check_phase(along: &Tensor, of: &str, so: &str) -> Result<()> {
    let unread = has_no_values(along) || !along.batch().is_empty();
    if !along.dtype().is_complex() || unread || along.numel() == 0 {
        return Ok(());
    }
    let turns = f::abs(&f::imag(&f::LinalgDiagonal::new(along).call()?)?)?;
    let most = mode::with_grad(false, || item(&f::max(&turns)?))?;
    ensure!(
        // What is no number is no phase either.
        !(most.to_f64() > 1e-2),
        Runtime,
        "{of} in the complex case are specified up to multiplication by e^{{i phi}}. The specified loss function depends on this {so}."
    );
    Ok(())
}

fn skew(t: &Tensor) -> Result<Tensor> {
    f::sub(t, &f::mH(t)?)
}

fn svd(a: &calls::_GradSvd) -> Result<Tensor> {
    let k = a.S.size(-1)?;
    let first = |t: &Tensor, dim| match t.size(dim)? {
        n if n == k => Ok(t.clone()),
        _ => f::narrow(t, dim, 0, k),
    };
    let u = &first(a.U, -1)?;
    let vh = &first(a.Vh, -2)?;
    let dtype = u.dtype();
    let s = &f::to_dtype(a.S, dtype)?;
    let gs = a.gS.map(|g| f::to_dtype(g, dtype)).transpose()?;
    if a.gU.is_none() && a.gVh.is_none() {
        let Some(g) = gs else {
            return f::matmul(u, vh);
        };
        return f::matmul(&f::mul(u, &f::unsqueeze(&g, -2)?)?, vh);
    }
    let gu = a.gU.map(|g| first(g, -1)).transpose()?;
    let gvh = a.gVh.map(|g| first(g, -2)).transpose()?;
    let (m, n) = (u.shape()[u.ndim() - 2], vh.shape()[vh.ndim() - 1]);
    let apart = &gaps(&f::mul(s, s)?)?;
    let (row, column) = (&f::unsqueeze(s, -2)?, &f::unsqueeze(s, -1)?);
    let mut inner: Option<Tensor> = None;
    let mut put = |t: Tensor| -> Result<()> {
        inner = Some(match inner.take() {
            Some(old) => f::add(&old, &t)?,
            None => t,
        });
        Ok(())
    };
    let of_u = |g| f::matmul(&f::mH(u)?, g);
    let of_v = |g| f::matmul(vh, &f::mH(g)?);
    let by_u = gu.as_ref().map(of_u).transpose()?;
    let by_v = gvh.as_ref().map(of_v).transpose()?;
    let both = match (&by_u, &by_v) {
        (Some(u), Some(v)) => Some(f::add(u, v)?),
        (one, other) => one.as_ref().or(other.as_ref()).cloned(),
    };
    if let Some(both) = &both {
        check_phase(
            both,
            "svd_backward: The singular vectors",
            "phase term, making it ill-defined",
        )?;
    }
    if let Some(by_u) = &by_u {
        put(f::mul(&f::div(&skew(by_u)?, apart)?, row)?)?;
        if dtype.is_complex() {
            // The phases of the two sets of vectors belong together.
            let phase = f::imag(&f::LinalgDiagonal::new(by_u).call()?)?;
            let turn = f::div(
                &f::mul(
                    &f::to_dtype(&phase, dtype)?,
                    Scalar::Complex(num_complex::Complex64::I),
                )?,
                s,
            )?;
            put(f::DiagEmbed::new(&turn).call()?)?;
        }
    }
    if let Some(by_v) = &by_v {
        put(f::mul(&f::div(&skew(by_v)?, apart)?, column)?)?;
    }
    if let Some(g) = &gs {
        put(f::DiagEmbed::new(g).call()?)?;
    }
    let inner = with_clean_diagonal(
        inner.unwrap_or(like(u, &[k, k])?),
        gs.as_ref(),
        by_u.is_some() && dtype.is_complex(),
    )?;
    let mut made = f::matmul(&f::matmul(u, &inner)?, vh)?;
    if let Some(g) = gu.as_ref().filter(|_| m > k) {
        let out = f::sub(g, &f::matmul(u, &f::matmul(&f::mH(u)?, g)?)?)?;
        made = f::add(&made, &f::matmul(&f::div(&out, row)?, vh)?)?;
    }
    if let Some(g) = gvh.as_ref().filter(|_| n > k) {
        let out = f::sub(g, &f::matmul(&f::matmul(g, &f::mH(vh)?)?, vh)?)?;
        made = f::add(&made, &f::matmul(u, &f::div(&out, column)?)?)?;
    }
    Ok(made)
}

/// The parts that are skew have an imaginary diagonal, which the phase has replaced.
fn with_clean_diagonal(inner: Tensor, gs: Option<&Tensor>, phased: bool) -> Result<Tensor> {
    if !inner.dtype().is_complex() || phased {
        return Ok(inner);
    }
    let off = with_diagonal_times(&inner, 0.0)?;
    match gs {
        Some(g) => f::add(&off, &f::DiagEmbed::new(g).call()?),
        None => Ok(off),
    }
}

pub(super) fn pinv(grad: &Tensor, result: &Tensor, matrix: &Tensor) -> Result<Tensor> {
    let (m, k) = (matrix.size(-2)?, matrix.size(-1)?);
    let (gh, ph) = (f::mH(grad)?, f::mH(result)?);
    let mm = |a: &Tensor, b: &Tensor| f::matmul(a, b);
    if m <= k {
        let w = mm(&gh, result)?;
        let wp = mm(&w, &ph)?;
        let made = f::neg(&f::mH(&mm(result, &w)?)?)?;
        let made = f::add(&made, &wp)?;
        let made = f::sub(&made, &mm(&mm(matrix, result)?, &wp)?)?;
        return f::add(
            &made,
            &mm(&mm(&ph, result)?, &f::sub(&gh, &mm(&w, matrix)?)?)?,
        );
    }
    let w = mm(result, &gh)?;
    let pw = mm(&ph, &w)?;
    let made = f::neg(&f::mH(&mm(&w, result)?)?)?;
    let made = f::add(
        &made,
        &mm(&mm(&f::sub(&gh, &mm(matrix, &w)?)?, result)?, &ph)?,
    )?;
    let made = f::add(&made, &pw)?;
    f::sub(&made, &mm(&mm(&pw, result)?, matrix)?)
}

/// The exponential of a block matrix has the derivative in its corner (Al-Mohy and Higham, 2009).
fn matrix_exp(grad: &Tensor, matrix: &Tensor) -> Result<Tensor> {
    let n = matrix.size(-1)?;
    let turned = f::mH(matrix)?;
    let top = f::Cat::new(&[turned.clone(), grad.clone()][..])
        .dim(-1)
        .call()?;
    let low = f::Cat::new(&[f::zeros_like(&turned)?, turned][..])
        .dim(-1)
        .call()?;
    let whole = f::linalg_matrix_exp(&f::Cat::new(&[top, low][..]).dim(-2).call()?)?;
    f::narrow(&f::narrow(&whole, -2, 0, n)?, -1, n, n)
}
