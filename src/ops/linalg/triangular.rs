//! Triangular systems.

use crate::cpu::dense::number::Number;
use crate::cpu::dense::triangular::{MANY, Triangle, solve_left, solve_right};
use crate::cpu::matrices::{self, Stack};
use crate::cpu::room::Room;
use crate::ops::core::op::{Batch, Cast, F, FMO, O, OpDef, Plan, X, kernel};
use crate::ops::linalg::rules::{
    check, columnwise, fits, lead, older, plan, same_types, tail, with_numbers,
};
use crate::{Dims, Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.solve_triangular",
        "(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False)",
        F | O | X,
        body!(solve_rule, solve, scratch: |a, batch, o, room| solutions_room(room, a.input, a.left, a.B, batch, &o[0])),
        "The solution of a triangular system.",
    ).alike(0b10)
    .samples("f32[3, 3], f32[3, 0], upper=False; f32[3, 3], f32[0, 3], upper=True, left=False")
    .grad("self, B: _grad.solve_triangular(grad, self, result, upper, left, unitriangular, needs)")
    .batch(Batch::Broadcasting(&[2, 2])),
    kernel(
        "triangular_solve",
        "(Tensor self, Tensor A, bool upper=True, bool transpose=False, bool unitriangular=False) -> (Tensor solution, Tensor cloned_coefficient)",
        FMO | X,
        body!(old_rule, old_solve, scratch: |a, batch, o, room| solutions_room(room, a.A, true, a.input, batch, &o[0])),
        "The solution of a triangular system.",
    ).alike(1)
    .samples("f64[5, 1], f64[5, 5]")
    .grad("self, A: _grad.triangular_solve(grads[0], grads[1], self, A, solution, upper, transpose, unitriangular, needs); jvp: [triangular_solve(self_t - (A_t.mT() if transpose else A_t).matmul(solution), A, upper, transpose, unitriangular)[0], A_t]")
    .batch(Batch::Broadcasting(&[2, 2]))
    .amp(Cast::Single, Cast::Kept),
];

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
    let kind = Triangle {
        upper: a.upper,
        adjoint: false,
        unit: a.unitriangular,
    };
    with_numbers!(a.B.dtype(), T => solutions::<T>(a.input, kind, a.left, a.B, batch, &outs[0]))
}

/// Writes the solutions of the equations of a batch.
fn solutions<T: Number>(
    t: &Tensor,
    kind: Triangle,
    left: bool,
    b: &Tensor,
    batch: &Dims,
    out: &Tensor,
) -> Result<()> {
    let own = lead(t.shape());
    // Equations of many right sides are solved for the adjoint of X: by rows, as tensors mostly lie.
    let turned = by_rows(left, b);
    let (triangles, kind, mut x) = if turned {
        let upper = !kind.upper;
        let triangles = Stack::<T>::adjoints(t, &own)?;
        (
            triangles,
            Triangle { upper, ..kind },
            Stack::<T>::adjoints(b, batch)?,
        )
    } else {
        let mut x = Stack::<T>::room(out, &[b])?;
        x.load(b)?;
        (Stack::<T>::copied(t, &own)?, kind, x)
    };
    let origins = matrices::origins(&own, batch);
    let (count, work) = (x.count, x.rows * x.columns * triangles.rows);
    matrices::each(count, work, &x.parts(), |i, x| {
        let t = triangles.view(origins[i]);
        if left && !turned {
            solve_left(t, kind, x)
        } else {
            solve_right(t, kind, x)
        }
    });
    if turned {
        x.store_adjoints(out)
    } else {
        x.store(out)
    }
}

/// Whether equations are solved for the adjoint.
fn by_rows(left: bool, b: &Tensor) -> bool {
    left && b.shape()[b.ndim() - 1] >= MANY as i64
}

fn solutions_room(
    room: &mut Room,
    t: &Tensor,
    left: bool,
    b: &Tensor,
    batch: &Dims,
    out: &Tensor,
) -> Result<()> {
    room.matrices(t, &lead(t.shape()))?;
    if by_rows(left, b) {
        room.matrices(b, batch)
    } else {
        room.matrices_for(out, &[b])
    }
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
    let batch = older("triangular_solve", t, b)?;
    crate::warn_once!(
        "torch.triangular_solve is deprecated in favor of torch.linalg.solve_triangularand will be removed in a future \
         PyTorch release.\n\
         torch.linalg.solve_triangular has its arguments reversed and does not return a copy of one of the inputs.\n\
         X = torch.triangular_solve(B, A).solution\n\
         should be replaced with\n\
         X = torch.linalg.solve_triangular(A, B)."
    );
    let outs = [b, t].map(|x| columnwise(batch.concat(tail(x.shape())), x.dtype()));
    Ok((plan(outs), batch))
}

fn old_solve(a: &calls::TriangularSolve, batch: &Dims, outs: &[Tensor]) -> Result<()> {
    let t = if a.transpose {
        matrices::transposed(a.A)
    } else {
        a.A.clone()
    };
    let kind = Triangle {
        upper: a.upper != a.transpose,
        adjoint: false,
        unit: a.unitriangular,
    };
    crate::cpu::copy::copy(&outs[1], a.A)?;
    with_numbers!(a.input.dtype(), T => solutions::<T>(&t, kind, true, a.input, batch, &outs[0]))
}
