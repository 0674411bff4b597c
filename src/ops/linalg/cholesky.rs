//! Cholesky factors, and what they solve.

use crate::cpu::dense::{self, Matrix, ZERO};
use crate::cpu::matrices;
use crate::ops::core::op::{Batch, Cast, F, FMO, O, OpDef, OutSpec, Plan, X, compose, kernel};
use crate::ops::f;
use crate::ops::linalg::rules::{
    batch_note, check, columnwise, fits, lead, plan, same_types, tail,
};
use crate::{DType, Dims, Result, Tensor, bail, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.cholesky_ex",
        "(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)",
        F | O | X,
        body!(factors_rule, factors_ex).unmeasured(),
        "The Cholesky factor, and where it failed.",
    )
    .samples("f32[3, 3].spd; f64[2, 3, 3].spd, upper=True")
    .grad("self: _grad.cholesky(grad, L, upper); jvp: _grad.cholesky_tangent(self_t, L, upper)")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
    compose(
        "linalg.cholesky",
        "(Tensor self, *, bool upper=False)",
        F | O | X,
        factor,
        "The Cholesky factor.",
    )
    .samples("f32[2, 5, 5].spd; c64[5, 5].spd, upper=True; f32[0, 5, 5], upper=True")
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "cholesky",
        "(Tensor self, bool upper=False)",
        FMO,
        body!(|a| square_rule(a.input, "cholesky"), |a, _, o| {
            let (all, _) = factors(a.input, a.upper, Some("cholesky"))?;
            matrices::write(&o[0], &all)
        }).unmeasured(),
        "The Cholesky factor.",
    )
    .samples("f32[0, 0]; c64[2, 5, 5].spd, upper=True; f32[0, 0, 0], upper=True")
    .grad("self: _grad.cholesky(grad, result, upper); jvp: _grad.cholesky_tangent(self_t, result, upper)")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "cholesky_solve",
        "(Tensor self, Tensor input2, bool upper=False)",
        FMO,
        body!(solve_rule, solve).unmeasured(),
        "The solution of a system by its Cholesky factor.",
    )
    .samples("f32[5, 5], f32[5, 5]; c64[5, 5], c64[5, 5]")
    .grad("self, input2: _grad.cholesky_solve(grad, self, input2, result, upper, needs)")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "cholesky_inverse",
        "(Tensor self, bool upper=False)",
        FMO,
        body!(|a| square_rule(a.input, "cholesky_inverse"), |a, _, o| {
            inverses(a.input, a.upper, &o[0])
        }).unmeasured(),
        "The inverse by the Cholesky factor.",
    )
    .samples("f32[5, 5]; f32[0, 2, 2], upper=True")
    .grad("self: _grad.cholesky_inverse(grad, self, upper, result); jvp: _grad.cholesky_inverse_tangent(self_t, self, result, upper)")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
];

fn square_rule(t: &Tensor, name: &str) -> Result<Plan> {
    check(t, name, true)?;
    Ok(plan([columnwise(t.shape().clone(), t.dtype())]))
}

fn factors_rule(a: &calls::LinalgCholeskyEx) -> Result<Plan> {
    let t = a.input;
    let (batch, ..) = check(t, "linalg.cholesky", true)?;
    Ok(plan([
        columnwise(t.shape().clone(), t.dtype()),
        OutSpec::contiguous(&batch, DType::I32),
    ]))
}

fn factors_ex(a: &calls::LinalgCholeskyEx, (): &(), outs: &[Tensor]) -> Result<()> {
    let strict = a.check_errors.then_some("linalg.cholesky");
    let (all, infos) = factors(a.input, a.upper, strict)?;
    matrices::write(&outs[0], &all)?;
    matrices::write_numbers(&outs[1], &infos)
}

/// The factors of a batch, and the order of the first minor that is not positive (0: none); with a name for its message,
/// such a minor is an error.
fn factors(t: &Tensor, upper: bool, strict: Option<&str>) -> Result<(Vec<Matrix>, Vec<i64>)> {
    let (mut results, mut infos) = (Vec::new(), Vec::new());
    for (i, m) in matrices::read(t, &lead(t.shape()))?.into_iter().enumerate() {
        let m = if upper { m.adjoint() } else { m };
        let (l, info) = match (dense::cholesky(&m), strict) {
            (Ok(l), _) => (l, 0),
            (Err((order, _)), Some(name)) => bail!(
                LinAlg,
                "{name}: {}The factorization could not be completed because the input is not positive-definite (the leading minor of \
                 order {order} is not positive-definite).",
                batch_note(t, i)
            ),
            (Err((order, l)), None) => (l, order as i64),
        };
        results.push(if upper { l.adjoint() } else { l });
        infos.push(info);
    }
    Ok((results, infos))
}

fn factor(a: &calls::LinalgCholesky) -> Result<Tensor> {
    let [l, _] = f::LinalgCholeskyEx::new(a.input)
        .upper(a.upper)
        .check_errors(true)
        .call()?;
    Ok(l)
}

fn solve_rule(a: &calls::CholeskySolve) -> Result<(Plan, Dims)> {
    let (b, l) = (a.input, a.input2);
    for (x, name) in [(b, "b"), (l, "u")] {
        ensure!(
            x.ndim() >= 2,
            Runtime,
            "{name} should have at least 2 dimensions, but has {} dimensions instead",
            x.ndim()
        );
    }
    check(l, "cholesky_solve", true)?;
    same_types("cholesky_solve", l, b)?;
    let batch = fits("cholesky_solve", l.shape(), b.shape(), true)?;
    let result = columnwise(batch.concat(tail(b.shape())), b.dtype());
    Ok((plan([result]), batch))
}

/// The lower factor, of either form.
fn lower(m: Matrix, upper: bool) -> Matrix {
    let m = if upper { m.adjoint() } else { m };
    Matrix::from_fn(
        m.rows,
        m.columns,
        |i, j| if j <= i { m[(i, j)] } else { ZERO },
    )
}

/// Solves `L L' X = B` in place.
fn solve_factored(l: &Matrix, x: &mut Matrix) {
    dense::triangular(l, x, false, false);
    dense::triangular(&l.adjoint(), x, true, false);
}

fn solve(a: &calls::CholeskySolve, batch: &Dims, outs: &[Tensor]) -> Result<()> {
    let mut all = matrices::read(a.input, batch)?;
    for (x, l) in all.iter_mut().zip(matrices::read(a.input2, batch)?) {
        solve_factored(&lower(l, a.upper), x);
    }
    matrices::write(&outs[0], &all)
}

fn inverses(t: &Tensor, upper: bool, out: &Tensor) -> Result<()> {
    let mut all = matrices::read(t, &lead(t.shape()))?;
    for m in &mut all {
        let l = lower(std::mem::take(m), upper);
        *m = Matrix::eye(l.rows);
        solve_factored(&l, m);
    }
    matrices::write(out, &all)
}
