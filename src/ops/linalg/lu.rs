//! LU decompositions.

use crate::cpu::dense::{self, Matrix, ONE, ZERO};
use crate::ops::core::args::Args;
use crate::ops::core::op::{F, FM, KernelBody, O, OpDef, OutSpec, Plan, Ret, kernel, old_compose};
use crate::ops::linalg::solve::{
    batch_note, by_columns, check, columnwise, fits, lead, read, same_types, write, write_ints,
};
use crate::{DType, Result, Tensor, bail, dims, ensure, run};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.lu_factor_ex",
        "(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots, Tensor info)",
        F | O,
        KernelBody::new(infer_lu_factor, run_lu_factor),
        "The LU factorisation in one matrix, and where it failed.",
    ),
    old_compose(
        "linalg.lu_factor",
        "(Tensor A, *, bool pivot=True) -> (Tensor LU, Tensor pivots)",
        F | O,
        lu_factor,
        "The LU factorisation in one matrix.",
    ),
    old_compose(
        "lu",
        "(Tensor A, bool pivot=True, bool get_infos=False) -> (Tensor, Tensor)",
        FM,
        lu_old,
        "The LU factorisation in one matrix.",
    ),
    kernel(
        "linalg.lu",
        "(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)",
        F | O,
        KernelBody::new(infer_lu, run_lu),
        "The LU factorisation.",
    ),
    kernel(
        "linalg.lu_solve",
        "(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False)",
        F | O,
        KernelBody::new(infer_lu_solve, run_lu_solve),
        "The solution of a system by its LU factorisation.",
    ),
];

fn pivoting(pivot: bool) -> Result<()> {
    ensure!(
        pivot,
        Runtime,
        "linalg.lu_factor: LU without pivoting is not implemented on the CPU"
    );
    Ok(())
}

fn infer_lu_factor(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (batch, m, n) = check(t, "torch.lu_factor", false)?;
    pivoting(a.bool(1))?;
    let outs = [
        columnwise(t.shape().clone(), t.dtype()),
        OutSpec::contiguous(&batch.concat(&[m.min(n)]), DType::I32),
        OutSpec::contiguous(&batch, DType::I32),
    ];
    Ok(Plan {
        outs: outs.into_iter().collect(),
        device: None,
    })
}

fn run_lu_factor(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let (mut lus, mut pivots, mut infos) = (Vec::new(), Vec::new(), Vec::new());
    for (i, m) in read(t, &lead(t))?.into_iter().enumerate() {
        let f = dense::lu(m);
        if f.info != 0 && a.bool(2) {
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
    write(&outs[0], &lus)?;
    write_ints(&outs[1], &pivots)?;
    write_ints(&outs[2], &infos)
}

fn lu_factor(a: &Args) -> Result<Ret> {
    let all = run!("linalg.lu_factor_ex", a.tensor(0)?, a.bool(1), true)?.tensors();
    Ok(Ret::Tuple(all.into_iter().take(2).collect()))
}

fn lu_old(a: &Args) -> Result<Ret> {
    let infos = a.bool(2);
    let all = run!("linalg.lu_factor_ex", a.tensor(0)?, a.bool(1), !infos)?.tensors();
    Ok(Ret::Tuple(
        all.into_iter().take(if infos { 3 } else { 2 }).collect(),
    ))
}

fn infer_lu(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (batch, m, n) = check(t, "linalg.lu", false)?;
    pivoting(a.bool(1))?;
    let k = m.min(n);
    Ok(Plan::many(&[
        (&batch.concat(&[m, m]), t.dtype()),
        (&batch.concat(&[m, k]), t.dtype()),
        (&batch.concat(&[k, n]), t.dtype()),
    ]))
}

fn run_lu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let (mut ps, mut ls, mut us) = (Vec::new(), Vec::new(), Vec::new());
    for m in read(t, &lead(t))? {
        let (rows, columns) = (m.rows, m.columns);
        let k = rows.min(columns);
        let f = dense::lu(m);
        let mut order: Vec<usize> = (0..rows).collect();
        f.pivots
            .iter()
            .enumerate()
            .for_each(|(i, &p)| order.swap(i, p));
        ps.push(Matrix::from_fn(rows, rows, |i, j| {
            if order[j] == i { ONE } else { ZERO }
        }));
        ls.push(Matrix::from_fn(rows, k, |i, j| {
            if i == j {
                ONE
            } else if j < i {
                f.lu[(i, j)]
            } else {
                ZERO
            }
        }));
        us.push(Matrix::from_fn(k, columns, |i, j| {
            if i <= j { f.lu[(i, j)] } else { ZERO }
        }));
    }
    write(&outs[0], &ps)?;
    write(&outs[1], &ls)?;
    write(&outs[2], &us)
}

fn infer_lu_solve(a: &Args) -> Result<Plan> {
    let (lu, pivots, b, left) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?, a.bool(3));
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
    let batch = fits("linalg.lu_solve", lu, b, left)?;
    let shape = batch.concat(&b.shape()[b.ndim() - 2..]);
    let strides = if left {
        by_columns(&shape)
    } else {
        dims::contiguous_strides(&shape)
    };
    Ok(Plan::one(shape, strides, b.dtype()))
}

fn run_lu_solve(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (lu, pivots, b, left, adjoint) = (
        a.tensor(0)?,
        a.tensor(1)?,
        a.tensor(2)?,
        a.bool(3),
        a.bool(4),
    );
    let batch = lead(&outs[0]);
    let column = pivots.view_with(
        pivots.shape().concat(&[1]),
        pivots.strides().concat(&[1]),
        pivots.offset(),
    );
    let mut results = Vec::new();
    for ((f, p), y) in read(lu, &batch)?
        .into_iter()
        .zip(read(&column, &batch)?)
        .zip(read(b, &batch)?)
    {
        let n = f.rows;
        let p: Vec<usize> = p
            .data
            .iter()
            .map(|v| (v.re as usize).clamp(1, n.max(1)) - 1)
            .collect();
        let mut y = if left { y } else { y.adjoint() };
        // X A = B is the adjoint of A' X' = B'.
        if adjoint == left {
            let (u, l) = (f.adjoint(), f.adjoint());
            dense::triangular(&u, &mut y, false, false);
            dense::triangular(&l, &mut y, true, true);
            for (i, &q) in p.iter().enumerate().rev() {
                for j in 0..y.columns {
                    y.data.swap(i * y.columns + j, q * y.columns + j);
                }
            }
        } else {
            dense::lu_solve(&f, &p, &mut y);
        }
        results.push(if left { y } else { y.adjoint() });
    }
    write(&outs[0], &results)
}
