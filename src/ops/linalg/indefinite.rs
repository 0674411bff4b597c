//! Equations with symmetric or Hermitian matrices that are not definite.

use crate::cpu::dense::number::Number;
use crate::cpu::indefinite::{self, Kind};
use crate::cpu::matrices::{self, Pieces, Stack};
use crate::ops::core::op::{Batch, F, O, OpDef, OutSpec, Plan, Ret, X, compose, kernel};
use crate::ops::f;
use crate::ops::linalg::rules::{
    by_columns, check, columnwise, cubic, lead, plan, tail, with_numbers,
};
use crate::{DType, Dims, Result, Tensor, bail, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.ldl_factor_ex",
        "(Tensor self, *, bool hermitian=False, bool check_errors=False) -> (Tensor LD, Tensor pivots, Tensor info)",
        F | O | X,
        body!(factor_rule, factor, scratch: |a, _, o, room| {
            room.matrices_for(&o[0], &[a.input])?;
            room.numbers(&o[1], DType::I64)?;
            room.numbers(&o[2], DType::I32)
        }),
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
        body!(solve_rule, solve, scratch: |a, _, o, room| {
            let own = lead(a.LD.shape());
            room.matrices(a.LD, &own)?;
            room.rows_of(a.pivots, &own)?;
            room.matrices_for(&o[0], &[a.B])
        }),
        "The solution of A X = B by the factors L and D of A.",
    )
    .samples("f32[3, 3].spd, i32([1, 2, 3]), f32[3, 2]; f64[2, 2].spd, i32([1, 2]), f64[4, 2, 1]")
    .refused()
    .batch(Batch::Broadcasting(&[2, 1, 2])),
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
    with_numbers!(a.input.dtype(), T => factor_of::<T>(a, outs))
}

fn factor_of<T: Number>(a: &calls::LinalgLdlFactorEx, outs: &[Tensor]) -> Result<()> {
    let kind = kind(a.input, a.hermitian);
    let mut all = Stack::<T>::room(&outs[0], &[a.input])?;
    all.load(a.input)?;
    let (count, n) = (all.count, all.rows);
    let (mut pivots, mut infos) = (vec![0i64; count * n], vec![0i32; count]);
    let parts = (
        all.parts(),
        Pieces::new(&mut pivots, n),
        Pieces::new(&mut infos, 1),
    );
    matrices::each(count, cubic(n), &parts, |_, (mut a, pivots, info)| {
        info[0] = indefinite::factor(&mut a, pivots, kind);
    });
    if let (Some(info), true) = (infos.iter().find(|&&v| v != 0), a.check_errors) {
        bail!(
            LinAlg,
            "torch.linalg.ldl_factor_ex: The diagonal block {info} of D is zero, and the factors cannot be used to solve equations."
        );
    }
    matrices::write_numbers(&outs[1], &pivots)?;
    matrices::write_numbers(&outs[2], &infos)?;
    all.store(&outs[0])
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
    with_numbers!(a.LD.dtype(), T => solve_of::<T>(a, batch, &outs[0]))
}

fn solve_of<T: Number>(a: &calls::LinalgLdlSolve, batch: &Dims, out: &Tensor) -> Result<()> {
    let kind = kind(a.LD, a.hermitian);
    let own = lead(a.LD.shape());
    let factors = Stack::<T>::copied(a.LD, &own)?;
    let (n, pivots) = (factors.rows, matrices::read_rows(a.pivots, &own)?);
    let mut x = Stack::<T>::room(out, &[a.B])?;
    x.load(a.B)?;
    let origins = matrices::origins(&own, batch);
    let (count, work) = (x.count, n * n * x.columns);
    matrices::each(count, work, &x.parts(), |i, mut x| {
        let k = origins[i];
        indefinite::solve(factors.view(k), &pivots[k * n..(k + 1) * n], &mut x, kind);
    });
    x.store(out)
}
