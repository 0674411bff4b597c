//! Singular values and eigenvalues.

use crate::cpu::dense::{self, Matrix, ZERO};
use crate::cpu::matrices;
use crate::ops::core::op::{Batch, Cast, F, FMO, O, OpDef, OutSpec, Plan, Ret, X, compose, kernel};
use crate::ops::f;
use crate::ops::linalg::rules::{batch_note, check, columnwise, lead, plan, tail};
use crate::{Result, Tensor, bail, ensure};
use num_complex::Complex64 as C;
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
        "(Tensor A, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors)",
        F | O | X,
        body!(
            |a| eigen_rule(a.A, a.UPLO, "linalg.eigh", true),
            |a, upper, o| eigen(a.A, *upper, &o[0], Some(&o[1]))
        ).unmeasured(),
        "Eigenvalues and eigenvectors of a Hermitian matrix.",
    ).samples("f32[5, 5], UPLO='U'")
    .grad("A: _grad.eigh(grads[0], grads[1], eigenvalues, eigenvectors); jvp: _grad.eigh_tangent(A_t, eigenvalues, eigenvectors)")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "linalg.eigvalsh",
        "(Tensor A, str UPLO='L')",
        F | O | X,
        body!(
            |a| eigen_rule(a.A, a.UPLO, "linalg.eigvalsh", false),
            |a, upper, o| eigen(a.A, *upper, &o[0], None)
        ).unmeasured(),
        "Eigenvalues of a Hermitian matrix.",
    ).samples("f64[5, 5], UPLO='U'; c64[5, 5], UPLO='U'")
    .through(typed!(recorded_eigvalsh))
    .amp(Cast::Single, Cast::Kept),
];

fn singular_rule(a: &calls::LinalgSvd) -> Result<Plan> {
    let t = a.A;
    let (batch, m, n) = check(t, "linalg.svd", false)?;
    let k = m.min(n);
    let (mu, nv) = if a.full_matrices { (m, n) } else { (k, k) };
    Ok(plan([
        columnwise(batch.concat(&[m, mu]), t.dtype()),
        OutSpec::contiguous(&batch.concat(&[k]), t.dtype().to_real()),
        columnwise(batch.concat(&[nv, n]), t.dtype()),
    ]))
}

/// The matrices of a tensor, if all their elements are finite.
pub(super) fn read_finite(t: &Tensor, name: &str) -> Result<Vec<Matrix>> {
    let all = matrices::read(t, &lead(t.shape()))?;
    let finite = |m: &Matrix| m.data.iter().all(|c| c.re.is_finite() && c.im.is_finite());
    match all.iter().position(|m| !finite(m)) {
        Some(i) => bail!(
            LinAlg,
            "{name}: {}The algorithm failed to converge because the input matrix contained non-finite values.",
            batch_note(t, i)
        ),
        None => Ok(all),
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

fn singular(a: &calls::LinalgSvd, (): &(), outs: &[Tensor]) -> Result<()> {
    let (mut us, mut ss, mut vs) = (Vec::new(), Vec::new(), Vec::new());
    for m in read_finite(a.A, "linalg.svd")? {
        let (u, s, v) = dense::singular(&m);
        ss.extend(s);
        let (u, v) = if a.full_matrices {
            (wider(u, m.rows), wider(v, m.columns))
        } else {
            (u, v)
        };
        us.push(u);
        vs.push(v.adjoint());
    }
    matrices::write(&outs[0], &us)?;
    matrices::write_numbers(&outs[1], &ss)?;
    matrices::write(&outs[2], &vs)
}

fn values_rule(a: &calls::LinalgSvdvals) -> Result<Plan> {
    let (batch, m, n) = check(a.A, "linalg.svd", false)?;
    Ok(Plan::contiguous(
        &batch.concat(&[m.min(n)]),
        a.A.dtype().to_real(),
    ))
}

fn values(a: &calls::LinalgSvdvals, (): &(), outs: &[Tensor]) -> Result<()> {
    let all: Vec<f64> = read_finite(a.A, "linalg.svd")?
        .iter()
        .flat_map(|m| dense::singular(m).1)
        .collect();
    matrices::write_numbers(&outs[0], &all)
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
    let (mut all, mut bases) = (Vec::new(), Vec::new());
    for m in read_finite(t, "linalg.eigh")? {
        let whole = Matrix::from_fn(m.rows, m.columns, |i, j| match (i == j, (j < i) != upper) {
            (true, _) => C::new(m[(i, i)].re, 0.0),
            (_, true) => m[(i, j)],
            _ => m[(j, i)].conj(),
        });
        let (v, w) = dense::hermitian(&whole);
        all.extend(v);
        bases.push(w);
    }
    matrices::write_numbers(values, &all)?;
    match vectors {
        Some(out) => matrices::write(out, &bases),
        None => Ok(()),
    }
}

/// Singular values with the vectors that their gradient needs.
fn recorded_svdvals(a: &calls::LinalgSvdvals) -> Result<Ret> {
    let [_, values, _] = f::LinalgSvd::new(a.A).full_matrices(false).call()?;
    Ok(Ret::One(values))
}

/// Eigenvalues with the vectors that their gradient needs.
fn recorded_eigvalsh(a: &calls::LinalgEigvalsh) -> Result<Ret> {
    let [values, _] = f::LinalgEigh::new(a.A).UPLO(a.UPLO).call()?;
    Ok(Ret::One(values))
}
