//! Gradients of eigenvalues of general matrices, and of least squares.
//!
//! Formulas: Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation" (2008),
//! with vectors that keep length one and a phase that nobody may ask for.

use crate::ops::core::op::{OpDef, Ret, compose};
use crate::ops::f;
use crate::ops::grad::spectral::{check_phase, gaps, pinv};
use crate::{Result, Tensor};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.eig",
        "(Tensor? gL, Tensor? gV, Tensor L, Tensor V)",
        0,
        eig,
        "The gradient of eigenvalues and eigenvectors.",
    )
    .samples("f64[3], f64[3, 3], f64([1., 2., 4.]), f64[3, 3].spd; c128[3], None, c128([1., 2., 4.]), c128[3, 3].spd"),
    compose(
        "_grad.eig_tangent",
        "(Tensor A_t, Tensor eigenvalues, Tensor eigenvectors) -> (Tensor values_t, Tensor vectors_t)",
        0,
        eig_tangent,
        "The tangents of eigenvalues and eigenvectors.",
    )
    .samples("f64[3, 3], c128([1., 2., 4.]), c128[3, 3].spd"),
    compose(
        "_grad.lstsq",
        "(Tensor? gX, Tensor? gR, Tensor self, Tensor b, Tensor solution, bool[] needs) -> (Tensor?, Tensor?)",
        0,
        lstsq,
        "The gradients of least squares.",
    )
    .samples("f64[3, 2], f64[2], f64[4, 3], f64[4, 2], f64[3, 2], [True, True]; f64[3], None, f64[4, 3], f64[4], f64[3], [True, True]"),
];

/// The columns of a matrix times numbers.
fn columns_times(v: &Tensor, by: &Tensor) -> Result<Tensor> {
    f::mul(v, &f::unsqueeze(by, -2)?)
}

fn without_diagonal(t: &Tensor) -> Result<Tensor> {
    f::sub(t, &f::diag_embed(&f::LinalgDiagonal::new(t).call()?)?)
}

fn eig(a: &calls::_GradEig) -> Result<Tensor> {
    let (l, v) = (a.L, a.V);
    let turned = f::mH(v)?;
    let Some(gv) = a.gV else {
        return match a.gL {
            Some(g) => f::linalg_solve(&turned, &f::mul(&f::unsqueeze(g, -1)?, &turned)?),
            None => f::zeros_like(v),
        };
    };
    let along = f::matmul(&turned, gv)?;
    check_phase(
        &along,
        "linalg_eig_backward: The eigenvectors",
        "quantity, so it is ill-defined",
    )?;
    let length = f::real(&f::LinalgDiagonal::new(&along).call()?)?;
    let turn = f::sub(&along, &f::matmul(&turned, &columns_times(v, &length)?)?)?;
    let inner = without_diagonal(&f::div(&turn, &gaps(&f::conj(l)?)?)?)?;
    let inner = match a.gL {
        Some(g) => f::add(&inner, &f::diag_embed(g)?)?,
        None => inner,
    };
    f::linalg_solve(&turned, &f::matmul(&inner, &turned)?)
}

fn eig_tangent(a: &calls::_GradEigTangent) -> Result<Ret> {
    let (l, v) = (a.eigenvalues, a.eigenvectors);
    let change = f::to_dtype(a.A_t, v.dtype())?;
    let inner = f::linalg_solve(v, &f::matmul(&change, v)?)?;
    let values = f::LinalgDiagonal::new(&inner).call()?;
    let turn = f::div(&without_diagonal(&inner)?, &gaps(l)?)?;
    let moved = f::matmul(v, &turn)?;
    let along = f::matmul(&f::mH(v)?, &moved)?;
    let length = f::real(&f::LinalgDiagonal::new(&along).call()?)?;
    let vectors = f::sub(&moved, &columns_times(v, &length)?)?;
    Ok(Ret::Tuple(vec![f::clone(&values)?, vectors]))
}

fn lstsq(a: &calls::_GradLstsq) -> Result<[Option<Tensor>; 2]> {
    let vector = a.b.ndim() < a.input.ndim();
    let matrix = |t: &Tensor| {
        if vector {
            f::unsqueeze(t, -1)
        } else {
            Ok(t.clone())
        }
    };
    let (b, x) = (matrix(a.b)?, matrix(a.solution)?);
    let inverse = f::linalg_pinv(a.input)?;
    let [mut by_a, mut by_b] = [None, None];
    if let Some(g) = a.gX {
        let g = matrix(g)?;
        if a.needs[0] {
            let by_inverse = f::matmul(&g, &f::mH(&b)?)?;
            by_a = Some(pinv(&by_inverse, &inverse, a.input)?);
        }
        if a.needs[1] {
            by_b = Some(f::matmul(&f::mH(&inverse)?, &g)?);
        }
    }
    if let Some(g) = a.gR.filter(|g| g.numel() > 0) {
        // At the solution what is left does not change with it.
        let rest = f::sub(&f::matmul(a.input, &x)?, &b)?;
        let by_rest = f::mul(&rest, &f::mul(&f::unsqueeze(g, -2)?, 2.0)?)?;
        let more = |old: Option<Tensor>, t: Tensor| match old {
            Some(old) => f::add(&old, &t),
            None => Ok(t),
        };
        if a.needs[0] {
            by_a = Some(more(by_a, f::matmul(&by_rest, &f::mH(&x)?)?)?);
        }
        if a.needs[1] {
            by_b = Some(more(by_b, f::neg(&by_rest)?)?);
        }
    }
    let by_b = match by_b {
        Some(g) if vector => Some(f::squeeze_dim(&g, -1)?),
        other => other,
    };
    Ok([by_a, by_b])
}
