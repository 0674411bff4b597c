//! Linear algebra, continued: what is made of the factorisations.

use crate::cpu::copy;
use crate::cpu::dense::{self, Matrix, ONE, ZERO};
use crate::ops::core::args::{Arg, Args};
use crate::ops::core::op::{
    F, FM, FMO, KernelBody, O, OpDef, OutSpec, Plan, Ret, kernel, old_compose,
};
use crate::ops::linalg::solve::{
    by_columns, check, columnwise, fits, lead, read, same_types, write, write_flat,
};
use crate::{DType, Dims, Result, Tensor, dims, ensure, run1};
use num_complex::Complex64 as C;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_pinv",
        "(Tensor self, Operand? atol, Operand? rtol, bool hermitian)",
        0,
        KernelBody::new(infer_pinv, run_pinv),
        "",
    ),
    old_compose(
        "linalg.pinv",
        "(Tensor self, Operand? rcond=None, bool hermitian=False)",
        F | O,
        |a| pinv(a, Arg::None, a.values[1].clone(), a.bool(2)),
        "The pseudoinverse.",
    ),
    old_compose(
        "linalg.pinv#tol",
        "(Tensor self, *, Operand? atol=None, Operand? rtol=None, bool hermitian=False)",
        F | O,
        |a| pinv(a, a.values[1].clone(), a.values[2].clone(), a.bool(3)),
        "The pseudoinverse.",
    ),
    old_compose(
        "pinverse",
        "(Tensor self, float rcond=1e-15)",
        FM,
        |a| pinv(a, Arg::None, a.values[1].clone(), false),
        "The pseudoinverse.",
    ),
    kernel(
        "_matrix_rank",
        "(Tensor self, Operand? atol, Operand? rtol, bool hermitian)",
        0,
        KernelBody::new(infer_rank, run_rank),
        "",
    ),
    old_compose(
        "linalg.matrix_rank",
        "(Tensor A, Operand? tol=None, bool hermitian=False)",
        F | O,
        |a| rank(a, a.values[1].clone(), Arg::None, a.bool(2), true),
        "The number of singular values above a tolerance.",
    ),
    old_compose(
        "linalg.matrix_rank#tol",
        "(Tensor A, *, Operand? atol=None, Operand? rtol=None, bool hermitian=False)",
        F | O,
        |a| {
            rank(
                a,
                a.values[1].clone(),
                a.values[2].clone(),
                a.bool(3),
                false,
            )
        },
        "The number of singular values above a tolerance.",
    ),
    kernel(
        "lu_unpack",
        "(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)",
        F | O,
        KernelBody::new(infer_unpack, run_unpack),
        "The factors of an LU factorisation.",
    ),
    kernel(
        "triangular_solve",
        "(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False) -> (Tensor solution, Tensor cloned_coefficient)",
        FMO,
        KernelBody::new(infer_old_triangular, run_old_triangular),
        "The solution of a triangular system.",
    ),
    kernel(
        "ormqr",
        "(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False)",
        FMO,
        KernelBody::new(infer_ormqr, run_ormqr),
        "A matrix multiplied by a product of reflections.",
    ),
    kernel(
        "linalg.matrix_exp",
        "(Tensor A)",
        F,
        KernelBody::new(infer_exp, run_exp),
        "The exponential of a matrix.",
    ),
    kernel(
        "matrix_exp",
        "(Tensor self)",
        FM,
        KernelBody::new(infer_exp, run_exp),
        "The exponential of a matrix.",
    ),
    old_compose(
        "linalg.tensorinv",
        "(Tensor self, int ind=2)",
        F | O,
        tensorinv,
        "The inverse of a tensor as a linear map.",
    ),
    old_compose(
        "linalg.tensorsolve",
        "(Tensor self, Tensor other, int[]? dims=None)",
        F | O,
        tensorsolve,
        "The solution of a tensor equation.",
    ),
];

fn pinv(a: &Args, atol: Arg, rtol: Arg, hermitian: bool) -> Result<Ret> {
    crate::ops::core::dispatch::run(
        crate::op!("_pinv")?,
        &[a.values[0].clone(), atol, rtol, Arg::Bool(hermitian)],
    )
}

fn rank(a: &Args, atol: Arg, rtol: Arg, hermitian: bool, old: bool) -> Result<Ret> {
    // One tolerance alone is absolute.
    let rtol = if old && !matches!(atol, Arg::None) {
        Arg::Float(0.0)
    } else {
        rtol
    };
    crate::ops::core::dispatch::run(
        crate::op!("_matrix_rank")?,
        &[a.values[0].clone(), atol, rtol, Arg::Bool(hermitian)],
    )
}

fn shape_of(v: &Arg) -> Dims {
    match v {
        Arg::Tensor(t) => t.shape().clone(),
        _ => Dims::EMPTY,
    }
}

/// A tolerance for each matrix of a batch.
fn tolerances(v: &Arg, batch: &[i64]) -> Result<Option<Vec<f64>>> {
    let count = batch.iter().product::<i64>() as usize;
    Ok(match v {
        Arg::Tensor(t) => {
            let t = copy::dense(&t.expand_to(batch), DType::F64)?;
            Some(crate::cpu::slice::<f64>(&t).to_vec())
        }
        other => crate::ops::pointwise::rule::scalar_of(other).map(|s| vec![s.to_f64(); count]),
    })
}

/// What singular values have to exceed, for matrix `i` with the largest value `top`.
struct Limits {
    atol: Option<Vec<f64>>,
    rtol: Option<Vec<f64>>,
    default: f64,
}

impl Limits {
    fn new(a: &Args, batch: &[i64]) -> Result<Self> {
        let t = a.tensor(0)?;
        let epsilon = if t.dtype().to_real() == DType::F64 {
            f64::EPSILON
        } else {
            f64::from(f32::EPSILON)
        };
        let larger = t.shape()[t.ndim() - 2].max(t.shape()[t.ndim() - 1]);
        Ok(Self {
            atol: tolerances(&a.values[1], batch)?,
            rtol: tolerances(&a.values[2], batch)?,
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

fn infer_pinv(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (batch, m, n) = check(t, "linalg.pinv", a.bool(3))?;
    Ok(Plan::contiguous(&batch.concat(&[n, m]), t.dtype()))
}

fn run_pinv(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    if t.numel() == 0 {
        return Ok(());
    }
    let batch = lead(t);
    let limits = Limits::new(a, &batch)?;
    let mut results = Vec::new();
    for (i, m) in read(t, &batch)?.into_iter().enumerate() {
        let (u, s, v) = dense::singular(&mirrored(m, a.bool(3)));
        let limit = limits.limit(i, s.first().copied().unwrap_or(0.0));
        let scaled = Matrix::from_fn(v.rows, s.len(), |r, c| {
            if s[c] > limit { v[(r, c)] / s[c] } else { ZERO }
        });
        results.push(scaled.times(&u.adjoint()));
    }
    write(&outs[0], &results)
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

fn infer_rank(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (batch, ..) = check(t, "linalg.matrix_rank", a.bool(3))?;
    let batch = dims::broadcast(
        &dims::broadcast(&batch, &shape_of(&a.values[1]))?,
        &shape_of(&a.values[2]),
    )?;
    Ok(Plan::contiguous(&batch, DType::I64))
}

fn run_rank(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, batch) = (a.tensor(0)?, outs[0].shape());
    if t.numel() == 0 {
        return crate::cpu::fill(&outs[0], crate::Scalar::Int(0));
    }
    let limits = Limits::new(a, batch)?;
    let mut counts = Vec::new();
    for (i, m) in read(t, batch)?.into_iter().enumerate() {
        let s = dense::singular(&mirrored(m, a.bool(3))).1;
        let limit = limits.limit(i, s.first().copied().unwrap_or(0.0));
        counts.push(C::new(s.iter().filter(|&&v| v > limit).count() as f64, 0.0));
    }
    write_flat(&outs[0], &counts)
}

fn infer_unpack(a: &Args) -> Result<Plan> {
    let (t, pivots) = (a.tensor(0)?, a.tensor(1)?);
    let (batch, m, n) = check(t, "torch.lu_unpack", false)?;
    ensure!(
        !a.bool(3) || pivots.dtype() == DType::I32,
        Runtime,
        "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\nNote: this function is intended to be \
         used with the output produced by torch.linalg.lu_factor"
    );
    let k = m.min(n);
    let none = Dims::from([0]);
    let pick = |on: bool, shape: Dims| if on { shape } else { none.clone() };
    let (p, l, u) = (
        pick(a.bool(3), batch.concat(&[m, m])),
        pick(a.bool(2), batch.concat(&[m, k])),
        pick(a.bool(2), batch.concat(&[k, n])),
    );
    Ok(Plan::many(&[
        (&p, t.dtype()),
        (&l, t.dtype()),
        (&u, t.dtype()),
    ]))
}

fn run_unpack(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, pivots) = (a.tensor(0)?, a.tensor(1)?);
    let all = read(t, &lead(t))?;
    if a.bool(3) {
        let column = pivots.view_with(
            pivots.shape().concat(&[1]),
            pivots.strides().concat(&[1]),
            pivots.offset(),
        );
        let rows = t.shape()[t.ndim() - 2] as usize;
        let mut ps = Vec::new();
        for p in read(&column, &lead(t))? {
            let mut order: Vec<usize> = (0..rows).collect();
            for (i, v) in p.data.iter().enumerate() {
                let j = v.re as i64 - 1;
                ensure!(
                    j >= 0 && (j as usize) < rows,
                    Runtime,
                    "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
                );
                order.swap(i, j as usize);
            }
            ps.push(Matrix::from_fn(rows, rows, |i, j| {
                if order[j] == i { ONE } else { ZERO }
            }));
        }
        write(&outs[0], &ps)?;
    }
    if a.bool(2) {
        let lower = |f: &Matrix| {
            Matrix::from_fn(f.rows, f.rows.min(f.columns), |i, j| {
                if i == j {
                    ONE
                } else if j < i {
                    f[(i, j)]
                } else {
                    ZERO
                }
            })
        };
        let upper = |f: &Matrix| {
            Matrix::from_fn(f.rows.min(f.columns), f.columns, |i, j| {
                if i <= j { f[(i, j)] } else { ZERO }
            })
        };
        write(&outs[1], &all.iter().map(lower).collect::<Vec<_>>())?;
        write(&outs[2], &all.iter().map(upper).collect::<Vec<_>>())?;
    }
    Ok(())
}

fn infer_old_triangular(a: &Args) -> Result<Plan> {
    let (b, t) = (a.tensor(0)?, a.tensor(1)?);
    ensure!(
        b.ndim() >= 2,
        Runtime,
        "torch.triangular_solve: Expected b to have at least 2 dimensions, but it has {} dimensions instead",
        b.ndim()
    );
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "torch.triangular_solve: Expected A to have at least 2 dimensions, but it has {} dimensions instead",
        t.ndim()
    );
    check(t, "triangular_solve", true)?;
    same_types("triangular_solve", t, b)?;
    let batch = fits("triangular_solve", t, b, true)?;
    let tail = |t: &Tensor| Dims::new(&t.shape()[t.ndim() - 2..]);
    let outs = [
        columnwise(batch.concat(&tail(b)), b.dtype()),
        columnwise(batch.concat(&tail(t)), t.dtype()),
    ];
    Ok(Plan {
        outs: outs.into_iter().collect(),
        device: None,
    })
}

fn run_old_triangular(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (b, t, upper, turned, unit) = (a.tensor(0)?, a.tensor(1)?, a.bool(2), a.bool(3), a.bool(4));
    let batch = lead(&outs[0]);
    let solve = |(t, mut x): (Matrix, Matrix)| {
        let t = if turned {
            Matrix::from_fn(t.columns, t.rows, |i, j| t[(j, i)])
        } else {
            t
        };
        dense::triangular(&t, &mut x, upper != turned, unit);
        x
    };
    write(
        &outs[0],
        &read(t, &batch)?
            .into_iter()
            .zip(read(b, &batch)?)
            .map(solve)
            .collect::<Vec<_>>(),
    )?;
    write(&outs[1], &read(t, &batch)?)
}

fn infer_ormqr(a: &Args) -> Result<Plan> {
    let (t, tau, c) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "torch.ormqr: input must have at least 2 dimensions."
    );
    ensure!(
        c.ndim() >= 2,
        Runtime,
        "torch.ormqr: other must have at least 2 dimensions."
    );
    check(t, "ormqr", false)?;
    let side = if a.bool(3) {
        c.ndim() - 2
    } else {
        c.ndim() - 1
    };
    let k = tau.shape().last().copied().unwrap_or(0);
    ensure!(
        c.shape()[side] >= k && c.shape()[side] == t.shape()[t.ndim() - 2],
        Runtime,
        "torch.ormqr: other.shape[{}] must be equal to input.shape[-2]",
        side as i64 - c.ndim() as i64
    );
    ensure!(
        k <= t.shape()[t.ndim() - 1],
        Runtime,
        "torch.ormqr: tau.shape[-1] must be less than or equal to input.shape[-1]"
    );
    ensure!(
        t.ndim() == tau.ndim() + 1,
        Runtime,
        "torch.ormqr: Expected tau to have one dimension less than input, but got tau.ndim equal to {} and input.ndim is equal to {}",
        tau.ndim(),
        t.ndim()
    );
    ensure!(
        t.ndim() == c.ndim(),
        Runtime,
        "torch.ormqr: Expected other to have the same number of dimensions as input, but got other.ndim equal to {} and input.ndim is \
         equal to {}",
        c.ndim(),
        t.ndim()
    );
    ensure!(
        lead(t) == lead(c),
        Runtime,
        "torch.ormqr: Expected batch dimensions of other to be equal to input.shape[:-2], but got {}",
        lead(c)
    );
    for (x, name) in [(tau, "tau"), (c, "other")] {
        ensure!(
            x.dtype() == t.dtype(),
            Runtime,
            "torch.ormqr: Expected input and {name} to have the same dtype, but input has dtype {} and {name} has dtype {}",
            t.dtype().scalar_type(),
            x.dtype().scalar_type()
        );
    }
    let shape = c.shape().clone();
    Ok(Plan {
        outs: [OutSpec {
            strides: by_columns(&shape),
            shape,
            dtype: c.dtype(),
        }]
        .into_iter()
        .collect(),
        device: None,
    })
}

fn run_ormqr(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, tau, c, left, turned) = (
        a.tensor(0)?,
        a.tensor(1)?,
        a.tensor(2)?,
        a.bool(3),
        a.bool(4),
    );
    let batch = lead(t);
    let column = tau.view_with(
        tau.shape().concat(&[1]),
        tau.strides().concat(&[1]),
        tau.offset(),
    );
    let mut results = Vec::new();
    for ((h, taus), c) in read(t, &batch)?
        .into_iter()
        .zip(read(&column, &batch)?)
        .zip(read(c, &batch)?)
    {
        // C Q is the adjoint of Q' C'.
        let mut c = if left { c } else { c.adjoint() };
        dense::reflect(&h, &taus.data, &mut c, turned == left);
        results.push(if left { c } else { c.adjoint() });
    }
    write(&outs[0], &results)
}

fn infer_exp(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let n = t.ndim();
    ensure!(
        n >= 2 && (t.dtype().is_float() || t.dtype().is_complex()),
        Runtime,
        "linalg.matrix_exp: Expected a floating point or complex tensor as input. Got {}",
        t.dtype().scalar_type()
    );
    let (r, c) = (t.shape()[n - 2], t.shape()[n - 1]);
    ensure!(
        r == c,
        Runtime,
        "linalg.matrix_exp: A must be batches of square matrices, but they are {r} by {c} matrices"
    );
    Ok(Plan::contiguous(t.shape(), t.dtype()))
}

fn run_exp(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let exponential = |m: Matrix| {
        let n = m.rows;
        let norm = (0..n)
            .map(|i| (0..n).map(|j| m[(i, j)].norm()).sum::<f64>())
            .fold(0.0f64, f64::max);
        // Scaled until a short series suffices, then squared back.
        let halvings = if norm > 0.5 && norm.is_finite() {
            (norm / 0.5).log2().ceil() as i32
        } else {
            0
        };
        let scale = 0.5f64.powi(halvings);
        let x = Matrix::from_fn(n, n, |i, j| m[(i, j)] * scale);
        let (mut sum, mut term) = (Matrix::eye(n), Matrix::eye(n));
        for k in 1..19 {
            term = term.times(&x);
            term.data.iter_mut().for_each(|v| *v /= f64::from(k));
            sum.data
                .iter_mut()
                .zip(&term.data)
                .for_each(|(s, t)| *s += t);
        }
        for _ in 0..halvings {
            sum = sum.times(&sum);
        }
        sum
    };
    write(
        &outs[0],
        &read(t, &lead(t))?
            .into_iter()
            .map(exponential)
            .collect::<Vec<_>>(),
    )
}

fn tensorinv(a: &Args) -> Result<Ret> {
    let (t, ind) = (a.tensor(0)?, a.int(1)?);
    ensure!(
        ind > 0,
        Runtime,
        "Expected a strictly positive integer for 'ind', but got {ind}"
    );
    let k = (ind as usize).min(t.ndim());
    let (front, back) = (Dims::new(&t.shape()[..k]), Dims::new(&t.shape()[k..]));
    let (m, n) = (dims::numel(&front)?, dims::numel(&back)?);
    ensure!(
        m == n,
        Runtime,
        "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {n} != {m}"
    );
    let flat = run1!("reshape", t, Dims::from([n, m]))?;
    Ok(run1!("reshape", &run1!("linalg.inv", &flat)?, back.concat(&front))?.into())
}

fn tensorsolve(a: &Args) -> Result<Ret> {
    let (t, b) = (a.tensor(0)?, a.tensor(1)?);
    let mut t = t.clone();
    if let Some(d) = a.opt_ints(2) {
        let n = t.ndim() as i64;
        let to: Dims = (0..d.len() as i64)
            .map(|i| n - d.len() as i64 + i)
            .collect();
        t = run1!("movedim", &t, d.clone(), to)?;
    }
    let k = b.ndim().min(t.ndim());
    let result = Dims::new(&t.shape()[k..]);
    let (rows, columns) = (b.numel(), dims::numel(&result)?);
    ensure!(
        rows == columns,
        Runtime,
        "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got {columns} != {rows}"
    );
    let flat = run1!("reshape", &t, Dims::from([rows, columns]))?;
    let x = run1!(
        "linalg.solve",
        &flat,
        &run1!("reshape", b, Dims::from([-1]))?
    )?;
    Ok(run1!("reshape", &x, result)?.into())
}
