//! Inverses, determinants and solutions of matrices. All are computed in double precision.

use crate::cpu::dense::{self, Matrix, ONE, ZERO};
use crate::cpu::matrices;
use crate::ops::core::op::{
    Batch, Cast, F, FM, FMO, O, OpDef, OutSpec, Plan, Ret, X, compose, kernel,
};
use crate::ops::f;
use crate::ops::linalg::rules::{
    batch_note, by_columns, check, columnwise, fits, lead, plan, same_types, tail,
};
use crate::{DType, Dims, Result, Tensor, bail, dims, ensure};
use num_complex::Complex64 as C;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.inv_ex",
        "(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)",
        F | O | X,
        body!(inverse_rule, inverses).unmeasured(),
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
        )).unmeasured(),
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
        body!(slogdet_rule, |a, _, o| slogdet(a.A, o)).unmeasured(),
        "Sign and logarithm of the determinant.",
    ).samples("f32[5, 5]")
    .grad("A: _grad.slogdet(grads[0], grads[1], A, sign)")
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
        )).unmeasured(),
        "The logarithm of the determinant.",
    ).samples("f32[1, 1].spd")
    .through(typed!(recorded_logdet))
    .batch(Batch::Lead),
    kernel(
        "linalg.solve_ex",
        "(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor info)",
        F | O | X,
        body!(solve_rule, solve_ex).unmeasured(),
        "The solution of A X = B, and where it failed.",
    ).samples("f64[0, 0], f64[0]")
    .grad("A, B: _grad.solve(grad, A, B, result, left, needs)")
    .batch(Batch::Lead),
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
        F | O,
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
    let t = a.A;
    let (mut results, mut infos) = (Vec::new(), Vec::new());
    for (i, m) in matrices::read(t, &lead(t.shape()))?.into_iter().enumerate() {
        let mut x = Matrix::eye(m.rows);
        let f = dense::lu(m);
        if f.info != 0 && a.check_errors {
            bail!(
                LinAlg,
                "linalg.inv: {}The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular.",
                batch_note(t, i),
                f.info
            );
        }
        dense::lu_solve(&f.lu, &f.pivots, &mut x);
        results.push(x);
        infos.push(i64::from(f.info));
    }
    matrices::write(&outs[0], &results)?;
    matrices::write_numbers(&outs[1], &infos)
}

/// The inverse; an error where there is none.
fn inverse(t: &Tensor) -> Result<Tensor> {
    let [inverse, _] = f::LinalgInvEx::new(t).check_errors(true).call()?;
    Ok(inverse)
}

fn determinant_rule(t: &Tensor, name: &str) -> Result<Plan> {
    if t.dtype().is_reduced_float() && t.ndim() >= 2 {
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

/// Phase and logarithm of the size of each determinant.
fn determinants(t: &Tensor) -> Result<Vec<(C, f64)>> {
    let all = matrices::read(t, &lead(t.shape()))?;
    Ok(all.into_iter().map(determinant).collect())
}

fn determinant(m: Matrix) -> (C, f64) {
    let n = m.rows;
    let f = dense::lu(m);
    let (mut phase, mut log) = (ONE, 0.0f64);
    for i in 0..n {
        let d = f.lu[(i, i)];
        let size = d.norm();
        log += size.ln();
        phase *= if size == 0.0 { ZERO } else { d / size };
        if f.pivots[i] != i {
            phase = -phase;
        }
    }
    (phase, log)
}

fn det(t: &Tensor, outs: &[Tensor]) -> Result<()> {
    let all: Vec<C> = determinants(t)?
        .into_iter()
        .map(|(p, l)| if p == ZERO { ZERO } else { p * l.exp() })
        .collect();
    matrices::write_numbers(&outs[0], &all)
}

fn slogdet(t: &Tensor, outs: &[Tensor]) -> Result<()> {
    let (phases, logs): (Vec<C>, Vec<f64>) = determinants(t)?.into_iter().unzip();
    matrices::write_numbers(&outs[0], &phases)?;
    matrices::write_numbers(&outs[1], &logs)
}

fn logdet(t: &Tensor, out: &Tensor) -> Result<()> {
    let complex = out.dtype().is_complex();
    let value = |(p, l): (C, f64)| match (complex, p == ZERO) {
        (_, true) => C::new(f64::NEG_INFINITY, 0.0),
        (true, _) => C::new(l, p.arg()),
        (false, _) => C::new(if p.re < 0.0 { f64::NAN } else { l }, 0.0),
    };
    let all: Vec<C> = determinants(t)?.into_iter().map(value).collect();
    matrices::write_numbers(out, &all)
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
    let (x, b) = (a.A, a.B);
    let infos: Vec<i64> = matrices::read(x, &lead(x.shape()))?
        .into_iter()
        .map(|m| i64::from(dense::lu(m).info))
        .collect();
    if let (Some(i), true) = (infos.iter().position(|&i| i != 0), a.check_errors) {
        bail!(
            LinAlg,
            "torch.linalg.solve: {}The solver failed because the input matrix is singular.",
            batch_note(x, i)
        );
    }
    let right = if side.vector {
        matrices::read_columns(b, &side.batch)?
    } else {
        matrices::read(b, &side.batch)?
    };
    let mut results = Vec::new();
    for (f, y) in matrices::read(x, &side.batch)?.into_iter().zip(right) {
        // X A = B is the adjoint of A' X' = B'.
        let (f, mut y) = if a.left {
            (f, y)
        } else {
            (f.adjoint(), y.adjoint())
        };
        let f = dense::lu(f);
        dense::lu_solve(&f.lu, &f.pivots, &mut y);
        results.push(if a.left { y } else { y.adjoint() });
    }
    matrices::write(&outs[0], &results)?;
    matrices::write_numbers(&outs[1], &infos)
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
