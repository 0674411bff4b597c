//! Inverses, determinants and solutions of matrices. All are computed in double precision.

use crate::cpu::copy;
use crate::cpu::dense::{self, Matrix, ONE, ZERO};
use crate::ops::core::args::Args;
use crate::ops::core::op::{F, FM, FMO, KernelBody, O, OpDef, OutSpec, Plan, kernel, old_compose};
use crate::{DType, Dims, Result, Tensor, bail, dims, ensure, run, run1};
use num_complex::Complex64 as C;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.inv_ex",
        "(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)",
        F | O,
        KernelBody::new(
            |a| infer_inverse(a, "linalg.inv"),
            |a, o| run_inverse(a, o, a.bool(1)),
        ),
        "The inverse, and where it failed.",
    ),
    old_compose(
        "linalg.inv",
        "(Tensor A)",
        F | O,
        |a| run!("linalg.inv_ex", a.tensor(0)?, true)?.first(),
        "The inverse of a matrix.",
    ),
    old_compose(
        "inverse",
        "(Tensor self)",
        FMO,
        |a| run!("linalg.inv_ex", a.tensor(0)?, true)?.first(),
        "The inverse of a matrix.",
    ),
    kernel(
        "linalg.det",
        "(Tensor A)",
        F | O,
        KernelBody::new(|a| infer_det(a, "linalg.det", 1), run_det),
        "The determinant.",
    ),
    kernel(
        "det",
        "(Tensor self)",
        FM,
        KernelBody::new(|a| infer_det(a, "linalg.det", 1), run_det),
        "The determinant.",
    ),
    kernel(
        "linalg.slogdet",
        "(Tensor A) -> (Tensor sign, Tensor logabsdet)",
        F | O,
        KernelBody::new(|a| infer_det(a, "linalg.slogdet", 2), run_slogdet),
        "Sign and logarithm of the determinant.",
    ),
    kernel(
        "slogdet",
        "(Tensor self) -> (Tensor sign, Tensor logabsdet)",
        FMO,
        KernelBody::new(|a| infer_det(a, "linalg.slogdet", 2), run_slogdet),
        "Sign and logarithm of the determinant.",
    ),
    kernel(
        "logdet",
        "(Tensor self)",
        FM,
        KernelBody::new(|a| infer_det(a, "logdet", 1), run_logdet),
        "The logarithm of the determinant.",
    ),
    kernel(
        "linalg.solve_ex",
        "(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor info)",
        F | O,
        KernelBody::new(infer_solve, |a, o| run_solve(a, o, a.bool(3))),
        "The solution of A X = B, and where it failed.",
    ),
    old_compose(
        "linalg.solve",
        "(Tensor A, Tensor B, *, bool left=True)",
        F | O,
        |a| {
            run!(
                "linalg.solve_ex",
                a.tensor(0)?,
                a.tensor(1)?,
                a.bool(2),
                true
            )?
            .first()
        },
        "The solution of A X = B.",
    ),
    old_compose(
        "linalg.cholesky",
        "(Tensor self, *, bool upper=False)",
        F | O,
        |a| run!("linalg.cholesky_ex", a.tensor(0)?, a.bool(1), true)?.first(),
        "The Cholesky factor.",
    ),
    old_compose(
        "lu_solve",
        "(Tensor self, Tensor LU_data, Tensor LU_pivots)",
        FMO,
        |a| Ok(run1!("linalg.lu_solve", a.tensor(1)?, a.tensor(2)?, a.tensor(0)?)?.into()),
        "The solution of a system by its LU factorisation.",
    ),
    kernel(
        "linalg.solve_triangular",
        "(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False)",
        F | O,
        KernelBody::new(infer_triangular, run_triangular),
        "The solution of a triangular system.",
    ),
];

pub(in crate::ops) fn one_only(mut p: Plan) -> Plan {
    p.outs.truncate(1);
    p
}

/// Strides with the last two dimensions column by column.
pub(in crate::ops) fn by_columns(shape: &[i64]) -> Dims {
    let mut s = dims::contiguous_strides(shape);
    let n = shape.len();
    if n >= 2 {
        s[n - 2] = 1;
        s[n - 1] = shape[n - 2].max(1);
    }
    s
}

pub(in crate::ops) fn columnwise(shape: Dims, dtype: DType) -> OutSpec {
    OutSpec {
        strides: by_columns(&shape),
        shape,
        dtype,
    }
}

pub(in crate::ops) fn check(t: &Tensor, name: &str, square: bool) -> Result<(Dims, i64, i64)> {
    let n = t.ndim();
    ensure!(
        n >= 2,
        Runtime,
        "{name}: The input tensor A must have at least 2 dimensions."
    );
    let (r, c) = (t.shape()[n - 2], t.shape()[n - 1]);
    ensure!(
        !square || r == c,
        Runtime,
        "{name}: A must be batches of square matrices, but they are {r} by {c} matrices"
    );
    let d = t.dtype();
    ensure!(
        d.is_float() || d.is_complex(),
        Runtime,
        "{name}: Expected a floating point or complex tensor as input. Got {}",
        d.scalar_type()
    );
    ensure!(
        matches!(d, DType::F32 | DType::F64 | DType::C64 | DType::C128),
        Runtime,
        "{name}: Low precision dtypes not supported. Got {}",
        d.scalar_type()
    );
    Ok((Dims::new(&t.shape()[..n - 2]), r, c))
}

/// The matrices of a batch, repeated to `batch`.
pub(in crate::ops) fn read(t: &Tensor, batch: &[i64]) -> Result<Vec<Matrix>> {
    let n = t.ndim();
    let (r, c) = (t.shape()[n - 2], t.shape()[n - 1]);
    let t = copy::dense(&t.expand_to(&Dims::new(batch).concat(&[r, c])), DType::C128)?;
    let (rows, columns) = (r as usize, c as usize);
    let count = batch.iter().product::<i64>() as usize;
    let all = crate::cpu::slice::<C>(&t);
    Ok((0..count)
        .map(|i| Matrix {
            rows,
            columns,
            data: all[i * rows * columns..(i + 1) * rows * columns].to_vec(),
        })
        .collect())
}

/// Writes a batch of matrices.
pub(in crate::ops) fn write(out: &Tensor, all: &[Matrix]) -> Result<()> {
    let data: Vec<C> = all.iter().flat_map(|m| m.data.iter().copied()).collect();
    write_flat(out, &data)
}

pub(in crate::ops) fn write_flat(out: &Tensor, data: &[C]) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    copy::copy(out, &Tensor::from_slice(data, out.shape())?)
}

pub(in crate::ops) fn write_ints(out: &Tensor, data: &[i64]) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    copy::copy(out, &Tensor::from_slice(data, out.shape())?)
}

pub(in crate::ops) fn lead(t: &Tensor) -> Dims {
    Dims::new(&t.shape()[..t.ndim() - 2])
}

pub(in crate::ops) fn infer_inverse(a: &Args, name: &str) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (batch, ..) = check(t, name, true)?;
    Ok(Plan {
        outs: [
            columnwise(t.shape().clone(), t.dtype()),
            OutSpec::contiguous(&batch, DType::I32),
        ]
        .into_iter()
        .collect(),
        device: None,
    })
}

pub(in crate::ops) fn batch_note(t: &Tensor, i: usize) -> String {
    if t.ndim() > 2 {
        format!("(Batch element {i}): ")
    } else {
        String::new()
    }
}

fn run_inverse(a: &Args, outs: &[Tensor], strict: bool) -> Result<()> {
    let t = a.tensor(0)?;
    let (mut results, mut infos) = (Vec::new(), Vec::new());
    for (i, m) in read(t, &lead(t))?.into_iter().enumerate() {
        let n = m.rows;
        let f = dense::lu(m);
        if f.info != 0 && strict {
            bail!(
                LinAlg,
                "linalg.inv: {}The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular.",
                batch_note(t, i),
                f.info
            );
        }
        let mut x = Matrix::eye(n);
        dense::lu_solve(&f.lu, &f.pivots, &mut x);
        results.push(x);
        infos.push(i64::from(f.info));
    }
    write(&outs[0], &results)?;
    write_ints(&outs[1], &infos)
}

fn infer_det(a: &Args, name: &str, outs: usize) -> Result<Plan> {
    let t = a.tensor(0)?;
    if t.dtype().is_reduced_float() && t.ndim() >= 2 {
        return Err(t.dtype().no_kernel("lu_cpu"));
    }
    let (batch, ..) = check(t, name, true)?;
    let mut plan = Plan::contiguous(&batch, t.dtype());
    if outs == 2 {
        plan.outs
            .push(OutSpec::contiguous(&batch, t.dtype().to_real()));
    }
    Ok(plan)
}

/// Phase and logarithm of the size of each determinant.
fn determinants(t: &Tensor) -> Result<Vec<(C, f64)>> {
    Ok(read(t, &lead(t))?
        .into_iter()
        .map(|m| {
            let n = m.rows;
            let f = dense::lu(m);
            let (mut phase, mut log) = (ONE, 0.0f64);
            for i in 0..n {
                let d = f.lu[(i, i)];
                let size = d.norm();
                log += size.ln();
                phase *= if size == 0.0 { ZERO } else { d / size };
                if f.pivots[i] != i {
                    phase = -phase;
                }
            }
            (phase, log)
        })
        .collect())
}

fn run_det(a: &Args, outs: &[Tensor]) -> Result<()> {
    let all: Vec<C> = determinants(a.tensor(0)?)?
        .into_iter()
        .map(|(p, l)| if p == ZERO { ZERO } else { p * l.exp() })
        .collect();
    write_flat(&outs[0], &all)
}

fn run_slogdet(a: &Args, outs: &[Tensor]) -> Result<()> {
    let all = determinants(a.tensor(0)?)?;
    write_flat(&outs[0], &all.iter().map(|d| d.0).collect::<Vec<_>>())?;
    write_flat(
        &outs[1],
        &all.iter().map(|d| C::new(d.1, 0.0)).collect::<Vec<_>>(),
    )
}

fn run_logdet(a: &Args, outs: &[Tensor]) -> Result<()> {
    let complex = outs[0].dtype().is_complex();
    let value = |(p, l): (C, f64)| match (complex, p == ZERO) {
        (_, true) => C::new(f64::NEG_INFINITY, 0.0),
        (true, _) => C::new(l, p.arg()),
        (false, _) => C::new(if p.re < 0.0 { f64::NAN } else { l }, 0.0),
    };
    write_flat(
        &outs[0],
        &determinants(a.tensor(0)?)?
            .into_iter()
            .map(value)
            .collect::<Vec<_>>(),
    )
}

fn is_vector(a: &Tensor, b: &Tensor) -> bool {
    b.ndim() == 1 || (a.ndim() == b.ndim() + 1 && a.shape()[..a.ndim() - 1] == b.shape()[..])
}

pub(in crate::ops) fn same_types(name: &str, a: &Tensor, b: &Tensor) -> Result<()> {
    ensure!(
        a.dtype() == b.dtype(),
        Runtime,
        "{name}: Expected A and B to have the same dtype, but found A of type {} and B of type {} instead",
        a.dtype().scalar_type(),
        b.dtype().scalar_type()
    );
    Ok(())
}

/// `B` as matrices.
fn right_side(a: &Tensor, b: &Tensor) -> (Tensor, bool) {
    let vector = is_vector(a, b);
    if vector {
        (
            b.view_with(b.shape().concat(&[1]), b.strides().concat(&[1]), b.offset()),
            true,
        )
    } else {
        (b.clone(), false)
    }
}

pub(in crate::ops) fn fits(name: &str, a: &Tensor, b: &Tensor, left: bool) -> Result<Dims> {
    let (n, r, c) = (
        a.shape()[a.ndim() - 1],
        b.shape()[b.ndim() - 2],
        b.shape()[b.ndim() - 1],
    );
    ensure!(
        if left { n == r } else { n == c },
        Runtime,
        "{name}: Incompatible shapes of A and B for the equation {} ({n}x{n} and {r}x{c})",
        if left { "AX = B" } else { "XA = B" }
    );
    dims::broadcast(&lead(a), &lead(b))
}

fn infer_solve(a: &Args) -> Result<Plan> {
    let (x, b, left) = (a.tensor(0)?, a.tensor(1)?, a.bool(2));
    same_types("linalg.solve", x, b)?;
    check(x, "linalg.solve", true)?;
    ensure!(
        b.ndim() >= 1,
        Runtime,
        "linalg.solve: The input tensor B must have at least 1 dimensions."
    );
    let (m, vector) = right_side(x, b);
    ensure!(
        left || !vector,
        Runtime,
        "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. In this case linalg.solve is \
         equivalent to B / A.squeeze(-1)"
    );
    let batch = fits("linalg.solve", x, &m, left)?;
    let mut shape = batch.concat(&m.shape()[m.ndim() - 2..]);
    if vector {
        shape = Dims::new(&shape[..shape.len() - 1]);
    }
    let strides = if left {
        by_columns(&shape)
    } else {
        dims::contiguous_strides(&shape)
    };
    let result = OutSpec {
        shape,
        strides,
        dtype: x.dtype(),
    };
    Ok(Plan {
        outs: [result, OutSpec::contiguous(&lead(x), DType::I32)]
            .into_iter()
            .collect(),
        device: None,
    })
}

fn run_solve(a: &Args, outs: &[Tensor], strict: bool) -> Result<()> {
    let (x, b, left) = (a.tensor(0)?, a.tensor(1)?, a.bool(2));
    let (m, _) = right_side(x, b);
    let batch = dims::broadcast(&lead(x), &lead(&m))?;
    let (mut results, mut infos) = (Vec::new(), Vec::new());
    for f in read(x, &lead(x))? {
        infos.push(i64::from(dense::lu(f).info));
    }
    if let (Some(i), true) = (infos.iter().position(|&i| i != 0), strict) {
        bail!(
            LinAlg,
            "torch.linalg.solve: {}The solver failed because the input matrix is singular.",
            batch_note(x, i)
        );
    }
    for (f, mut y) in read(x, &batch)?.into_iter().zip(read(&m, &batch)?) {
        if !left {
            y = y.adjoint();
        }
        let f = dense::lu(if left { f } else { f.adjoint() });
        dense::lu_solve(&f.lu, &f.pivots, &mut y);
        results.push(if left { y } else { y.adjoint() });
    }
    write(&outs[0], &results)?;
    write_ints(&outs[1], &infos)
}

fn infer_triangular(a: &Args) -> Result<Plan> {
    let (t, b, left) = (a.tensor(0)?, a.tensor(1)?, a.bool(3));
    same_types("linalg.solve_triangular", t, b)?;
    check(t, "linalg.solve_triangular", true)?;
    ensure!(
        b.ndim() >= 2,
        Runtime,
        "linalg.solve_triangular: The input tensor B must have at least 2 dimensions."
    );
    let batch = fits("linalg.solve_triangular", t, b, left)?;
    Ok(Plan {
        outs: [columnwise(
            batch.concat(&b.shape()[b.ndim() - 2..]),
            b.dtype(),
        )]
        .into_iter()
        .collect(),
        device: None,
    })
}

fn run_triangular(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, b, upper, left, unit) = (a.tensor(0)?, a.tensor(1)?, a.bool(2), a.bool(3), a.bool(4));
    let batch = lead(&outs[0]);
    let solve = |(t, mut x): (Matrix, Matrix)| {
        if left {
            dense::triangular(&t, &mut x, upper, unit);
            return x;
        }
        let mut x = x.adjoint();
        dense::triangular(&t.adjoint(), &mut x, !upper, unit);
        x.adjoint()
    };
    write(
        &outs[0],
        &read(t, &batch)?
            .into_iter()
            .zip(read(b, &batch)?)
            .map(solve)
            .collect::<Vec<_>>(),
    )
}
