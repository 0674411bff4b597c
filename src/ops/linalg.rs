//! Factorisations, inverses and solutions of matrices. All are computed in double precision.

use super::args::Args;
use super::op::{F, FM, FMO, KernelBody, O, OpDef, OutSpec, Plan, Ret, compose, kernel};
use crate::cpu::copy;
use crate::cpu::dense::{self, Matrix, ONE, ZERO};
use crate::{DType, Dims, Result, Tensor, bail, dims, ensure, run, run1};
use num_complex::Complex64 as C;

/// The family's rows.
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
    compose(
        "linalg.inv",
        "(Tensor A)",
        F | O,
        |a| first(run!("linalg.inv_ex", a.tensor(0)?, true)?),
        "The inverse of a matrix.",
    ),
    compose(
        "inverse",
        "(Tensor self)",
        FMO,
        |a| first(run!("linalg.inv_ex", a.tensor(0)?, true)?),
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
    compose(
        "linalg.solve",
        "(Tensor A, Tensor B, *, bool left=True)",
        F | O,
        |a| {
            first(run!(
                "linalg.solve_ex",
                a.tensor(0)?,
                a.tensor(1)?,
                a.bool(2),
                true
            )?)
        },
        "The solution of A X = B.",
    ),
    kernel(
        "linalg.cholesky_ex",
        "(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)",
        F | O,
        KernelBody::new(
            |a| infer_inverse(a, "linalg.cholesky"),
            |a, o| run_cholesky(a, o, a.bool(1), a.bool(2), "linalg.cholesky"),
        ),
        "The Cholesky factor, and where it failed.",
    ),
    compose(
        "linalg.cholesky",
        "(Tensor self, *, bool upper=False)",
        F | O,
        |a| first(run!("linalg.cholesky_ex", a.tensor(0)?, a.bool(1), true)?),
        "The Cholesky factor.",
    ),
    kernel(
        "cholesky",
        "(Tensor self, bool upper=False)",
        FMO,
        KernelBody::new(
            |a| infer_inverse(a, "cholesky").map(one_only),
            |a, o| run_cholesky(a, o, a.bool(1), true, "cholesky"),
        ),
        "The Cholesky factor.",
    ),
    kernel(
        "cholesky_solve",
        "(Tensor self, Tensor input2, bool upper=False)",
        FMO,
        KernelBody::new(infer_cholesky_solve, run_cholesky_solve),
        "The solution of a system by its Cholesky factor.",
    ),
    kernel(
        "cholesky_inverse",
        "(Tensor self, bool upper=False)",
        FMO,
        KernelBody::new(
            |a| infer_inverse(a, "cholesky_inverse").map(one_only),
            run_cholesky_inverse,
        ),
        "The inverse by the Cholesky factor.",
    ),
    kernel(
        "linalg.qr",
        "(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)",
        F | O,
        KernelBody::new(|a| infer_qr(a, qr_mode(a)?), run_qr),
        "Orthogonal and triangular factor.",
    ),
    kernel(
        "qr",
        "(Tensor self, bool some=True) -> (Tensor Q, Tensor R)",
        FMO,
        KernelBody::new(
            |a| infer_qr(a, if a.bool(1) { "reduced" } else { "complete" }),
            run_qr,
        ),
        "Orthogonal and triangular factor.",
    ),
    kernel(
        "linalg.svd",
        "(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)",
        F | O,
        KernelBody::new(infer_svd, run_svd),
        "The singular value decomposition.",
    ),
    kernel(
        "linalg.svdvals",
        "(Tensor A, *, str? driver=None)",
        F | O,
        KernelBody::new(infer_svdvals, run_svdvals),
        "The singular values.",
    ),
    compose(
        "svd",
        "(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)",
        FMO,
        svd,
        "The singular value decomposition, V not conjugated.",
    ),
    kernel(
        "linalg.eigh",
        "(Tensor A, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors)",
        F | O,
        KernelBody::new(|a| infer_eigh(a, "linalg.eigh", true), run_eigh),
        "Eigenvalues and eigenvectors of a Hermitian matrix.",
    ),
    kernel(
        "linalg.eigvalsh",
        "(Tensor A, str UPLO='L')",
        F | O,
        KernelBody::new(|a| infer_eigh(a, "linalg.eigvalsh", false), run_eigh),
        "Eigenvalues of a Hermitian matrix.",
    ),
    kernel(
        "linalg.lu_factor_ex",
        "(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots, Tensor info)",
        F | O,
        KernelBody::new(infer_lu_factor, run_lu_factor),
        "The LU factorisation in one matrix, and where it failed.",
    ),
    compose(
        "linalg.lu_factor",
        "(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)",
        F | O,
        lu_factor,
        "The LU factorisation in one matrix.",
    ),
    compose(
        "lu",
        "(Tensor A, bool pivot=True, bool get_infos=False) -> (Tensor, Tensor)",
        FM,
        lu_old,
        "The LU factorisation in one matrix.",
    ),
    kernel(
        "linalg.lu",
        "(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)",
        F | O,
        KernelBody::new(infer_lu, run_lu),
        "The LU factorisation.",
    ),
    kernel(
        "linalg.lu_solve",
        "(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False)",
        F | O,
        KernelBody::new(infer_lu_solve, run_lu_solve),
        "The solution of a system by its LU factorisation.",
    ),
    compose(
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
    kernel(
        "geqrf",
        "(Tensor self) -> (Tensor a, Tensor tau)",
        FMO,
        KernelBody::new(infer_geqrf, run_geqrf),
        "Householder reflections of a matrix.",
    ),
    kernel(
        "linalg.householder_product",
        "(Tensor input, Tensor tau)",
        F | O,
        KernelBody::new(infer_product, run_product),
        "The first columns of a product of reflections.",
    ),
    kernel(
        "orgqr",
        "(Tensor self, Tensor input2)",
        FMO,
        KernelBody::new(infer_product, run_product),
        "The first columns of a product of reflections.",
    ),
];

fn first(r: Ret) -> Result<Ret> {
    r.tensors()
        .into_iter()
        .next()
        .map(Ret::from)
        .ok_or_else(|| crate::err!(Runtime, "no result"))
}

fn one_only(mut p: Plan) -> Plan {
    p.outs.truncate(1);
    p
}

/// Strides with the last two dimensions column by column.
pub(super) fn by_columns(shape: &[i64]) -> Dims {
    let mut s = dims::contiguous_strides(shape);
    let n = shape.len();
    if n >= 2 {
        s[n - 2] = 1;
        s[n - 1] = shape[n - 2].max(1);
    }
    s
}

pub(super) fn columnwise(shape: Dims, dtype: DType) -> OutSpec {
    OutSpec {
        strides: by_columns(&shape),
        shape,
        dtype,
    }
}

pub(super) fn check(t: &Tensor, name: &str, square: bool) -> Result<(Dims, i64, i64)> {
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
pub(super) fn read(t: &Tensor, batch: &[i64]) -> Result<Vec<Matrix>> {
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
pub(super) fn write(out: &Tensor, all: &[Matrix]) -> Result<()> {
    let data: Vec<C> = all.iter().flat_map(|m| m.data.iter().copied()).collect();
    write_flat(out, &data)
}

pub(super) fn write_flat(out: &Tensor, data: &[C]) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    copy::copy(out, &Tensor::from_slice(data, out.shape())?)
}

fn write_ints(out: &Tensor, data: &[i64]) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    copy::copy(out, &Tensor::from_slice(data, out.shape())?)
}

pub(super) fn lead(t: &Tensor) -> Dims {
    Dims::new(&t.shape()[..t.ndim() - 2])
}

fn infer_inverse(a: &Args, name: &str) -> Result<Plan> {
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

fn batch_note(t: &Tensor, i: usize) -> String {
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
        bail!(
            NotImplemented,
            "\"lu_cpu\" not implemented for '{}'",
            t.dtype().scalar_type()
        );
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

pub(super) fn same_types(name: &str, a: &Tensor, b: &Tensor) -> Result<()> {
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

pub(super) fn fits(name: &str, a: &Tensor, b: &Tensor, left: bool) -> Result<Dims> {
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
    let (lead_a, ..) = check(x, "linalg.solve", true)?;
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
    let _ = lead_a;
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

fn run_cholesky(a: &Args, outs: &[Tensor], upper: bool, strict: bool, name: &str) -> Result<()> {
    let t = a.tensor(0)?;
    let (mut results, mut infos) = (Vec::new(), Vec::new());
    for (i, m) in read(t, &lead(t))?.into_iter().enumerate() {
        let m = if upper { m.adjoint() } else { m };
        let (l, info) = match dense::cholesky(&m) {
            Ok(l) => (l, 0),
            Err((order, _)) if strict => bail!(
                LinAlg,
                "{name}: {}The factorization could not be completed because the input is not positive-definite (the leading minor of \
                 order {order} is not positive-definite).",
                batch_note(t, i)
            ),
            Err((order, l)) => (l, order as i64),
        };
        results.push(if upper { l.adjoint() } else { l });
        infos.push(info);
    }
    write(&outs[0], &results)?;
    if outs.len() > 1 {
        write_ints(&outs[1], &infos)
    } else {
        Ok(())
    }
}

fn infer_cholesky_solve(a: &Args) -> Result<Plan> {
    let (b, l) = (a.tensor(0)?, a.tensor(1)?);
    ensure!(
        b.ndim() >= 2,
        Runtime,
        "b should have at least 2 dimensions, but has {} dimensions instead",
        b.ndim()
    );
    ensure!(
        l.ndim() >= 2,
        Runtime,
        "u should have at least 2 dimensions, but has {} dimensions instead",
        l.ndim()
    );
    check(l, "cholesky_solve", true)?;
    same_types("cholesky_solve", l, b)?;
    let batch = fits("cholesky_solve", l, b, true)?;
    let shape = batch.concat(&b.shape()[b.ndim() - 2..]);
    Ok(Plan {
        outs: [columnwise(shape, b.dtype())].into_iter().collect(),
        device: None,
    })
}

fn lower(m: Matrix, upper: bool) -> Matrix {
    let m = if upper { m.adjoint() } else { m };
    Matrix::from_fn(
        m.rows,
        m.columns,
        |i, j| if j <= i { m[(i, j)] } else { ZERO },
    )
}

fn run_cholesky_solve(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (b, l) = (a.tensor(0)?, a.tensor(1)?);
    let batch = lead(&outs[0]);
    let solve = |(l, mut x): (Matrix, Matrix)| {
        let l = lower(l, a.bool(2));
        dense::triangular(&l, &mut x, false, false);
        dense::triangular(&l.adjoint(), &mut x, true, false);
        x
    };
    write(
        &outs[0],
        &read(l, &batch)?
            .into_iter()
            .zip(read(b, &batch)?)
            .map(solve)
            .collect::<Vec<_>>(),
    )
}

fn run_cholesky_inverse(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let invert = |l: Matrix| {
        let (l, mut x) = (
            lower(l, a.bool(1)),
            Matrix::eye(t.shape()[t.ndim() - 1] as usize),
        );
        dense::triangular(&l, &mut x, false, false);
        dense::triangular(&l.adjoint(), &mut x, true, false);
        x
    };
    write(
        &outs[0],
        &read(t, &lead(t))?
            .into_iter()
            .map(invert)
            .collect::<Vec<_>>(),
    )
}

fn qr_mode<'a>(a: &Args<'a>) -> Result<&'a str> {
    let mode = a.str(1).unwrap_or("reduced");
    ensure!(
        matches!(mode, "reduced" | "complete" | "r"),
        Runtime,
        "qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'"
    );
    Ok(mode)
}

fn infer_qr(a: &Args, mode: &str) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (batch, m, n) = check(t, "linalg.qr", false)?;
    let k = m.min(n);
    let width = if mode == "complete" { m } else { k };
    let q = if mode == "r" {
        OutSpec::contiguous(&[0], t.dtype())
    } else {
        columnwise(batch.concat(&[m, width]), t.dtype())
    };
    Ok(Plan {
        outs: [q, columnwise(batch.concat(&[width, n]), t.dtype())]
            .into_iter()
            .collect(),
        device: None,
    })
}

fn run_qr(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let r = &outs[1];
    let width = r.shape()[r.ndim() - 2] as usize;
    let (mut qs, mut rs) = (Vec::new(), Vec::new());
    for m in read(t, &lead(t))? {
        let (rows, columns) = (m.rows, m.columns);
        let (h, taus) = dense::reflections(m);
        rs.push(Matrix::from_fn(width, columns, |i, j| {
            if i <= j { h[(i, j)] } else { ZERO }
        }));
        let mut q = Matrix::eye(rows).left(width);
        dense::reflect(&h, &taus, &mut q, false);
        qs.push(q);
    }
    if outs[0].ndim() > 1 {
        write(&outs[0], &qs)?;
    }
    write(r, &rs)
}

fn infer_svd(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (batch, m, n) = check(t, "linalg.svd", false)?;
    let k = m.min(n);
    let (mu, nv) = if a.bool(1) { (m, n) } else { (k, k) };
    let outs = [
        columnwise(batch.concat(&[m, mu]), t.dtype()),
        OutSpec::contiguous(&batch.concat(&[k]), t.dtype().to_real()),
        columnwise(batch.concat(&[nv, n]), t.dtype()),
    ];
    Ok(Plan {
        outs: outs.into_iter().collect(),
        device: None,
    })
}

fn finite(t: &Tensor, name: &str, all: &[Matrix]) -> Result<()> {
    match all.iter().position(|m| {
        m.data
            .iter()
            .any(|c| !c.re.is_finite() || !c.im.is_finite())
    }) {
        Some(i) => bail!(
            LinAlg,
            "{name}: {}The algorithm failed to converge because the input matrix contained non-finite values.",
            batch_note(t, i)
        ),
        None => Ok(()),
    }
}

fn wider(m: Matrix, columns: usize) -> Matrix {
    let have = m.columns;
    if have == columns {
        return m;
    }
    let mut out = Matrix::from_fn(
        m.rows,
        columns,
        |i, j| if j < have { m[(i, j)] } else { ZERO },
    );
    dense::complete(&mut out, have);
    out
}

fn run_svd(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let all = read(t, &lead(t))?;
    finite(t, "linalg.svd", &all)?;
    let (mut us, mut ss, mut vs) = (Vec::new(), Vec::new(), Vec::new());
    for m in all {
        let (rows, columns) = (m.rows, m.columns);
        let (u, s, v) = dense::singular(&m);
        ss.extend(s.into_iter().map(|v| C::new(v, 0.0)));
        us.push(if a.bool(1) { wider(u, rows) } else { u });
        vs.push(if a.bool(1) { wider(v, columns) } else { v }.adjoint());
    }
    write(&outs[0], &us)?;
    write_flat(&outs[1], &ss)?;
    write(&outs[2], &vs)
}

fn infer_svdvals(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (batch, m, n) = check(t, "linalg.svd", false)?;
    Ok(Plan::contiguous(
        &batch.concat(&[m.min(n)]),
        t.dtype().to_real(),
    ))
}

fn run_svdvals(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let all = read(t, &lead(t))?;
    finite(t, "linalg.svd", &all)?;
    let values: Vec<C> = all
        .iter()
        .flat_map(|m| dense::singular(m).1)
        .map(|v| C::new(v, 0.0))
        .collect();
    write_flat(&outs[0], &values)
}

fn svd(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "linalg.svd: input should have at least 2 dimensions, but has {} dimensions instead",
        t.ndim()
    );
    if !a.bool(2) {
        let s = run1!("linalg.svdvals", t)?;
        let (m, n) = (t.shape()[t.ndim() - 2], t.shape()[t.ndim() - 1]);
        let zeros = |k: i64| {
            run1!(
                "zeros",
                lead(t).concat(&[k, k]),
                t.dtype(),
                super::args::Arg::None,
                t.device()
            )
        };
        return Ok(Ret::Tuple([zeros(m)?, s, zeros(n)?].into_iter().collect()));
    }
    let all = run!("linalg.svd", t, !a.bool(1))?.tensors();
    let v = super::view::matrix_transpose(&all[2], "mH", true)?.one()?;
    Ok(Ret::Tuple(
        [all[0].clone(), all[1].clone(), v].into_iter().collect(),
    ))
}

fn infer_eigh(a: &Args, name: &str, vectors: bool) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (batch, n, _) = check(t, name, true)?;
    let uplo = a.str(1).unwrap_or("L");
    ensure!(
        matches!(uplo, "L" | "U" | "l" | "u"),
        Runtime,
        "Expected UPLO argument to be 'L' or 'U', but got {uplo}"
    );
    let mut plan = Plan::contiguous(&batch.concat(&[n]), t.dtype().to_real());
    if vectors {
        plan.outs.push(columnwise(t.shape().clone(), t.dtype()));
    }
    Ok(plan)
}

fn run_eigh(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let upper = matches!(a.str(1), Some("U" | "u"));
    let all = read(t, &lead(t))?;
    finite(t, "linalg.eigh", &all)?;
    let (mut values, mut vectors) = (Vec::new(), Vec::new());
    for m in all {
        let whole = Matrix::from_fn(m.rows, m.columns, |i, j| match (i == j, (j < i) != upper) {
            (true, _) => C::new(m[(i, i)].re, 0.0),
            (_, true) => m[(i, j)],
            _ => m[(j, i)].conj(),
        });
        let (v, w) = dense::hermitian(&whole);
        values.extend(v.into_iter().map(|v| C::new(v, 0.0)));
        vectors.push(w);
    }
    write_flat(&outs[0], &values)?;
    if outs.len() > 1 {
        write(&outs[1], &vectors)
    } else {
        Ok(())
    }
}

fn pivoting(pivot: bool) -> Result<()> {
    ensure!(
        pivot,
        Runtime,
        "linalg.lu_factor: LU without pivoting is not implemented on the CPU"
    );
    Ok(())
}

fn infer_lu_factor(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (batch, m, n) = check(t, "torch.lu_factor", false)?;
    pivoting(a.bool(1))?;
    let outs = [
        columnwise(t.shape().clone(), t.dtype()),
        OutSpec::contiguous(&batch.concat(&[m.min(n)]), DType::I32),
        OutSpec::contiguous(&batch, DType::I32),
    ];
    Ok(Plan {
        outs: outs.into_iter().collect(),
        device: None,
    })
}

fn run_lu_factor(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let (mut lus, mut pivots, mut infos) = (Vec::new(), Vec::new(), Vec::new());
    for (i, m) in read(t, &lead(t))?.into_iter().enumerate() {
        let f = dense::lu(m);
        if f.info != 0 && a.bool(2) {
            bail!(
                LinAlg,
                "torch.linalg.lu_factor_ex: {}U[{},{}] is zero and using it on lu_solve would result in a division by zero. If you \
                 still want to perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)",
                batch_note(t, i),
                f.info,
                f.info
            );
        }
        lus.push(f.lu);
        pivots.extend(f.pivots.iter().map(|&p| p as i64 + 1));
        infos.push(i64::from(f.info));
    }
    write(&outs[0], &lus)?;
    write_ints(&outs[1], &pivots)?;
    write_ints(&outs[2], &infos)
}

fn lu_factor(a: &Args) -> Result<Ret> {
    let all = run!("linalg.lu_factor_ex", a.tensor(0)?, a.bool(1), true)?.tensors();
    Ok(Ret::Tuple(all.into_iter().take(2).collect()))
}

fn lu_old(a: &Args) -> Result<Ret> {
    let infos = a.bool(2);
    let all = run!("linalg.lu_factor_ex", a.tensor(0)?, a.bool(1), !infos)?.tensors();
    Ok(Ret::Tuple(
        all.into_iter().take(if infos { 3 } else { 2 }).collect(),
    ))
}

fn infer_lu(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (batch, m, n) = check(t, "linalg.lu", false)?;
    pivoting(a.bool(1))?;
    let k = m.min(n);
    Ok(Plan::many(&[
        (&batch.concat(&[m, m]), t.dtype()),
        (&batch.concat(&[m, k]), t.dtype()),
        (&batch.concat(&[k, n]), t.dtype()),
    ]))
}

fn run_lu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let (mut ps, mut ls, mut us) = (Vec::new(), Vec::new(), Vec::new());
    for m in read(t, &lead(t))? {
        let (rows, columns) = (m.rows, m.columns);
        let k = rows.min(columns);
        let f = dense::lu(m);
        let mut order: Vec<usize> = (0..rows).collect();
        f.pivots
            .iter()
            .enumerate()
            .for_each(|(i, &p)| order.swap(i, p));
        ps.push(Matrix::from_fn(rows, rows, |i, j| {
            if order[j] == i { ONE } else { ZERO }
        }));
        ls.push(Matrix::from_fn(rows, k, |i, j| {
            if i == j {
                ONE
            } else if j < i {
                f.lu[(i, j)]
            } else {
                ZERO
            }
        }));
        us.push(Matrix::from_fn(k, columns, |i, j| {
            if i <= j { f.lu[(i, j)] } else { ZERO }
        }));
    }
    write(&outs[0], &ps)?;
    write(&outs[1], &ls)?;
    write(&outs[2], &us)
}

fn infer_lu_solve(a: &Args) -> Result<Plan> {
    let (lu, pivots, b, left) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?, a.bool(3));
    let (batch, n, _) = check(lu, "torch.linalg.lu_solve", true)?;
    same_types("linalg.lu_solve", lu, b)?;
    ensure!(
        pivots.dtype() == DType::I32,
        Runtime,
        "linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32. Got {}",
        pivots.dtype()
    );
    ensure!(
        *pivots.shape() == batch.concat(&[n]),
        Runtime,
        "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix"
    );
    ensure!(
        b.ndim() >= 2,
        Runtime,
        "linalg.lu_solve: The input tensor B must have at least 2 dimensions."
    );
    let batch = fits("linalg.lu_solve", lu, b, left)?;
    let shape = batch.concat(&b.shape()[b.ndim() - 2..]);
    let strides = if left {
        by_columns(&shape)
    } else {
        dims::contiguous_strides(&shape)
    };
    Ok(Plan::one(shape, strides, b.dtype()))
}

fn run_lu_solve(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (lu, pivots, b, left, adjoint) = (
        a.tensor(0)?,
        a.tensor(1)?,
        a.tensor(2)?,
        a.bool(3),
        a.bool(4),
    );
    let batch = lead(&outs[0]);
    let column = pivots.view_with(
        pivots.shape().concat(&[1]),
        pivots.strides().concat(&[1]),
        pivots.offset(),
    );
    let mut results = Vec::new();
    for ((f, p), y) in read(lu, &batch)?
        .into_iter()
        .zip(read(&column, &batch)?)
        .zip(read(b, &batch)?)
    {
        let n = f.rows;
        let p: Vec<usize> = p
            .data
            .iter()
            .map(|v| (v.re as usize).clamp(1, n.max(1)) - 1)
            .collect();
        let mut y = if left { y } else { y.adjoint() };
        // X A = B is the adjoint of A' X' = B'.
        if adjoint == left {
            let (u, l) = (f.adjoint(), f.adjoint());
            dense::triangular(&u, &mut y, false, false);
            dense::triangular(&l, &mut y, true, true);
            for (i, &q) in p.iter().enumerate().rev() {
                for j in 0..y.columns {
                    y.data.swap(i * y.columns + j, q * y.columns + j);
                }
            }
        } else {
            dense::lu_solve(&f, &p, &mut y);
        }
        results.push(if left { y } else { y.adjoint() });
    }
    write(&outs[0], &results)
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

fn infer_geqrf(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "torch.geqrf: input must have at least 2 dimensions."
    );
    let (batch, m, n) = check(t, "geqrf", false)?;
    let outs = [
        columnwise(t.shape().clone(), t.dtype()),
        OutSpec::contiguous(&batch.concat(&[m.min(n)]), t.dtype()),
    ];
    Ok(Plan {
        outs: outs.into_iter().collect(),
        device: None,
    })
}

fn run_geqrf(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let all: Vec<(Matrix, Vec<C>)> = read(t, &lead(t))?
        .into_iter()
        .map(dense::reflections)
        .collect();
    write_flat(
        &outs[1],
        &all.iter()
            .flat_map(|m| m.1.iter().copied())
            .collect::<Vec<_>>(),
    )?;
    write(&outs[0], &all.into_iter().map(|m| m.0).collect::<Vec<_>>())
}

fn infer_product(a: &Args) -> Result<Plan> {
    let (t, tau) = (a.tensor(0)?, a.tensor(1)?);
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "torch.linalg.householder_product: input must have at least 2 dimensions."
    );
    let (_, m, n) = check(t, "torch.linalg.householder_product", false)?;
    ensure!(
        m >= n,
        Runtime,
        "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]"
    );
    ensure!(
        tau.ndim() >= 1 && n >= tau.shape()[tau.ndim() - 1],
        Runtime,
        "torch.linalg.householder_product: input.shape[-1] must be greater than or equal to tau.shape[-1]"
    );
    ensure!(
        t.ndim() == tau.ndim() + 1,
        Runtime,
        "torch.linalg.householder_product: Expected tau to have one dimension less than input, but got tau.ndim equal to {} and \
         input.ndim is equal to {}",
        tau.ndim(),
        t.ndim()
    );
    ensure!(
        t.shape()[..t.ndim() - 2] == tau.shape()[..tau.ndim() - 1],
        Runtime,
        "torch.linalg.householder_product: Expected batch dimensions of tau to be equal to input.shape[:-2], but got {}",
        tau.shape()
    );
    ensure!(
        t.dtype() == tau.dtype(),
        Runtime,
        "torch.linalg.householder_product: tau dtype {} does not match input dtype {}",
        tau.dtype().scalar_type(),
        t.dtype().scalar_type()
    );
    Ok(Plan {
        outs: [columnwise(t.shape().clone(), t.dtype())]
            .into_iter()
            .collect(),
        device: None,
    })
}

fn run_product(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, tau) = (a.tensor(0)?, a.tensor(1)?);
    let column = tau.view_with(
        tau.shape().concat(&[1]),
        tau.strides().concat(&[1]),
        tau.offset(),
    );
    let product = |(m, taus): (Matrix, Matrix)| {
        let mut q = Matrix::eye(m.rows).left(m.columns);
        dense::reflect(&m, &taus.data, &mut q, false);
        q
    };
    let all: Vec<Matrix> = read(t, &lead(t))?
        .into_iter()
        .zip(read(&column, &lead(t))?)
        .map(product)
        .collect();
    write(&outs[0], &all)
}
