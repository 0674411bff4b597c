//! Equations with symmetric or Hermitian matrices that are not definite.

use crate::cpu::indefinite::{self, Kind};
use crate::cpu::matrices;
use crate::ops::core::op::{Batch, F, O, OpDef, OutSpec, Plan, Ret, X, compose, kernel};
use crate::ops::f;
use crate::ops::linalg::rules::{by_columns, check, columnwise, lead, plan, tail};
use crate::{DType, Dims, Result, Tensor, bail, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.ldl_factor_ex",
        "(Tensor self, *, bool hermitian=False, bool check_errors=False) -> (Tensor LD, Tensor pivots, Tensor info)",
        F | O | X,
        body!(factor_rule, factor).unmeasured(),
        "The factors L and D of a symmetric matrix, and where D is zero.",
    )
    .samples("f32[3, 3]; c64[2, 3, 3], hermitian=True; f64[0, 0]")
    .refused()
    .batch(Batch::Lead),
    compose(
        "linalg.ldl_factor",
        "(Tensor self, *, bool hermitian=False) -> (Tensor LD, Tensor pivots)",
        F | O | X,
        |a| {
            let [factors, pivots, _] = f::LinalgLdlFactorEx::new(a.input)
                .hermitian(a.hermitian)
                .check_errors(true)
                .call()?;
            Ok(Ret::Tuple(vec![factors, pivots]))
        },
        "The factors L and D of a symmetric matrix.",
    )
    .samples("f32[3, 3]; c64[2, 3, 3], hermitian=True"),
    kernel(
        "linalg.ldl_solve",
        "(Tensor LD, Tensor pivots, Tensor B, *, bool hermitian=False)",
        F | O | X,
        body!(solve_rule, solve).unmeasured(),
        "The solution of A X = B by the factors L and D of A.",
    )
    .samples("f32[3, 3].spd, i32([1, 2, 3]), f32[3, 2]; f64[2, 2].spd, i32([1, 2]), f64[4, 2, 1]")
    .refused()
    .batch(Batch::Lead),
];

fn factor_rule(a: &calls::LinalgLdlFactorEx) -> Result<Plan> {
    let (batch, n, _) = check(a.input, "torch.linalg.ldl_factor_ex", true)?;
    Ok(plan([
        columnwise(a.input.shape().clone(), a.input.dtype()),
        OutSpec::contiguous(&batch.concat(&[n]), DType::I32),
        OutSpec::contiguous(&batch, DType::I32),
    ]))
}

fn factor(a: &calls::LinalgLdlFactorEx, (): &(), outs: &[Tensor]) -> Result<()> {
    let kind = kind(a.input, a.hermitian);
    let (mut factors, mut pivots, mut infos) = (Vec::new(), Vec::new(), Vec::new());
    for m in matrices::read(a.input, &lead(a.input.shape()))? {
        let made = indefinite::factor(m, kind);
        if a.check_errors && made.info != 0 {
            bail!(
                LinAlg,
                "torch.linalg.ldl_factor_ex: The diagonal block {} of D is zero, and the factors cannot be used to solve equations.",
                made.info
            );
        }
        factors.push(made.matrix);
        pivots.extend(made.pivots);
        infos.push(made.info);
    }
    matrices::write(&outs[0], &factors)?;
    matrices::write_numbers(&outs[1], &pivots)?;
    matrices::write_numbers(&outs[2], &infos)
}

/// Real matrices are symmetric.
fn kind(t: &Tensor, hermitian: bool) -> Kind {
    Kind {
        hermitian: hermitian && t.dtype().is_complex(),
    }
}

fn solve_rule(a: &calls::LinalgLdlSolve) -> Result<(Plan, Dims)> {
    let (ld, b) = (a.LD, a.B);
    check(ld, "torch.linalg.ldl_solve", true)?;
    ensure!(
        b.ndim() >= 2,
        Runtime,
        "torch.linalg.ldl_solve: Expected B to have at least 2 dimensions, but it has {} dimensions instead",
        b.ndim()
    );
    ensure!(
        a.pivots.shape()[..] == ld.shape()[..ld.ndim() - 1],
        Runtime,
        "torch.linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape {} instead",
        a.pivots.shape()
    );
    ensure!(
        a.pivots.dtype().is_integral(false),
        Runtime,
        "torch.linalg.ldl_solve: Expected pivots to be integers. Got {}",
        a.pivots.dtype().scalar_type()
    );
    ensure!(
        ld.dtype() == b.dtype(),
        Runtime,
        "torch.linalg.ldl_solve: LD dtype{} does not match b dtype{}",
        ld.dtype().scalar_type(),
        b.dtype().scalar_type()
    );
    let ([n, _], [rows, columns]) = (tail(ld.shape()), tail(b.shape())) else {
        bail!(Runtime, "torch.linalg.ldl_solve: expected matrices")
    };
    ensure!(
        n == rows,
        Runtime,
        "Incompatible matrix sizes for torch.linalg.ldl_solve: each A matrix is {n} by {n} but each b matrix is {rows} by {columns}"
    );
    let batch = dims::broadcast(&lead(ld.shape()), &lead(b.shape()))?;
    let shape = batch.concat(&[*rows, *columns]);
    Ok((
        Plan::one(shape.clone(), by_columns(&shape), b.dtype()),
        batch,
    ))
}

fn solve(a: &calls::LinalgLdlSolve, batch: &Dims, outs: &[Tensor]) -> Result<()> {
    let kind = kind(a.LD, a.hermitian);
    let factors = matrices::read(a.LD, batch)?
        .into_iter()
        .zip(matrices::read_columns(a.pivots, batch)?);
    let mut results = Vec::new();
    for ((f, p), mut x) in factors.zip(matrices::read(a.B, batch)?) {
        let pivots: Vec<i64> = p.data.iter().map(|v| v.re as i64).collect();
        indefinite::solve(&f, &pivots, &mut x, kind);
        results.push(x);
    }
    matrices::write(&outs[0], &results)
}
