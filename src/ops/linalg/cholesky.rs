//! Cholesky factors, and what they solve.

use crate::cpu::dense::cholesky as dense;
use crate::cpu::dense::number::Number;
use crate::cpu::dense::triangular::{Triangle, solve_left};
use crate::cpu::dense::view::{View, ViewMut};
use crate::cpu::matrices::{self, Pieces, Stack};
use crate::cpu::room::Room;
use crate::ops::core::op::{
    Batch, Cast, F, FMO, O, OpDef, OutSpec, P, Plan, R, X, compose, kernel,
};
use crate::ops::f;
use crate::ops::linalg::rules::{
    batch_note, check, columnwise, cubic, lead, older, plan, tail, with_numbers,
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
        body!(factors_rule, factors_ex, scratch: |a, _, o, room| {
            room.within(|room| factors_room(room, a.input, a.upper, &o[0]))?;
            room.numbers(&o[1], DType::I32)
        }),
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
        FMO | R,
        body!(old_rule, |a, _, o| {
            factors(a.input, a.upper, Some("cholesky"), &o[0]).map(drop)
        }, scratch: |a, _, o, room| factors_room(room, a.input, a.upper, &o[0])),
        "The Cholesky factor.",
    )
    .samples("f32[0, 0]; c64[2, 5, 5].spd, upper=True; f32[0, 0, 0], upper=True")
    .grad("self: _grad.cholesky(grad, result, upper); jvp: _grad.cholesky_tangent(self_t, result, upper)")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "cholesky_solve",
        "(Tensor self, Tensor input2, bool upper=False)",
        FMO | R,
        body!(solve_rule, solve, scratch: |a, _, o, room| {
            room.matrices(a.input2, &lead(a.input2.shape()))?;
            room.matrices_for(&o[0], &[a.input, a.input2])
        }),
        "The solution of a system by its Cholesky factor.",
    )
    .samples("f32[5, 5], f32[5, 5]; c64[5, 5], c64[5, 5]")
    .grad("self, input2: _grad.cholesky_solve(grad, self, input2, result, upper, needs)")
    .batch(Batch::Broadcasting(&[2, 2]))
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "cholesky_inverse",
        "(Tensor self, bool upper=False)",
        FMO | P,
        body!(|a| square_rule(a.input, "cholesky_inverse"), |a, _, o| {
            inverses(a.input, a.upper, &o[0])
        }, scratch: |a, _, o, room| {
            room.matrices(a.input, &lead(a.input.shape()))?;
            room.matrices_for(&o[0], &[])
        }),
        "The inverse by the Cholesky factor.",
    )
    .samples("f32[5, 5]; f32[0, 2, 2], upper=True")
    .grad("self: _grad.cholesky_inverse(grad, self, upper, result); jvp: _grad.cholesky_inverse_tangent(self_t, self, result, upper)")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
];

fn old_rule(a: &calls::Cholesky) -> Result<Plan> {
    crate::warn_once!(
        "torch.cholesky is deprecated in favor of torch.linalg.cholesky and will be removed in a future PyTorch release.\n\
         L = torch.cholesky(A)\n\
         should be replaced with\n\
         L = torch.linalg.cholesky(A)\n\
         and\n\
         U = torch.cholesky(A, upper=True)\n\
         should be replaced with\n\
         U = torch.linalg.cholesky(A).mH\n\
         This transform will produce equivalent results for all valid (symmetric positive definite) inputs."
    );
    if a.input.numel() == 0 {
        check(a.input, "cholesky", true)?;
        return Ok(plan([OutSpec::contiguous(
            a.input.shape(),
            a.input.dtype(),
        )]));
    }
    square_rule(a.input, "cholesky")
}

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
    let infos = factors(a.input, a.upper, strict, &outs[0])?;
    matrices::write_numbers(&outs[1], &infos)
}

/// Writes the factors of a batch; gives the order of the first minor that is not positive (0: none). With a name for its
/// message, such a minor is an error.
fn factors(t: &Tensor, upper: bool, strict: Option<&str>, out: &Tensor) -> Result<Vec<i32>> {
    with_numbers!(t.dtype(), T => factors_of::<T>(t, upper, strict, out))
}

fn factors_room(room: &mut Room, t: &Tensor, upper: bool, out: &Tensor) -> Result<()> {
    if upper {
        room.matrices(t, &lead(t.shape()))
    } else {
        room.matrices_for(out, &[t])
    }
}

fn factors_of<T: Number>(
    t: &Tensor,
    upper: bool,
    strict: Option<&str>,
    out: &Tensor,
) -> Result<Vec<i32>> {
    let mut all = if upper {
        Stack::<T>::adjoints(t, &lead(t.shape()))?
    } else {
        let mut room = Stack::<T>::room(out, &[t])?;
        room.load(t)?;
        room
    };
    let (count, work) = (all.count, cubic(all.rows) / 3);
    let mut infos = vec![0i32; count];
    let parts = (all.parts(), Pieces::new(&mut infos, 1));
    matrices::each(count, work, &parts, |_, (mut a, info)| {
        info[0] = dense::factor(a.again()) as i32;
        (0..a.columns()).for_each(|j| a.column(j)[..j].fill(T::zero()));
    });
    if let (Some(i), Some(name)) = (infos.iter().position(|&v| v != 0), strict) {
        bail!(
            LinAlg,
            "{name}: {}The factorization could not be completed because the input is not positive-definite (the leading minor of \
             order {} is not positive-definite).",
            batch_note(t, i),
            infos[i]
        );
    }
    if upper {
        all.store_adjoints(out)?;
    } else {
        all.store(out)?;
    }
    Ok(infos)
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
    let batch = older("cholesky_solve", l, b)?;
    let result = columnwise(batch.concat(tail(b.shape())), b.dtype());
    Ok((plan([result]), batch))
}

/// Solves `L L' X = B`, or `U' U X = B`, in place.
fn solve_factored<T: Number>(factor: View<T>, upper: bool, mut x: ViewMut<T>) {
    for adjoint in [upper, !upper] {
        let kind = Triangle {
            upper,
            adjoint,
            unit: false,
        };
        solve_left(factor, kind, x.again());
    }
}

fn solve(a: &calls::CholeskySolve, batch: &Dims, outs: &[Tensor]) -> Result<()> {
    with_numbers!(a.input.dtype(), T => solve_of::<T>(a, batch, &outs[0]))
}

fn solve_of<T: Number>(a: &calls::CholeskySolve, batch: &Dims, out: &Tensor) -> Result<()> {
    let own = lead(a.input2.shape());
    let factors = Stack::<T>::copied(a.input2, &own)?;
    let mut x = Stack::<T>::room(out, &[a.input, a.input2])?;
    x.load(a.input)?;
    let origins = matrices::origins(&own, batch);
    let (count, work) = (x.count, x.rows * x.rows * x.columns);
    matrices::each(count, work, &x.parts(), |i, x| {
        solve_factored(factors.view(origins[i]), a.upper, x);
    });
    x.store(out)
}

fn inverses(t: &Tensor, upper: bool, out: &Tensor) -> Result<()> {
    with_numbers!(t.dtype(), T => inverses_of::<T>(t, upper, out))
}

fn inverses_of<T: Number>(t: &Tensor, upper: bool, out: &Tensor) -> Result<()> {
    let factors = Stack::<T>::copied(t, &lead(t.shape()))?;
    for i in 0..factors.count {
        let view = factors.view(i);
        if let Some(k) = (0..factors.rows).find(|&k| view.get(k, k) == T::zero()) {
            bail!(
                LinAlg,
                "cholesky_inverse: {}The diagonal element {} is zero, the inversion could not be completed because the input \
                 matrix is singular.",
                batch_note(t, i),
                k + 1
            );
        }
    }
    let mut x = Stack::<T>::empty_for(out)?;
    let (count, work) = (x.count, cubic(x.rows));
    matrices::each(count, work, &x.parts(), |i, mut x| {
        x.set_identity();
        solve_factored(factors.view(i), upper, x);
    });
    x.store(out)
}
