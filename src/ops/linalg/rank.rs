//! What singular values say within a tolerance: rank and pseudoinverse.

use crate::cpu::dense::number::{Factor, Number, Real, set_product};
use crate::cpu::dense::singular::{Vectors, singular};
use crate::cpu::dense::view::{Matrix, ViewMut};
use crate::cpu::matrices::Stack;
use crate::cpu::{self, matrices};
use crate::ops::core::op::{Cast, F, FM, O, OpDef, Plan, compose, kernel};
use crate::ops::core::typed::Operand;
use crate::ops::f;
use crate::ops::linalg::rules::{check, cubic, tail, with_numbers};
use crate::ops::linalg::spectral::finite;
use crate::{DType, Dims, Result, Scalar, Tensor, dims, ensure};
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
    .grad("LinalgPinvBackward0 | self: _grad.pinv(grad, result, self); atol, rtol: constant('linalg_pinv')"),
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
        let epsilon = t.dtype().epsilon();
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
    let t = a.input;
    ensure!(
        t.ndim() >= 2
            && matches!(
                t.dtype(),
                DType::F32 | DType::F64 | DType::C64 | DType::C128
            ),
        Runtime,
        "linalg.pinv({}{{{}}}): expected a tensor with 2 or more dimensions of float, double, cfloat or cdouble types",
        t.dtype().scalar_type(),
        t.shape()
    );
    let (batch, m, n) = check(t, "linalg.eigh", a.hermitian)?;
    let batch = with_tolerances(&batch, a.atol, a.rtol)?;
    let plan = Plan::contiguous(&batch.concat(&[n, m]), a.input.dtype());
    Ok((plan, batch))
}

fn pseudoinverses(a: &calls::_Pinv, batch: &Dims, outs: &[Tensor]) -> Result<()> {
    if a.input.numel() == 0 {
        return Ok(());
    }
    let limits = Limits::new(a.input, a.atol, a.rtol, batch)?;
    with_numbers!(a.input.dtype(), T => pseudoinverses_of::<T>(a, &limits, batch, &outs[0]))
}

/// The matrices of a batch, of Hermitian ones the lower triangle on both sides.
fn read<T: Number>(t: &Tensor, hermitian: bool, batch: &Dims) -> Result<Stack<T>> {
    let mut all = Stack::<T>::copied(t, batch)?;
    finite(
        &all,
        t,
        if hermitian {
            "linalg.eigh"
        } else {
            "linalg.svd"
        },
    )?;
    if hermitian {
        let (count, size) = (all.count, all.rows * all.rows);
        matrices::each(count, size, &all.parts(), |_, a| mirror(a));
    }
    Ok(all)
}

fn mirror<T: Number>(mut a: ViewMut<T>) {
    for j in 0..a.columns() {
        for i in 0..j {
            let v = a.get(j, i).conj();
            a.set(i, j, v);
        }
        let d = a.get(j, j);
        a.set(j, j, T::real(d.re()));
    }
}

fn pseudoinverses_of<T: Number>(
    a: &calls::_Pinv,
    limits: &Limits,
    batch: &Dims,
    out: &Tensor,
) -> Result<()> {
    let mut all = read::<T>(a.input, a.hermitian, batch)?;
    let mut results = Stack::<T>::empty_for(out)?;
    let work = cubic(all.rows.max(all.columns));
    let (count, parts) = (results.count, (all.parts(), results.parts()));
    matrices::each(count, work, &parts, |i, (a, to)| {
        let (m, n) = (a.rows(), a.columns());
        let k = m.min(n);
        let (mut u, mut v) = (
            Matrix::filled(m, k, T::zero()),
            Matrix::filled(n, k, T::zero()),
        );
        let mut values = vec![T::Size::default(); k];
        let vectors = Vectors {
            u: u.view_mut(),
            v: v.view_mut(),
        };
        singular(a, &mut values, Some(vectors));
        let limit = limits.limit(i, values.first().map_or(0.0, |v| v.double()));
        for (j, &s) in values.iter().enumerate() {
            let by = if s.double() > limit {
                num_traits::Float::recip(s)
            } else {
                T::Size::default()
            };
            v.view_mut()
                .column(j)
                .iter_mut()
                .for_each(|v| *v = v.times(by));
        }
        set_product(Factor::Plain(v.view()), Factor::Adjoint(u.view()), to);
    });
    results.store(out)
}

/// The function whose checks PyTorch comes down to: that of eigenvalues says what is no square.
fn rank_checked_by(hermitian: bool) -> &'static str {
    match hermitian {
        true => "linalg.eigh",
        false => "linalg.matrix_rank",
    }
}

fn rank_rule(a: &calls::_MatrixRank) -> Result<Plan> {
    ensure!(
        a.input.ndim() >= 2,
        Runtime,
        "torch.linalg.matrix_rank: The input tensor input must have at least 2 dimensions."
    );
    let (batch, ..) = check(a.input, rank_checked_by(a.hermitian), a.hermitian)?;
    let batch = with_tolerances(&batch, a.atol, a.rtol)?;
    Ok(Plan::contiguous(&batch, DType::I64))
}

fn ranks(a: &calls::_MatrixRank, (): &(), outs: &[Tensor]) -> Result<()> {
    let batch = outs[0].shape();
    if a.input.numel() == 0 {
        return cpu::fill(&outs[0], Scalar::Int(0));
    }
    let limits = Limits::new(a.input, a.atol, a.rtol, batch)?;
    with_numbers!(a.input.dtype(), T => ranks_of::<T>(a, &limits, batch, &outs[0]))
}

fn ranks_of<T: Number>(
    a: &calls::_MatrixRank,
    limits: &Limits,
    batch: &Dims,
    out: &Tensor,
) -> Result<()> {
    let mut all = read::<T>(a.input, a.hermitian, batch)?;
    let mut counts = vec![0i64; all.count];
    let work = cubic(all.rows.max(all.columns));
    let (count, parts) = (
        all.count,
        (all.parts(), matrices::Pieces::new(&mut counts, 1)),
    );
    matrices::each(count, work, &parts, |i, (a, rank)| {
        let mut values = vec![T::Size::default(); a.rows().min(a.columns())];
        singular(a, &mut values, None);
        let limit = limits.limit(i, values.first().map_or(0.0, |v| v.double()));
        rank[0] = values.iter().filter(|v| v.double() > limit).count() as i64;
    });
    matrices::write_numbers(out, &counts)
}
