//! What singular values say within a tolerance: rank and pseudoinverse.

use crate::cpu::dense::{self, Matrix, ZERO};
use crate::cpu::{self, matrices};
use crate::ops::core::op::{Cast, F, FM, O, OpDef, Plan, compose, kernel};
use crate::ops::core::typed::Operand;
use crate::ops::f;
use crate::ops::linalg::rules::{check, tail};
use crate::ops::linalg::spectral::read_finite;
use crate::{DType, Dims, Result, Scalar, Tensor, dims};
use num_complex::Complex64 as C;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_pinv",
        "(Tensor self, Operand? atol, Operand? rtol, bool hermitian)",
        0,
        body!(pseudoinverse_rule, pseudoinverses).unmeasured(),
        "",
    )
    .samples("f32[3, 2], None, None, False")
    .grad("LinalgPinvBackward0 | self: _grad.pinv(grad, result, self); atol, rtol: never('linalg_pinv')"),
    compose(
        "linalg.pinv",
        "(Tensor self, Operand? rcond=None, bool hermitian=False)",
        F | O,
        |a| f::_pinv(a.input, NONE, a.rcond, a.hermitian),
        "The pseudoinverse.",
    )
    .samples("f32[3, 4]; c64[3, 4]; f32[0, 5, 5], hermitian=True"),
    compose(
        "linalg.pinv#tol",
        "(Tensor self, *, Operand? atol=None, Operand? rtol=None, bool hermitian=False)",
        F | O,
        |a| f::_pinv(a.input, a.atol, a.rtol, a.hermitian),
        "The pseudoinverse.",
    )
    .samples("f32[3, 4]; c64[3, 4]; f32[3, 4], rtol=1.0"),
    compose(
        "pinverse",
        "(Tensor self, float rcond=1e-15)",
        FM,
        |a| f::_pinv(a.input, NONE, Operand::from(a.rcond), false),
        "The pseudoinverse.",
    )
    .samples("f32[3, 4]; c64[3, 4]")
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "_matrix_rank",
        "(Tensor self, Operand? atol, Operand? rtol, bool hermitian)",
        0,
        body!(rank_rule, ranks).unmeasured(),
        "",
    )
    .samples("f32[3, 2], None, None, False; f32[3, 3].spd, 0.1, None, True")
    .no_grad(),
    compose(
        "linalg.matrix_rank",
        "(Tensor A, Operand? tol=None, bool hermitian=False)",
        F | O,
        matrix_rank,
        "The number of singular values above a tolerance.",
    )
    .samples("f32[0, 0, 0], hermitian=True; c64[3, 4]")
    .amp(Cast::Single, Cast::Kept),
    compose(
        "linalg.matrix_rank#tol",
        "(Tensor A, *, Operand? atol=None, Operand? rtol=None, bool hermitian=False)",
        F | O,
        |a| f::_matrix_rank(a.A, a.atol, a.rtol, a.hermitian),
        "The number of singular values above a tolerance.",
    )
    .samples("f32[3, 4]; f32[3, 4], rtol=1.0")
    .amp(Cast::Single, Cast::Kept),
];

/// No tolerance.
const NONE: Option<Operand<'static>> = None;

fn matrix_rank(a: &calls::LinalgMatrixRank) -> Result<Tensor> {
    // One tolerance alone is absolute.
    let rtol = a.tol.map(|_| Operand::from(0.0));
    f::_matrix_rank(a.A, a.tol, rtol, a.hermitian)
}

fn shape_of(tolerance: Option<Operand>) -> Dims {
    match tolerance {
        Some(Operand::Tensor(t)) => t.shape().clone(),
        _ => Dims::EMPTY,
    }
}

/// The shape of a batch that is compared with tolerances.
fn with_tolerances(batch: &[i64], atol: Option<Operand>, rtol: Option<Operand>) -> Result<Dims> {
    let limits = dims::broadcast(&shape_of(atol), &shape_of(rtol))?;
    dims::broadcast(&limits, batch)
}

/// A tolerance for each matrix of a batch.
fn tolerances(v: Option<Operand>, batch: &[i64]) -> Result<Option<Vec<f64>>> {
    let count = batch.iter().product::<i64>() as usize;
    v.map(|v| match v {
        Operand::Tensor(t) => matrices::read_numbers(t, batch),
        Operand::Scalar(s) => Ok(vec![s.to_f64(); count]),
    })
    .transpose()
}

/// What singular values have to exceed, for matrix `i` with the largest value `top`.
struct Limits {
    atol: Option<Vec<f64>>,
    rtol: Option<Vec<f64>>,
    default: f64,
}

impl Limits {
    fn new(
        t: &Tensor,
        atol: Option<Operand>,
        rtol: Option<Operand>,
        batch: &[i64],
    ) -> Result<Self> {
        let epsilon = if t.dtype().to_real() == DType::F64 {
            f64::EPSILON
        } else {
            f64::from(f32::EPSILON)
        };
        let larger = tail(t.shape())[0].max(tail(t.shape())[1]);
        Ok(Self {
            atol: tolerances(atol, batch)?,
            rtol: tolerances(rtol, batch)?,
            default: epsilon * larger as f64,
        })
    }

    fn limit(&self, i: usize, top: f64) -> f64 {
        let atol = self.atol.as_ref().map_or(0.0, |v| v[i]);
        let rtol = self
            .rtol
            .as_ref()
            .map_or(if atol > 0.0 { 0.0 } else { self.default }, |v| v[i]);
        atol.max(rtol * top)
    }
}

fn pseudoinverse_rule(a: &calls::_Pinv) -> Result<(Plan, Dims)> {
    let (batch, m, n) = check(a.input, "linalg.pinv", a.hermitian)?;
    let batch = with_tolerances(&batch, a.atol, a.rtol)?;
    let plan = Plan::contiguous(&batch.concat(&[n, m]), a.input.dtype());
    Ok((plan, batch))
}

fn pseudoinverses(a: &calls::_Pinv, batch: &Dims, outs: &[Tensor]) -> Result<()> {
    if a.input.numel() == 0 {
        return Ok(());
    }
    finite(a.input, a.hermitian)?;
    let limits = Limits::new(a.input, a.atol, a.rtol, batch)?;
    let mut results = Vec::new();
    for (i, m) in matrices::read(a.input, batch)?.into_iter().enumerate() {
        let (u, s, v) = dense::singular(&mirrored(m, a.hermitian));
        let limit = limits.limit(i, s.first().copied().unwrap_or(0.0));
        let scaled = Matrix::from_fn(v.rows, s.len(), |r, c| {
            if s[c] > limit { v[(r, c)] / s[c] } else { ZERO }
        });
        results.push(scaled.times(&u.adjoint()));
    }
    matrices::write(&outs[0], &results)
}

/// Refuses numbers that no factorisation comes to an end with.
fn finite(t: &Tensor, hermitian: bool) -> Result<()> {
    let name = if hermitian {
        "linalg.eigh"
    } else {
        "linalg.svd"
    };
    read_finite(t, name).map(drop)
}

/// For Hermitian matrices only the lower triangle counts.
fn mirrored(m: Matrix, hermitian: bool) -> Matrix {
    if !hermitian {
        return m;
    }
    Matrix::from_fn(m.rows, m.columns, |i, j| match i.cmp(&j) {
        std::cmp::Ordering::Greater => m[(i, j)],
        std::cmp::Ordering::Equal => C::new(m[(i, i)].re, 0.0),
        std::cmp::Ordering::Less => m[(j, i)].conj(),
    })
}

fn rank_rule(a: &calls::_MatrixRank) -> Result<Plan> {
    let (batch, ..) = check(a.input, "linalg.matrix_rank", a.hermitian)?;
    let batch = with_tolerances(&batch, a.atol, a.rtol)?;
    Ok(Plan::contiguous(&batch, DType::I64))
}

fn ranks(a: &calls::_MatrixRank, (): &(), outs: &[Tensor]) -> Result<()> {
    let batch = outs[0].shape();
    if a.input.numel() == 0 {
        return cpu::fill(&outs[0], Scalar::Int(0));
    }
    finite(a.input, a.hermitian)?;
    let limits = Limits::new(a.input, a.atol, a.rtol, batch)?;
    let mut counts = Vec::new();
    for (i, m) in matrices::read(a.input, batch)?.into_iter().enumerate() {
        let s = dense::singular(&mirrored(m, a.hermitian)).1;
        let limit = limits.limit(i, s.first().copied().unwrap_or(0.0));
        counts.push(s.iter().filter(|&&v| v > limit).count() as i64);
    }
    matrices::write_numbers(&outs[0], &counts)
}
