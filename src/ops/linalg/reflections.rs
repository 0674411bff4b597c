//! Orthogonal factors: QR decompositions and products of Householder reflections.

use crate::cpu::dense::{self, Matrix, ZERO};
use crate::cpu::matrices;
use crate::ops::core::op::{Batch, Cast, F, FMO, O, OpDef, OutSpec, Plan, Ret, X, compose, kernel};
use crate::ops::f;
use crate::ops::linalg::rules::{check, columnwise, lead, plan};
use crate::{Result, Tensor, ensure};
use num_complex::Complex64 as C;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.qr",
        "(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)",
        F | O | X,
        body!(qr_rule, qr).unmeasured(),
        "Orthogonal and triangular factor.",
    )
    .samples("f32[3, 4]; c64[3, 4]")
    .grad("A: _grad.qr(grads[0], grads[1], Q, R, mode)")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
    compose(
        "qr",
        "(Tensor self, bool some=True) -> (Tensor Q, Tensor R)",
        FMO | X,
        old_qr,
        "Orthogonal and triangular factor.",
    )
    .samples("f32[3, 4]; c64[3, 4]")
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "geqrf",
        "(Tensor self) -> (Tensor a, Tensor tau)",
        FMO,
        body!(geqrf_rule, geqrf).unmeasured(),
        "Householder reflections of a matrix.",
    )
    .samples("f32[3, 4]; c64[3, 4]")
    .grad("self: refused; complex: never")
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "linalg.householder_product",
        "(Tensor input, Tensor tau)",
        F | O,
        body!(|a| product_rule(a.input, a.tau), |a, _, o| product(
            a.input, a.tau, &o[0]
        )).unmeasured(),
        "The first columns of a product of reflections.",
    )
    .samples("f32[6, 5], f32[5]; c64[5, 5], c64[5]")
    .grad("input, tau: _grad.householder_product(grad, input, tau, needs)")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
    compose(
        "orgqr",
        "(Tensor self, Tensor input2)",
        FMO,
        |a| f::linalg_householder_product(a.input, a.input2),
        "The first columns of a product of reflections.",
    )
    .samples("f32[5, 5], f32[5]")
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "ormqr",
        "(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False)",
        FMO | X,
        body!(ormqr_rule, ormqr).unmeasured(),
        "A matrix multiplied by a product of reflections.",
    )
    .samples("f32[2, 5], f32[2], f32[2, 5], transpose=True")
    .grad("self, input2: _grad.ormqr(grad, self, input2, input3, left, transpose, needs); input3: ormqr(self, input2, grad, left, not transpose)")
    .amp(Cast::Single, Cast::Kept),
];

/// What `mode` asks for.
struct Factors {
    /// Columns of Q, rows of R.
    width: usize,
    /// Q is wanted.
    q: bool,
}

fn qr_rule(a: &calls::LinalgQr) -> Result<(Plan, Factors)> {
    let t = a.A;
    ensure!(
        matches!(a.mode, "reduced" | "complete" | "r"),
        Runtime,
        "qr received unrecognized mode '{}' but expected one of 'reduced' (default), 'r', or 'complete'",
        a.mode
    );
    let (batch, m, n) = check(t, "linalg.qr", false)?;
    let (q, width) = (
        a.mode != "r",
        if a.mode == "complete" { m } else { m.min(n) },
    );
    let first = if q {
        columnwise(batch.concat(&[m, width]), t.dtype())
    } else {
        OutSpec::contiguous(&[0], t.dtype())
    };
    let second = columnwise(batch.concat(&[width, n]), t.dtype());
    let width = width as usize;
    Ok((plan([first, second]), Factors { width, q }))
}

fn qr(a: &calls::LinalgQr, wanted: &Factors, outs: &[Tensor]) -> Result<()> {
    let (mut qs, mut rs) = (Vec::new(), Vec::new());
    for m in matrices::read(a.A, &lead(a.A.shape()))? {
        let (rows, columns) = (m.rows, m.columns);
        let (h, taus) = dense::reflections(m);
        rs.push(Matrix::from_fn(wanted.width, columns, |i, j| {
            if i <= j { h[(i, j)] } else { ZERO }
        }));
        if wanted.q {
            let mut q = Matrix::eye(rows).left(wanted.width);
            dense::reflect(&h, &taus, &mut q, false);
            qs.push(q);
        }
    }
    if wanted.q {
        matrices::write(&outs[0], &qs)?;
    }
    matrices::write(&outs[1], &rs)
}

fn old_qr(a: &calls::Qr) -> Result<Ret> {
    let mode = if a.some { "reduced" } else { "complete" };
    let both = f::LinalgQr::new(a.input).mode(mode).call()?;
    Ok(Ret::Tuple(both.into()))
}

fn geqrf_rule(a: &calls::Geqrf) -> Result<Plan> {
    let t = a.input;
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "torch.geqrf: input must have at least 2 dimensions."
    );
    let (batch, m, n) = check(t, "geqrf", false)?;
    Ok(plan([
        columnwise(t.shape().clone(), t.dtype()),
        OutSpec::contiguous(&batch.concat(&[m.min(n)]), t.dtype()),
    ]))
}

fn geqrf(a: &calls::Geqrf, (): &(), outs: &[Tensor]) -> Result<()> {
    let all = matrices::read(a.input, &lead(a.input.shape()))?;
    let (all, taus): (Vec<Matrix>, Vec<Vec<C>>) = all.into_iter().map(dense::reflections).unzip();
    matrices::write_numbers(&outs[1], &taus.concat())?;
    matrices::write(&outs[0], &all)
}

fn product_rule(t: &Tensor, tau: &Tensor) -> Result<Plan> {
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
    Ok(plan([columnwise(t.shape().clone(), t.dtype())]))
}

fn product(t: &Tensor, tau: &Tensor, out: &Tensor) -> Result<()> {
    let batch = lead(t.shape());
    let all: Vec<Matrix> = matrices::read(t, &batch)?
        .into_iter()
        .zip(matrices::read_columns(tau, &batch)?)
        .map(|(m, taus)| {
            let mut q = Matrix::eye(m.rows).left(m.columns);
            dense::reflect(&m, &taus.data, &mut q, false);
            q
        })
        .collect();
    matrices::write(out, &all)
}

fn ormqr_rule(a: &calls::Ormqr) -> Result<Plan> {
    let (t, tau, c) = (a.input, a.input2, a.input3);
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
    let side = if a.left { c.ndim() - 2 } else { c.ndim() - 1 };
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
        lead(t.shape()) == lead(c.shape()),
        Runtime,
        "torch.ormqr: Expected batch dimensions of other to be equal to input.shape[:-2], but got {}",
        lead(c.shape())
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
    Ok(plan([columnwise(c.shape().clone(), c.dtype())]))
}

fn ormqr(a: &calls::Ormqr, (): &(), outs: &[Tensor]) -> Result<()> {
    let batch = lead(a.input.shape());
    let reflections = matrices::read(a.input, &batch)?
        .into_iter()
        .zip(matrices::read_columns(a.input2, &batch)?);
    let mut results = Vec::new();
    for ((h, taus), c) in reflections.zip(matrices::read(a.input3, &batch)?) {
        // C Q is the adjoint of Q' C'.
        let mut c = if a.left { c } else { c.adjoint() };
        dense::reflect(&h, &taus.data, &mut c, a.transpose == a.left);
        results.push(if a.left { c } else { c.adjoint() });
    }
    matrices::write(&outs[0], &results)
}
