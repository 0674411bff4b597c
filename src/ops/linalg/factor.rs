//! Cholesky and QR decompositions.

use crate::cpu::dense::{self, Matrix, ZERO};
use crate::ops::core::args::Args;
use crate::ops::core::op::{F, FMO, KernelBody, O, OpDef, OutSpec, Plan, kernel};
use crate::ops::linalg::solve::{
    batch_note, check, columnwise, fits, infer_inverse, lead, one_only, read, same_types, write,
    write_flat, write_ints,
};
use crate::{Result, Tensor, bail, ensure};
use num_complex::Complex64 as C;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
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
