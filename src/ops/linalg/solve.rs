//! Inverses, determinants and solutions of matrices.

use crate::cpu::dense::lu as dense;
use crate::cpu::dense::number::Number;
use crate::cpu::matrices::{self, Stack, as_columns};
use crate::cpu::room::Room;
use crate::ops::batch;
use crate::ops::core::op::{
    Batch, Cast, F, FM, FMO, Hidden, O, OpDef, OutSpec, Plan, R, Ret, X, compose, kernel,
};
use crate::ops::f;
use crate::ops::linalg::lu::{System, factorise, solutions_room};
use crate::ops::linalg::rules::{
    batch_note, by_columns, check, check_numbers, columnwise, cubic, fits, lead, plan, same_types,
    tail, with_numbers,
};
use crate::{DType, Dims, Result, Tensor, bail, dims, ensure};
use num_traits::Float;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.inv_ex",
        "(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)",
        F | O | X,
        body!(inverse_rule, inverses, scratch: |a, _, o, room| {
            room.matrices(a.A, &lead(a.A.shape()))?;
            room.matrices_for(&o[0], &[a.A])?;
            room.numbers(&o[1], DType::I32)
        }),
        "The inverse, and where it failed.",
    ).samples("f32[0, 0]; c64[5, 5]")
    .grad("A: _grad.inv(grad, inverse)")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
    compose(
        "linalg.inv",
        "(Tensor A)",
        F | O | X,
        |a| inverse(a.A),
        "The inverse of a matrix.",
    ).samples("f64[5, 5]; c64[5, 5]")
    .amp(Cast::Single, Cast::Kept),
    compose(
        "inverse",
        "(Tensor self)",
        FMO,
        |a| inverse(a.input),
        "The inverse of a matrix.",
    ).samples("f32[0, 5, 5]")
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "linalg.det",
        "(Tensor A)",
        F | O | X,
        body!(|a| determinant_rule(a.A, "linalg.det"), |a, _, o| det(
            a.A, o
        ), scratch: |a, _, outs, room| determinants_room(room, a.A, outs)),
        "The determinant.",
    ).samples("f32[5, 5]")
    .grad("A: _grad.det(grad, A, result)")
    .batch(Batch::Lead),
    compose(
        "det",
        "(Tensor self)",
        FM,
        |a| f::linalg_det(a.input),
        "The determinant.",
    ).samples("f32[0, 0]"),
    kernel(
        "linalg.slogdet",
        "(Tensor A) -> (Tensor sign, Tensor logabsdet)",
        F | O | X,
        body!(slogdet_rule, |a, _, o| slogdet(a.A, o), scratch: |a, _, outs, room| determinants_room(room, a.A, outs)),
        "Sign and logarithm of the determinant.",
    ).samples("f32[5, 5]")
    .grad("A: _grad.slogdet(grads[0], grads[1], A, sign) if A.complex or grads[1].given else None")
    .batch(Batch::Lead),
    compose(
        "slogdet",
        "(Tensor self) -> (Tensor sign, Tensor logabsdet)",
        FMO,
        |a| f::linalg_slogdet(a.input).map(|r| Ret::Tuple(r.into())),
        "Sign and logarithm of the determinant.",
    ).samples("f32[3, 3].spd; c64[2, 3, 3]"),
    kernel(
        "logdet",
        "(Tensor self)",
        FM,
        body!(|a| determinant_rule(a.input, "logdet"), |a, _, o| logdet(
            a.input, &o[0]
        ), scratch: |a, _, outs, room| determinants_room(room, a.input, outs)),
        "The logarithm of the determinant.",
    ).samples("f32[1, 1].spd")
    .through(typed!(recorded_logdet))
    .batch(Batch::Lead),
    kernel(
        "linalg.solve_ex",
        "(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor info)",
        F | O | X,
        body!(solve_rule, solve_ex, scratch: solve_room),
        "The solution of A X = B, and where it failed.",
    ).samples("f64[0, 0], f64[0]")
    .grad("A, B: _grad.solve(grad, A, B, result, left, needs)")
    .batch(Batch::As(typed!(batch::solve, Hidden))),
    compose(
        "linalg.solve",
        "(Tensor A, Tensor B, *, bool left=True)",
        F | O | X,
        solve,
        "The solution of A X = B.",
    ).samples("f64[5, 5], f64[5]")
    .amp(Cast::Single, Cast::Kept),
    compose(
        "linalg.tensorinv",
        "(Tensor self, int ind=2)",
        F | O | R,
        tensorinv,
        "The inverse of a tensor as a linear map.",
    ).samples("c64[4, 3, 6, 1, 2]")
    .amp(Cast::Single, Cast::Kept),
    compose(
        "linalg.tensorsolve",
        "(Tensor self, Tensor other, int[]? dims=None)",
        F | O,
        tensorsolve,
        "The solution of a tensor equation.",
    ).samples(
        "f32[2, 3, 6], f32[2, 3]; \
         c64[2, 3, 6], c64[2, 3]; \
         f32[2, 3, 6], f32[2, 3], dims=(0, 2)",
    )
    .amp(Cast::Single, Cast::Kept),
];

fn inverse_rule(a: &calls::LinalgInvEx) -> Result<Plan> {
    let (batch, ..) = check(a.A, "linalg.inv", true)?;
    Ok(plan([
        columnwise(a.A.shape().clone(), a.A.dtype()),
        OutSpec::contiguous(&batch, DType::I32),
    ]))
}

fn inverses(a: &calls::LinalgInvEx, (): &(), outs: &[Tensor]) -> Result<()> {
    with_numbers!(a.A.dtype(), T => inverses_of::<T>(a, outs))
}

fn inverses_of<T: Number>(a: &calls::LinalgInvEx, outs: &[Tensor]) -> Result<()> {
    let mut all = Stack::<T>::copied(a.A, &lead(a.A.shape()))?;
    let made = factorise(&mut all);
    if let (Some(i), true) = (made.infos.iter().position(|&v| v != 0), a.check_errors) {
        bail!(
            LinAlg,
            "linalg.inv: {}The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular.",
            batch_note(a.A, i),
            made.infos[i]
        );
    }
    let mut x = Stack::<T>::room(&outs[0], &[a.A])?;
    matrices::each(x.count, cubic(x.rows), &x.parts(), |i, x| {
        dense::inverse(all.view(i), made.pivots(i), x);
    });
    matrices::write_numbers(&outs[1], &made.infos)?;
    x.store(&outs[0])
}

/// The inverse; an error where there is none.
fn inverse(t: &Tensor) -> Result<Tensor> {
    let [inverse, _] = f::LinalgInvEx::new(t).check_errors(true).call()?;
    Ok(inverse)
}

fn determinant_rule(t: &Tensor, name: &str) -> Result<Plan> {
    let reduced = name == "linalg.det" && t.dtype().is_reduced_float();
    let square = |s: &[i64]| matches!(s, [.., a, b] if a == b);
    if reduced && square(t.shape()) {
        return Err(t.dtype().no_kernel("lu_cpu"));
    }
    let (batch, ..) = check(t, name, true)?;
    Ok(Plan::contiguous(&batch, t.dtype()))
}

fn slogdet_rule(a: &calls::LinalgSlogdet) -> Result<Plan> {
    let mut plan = determinant_rule(a.A, "linalg.slogdet")?;
    let shape = plan.outs[0].shape.clone();
    plan.outs
        .push(OutSpec::contiguous(&shape, a.A.dtype().to_real()));
    Ok(plan)
}

/// One thing of each factorised matrix: of its diagonal, and of whether its rows were exchanged an odd number of times. Of
/// contiguous real matrices the transposes are factorised, as PyTorch does: they have the same determinants.
fn of_factors<T: Number, V>(t: &Tensor, f: impl Fn(&[T], bool) -> V) -> Result<Vec<V>> {
    let batch = lead(t.shape());
    let mut all = if t.is_contiguous() && !T::COMPLEX {
        Stack::<T>::adjoints(t, &batch)?
    } else {
        Stack::<T>::copied(t, &batch)?
    };
    let made = factorise(&mut all);
    let one = |i: usize| {
        let view = all.view(i);
        let diagonal: Vec<T> = (0..all.rows).map(|k| view.get(k, k)).collect();
        let exchanges = made
            .pivots(i)
            .iter()
            .enumerate()
            .filter(|&(k, &p)| p != k)
            .count();
        f(&diagonal, exchanges % 2 == 1)
    };
    Ok((0..all.count).map(one).collect())
}

/// Sign (or phase) of a determinant, and the logarithm of its size.
fn sign_and_log<T: Number>(diagonal: &[T], odd: bool) -> (T, T::Size) {
    let mut sign = if odd { -T::one() } else { T::one() };
    let mut log = T::Size::default();
    for &d in diagonal {
        let size = d.abs();
        log += Float::ln(size);
        sign *= if d.is_zero() {
            d
        } else {
            d.over(T::real(size))
        };
    }
    (sign, log)
}

fn det(t: &Tensor, outs: &[Tensor]) -> Result<()> {
    with_numbers!(t.dtype(), T => {
        let product = |diagonal: &[T], odd: bool| {
            let sign = if odd { -T::from(1.0) } else { T::from(1.0) };
            diagonal.iter().fold(sign, |p, &d| p * d)
        };
        matrices::write_numbers(&outs[0], &of_factors::<T, T>(t, product)?)
    })
}

fn determinants_room(room: &mut Room, t: &Tensor, outs: &[Tensor]) -> Result<()> {
    room.within(|room| room.matrices(t, &lead(t.shape())))?;
    outs.iter().try_for_each(|o| room.numbers(o, o.dtype()))
}

fn slogdet(t: &Tensor, outs: &[Tensor]) -> Result<()> {
    with_numbers!(t.dtype(), T => {
        let (signs, logs): (Vec<_>, Vec<_>) = of_factors::<T, _>(t, sign_and_log)?.into_iter().unzip();
        matrices::write_numbers(&outs[0], &signs)?;
        matrices::write_numbers(&outs[1], &logs)
    })
}

fn logdet(t: &Tensor, out: &Tensor) -> Result<()> {
    with_numbers!(t.dtype(), T => matrices::write_numbers(out, &of_factors::<T, T>(t, logarithm)?))
}

fn logarithm<T: Number>(diagonal: &[T], odd: bool) -> T {
    let (sign, log) = sign_and_log(diagonal, odd);
    let zero = T::Size::default();
    if sign.is_zero() {
        return T::real(Float::neg_infinity());
    }
    if !T::COMPLEX && sign.re() < zero {
        return T::real(Float::nan());
    }
    T::parts(log, Float::atan2(sign.im(), sign.re()))
}

/// What the rule of `solve_ex` found of its right side.
struct RightSide {
    /// `B` holds vectors.
    vector: bool,
    /// The batch of the result.
    batch: Dims,
}

fn solve_rule(a: &calls::LinalgSolveEx) -> Result<(Plan, RightSide)> {
    let (x, b) = (a.A, a.B);
    if !x.dtype().is_float() && !x.dtype().is_complex() {
        check_numbers(x.dtype(), "linalg.solve")?;
    }
    same_types("linalg.solve", x, b)?;
    check(x, "linalg.solve", true)?;
    ensure!(
        b.ndim() >= 1,
        Runtime,
        "linalg.solve: The input tensor B must have at least 1 dimensions."
    );
    let vector =
        b.ndim() == 1 || (x.ndim() == b.ndim() + 1 && x.shape()[..x.ndim() - 1] == b.shape()[..]);
    ensure!(
        a.left || !vector,
        Runtime,
        "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. In this case linalg.solve is \
         equivalent to B / A.squeeze(-1)"
    );
    let columns = if vector {
        b.shape().concat(&[1])
    } else {
        b.shape().clone()
    };
    let batch = fits("linalg.solve", x.shape(), &columns, a.left)?;
    let mut shape = batch.concat(tail(&columns));
    if vector {
        shape = Dims::new(&shape[..shape.len() - 1]);
    }
    let strides = if a.left {
        by_columns(&shape)
    } else {
        dims::contiguous_strides(&shape)
    };
    let result = OutSpec {
        shape,
        strides,
        dtype: x.dtype(),
    };
    let info = OutSpec::contiguous(&lead(x.shape()), DType::I32);
    Ok((plan([result, info]), RightSide { vector, batch }))
}

fn solve_ex(a: &calls::LinalgSolveEx, side: &RightSide, outs: &[Tensor]) -> Result<()> {
    with_numbers!(a.A.dtype(), T => solve_of::<T>(a, side, outs))
}

fn solve_of<T: Number>(a: &calls::LinalgSolveEx, side: &RightSide, outs: &[Tensor]) -> Result<()> {
    let own = lead(a.A.shape());
    let mut factors = Stack::<T>::copied(a.A, &own)?;
    let made = factorise(&mut factors);
    if let (Some(i), true) = (made.infos.iter().position(|&v| v != 0), a.check_errors) {
        bail!(
            LinAlg,
            "torch.linalg.solve: {}The solver failed because the input matrix is singular.",
            batch_note(a.A, i)
        );
    }
    matrices::write_numbers(&outs[1], &made.infos)?;
    let system = System {
        factors: &factors,
        made: &made,
        own: &own,
        left: a.left,
        adjoint: false,
    };
    if side.vector {
        return system.solve(&as_columns(a.B), &side.batch, &as_columns(&outs[0]));
    }
    system.solve(a.B, &side.batch, &outs[0])
}

fn solve_room(
    a: &calls::LinalgSolveEx,
    side: &RightSide,
    outs: &[Tensor],
    room: &mut Room,
) -> Result<()> {
    room.matrices(a.A, &lead(a.A.shape()))?;
    room.numbers(&outs[1], DType::I32)?;
    if side.vector {
        let (b, out) = (as_columns(a.B), as_columns(&outs[0]));
        return solutions_room(room, a.left, &b, &side.batch, &out);
    }
    solutions_room(room, a.left, a.B, &side.batch, &outs[0])
}

fn solve(a: &calls::LinalgSolve) -> Result<Tensor> {
    let [result, _] = f::LinalgSolveEx::new(a.A, a.B)
        .left(a.left)
        .check_errors(true)
        .call()?;
    Ok(result)
}

/// `logdet` as operators that have gradients.
fn recorded_logdet(a: &calls::Logdet) -> Result<Ret> {
    determinant_rule(a.input, "logdet")?;
    let [sign, log] = f::linalg_slogdet(a.input)?;
    if sign.dtype().is_complex() {
        return f::add(&f::log(&sign)?, &log).map(Ret::One);
    }
    f::where_(&f::eq(&sign, -1.0)?, f64::NAN, &log).map(Ret::One)
}

fn tensorinv(a: &calls::LinalgTensorinv) -> Result<Tensor> {
    let (t, ind) = (a.input, a.ind);
    ensure!(
        ind > 0,
        Runtime,
        "Expected a strictly positive integer for 'ind', but got {ind}"
    );
    let k = (ind as usize).min(t.ndim());
    let (front, back) = (Dims::new(&t.shape()[..k]), Dims::new(&t.shape()[k..]));
    let (m, n) = (dims::numel(&front)?, dims::numel(&back)?);
    ensure!(
        m == n,
        Runtime,
        "Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got {n} != {m}"
    );
    let flat = f::reshape(t, &[n, m])?;
    f::reshape(&f::linalg_inv(&flat)?, &back.concat(&front))
}

fn tensorsolve(a: &calls::LinalgTensorsolve) -> Result<Tensor> {
    let (mut t, b) = (a.input.clone(), a.other);
    if let Some(d) = a.dims {
        let (n, k) = (t.ndim() as i64, d.len() as i64);
        let to: Dims = (n - k..n).collect();
        t = f::movedim(&t, d, &to)?;
    }
    let k = b.ndim().min(t.ndim());
    let result = Dims::new(&t.shape()[k..]);
    let (rows, columns) = (b.numel(), dims::numel(&result)?);
    ensure!(
        rows == columns,
        Runtime,
        "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), but got {columns} != {rows}"
    );
    let flat = f::reshape(&t, &[rows, columns])?;
    let x = f::linalg_solve(&flat, &f::reshape(b, &[-1])?)?;
    f::reshape(&x, &result)
}
