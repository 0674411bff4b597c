//! Triangular systems.

use crate::cpu::dense::{self, Matrix};
use crate::cpu::matrices;
use crate::ops::core::op::{Batch, Cast, F, FMO, O, OpDef, Plan, X, kernel};
use crate::ops::linalg::rules::{check, columnwise, fits, plan, same_types, tail};
use crate::{Dims, Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.solve_triangular",
        "(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False)",
        F | O | X,
        body!(solve_rule, solve).unmeasured(),
        "The solution of a triangular system.",
    ).samples("f32[3, 3], f32[3, 0], upper=False; f32[3, 3], f32[0, 3], upper=True, left=False")
    .grad("self, B: _grad.solve_triangular(grad, self, result, upper, left, unitriangular, needs)")
    .batch(Batch::Lead),
    kernel(
        "triangular_solve",
        "(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False) -> (Tensor solution, Tensor cloned_coefficient)",
        FMO | X,
        body!(old_rule, old_solve).unmeasured(),
        "The solution of a triangular system.",
    ).samples("f64[5, 1], f64[5, 5]")
    .grad("self, A: _grad.triangular_solve(grads[0], grads[1], self, A, solution, upper, transpose, unitriangular, needs); jvp: [triangular_solve(self_t - (A_t.mT() if transpose else A_t).matmul(solution), A, upper, transpose, unitriangular)[0], A_t]")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
];

/// Solutions of the systems of a batch.
fn solutions(
    a: &Tensor,
    b: &Tensor,
    batch: &[i64],
    solve: impl Fn(Matrix, Matrix) -> Matrix,
) -> Result<Vec<Matrix>> {
    let (a, b) = (matrices::read(a, batch)?, matrices::read(b, batch)?);
    Ok(a.into_iter().zip(b).map(|(a, b)| solve(a, b)).collect())
}

fn solve_rule(a: &calls::LinalgSolveTriangular) -> Result<(Plan, Dims)> {
    let (t, b) = (a.input, a.B);
    same_types("linalg.solve_triangular", t, b)?;
    check(t, "linalg.solve_triangular", true)?;
    ensure!(
        b.ndim() >= 2,
        Runtime,
        "linalg.solve_triangular: The input tensor B must have at least 2 dimensions."
    );
    let batch = fits("linalg.solve_triangular", t.shape(), b.shape(), a.left)?;
    let result = columnwise(batch.concat(tail(b.shape())), b.dtype());
    Ok((plan([result]), batch))
}

fn solve(a: &calls::LinalgSolveTriangular, batch: &Dims, outs: &[Tensor]) -> Result<()> {
    let all = solutions(a.input, a.B, batch, |t, mut x| {
        if a.left {
            dense::triangular(&t, &mut x, a.upper, a.unitriangular);
            return x;
        }
        let mut x = x.adjoint();
        dense::triangular(&t.adjoint(), &mut x, !a.upper, a.unitriangular);
        x.adjoint()
    })?;
    matrices::write(&outs[0], &all)
}

fn old_rule(a: &calls::TriangularSolve) -> Result<(Plan, Dims)> {
    let (b, t) = (a.input, a.A);
    for (x, name) in [(b, "b"), (t, "A")] {
        ensure!(
            x.ndim() >= 2,
            Runtime,
            "torch.triangular_solve: Expected {name} to have at least 2 dimensions, but it has {} dimensions instead",
            x.ndim()
        );
    }
    check(t, "triangular_solve", true)?;
    same_types("triangular_solve", t, b)?;
    let batch = fits("triangular_solve", t.shape(), b.shape(), true)?;
    let outs = [b, t].map(|x| columnwise(batch.concat(tail(x.shape())), x.dtype()));
    Ok((plan(outs), batch))
}

fn old_solve(a: &calls::TriangularSolve, batch: &Dims, outs: &[Tensor]) -> Result<()> {
    let all = solutions(a.A, a.input, batch, |t, mut x| {
        let t = if a.transpose {
            Matrix::from_fn(t.columns, t.rows, |i, j| t[(j, i)])
        } else {
            t
        };
        dense::triangular(&t, &mut x, a.upper != a.transpose, a.unitriangular);
        x
    })?;
    matrices::write(&outs[0], &all)?;
    matrices::write(&outs[1], &matrices::read(a.A, batch)?)
}
