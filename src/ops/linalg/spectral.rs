//! Singular values and eigenvalues.

use crate::cpu::dense::number::Number;
use crate::cpu::dense::{hermitian, singular as values_of};
use crate::cpu::matrices::{self, Pieces, Stack};
use crate::ops::core::op::{Batch, Cast, F, FMO, O, OpDef, OutSpec, Plan, Ret, X, compose, kernel};
use crate::ops::f;
use crate::ops::linalg::rules::{
    batch_note, check, columnwise, cubic, lead, plan, tail, with_numbers,
};
use crate::{DeviceKind, Result, Tensor, bail, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.svd",
        "(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)",
        F | O | X,
        body!(singular_rule, singular).unmeasured(),
        "The singular value decomposition.",
    ).samples("f32[3, 4]")
    .grad("A: _grad.svd(grads[0], grads[1], grads[2], U, S, Vh, full_matrices)")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "linalg.svdvals",
        "(Tensor A, *, str? driver=None)",
        F | O | X,
        body!(values_rule, values).unmeasured(),
        "The singular values.",
    ).samples("f32[3, 4]")
    .through(typed!(recorded_svdvals))
    .amp(Cast::Single, Cast::Kept),
    compose(
        "svd",
        "(Tensor self, bool some=True, bool compute_uv=True) -> (Tensor U, Tensor S, Tensor V)",
        FMO | X,
        svd,
        "The singular value decomposition, V not conjugated.",
    ).samples("f32[3, 4]; f32[3, 4], some=False")
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "linalg.eigh",
        "(Tensor self, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors)",
        F | O | X,
        body!(
            |a| eigen_rule(a.input, a.UPLO, "linalg.eigh", true),
            |a, upper, o| eigen(a.input, *upper, &o[0], Some(&o[1]))
        ).unmeasured(),
        "Eigenvalues and eigenvectors of a Hermitian matrix.",
    ).samples("f32[5, 5], UPLO='U'")
    .grad("self: _grad.eigh(grads[0], grads[1], eigenvalues, eigenvectors); jvp: _grad.eigh_tangent(self_t, eigenvalues, eigenvectors)")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "linalg.eigvalsh",
        "(Tensor self, str UPLO='L')",
        F | O | X,
        body!(
            |a| eigen_rule(a.input, a.UPLO, "linalg.eigh", false),
            |a, upper, o| eigen(a.input, *upper, &o[0], None)
        ).unmeasured(),
        "Eigenvalues of a Hermitian matrix.",
    ).samples("f64[5, 5], UPLO='U'; c64[5, 5], UPLO='U'")
    .through(typed!(recorded_eigvalsh))
    .amp(Cast::Single, Cast::Kept),
];

/// PyTorch chooses among the drivers of its library for GPUs; there are none on the host.
fn check_driver(t: &Tensor, driver: Option<&str>) -> Result<()> {
    ensure!(
        driver.is_none() || t.device().kind != DeviceKind::Cpu,
        Runtime,
        "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend."
    );
    Ok(())
}

fn singular_rule(a: &calls::LinalgSvd) -> Result<Plan> {
    let t = a.A;
    check_driver(t, a.driver)?;
    let (batch, m, n) = check(t, "linalg.svd", false)?;
    let k = m.min(n);
    let (mu, nv) = if a.full_matrices { (m, n) } else { (k, k) };
    let right = batch.concat(&[nv, n]);
    Ok(plan([
        columnwise(batch.concat(&[m, mu]), t.dtype()),
        OutSpec::contiguous(&batch.concat(&[k]), t.dtype().to_real()),
        // the library for GPUs gives the vectors themselves, not their adjoints
        if t.device().kind == DeviceKind::Cuda {
            OutSpec::contiguous(&right, t.dtype())
        } else {
            columnwise(right, t.dtype())
        },
    ]))
}

/// Refuses matrices that no iteration comes to an end with.
pub(super) fn finite<T: Number>(all: &Stack<T>, t: &Tensor, name: &str) -> Result<()> {
    if let Some(i) = all.unbounded() {
        bail!(
            LinAlg,
            "{name}: {}The algorithm failed to converge because the input matrix contained non-finite values.",
            batch_note(t, i)
        );
    }
    Ok(())
}

/// An error if one of a batch did not converge.
fn converged(done: &[bool], t: &Tensor, name: &str, what: &str) -> Result<()> {
    if let Some(i) = done.iter().position(|d| !d) {
        bail!(
            LinAlg,
            "{name}: {}The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated {what} \
             (error code: {}).",
            batch_note(t, i),
            tail(t.shape())[1]
        );
    }
    Ok(())
}

fn singular(a: &calls::LinalgSvd, (): &(), outs: &[Tensor]) -> Result<()> {
    with_numbers!(a.A.dtype(), T => singular_of::<T>(a.A, outs))
}

fn singular_of<T: Number>(t: &Tensor, outs: &[Tensor]) -> Result<()> {
    let mut all = Stack::<T>::copied(t, &lead(t.shape()))?;
    finite(&all, t, "linalg.svd")?;
    let size = |out: &Tensor| {
        tail(out.shape())
            .iter()
            .map(|&n| n as usize)
            .collect::<Vec<_>>()
    };
    let mut us = Stack::<T>::room(&outs[0], &[t])?;
    // Vectors on the right are columns here and rows of the result.
    let mut vs = Stack::<T>::empty(all.count, all.columns, size(&outs[2])[0])?;
    let steps = all.rows.min(all.columns);
    let mut values = vec![T::Size::default(); all.count * steps];
    let mut done = vec![false; all.count];
    let (count, work) = (all.count, cubic(all.rows.max(all.columns)));
    let results = (us.parts(), vs.parts(), Pieces::new(&mut values, steps));
    let parts = (all.parts(), results, Pieces::new(&mut done, 1));
    matrices::each(count, work, &parts, |_, (a, (u, v, values), done)| {
        done[0] = values_of::singular(a, values, Some(values_of::Vectors { u, v }));
    });
    converged(&done, t, "linalg.svd", "singular values")?;
    matrices::write_numbers(&outs[1], &values)?;
    vs.store_adjoints(&outs[2])?;
    us.store(&outs[0])
}

fn values_rule(a: &calls::LinalgSvdvals) -> Result<Plan> {
    check_driver(a.A, a.driver)?;
    let (batch, m, n) = check(a.A, "linalg.svd", false)?;
    Ok(Plan::contiguous(
        &batch.concat(&[m.min(n)]),
        a.A.dtype().to_real(),
    ))
}

fn values(a: &calls::LinalgSvdvals, (): &(), outs: &[Tensor]) -> Result<()> {
    with_numbers!(a.A.dtype(), T => {
        matrices::write_numbers(&outs[0], &singular_values::<T>(a.A, "linalg.svd")?)
    })
}

/// The singular values of a batch, a row for each matrix.
pub(super) fn singular_values<T: Number>(t: &Tensor, name: &str) -> Result<Vec<T::Size>> {
    let mut all = Stack::<T>::copied(t, &lead(t.shape()))?;
    finite(&all, t, name)?;
    let steps = all.rows.min(all.columns);
    let mut values = vec![T::Size::default(); all.count * steps];
    let mut done = vec![false; all.count];
    let (count, work) = (all.count, cubic(all.rows.max(all.columns)));
    let parts = (
        all.parts(),
        Pieces::new(&mut values, steps),
        Pieces::new(&mut done, 1),
    );
    matrices::each(count, work, &parts, |_, (a, values, done)| {
        done[0] = values_of::singular(a, values, None);
    });
    converged(&done, t, name, "singular values")?;
    Ok(values)
}

fn svd(a: &calls::Svd) -> Result<Ret> {
    let t = a.input;
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "linalg.svd: input should have at least 2 dimensions, but has {} dimensions instead",
        t.ndim()
    );
    if !a.compute_uv {
        let zeros = |k: i64| f::new_zeros(t, &lead(t.shape()).concat(&[k, k]));
        let (m, n) = (tail(t.shape())[0], tail(t.shape())[1]);
        return Ok(Ret::Tuple(vec![
            zeros(m)?,
            f::linalg_svdvals(t)?,
            zeros(n)?,
        ]));
    }
    let [u, s, vh] = f::LinalgSvd::new(t).full_matrices(!a.some).call()?;
    let v = f::mH(&vh)?;
    Ok(Ret::Tuple(vec![u, s, v]))
}

/// The plan, and whether the upper triangle counts.
fn eigen_rule(t: &Tensor, uplo: &str, name: &str, vectors: bool) -> Result<(Plan, bool)> {
    let (batch, n, _) = check(t, name, true)?;
    ensure!(
        matches!(uplo, "L" | "U" | "l" | "u"),
        Runtime,
        "Expected UPLO argument to be 'L' or 'U', but got {uplo}"
    );
    let mut plan = Plan::contiguous(&batch.concat(&[n]), t.dtype().to_real());
    if vectors {
        plan.outs.push(columnwise(t.shape().clone(), t.dtype()));
    }
    Ok((plan, matches!(uplo, "U" | "u")))
}

fn eigen(t: &Tensor, upper: bool, values: &Tensor, vectors: Option<&Tensor>) -> Result<()> {
    with_numbers!(t.dtype(), T => eigen_of::<T>(t, upper, values, vectors))
}

fn eigen_of<T: Number>(
    t: &Tensor,
    upper: bool,
    values: &Tensor,
    vectors: Option<&Tensor>,
) -> Result<()> {
    let batch = lead(t.shape());
    // The lower triangle is what counts of a copy.
    let mut all = if upper {
        Stack::<T>::adjoints(t, &batch)?
    } else {
        Stack::<T>::copied(t, &batch)?
    };
    finite(&all, t, "linalg.eigh")?;
    let n = all.rows;
    let mut found = vec![T::Size::default(); all.count * n];
    let mut done = vec![false; all.count];
    let count = all.count;
    let own = (
        all.parts(),
        Pieces::new(&mut found, n),
        Pieces::new(&mut done, 1),
    );
    let mut bases = vectors.map(|out| Stack::<T>::room(out, &[t])).transpose()?;
    if let Some(bases) = &mut bases {
        let parts = (own, bases.parts());
        matrices::each(count, cubic(n), &parts, |_, ((a, values, done), v)| {
            done[0] = hermitian::eigen(a, values, Some(v));
        });
    } else {
        matrices::each(count, cubic(n), &own, |_, (a, values, done)| {
            done[0] = hermitian::eigen(a, values, None);
        });
    }
    converged(&done, t, "linalg.eigh", "eigenvalues")?;
    matrices::write_numbers(values, &found)?;
    match (bases, vectors) {
        (Some(bases), Some(out)) => bases.store(out),
        _ => Ok(()),
    }
}

/// Singular values with the vectors that their gradient needs.
fn recorded_svdvals(a: &calls::LinalgSvdvals) -> Result<Ret> {
    let [_, values, _] = f::LinalgSvd::new(a.A).full_matrices(false).call()?;
    Ok(Ret::One(values))
}

/// Eigenvalues with the vectors that their gradient needs.
fn recorded_eigvalsh(a: &calls::LinalgEigvalsh) -> Result<Ret> {
    let [values, _] = f::LinalgEigh::new(a.input).UPLO(a.UPLO).call()?;
    Ok(Ret::One(values))
}
