//! LU decompositions.

use crate::cpu::dense::{self, Matrix, ONE, ZERO};
use crate::cpu::matrices;
use crate::ops::core::op::{Batch, Cast, F, FMO, O, OpDef, OutSpec, Plan, Ret, X, compose, kernel};
use crate::ops::f;
use crate::ops::linalg::rules::{
    batch_note, by_columns, check, columnwise, fits, lead, plan, same_types, tail,
};
use crate::{DType, Dims, Result, Tensor, bail, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.lu_factor_ex",
        "(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots, Tensor info)",
        F | O | X,
        body!(factor_rule, factors).unmeasured(),
        "The LU factorisation in one matrix, and where it failed.",
    ).samples("f64[3, 4]; c64[3, 4]")
    .grad("A: _grad.lu_factor(grad, LU, pivots, pivot)")
    .batch(Batch::Lead),
    compose(
        "linalg.lu_factor",
        "(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)",
        F | O | X,
        factor,
        "The LU factorisation in one matrix.",
    ).samples("f32[3, 4]; c64[3, 4]"),
    compose(
        "lu",
        "(Tensor A, bool pivot=True, bool get_infos=False) -> (Tensor, Tensor)",
        FMO,
        old_lu,
        "The LU factorisation in one matrix.",
    ).samples("f32[3, 4], True, True; c64[3, 4], True, True")
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "linalg.lu",
        "(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)",
        F | O | X,
        body!(lu_rule, lu).unmeasured(),
        "The LU factorisation.",
    ).samples("f32[3, 4]")
    .grad("A: _grad.lu(grads[1], grads[2], P, L, U, pivot)")
    .batch(Batch::Lead),
    kernel(
        "linalg.lu_solve",
        "(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False)",
        F | O | X,
        body!(solve_rule, solve).unmeasured(),
        "The solution of a system by its LU factorisation.",
    ).samples(
        "f32[0, 3, 3], i32[0, 3], f32[0, 3, 4]; \
         c64[3, 3], i32([3, 2, 3]), c64[3, 4], adjoint=True; \
         f32[3, 3], i32([3, 2, 3]), f32[0, 3], adjoint=True, left=False",
    )
    .grad("LU, B: _grad.lu_solve(grad, LU, pivots, result, left, adjoint, needs)")
    .batch(Batch::Lead),
    compose(
        "lu_solve",
        "(Tensor self, Tensor LU_data, Tensor LU_pivots)",
        FMO | X,
        |a| f::linalg_lu_solve(a.LU_data, a.LU_pivots, a.input),
        "The solution of a system by its LU factorisation.",
    ).samples("f32[1, 4], f32[1, 1], i32([1])")
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "lu_unpack",
        "(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)",
        F | O | X,
        body!(unpack_rule, unpack).unmeasured(),
        "The factors of an LU factorisation.",
    ).samples("f32[0, 6, 5], i32[0, 5]; c64[3, 4], i32([1, 3, 3])")
    .grad("LU_data: _grad.lu_unpack(grads[1], grads[2], LU_data.rows, LU_data.columns)")
    .batch(Batch::Lead),
];

fn pivoting(pivot: bool) -> Result<()> {
    ensure!(
        pivot,
        Runtime,
        "linalg.lu_factor: LU without pivoting is not implemented on the CPU"
    );
    Ok(())
}

fn factor_rule(a: &calls::LinalgLuFactorEx) -> Result<Plan> {
    let t = a.A;
    let (batch, m, n) = check(t, "torch.lu_factor", false)?;
    pivoting(a.pivot)?;
    Ok(plan([
        columnwise(t.shape().clone(), t.dtype()),
        OutSpec::contiguous(&batch.concat(&[m.min(n)]), DType::I32),
        OutSpec::contiguous(&batch, DType::I32),
    ]))
}

fn factors(a: &calls::LinalgLuFactorEx, (): &(), outs: &[Tensor]) -> Result<()> {
    let t = a.A;
    let (mut lus, mut pivots, mut infos) = (Vec::new(), Vec::new(), Vec::new());
    for (i, m) in matrices::read(t, &lead(t.shape()))?.into_iter().enumerate() {
        let f = dense::lu(m);
        if f.info != 0 && a.check_errors {
            bail!(
                LinAlg,
                "torch.linalg.lu_factor_ex: {}U[{},{}] is zero and using it on lu_solve would result in a division by zero. If you \
                 still want to perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)",
                batch_note(t, i),
                f.info,
                f.info
            );
        }
        lus.push(f.lu);
        pivots.extend(f.pivots.iter().map(|&p| p as i64 + 1));
        infos.push(i64::from(f.info));
    }
    matrices::write(&outs[0], &lus)?;
    matrices::write_numbers(&outs[1], &pivots)?;
    matrices::write_numbers(&outs[2], &infos)
}

fn factor(a: &calls::LinalgLuFactor) -> Result<Ret> {
    let [lu, pivots, _] = f::LinalgLuFactorEx::new(a.A)
        .pivot(a.pivot)
        .check_errors(true)
        .call()?;
    Ok(Ret::Tuple(vec![lu, pivots]))
}

fn old_lu(a: &calls::Lu) -> Result<Ret> {
    let [lu, pivots, info] = f::LinalgLuFactorEx::new(a.A)
        .pivot(a.pivot)
        .check_errors(!a.get_infos)
        .call()?;
    Ok(Ret::Tuple(if a.get_infos {
        vec![lu, pivots, info]
    } else {
        vec![lu, pivots]
    }))
}

fn lu_rule(a: &calls::LinalgLu) -> Result<Plan> {
    let t = a.A;
    let (batch, m, n) = check(t, "linalg.lu", false)?;
    pivoting(a.pivot)?;
    let k = m.min(n);
    Ok(Plan::many(&[
        (&batch.concat(&[m, m]), t.dtype()),
        (&batch.concat(&[m, k]), t.dtype()),
        (&batch.concat(&[k, n]), t.dtype()),
    ]))
}

fn lu(a: &calls::LinalgLu, (): &(), outs: &[Tensor]) -> Result<()> {
    let (mut ps, mut ls, mut us) = (Vec::new(), Vec::new(), Vec::new());
    for m in matrices::read(a.A, &lead(a.A.shape()))? {
        let rows = m.rows;
        let f = dense::lu(m);
        ps.push(permutation(rows, f.pivots.iter().copied()));
        ls.push(lower(&f.lu));
        us.push(upper(&f.lu));
    }
    matrices::write(&outs[0], &ps)?;
    matrices::write(&outs[1], &ls)?;
    matrices::write(&outs[2], &us)
}

/// The matrix that exchanges row `i` with the row that `pivots` names, from 0, one after another.
fn permutation(rows: usize, pivots: impl Iterator<Item = usize>) -> Matrix {
    let mut order: Vec<usize> = (0..rows).collect();
    pivots.enumerate().for_each(|(i, p)| order.swap(i, p));
    Matrix::from_fn(rows, rows, |i, j| if order[j] == i { ONE } else { ZERO })
}

/// L of both factors in one matrix.
fn lower(f: &Matrix) -> Matrix {
    Matrix::from_fn(f.rows, f.rows.min(f.columns), |i, j| match i.cmp(&j) {
        std::cmp::Ordering::Equal => ONE,
        std::cmp::Ordering::Greater => f[(i, j)],
        std::cmp::Ordering::Less => ZERO,
    })
}

/// U of both factors in one matrix.
fn upper(f: &Matrix) -> Matrix {
    Matrix::from_fn(f.rows.min(f.columns), f.columns, |i, j| {
        if i <= j { f[(i, j)] } else { ZERO }
    })
}

fn solve_rule(a: &calls::LinalgLuSolve) -> Result<(Plan, Dims)> {
    let (lu, pivots, b) = (a.LU, a.pivots, a.B);
    let (batch, n, _) = check(lu, "torch.linalg.lu_solve", true)?;
    same_types("linalg.lu_solve", lu, b)?;
    ensure!(
        pivots.dtype() == DType::I32,
        Runtime,
        "linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32. Got {}",
        pivots.dtype()
    );
    ensure!(
        *pivots.shape() == batch.concat(&[n]),
        Runtime,
        "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix"
    );
    ensure!(
        b.ndim() >= 2,
        Runtime,
        "linalg.lu_solve: The input tensor B must have at least 2 dimensions."
    );
    let batch = fits("linalg.lu_solve", lu.shape(), b.shape(), a.left)?;
    let shape = batch.concat(tail(b.shape()));
    let strides = if a.left {
        by_columns(&shape)
    } else {
        dims::contiguous_strides(&shape)
    };
    Ok((Plan::one(shape, strides, b.dtype()), batch))
}

fn solve(a: &calls::LinalgLuSolve, batch: &Dims, outs: &[Tensor]) -> Result<()> {
    let factors = matrices::read(a.LU, batch)?
        .into_iter()
        .zip(matrices::read_columns(a.pivots, batch)?);
    let mut results = Vec::new();
    for ((f, p), y) in factors.zip(matrices::read(a.B, batch)?) {
        let n = f.rows.max(1);
        let p: Vec<usize> = p
            .data
            .iter()
            .map(|v| (v.re as usize).clamp(1, n) - 1)
            .collect();
        let mut y = if a.left { y } else { y.adjoint() };
        // X A = B is the adjoint of A' X' = B'.
        if a.adjoint == a.left {
            solve_adjoint(&f.adjoint(), &p, &mut y);
        } else {
            dense::lu_solve(&f, &p, &mut y);
        }
        results.push(if a.left { y } else { y.adjoint() });
    }
    matrices::write(&outs[0], &results)
}

/// Solves with the adjoint of a factorisation: triangles first, then the exchanges backwards.
fn solve_adjoint(f: &Matrix, pivots: &[usize], y: &mut Matrix) {
    dense::triangular(f, y, false, false);
    dense::triangular(f, y, true, true);
    for (i, &q) in pivots.iter().enumerate().rev() {
        for j in 0..y.columns {
            y.data.swap(i * y.columns + j, q * y.columns + j);
        }
    }
}

fn unpack_rule(a: &calls::LuUnpack) -> Result<Plan> {
    let (t, pivots) = (a.LU_data, a.LU_pivots);
    let (batch, m, n) = check(t, "torch.lu_unpack", false)?;
    ensure!(
        !a.unpack_pivots || pivots.dtype() == DType::I32,
        Runtime,
        "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\nNote: this function is intended to be \
         used with the output produced by torch.linalg.lu_factor"
    );
    let k = m.min(n);
    let none = Dims::from([0]);
    let pick = |on: bool, shape: Dims| if on { shape } else { none.clone() };
    let (p, l, u) = (
        pick(a.unpack_pivots, batch.concat(&[m, m])),
        pick(a.unpack_data, batch.concat(&[m, k])),
        pick(a.unpack_data, batch.concat(&[k, n])),
    );
    Ok(Plan::many(&[
        (&p, t.dtype()),
        (&l, t.dtype()),
        (&u, t.dtype()),
    ]))
}

fn unpack(a: &calls::LuUnpack, (): &(), outs: &[Tensor]) -> Result<()> {
    let t = a.LU_data;
    let batch = lead(t.shape());
    if a.unpack_pivots {
        let rows = tail(t.shape())[0] as usize;
        let mut ps = Vec::new();
        for p in matrices::read_columns(a.LU_pivots, &batch)? {
            let pivots: Vec<i64> = p.data.iter().map(|v| v.re as i64 - 1).collect();
            ensure!(
                pivots.iter().all(|p| (0..rows as i64).contains(p)),
                Runtime,
                "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
            );
            ps.push(permutation(rows, pivots.iter().map(|&p| p as usize)));
        }
        matrices::write(&outs[0], &ps)?;
    }
    if a.unpack_data {
        let all = matrices::read(t, &batch)?;
        matrices::write(&outs[1], &all.iter().map(lower).collect::<Vec<_>>())?;
        matrices::write(&outs[2], &all.iter().map(upper).collect::<Vec<_>>())?;
    }
    Ok(())
}
