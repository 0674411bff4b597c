//! Gradients of linear equations and of the factorisations that solve them.
//!
//! Formulas: Giles, "Collected matrix derivative results for forward and reverse mode algorithmic differentiation" (2008),
//! with the conjugates that complex numbers want.

use super::reduce::prod_dim;
use crate::ops::core::helpers;
use crate::ops::core::op::{OpDef, compose};
use crate::ops::f;
use crate::{Result, Tensor, bail, mode};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.inv",
        "(Tensor grad, Tensor inverse)",
        0,
        |a| {
            let right = f::matmul(a.grad, &f::mH(a.inverse)?)?;
            f::neg(&f::matmul(&f::mH(a.inverse)?, &right)?)
        },
        "The gradient of an inverse.",
    )
    .samples("f64[3, 3], f64[3, 3]"),
    compose(
        "_grad.slogdet",
        "(Tensor? gsign, Tensor? glog, Tensor A, Tensor sign)",
        0,
        slogdet,
        "The gradient of the sign and logarithm of a determinant.",
    )
    .samples("f64[()], f64[()], f64[3, 3].spd, f64[()]; None, f64[2], f64[2, 3, 3].spd, f64[2]"),
    compose(
        "_grad.det",
        "(Tensor grad, Tensor A, Tensor result)",
        0,
        |a| {
            if a.A.numel() == 0 {
                return f::zeros_like(&a.A.bare());
            }
            if some_singular(a.result)? {
                return cofactors(a.A, a.grad);
            }
            let by = f::mul(a.grad, &f::conj(a.result)?)?;
            scaled_inverse(a.A, &by)
        },
        "The gradient of a determinant.",
    )
    .samples("f64[()], f64[3, 3].spd, f64[()]"),
    compose(
        "_grad.solve",
        "(Tensor grad, Tensor A, Tensor B, Tensor result, bool left, bool[] needs) -> (Tensor?, Tensor?)",
        0,
        solve,
        "The gradients of the matrix and the right-hand side of linear equations.",
    )
    .samples("f64[3, 2], f64[3, 3].spd, f64[3, 2], f64[3, 2], True, [True, True]; f64[3], f64[3, 3].spd, f64[3], f64[3], True, [True, True]"),
    compose(
        "_grad.solve_triangular",
        "(Tensor grad, Tensor self, Tensor result, bool upper, bool left, bool unitriangular, bool[] needs) -> (Tensor?, Tensor?)",
        0,
        solve_triangular,
        "The gradients of triangular equations.",
    )
    .samples("f64[3, 2], f64[3, 3].spd, f64[3, 2], True, True, False, [True, True]"),
    compose(
        "_grad.triangular_solve",
        "(Tensor? grad, Tensor? gA, Tensor self, Tensor A, Tensor result, bool upper, bool transpose, bool unitriangular, bool[] needs) -> (Tensor?, Tensor?)",
        0,
        triangular_solve,
        "The gradients of triangular equations, the older way.",
    )
    .samples("f64[3, 2], f64[3, 3], f64[3, 2], f64[3, 3].spd, f64[3, 2], True, False, False, [True, True]"),
    compose(
        "_grad.cholesky",
        "(Tensor grad, Tensor L, bool upper)",
        0,
        |a| cholesky(a.grad, a.L, a.upper),
        "The gradient of the Cholesky factor.",
    )
    .samples("f64[3, 3], f64[3, 3].spd, False; f64[3, 3], f64[3, 3].spd, True"),
    compose(
        "_grad.cholesky_inverse",
        "(Tensor grad, Tensor L, bool upper, Tensor inverse)",
        0,
        |a| {
            let both = f::add(a.grad, &f::mH(a.grad)?)?;
            let both = f::matmul(a.inverse, &f::matmul(&both, a.inverse)?)?;
            f::neg(&if a.upper {
                f::matmul(a.L, &both)?
            } else {
                f::matmul(&both, a.L)?
            })
        },
        "The gradient of an inverse by the Cholesky factor.",
    )
    .samples("f64[3, 3], f64[3, 3].spd, False, f64[3, 3].spd"),
    compose(
        "_grad.cholesky_solve",
        "(Tensor grad, Tensor self, Tensor input2, Tensor result, bool upper, bool[] needs) -> (Tensor?, Tensor?)",
        0,
        cholesky_solve,
        "The gradients of equations solved by the Cholesky factor.",
    )
    .samples("f64[3, 2], f64[3, 2], f64[3, 3].spd, f64[3, 2], False, [True, True]"),
    compose(
        "_grad.lu",
        "(Tensor? gL, Tensor? gU, Tensor P, Tensor L, Tensor U, bool pivot)",
        0,
        |a| lu([a.gL, a.gU], Some(a.P).filter(|_| a.pivot), a.L, a.U),
        "The gradient of an LU factorisation.",
    )
    .samples("f64[3, 3], f64[3, 3], f64[3, 3], f64[3, 3].spd, f64[3, 3].spd, True"),
    compose(
        "_grad.lu_factor",
        "(Tensor grad, Tensor LU, Tensor pivots, bool pivot)",
        0,
        |a| {
            let [p, l, u] = f::LuUnpack::new(a.LU, a.pivots).call()?;
            let n = l.shape()[l.ndim() - 1];
            let wide = u.shape()[u.ndim() - 1];
            let by_l = f::tril(&f::narrow(a.grad, -1, 0, n)?)?;
            let by_u = f::triu(&f::narrow(a.grad, -2, 0, n.min(wide))?)?;
            lu([Some(&by_l), Some(&by_u)], Some(&p).filter(|_| a.pivot), &l, &u)
        },
        "The gradient of a packed LU factorisation.",
    )
    .samples("f64[3, 3], f64[3, 3].spd, i32([1, 2, 3]), True"),
    compose(
        "_grad.lu_solve",
        "(Tensor grad, Tensor LU, Tensor pivots, Tensor result, bool left, bool adjoint, bool[] needs) -> (Tensor?, Tensor?)",
        0,
        lu_solve,
        "The gradients of equations solved by an LU factorisation.",
    )
    .samples("f64[3, 2], f64[3, 3].spd, i32([1, 2, 3]), f64[3, 2], True, False, [True, True]"),
    compose(
        "_grad.lu_unpack",
        "(Tensor? gL, Tensor? gU, int rows, int columns)",
        0,
        lu_unpack,
        "The gradient of unpacking an LU factorisation.",
    )
    .samples("f64[3, 3], f64[3, 3], 3, 3"),
];

/// The unit matrix, for each matrix of a batch.
fn eye_like(t: &Tensor) -> Result<Tensor> {
    f::DiagEmbed::new(&f::NewOnes::new(t, &t.shape()[t.ndim() - 1..]).call()?).call()
}

/// A number for each matrix, times the inverse of its conjugate transpose.
fn scaled_inverse(matrix: &Tensor, by: &Tensor) -> Result<Tensor> {
    let each = f::unsqueeze(&f::unsqueeze(by, -1)?, -1)?;
    let [made, _] =
        f::LinalgSolveEx::new(&f::mH(matrix)?, &f::mul(&each, &eye_like(matrix)?)?).call()?;
    Ok(made)
}

/// Whether a determinant is so small that its matrix is not to be inverted; an unknown one is taken for a large one.
fn some_singular(det: &Tensor) -> Result<bool> {
    let all = det.whole().bare();
    if all.storage().is_hollow() {
        return Ok(false);
    }
    let epsilon = det.dtype().epsilon();
    mode::with_layers(0, || {
        let small = f::lt(&f::abs(&all)?, 100.0 * epsilon)?;
        helpers::item(&f::any(&small)?).map(|v| v.to_bool())
    })
}

/// A number for each matrix, times its conjugate cofactors, which singular matrices have, too.
fn cofactors(matrix: &Tensor, by: &Tensor) -> Result<Tensor> {
    let [u, s, vh] = f::LinalgSvd::new(matrix).full_matrices(true).call()?;
    let turned = f::mul(&f::linalg_det(&u)?, &f::linalg_det(&vh)?)?;
    let by = f::mul(&f::conj(&turned)?, by)?;
    let each = prod_dim(&by, &s, -1, false)?;
    f::matmul(&f::mul(&u, &f::unsqueeze(&each, -2)?)?, &vh)
}

fn slogdet(a: &calls::_GradSlogdet) -> Result<Tensor> {
    let complex = a.A.dtype().is_complex();
    let by_sign = match a.gsign.filter(|_| complex) {
        Some(g) => Some(f::imag(&f::mul(g, &f::conj(a.sign)?)?)?),
        None => None,
    };
    let by = match (a.glog, by_sign) {
        (Some(g), Some(s)) => f::complex(g, &s)?,
        (Some(g), None) => g.clone(),
        (None, Some(s)) => f::complex(&f::zeros_like(&s)?, &s)?,
        (None, None) => return f::zeros_like(a.A),
    };
    let by = f::to_dtype(&by, a.A.dtype())?;
    scaled_inverse(a.A, &by)
}

/// True for a right-hand side that is a batch of vectors.
fn is_vector(matrix: &Tensor, b: &Tensor) -> bool {
    b.ndim() == 1
        || matrix.ndim() == b.ndim() + 1 && matrix.shape()[..matrix.ndim() - 1] == b.shape()[..]
}

fn solve(a: &calls::_GradSolve) -> Result<[Option<Tensor>; 2]> {
    let [want_a, want_b] = needs(a.needs)?;
    let vector = a.left && is_vector(a.A, a.B);
    let column = |t: &Tensor| {
        if vector {
            f::unsqueeze(t, -1)
        } else {
            Ok(t.clone())
        }
    };
    let (grad, result) = (column(a.grad)?, column(a.result)?);
    let [by_b, _] = f::LinalgSolveEx::new(&f::mH(a.A)?, &grad)
        .left(a.left)
        .call()?;
    let by_a = if want_a {
        let turned = f::mH(&result)?;
        Some(f::neg(&if a.left {
            f::matmul(&by_b, &turned)?
        } else {
            f::matmul(&turned, &by_b)?
        })?)
    } else {
        None
    };
    let by_b = if vector {
        f::squeeze_dim(&by_b, -1)?
    } else {
        by_b
    };
    Ok([by_a, want_b.then_some(by_b)])
}

fn needs(list: &[bool]) -> Result<[bool; 2]> {
    match list {
        [a, b] => Ok([*a, *b]),
        _ => bail!(Runtime, "two gradients are asked for, not {}", list.len()),
    }
}

/// Only what a triangular matrix has.
fn triangle(t: &Tensor, upper: bool, unit: bool) -> Result<Tensor> {
    let skip = i64::from(unit);
    if upper {
        f::Triu::new(t).diagonal(skip).call()
    } else {
        f::Tril::new(t).diagonal(-skip).call()
    }
}

fn solve_triangular(a: &calls::_GradSolveTriangular) -> Result<[Option<Tensor>; 2]> {
    let [want_a, want_b] = needs(a.needs)?;
    let by_b = f::LinalgSolveTriangular::new(&f::mH(a.input)?, a.grad, !a.upper)
        .left(a.left)
        .unitriangular(a.unitriangular)
        .call()?;
    let by_a = if want_a {
        let turned = f::mH(a.result)?;
        let whole = f::neg(&if a.left {
            f::matmul(&by_b, &turned)?
        } else {
            f::matmul(&turned, &by_b)?
        })?;
        Some(triangle(&whole, a.upper, a.unitriangular)?)
    } else {
        None
    };
    Ok([by_a, want_b.then_some(by_b)])
}

fn triangular_solve(a: &calls::_GradTriangularSolve) -> Result<[Option<Tensor>; 2]> {
    let [want_b, want_a] = needs(a.needs)?;
    let copied = a.gA.filter(|_| want_a).cloned();
    let Some(grad) = a.grad else {
        return Ok([None, copied]);
    };
    let turned = f::conj(a.A)?;
    let [by_b, _] = f::TriangularSolve::new(grad, &turned)
        .upper(a.upper)
        .transpose(!a.transpose)
        .unitriangular(a.unitriangular)
        .call()?;
    let by_a = if want_a {
        let whole = f::neg(&if a.transpose {
            f::matmul(&f::conj(a.result)?, &f::transpose(&by_b, -2, -1)?)?
        } else {
            f::matmul(&by_b, &f::mH(a.result)?)?
        })?;
        let part = triangle(&whole, a.upper, a.unitriangular)?;
        // The matrix is a result, too.
        Some(match copied {
            Some(more) => f::add(&part, &more)?,
            None => part,
        })
    } else {
        None
    };
    Ok([want_b.then_some(by_b), by_a])
}

/// A matrix and its conjugate transpose.
pub(super) fn symmetric(t: &Tensor) -> Result<Tensor> {
    f::add(t, &f::mH(t)?)
}

fn cholesky(grad: &Tensor, factor: &Tensor, upper: bool) -> Result<Tensor> {
    let (l, g) = if upper {
        (f::mH(factor)?, f::mH(grad)?)
    } else {
        (factor.clone(), grad.clone())
    };
    let lower = f::tril(&f::matmul(&f::mH(&l)?, &g)?)?;
    let above = f::mH(&f::Tril::new(&lower).diagonal(-1).call()?)?;
    let both = f::mul(&f::add(&lower, &above)?, 0.5)?;
    let left = f::linalg_solve_triangular(&f::mH(&l)?, &both, true)?;
    f::LinalgSolveTriangular::new(&l, &left, false)
        .left(false)
        .call()
}

fn cholesky_solve(a: &calls::_GradCholeskySolve) -> Result<[Option<Tensor>; 2]> {
    let [want_b, want_l] = needs(a.needs)?;
    let by_b = f::CholeskySolve::new(a.grad, a.input2)
        .upper(a.upper)
        .call()?;
    let by_l = if want_l {
        let both = symmetric(&f::matmul(&by_b, &f::mH(a.result)?)?)?;
        Some(f::neg(&if a.upper {
            f::matmul(a.input2, &both)?
        } else {
            f::matmul(&both, a.input2)?
        })?)
    } else {
        None
    };
    Ok([want_b.then_some(by_b), by_l])
}

fn lu(
    [gl, gu]: [Option<&Tensor>; 2],
    p: Option<&Tensor>,
    l: &Tensor,
    u: &Tensor,
) -> Result<Tensor> {
    let (m, n) = (l.size(-2)?, u.size(-1)?);
    let k = m.min(n);
    let head_l = f::narrow(l, -2, 0, k)?;
    let head_u = f::narrow(u, -1, 0, k)?;
    let gl = gl.cloned().map_or_else(|| f::zeros_like(l), Ok)?;
    let gu = gu.cloned().map_or_else(|| f::zeros_like(u), Ok)?;
    let (lh, uh) = (f::mH(&head_l)?, f::mH(&head_u)?);
    let lower = |t: &Tensor| f::Tril::new(t).diagonal(-1).call();
    let from_left = |t: &Tensor| {
        f::LinalgSolveTriangular::new(&lh, t, true)
            .unitriangular(true)
            .call()
    };
    let from_right = |t: &Tensor| {
        f::LinalgSolveTriangular::new(&uh, t, false)
            .left(false)
            .call()
    };
    let made = if m == n {
        let inner = f::add(
            &lower(&f::matmul(&lh, &gl)?)?,
            &f::triu(&f::matmul(&gu, &uh)?)?,
        )?;
        from_right(&from_left(&inner)?)?
    } else if m < n {
        // [X | Y] = L [U1 | U2].
        let (gu1, gu2) = (f::narrow(&gu, -1, 0, k)?, f::narrow(&gu, -1, k, n - k)?);
        let u2 = f::narrow(u, -1, k, n - k)?;
        let inner = f::sub(
            &f::add(
                &f::triu(&f::matmul(&gu1, &uh)?)?,
                &lower(&f::matmul(&lh, &gl)?)?,
            )?,
            &lower(&f::matmul(&gu2, &f::mH(&u2)?)?)?,
        )?;
        let first = from_right(&inner)?;
        from_left(&f::Cat::new(&[first, gu2][..]).dim(-1).call()?)?
    } else {
        let (gl1, gl2) = (f::narrow(&gl, -2, 0, k)?, f::narrow(&gl, -2, k, m - k)?);
        let l2 = f::narrow(l, -2, k, m - k)?;
        let inner = f::sub(
            &f::add(
                &lower(&f::matmul(&lh, &gl1)?)?,
                &f::triu(&f::matmul(&gu, &uh)?)?,
            )?,
            &f::triu(&f::matmul(&f::mH(&l2)?, &gl2)?)?,
        )?;
        let first = from_left(&inner)?;
        from_right(&f::Cat::new(&[first, gl2][..]).dim(-2).call()?)?
    };
    match p {
        Some(p) => f::matmul(p, &made),
        None => Ok(made),
    }
}

fn lu_solve(a: &calls::_GradLuSolve) -> Result<[Option<Tensor>; 2]> {
    let [want_lu, want_b] = needs(a.needs)?;
    let by_b = f::LinalgLuSolve::new(a.LU, a.pivots, a.grad)
        .left(a.left)
        .adjoint(!a.adjoint)
        .call()?;
    if !want_lu {
        return Ok([None, want_b.then_some(by_b)]);
    }
    let [p, l, u] = f::LuUnpack::new(a.LU, a.pivots).call()?;
    let mm = |x: &Tensor, y: &Tensor| f::matmul(x, y);
    let x = a.result;
    // The gradient of A = P L U itself, and of its factors by that.
    let whole = match (a.left, a.adjoint) {
        (true, false) => mm(&by_b, &f::mH(x)?)?,
        (true, true) => mm(x, &f::mH(&by_b)?)?,
        (false, false) => mm(&f::mH(x)?, &by_b)?,
        (false, true) => mm(&f::mH(&by_b)?, x)?,
    };
    let whole = f::neg(&mm(&f::transpose(&p, -2, -1)?, &whole)?)?;
    let by_l = f::Tril::new(&mm(&whole, &f::mH(&u)?)?)
        .diagonal(-1)
        .call()?;
    let by_u = f::triu(&mm(&f::mH(&l)?, &whole)?)?;
    Ok([Some(f::add(&by_l, &by_u)?), want_b.then_some(by_b)])
}

fn lu_unpack(a: &calls::_GradLuUnpack) -> Result<Tensor> {
    let (m, n) = (a.rows, a.columns);
    let k = m.min(n);
    let widened = |t: Tensor, rows: i64, columns: i64| -> Result<Tensor> {
        let d = t.ndim();
        let pad = [0, columns - t.shape()[d - 1], 0, rows - t.shape()[d - 2]];
        if pad == [0; 4] {
            Ok(t)
        } else {
            f::constant_pad_nd(&t, &pad[..])
        }
    };
    let by_l = match a.gL {
        Some(g) => Some(widened(f::Tril::new(g).diagonal(-1).call()?, m, n.max(k))?),
        None => None,
    };
    let by_u = match a.gU {
        Some(g) => Some(widened(f::triu(g)?, m.max(k), n)?),
        None => None,
    };
    match (by_l, by_u) {
        (Some(l), Some(u)) => f::add(&l, &u),
        (Some(one), None) | (None, Some(one)) => Ok(one),
        (None, None) => bail!(Runtime, "lu_unpack has no gradient to give back"),
    }
}
