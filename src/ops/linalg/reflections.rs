//! Orthogonal factors: QR decompositions and products of Householder reflections.

use crate::cpu::dense::number::Number;
use crate::cpu::dense::reflect;
use crate::cpu::matrices::{self, Pieces, Stack};
use crate::ops::core::op::{
    Batch, Cast, F, FMO, O, OpDef, OutSpec, P, Plan, Ret, X, compose, kernel,
};
use crate::ops::f;
use crate::ops::linalg::rules::{check, columnwise, lead, plan, with_numbers};
use crate::{Dims, Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.qr",
        "(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)",
        F | O | X,
        body!(qr_rule, qr, scratch: |a, wanted, o, room| {
            room.matrices(a.A, &lead(a.A.shape()))?;
            room.matrices_for(&o[1], &[])?;
            if wanted.q { room.matrices_for(&o[0], &[]) } else { Ok(()) }
        }),
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
        FMO | P,
        body!(geqrf_rule, geqrf, scratch: |a, _, o, room| {
            room.matrices_for(&o[0], &[a.input])?;
            room.numbers(&o[1], a.input.dtype())
        }),
        "Householder reflections of a matrix.",
    )
    .samples("f32[3, 4]; c64[3, 4]")
    .grad("self: refused; complex: never")
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "linalg.householder_product",
        "(Tensor input, Tensor tau)",
        F | O | P,
        body!(|a| product_rule(a.input, a.tau), |a, _, o| product(
            a.input, a.tau, &o[0]
        ), scratch: |a, _, o, room| {
            let batch = lead(a.input.shape());
            room.matrices(a.input, &batch)?;
            room.vectors(a.tau, &batch)?;
            room.matrices_for(&o[0], &[])
        }),
        "The first columns of a product of reflections.",
    )
    .samples("f32[6, 5], f32[5]; c64[5, 5], c64[5]")
    .grad("input, tau: _grad.householder_product(grad, input, tau, needs)")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
    compose(
        "orgqr",
        "(Tensor self, Tensor input2)",
        FMO | P,
        |a| f::linalg_householder_product(a.input, a.input2),
        "The first columns of a product of reflections.",
    )
    .samples("f32[5, 5], f32[5]")
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "ormqr",
        "(Tensor self, Tensor input2, Tensor input3, bool left=True, bool transpose=False)",
        FMO | X | P,
        body!(ormqr_rule, ormqr, scratch: |a, _, _, room| {
            let batch = lead(a.input.shape());
            room.matrices(a.input, &batch)?;
            room.vectors(a.input2, &batch)?;
            room.matrices(a.input3, &batch)
        }),
        "A matrix multiplied by a product of reflections.",
    )
    .samples("f32[2, 5], f32[2], f32[2, 5], transpose=True")
    .grad("self, input2: _grad.ormqr(grad, self, input2, input3, left, transpose, needs); input3: ormqr(self, input2, grad, left, not transpose)")
    .amp(Cast::Single, Cast::Kept),
];

/// What `mode` asks for.
struct Factors {
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
    Ok((plan([first, second]), Factors { q }))
}

/// Factorises all matrices of a batch in place; gives the factors of the reflections, a row for each matrix.
fn factorise<T: Number>(all: &mut Stack<T>) -> Vec<T> {
    let (count, steps) = (all.count, all.rows.min(all.columns));
    let mut taus = vec![T::zero(); count * steps];
    let work = all.rows * all.columns * steps;
    let parts = (all.parts(), Pieces::new(&mut taus, steps));
    matrices::each(count, work, &parts, |_, (a, taus)| reflect::factor(a, taus));
    taus
}

/// Writes the first columns of the products of reflections.
fn write_products<T: Number>(all: &Stack<T>, taus: &[T], out: &Tensor) -> Result<()> {
    let mut qs = Stack::<T>::empty_for(out)?;
    let steps = taus.len() / all.count.max(1);
    let work = qs.rows * qs.columns * steps;
    matrices::each(qs.count, work, &qs.parts(), |i, mut q| {
        reflect::product(all.view(i), &taus[i * steps..(i + 1) * steps], &mut q);
    });
    qs.store(out)
}

fn qr(a: &calls::LinalgQr, wanted: &Factors, outs: &[Tensor]) -> Result<()> {
    with_numbers!(a.A.dtype(), T => qr_of::<T>(a, wanted, outs))
}

fn qr_of<T: Number>(a: &calls::LinalgQr, wanted: &Factors, outs: &[Tensor]) -> Result<()> {
    let mut all = Stack::<T>::copied(a.A, &lead(a.A.shape()))?;
    let taus = factorise(&mut all);
    let mut rs = Stack::<T>::empty_for(&outs[1])?;
    let rows = rs.rows;
    matrices::each(rs.count, rows * rs.columns, &rs.parts(), |i, mut r| {
        let from = all.view(i);
        for j in 0..r.columns() {
            let (to, edge) = (r.column(j), rows.min(j + 1));
            to[..edge].copy_from_slice(&from.column(j)[..edge]);
            to[edge..].fill(T::zero());
        }
    });
    rs.store(&outs[1])?;
    if wanted.q {
        write_products(&all, &taus, &outs[0])
    } else {
        Ok(())
    }
}

fn old_qr(a: &calls::Qr) -> Result<Ret> {
    crate::warn_once!(
        "torch.qr is deprecated in favor of torch.linalg.qr and will be removed in a future PyTorch release.\n\
         The boolean parameter 'some' has been replaced with a string parameter 'mode'.\n\
         Q, R = torch.qr(A, some)\n\
         should be replaced with\n\
         Q, R = torch.linalg.qr(A, 'reduced' if some else 'complete')"
    );
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
    with_numbers!(a.input.dtype(), T => geqrf_of::<T>(a, outs))
}

fn geqrf_of<T: Number>(a: &calls::Geqrf, outs: &[Tensor]) -> Result<()> {
    let mut all = Stack::<T>::room(&outs[0], &[a.input])?;
    all.load(a.input)?;
    let taus = factorise(&mut all);
    matrices::write_numbers(&outs[1], &taus)?;
    all.store(&outs[0])
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
    with_numbers!(t.dtype(), T => product_of::<T>(t, tau, out))
}

fn product_of<T: Number>(t: &Tensor, tau: &Tensor, out: &Tensor) -> Result<()> {
    let batch = lead(t.shape());
    let all = Stack::<T>::copied(t, &batch)?;
    let taus = Stack::<T>::vectors(tau, &batch)?;
    write_products(&all, taus.elements(), out)
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
    let side = if a.left { -2 } else { -1 };
    let rows = c.size(side)?;
    ensure!(
        rows == t.size(-2)?,
        Runtime,
        "torch.ormqr: other.shape[{side}] must be equal to input.shape[-2]"
    );
    ensure!(
        tau.size(-1)? == rows.min(t.size(-1)?),
        Runtime,
        "torch.ormqr: tau.shape[-1] must be equal to min(other.shape[{side}], input.shape[-1])"
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
    let batches = [
        ("tau", Dims::from(&tau.shape()[..tau.ndim() - 1])),
        ("other", lead(c.shape())),
    ];
    for (name, batch) in batches {
        ensure!(
            lead(t.shape()) == batch,
            Runtime,
            "torch.ormqr: Expected batch dimensions of {name} to be equal to input.shape[:-2], but got {batch}"
        );
    }
    for (x, name) in [(tau, "tau"), (c, "other")] {
        ensure!(
            x.dtype() == t.dtype(),
            Runtime,
            "torch.ormqr: Expected input and {name} to have the same dtype, but input has dtype{} and {name} has dtype {}",
            t.dtype().scalar_type(),
            x.dtype().scalar_type()
        );
    }
    t.dtype()
        .check_kernel(t.dtype().is_float() || t.dtype().is_complex(), "ormqr_cpu")?;
    check(t, "ormqr", false)?;
    Ok(plan([columnwise(c.shape().clone(), c.dtype())]))
}

fn ormqr(a: &calls::Ormqr, (): &(), outs: &[Tensor]) -> Result<()> {
    with_numbers!(a.input.dtype(), T => ormqr_of::<T>(a, &outs[0]))
}

fn ormqr_of<T: Number>(a: &calls::Ormqr, out: &Tensor) -> Result<()> {
    let batch = lead(a.input.shape());
    let all = Stack::<T>::copied(a.input, &batch)?;
    let taus = Stack::<T>::vectors(a.input2, &batch)?;
    // C Q is the adjoint of Q' C'.
    let mut c = if a.left {
        Stack::<T>::copied(a.input3, &batch)?
    } else {
        Stack::<T>::adjoints(a.input3, &batch)?
    };
    let work = c.rows * c.columns * taus.rows;
    matrices::each(c.count, work, &c.parts(), |i, mut c| {
        reflect::apply(all.view(i), taus.flat(i), a.transpose == a.left, &mut c);
    });
    if a.left {
        c.store(out)
    } else {
        c.store_adjoints(out)
    }
}
