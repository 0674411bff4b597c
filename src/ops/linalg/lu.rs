//! LU decompositions.

use crate::cpu::dense::lu as dense;
use crate::cpu::dense::number::Number;
use crate::cpu::dense::view::{View, ViewMut};
use crate::cpu::matrices::{self, Pieces, Stack};
use crate::cpu::room::Room;
use crate::ops::core::op::{
    Batch, Cast, F, FMO, O, OpDef, OutSpec, Plan, R, Ret, X, compose, kernel,
};
use crate::ops::f;
use crate::ops::linalg::rules::{
    batch_note, by_columns, check, check_triangles, columnwise, fits, lead, plan, same_types, tail,
    with_numbers,
};
use crate::{DType, Dims, Result, Tensor, bail, dims, ensure, err};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.lu_factor_ex",
        "(Tensor A, *, bool pivot=True, bool check_errors=False) -> (Tensor LU, Tensor pivots, Tensor info)",
        F | O | X,
        body!(factor_rule, factors, scratch: |a, _, o, room| {
            room.matrices_for(&o[0], &[a.A])?;
            room.numbers(&o[1], DType::I32)?;
            room.numbers(&o[2], DType::I32)
        }),
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
        FMO | R,
        old_lu,
        "The LU factorisation in one matrix.",
    ).samples("f32[3, 4], True, True; c64[3, 4], True, True")
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "linalg.lu",
        "(Tensor A, *, bool pivot=True) -> (Tensor P, Tensor L, Tensor U)",
        F | O | X,
        body!(lu_rule, lu, scratch: |a, _, o, room| {
            room.matrices(a.A, &lead(a.A.shape()))?;
            room.within(|room| triangles_room(room, &o[1], &o[2]))?;
            room.matrices_for(&o[0], &[])
        }),
        "The LU factorisation.",
    ).samples("f32[3, 4]")
    .grad("A: _grad.lu(grads[1], grads[2], P, L, U, pivot)")
    .batch(Batch::Lead),
    kernel(
        "linalg.lu_solve",
        "(Tensor LU, Tensor pivots, Tensor B, *, bool left=True, bool adjoint=False)",
        F | O | X,
        body!(solve_rule, solve, scratch: |a, batch, o, room| {
            let own = lead(a.LU.shape());
            room.matrices(a.LU, &own)?;
            room.rows_of(a.pivots, &own)?;
            solutions_room(room, a.left, a.B, batch, &o[0])
        }),
        "The solution of a system by its LU factorisation.",
    ).samples(
        "f32[0, 3, 3], i32[0, 3], f32[0, 3, 4]; \
         c64[3, 3], i32([3, 2, 3]), c64[3, 4], adjoint=True; \
         f32[3, 3], i32([3, 2, 3]), f32[0, 3], adjoint=True, left=False",
    )
    .grad("LU, B: _grad.lu_solve(grad, LU, pivots, result, left, adjoint, needs)")
    .batch(Batch::Broadcasting(&[2, 1, 2])),
    compose(
        "lu_solve",
        "(Tensor self, Tensor LU_data, Tensor LU_pivots)",
        FMO | X,
        old_solve,
        "The solution of a system by its LU factorisation.",
    ).samples("f32[1, 4], f32[1, 1], i32([1])")
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "lu_unpack",
        "(Tensor LU_data, Tensor LU_pivots, bool unpack_data=True, bool unpack_pivots=True) -> (Tensor P, Tensor L, Tensor U)",
        F | O | X,
        body!(unpack_rule, unpack, scratch: unpack_room),
        "The factors of an LU factorisation.",
    ).samples("f32[0, 6, 5], i32[0, 5]; c64[3, 4], i32([1, 3, 3])")
    .grad("LU_data: _grad.lu_unpack(grads[1], grads[2], LU_data.rows, LU_data.columns)")
    .batch(Batch::Broadcasting(&[2, 1])),
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
    let (batch, m, n) = check_triangles(t, "torch.lu_factor")?;
    pivoting(a.pivot)?;
    Ok(plan([
        columnwise(t.shape().clone(), t.dtype()),
        OutSpec::contiguous(&batch.concat(&[m.min(n)]), DType::I32),
        OutSpec::contiguous(&batch, DType::I32),
    ]))
}

/// What factorising a batch gave besides the factors.
pub(super) struct Factored {
    /// A row for each matrix: the rows exchanged, from 0.
    pub pivots: Vec<usize>,
    /// How many for each.
    pub steps: usize,
    /// The first zero on each diagonal, from 1; 0 if there is none.
    pub infos: Vec<i32>,
}

impl Factored {
    /// Those of one matrix.
    pub fn pivots(&self, i: usize) -> &[usize] {
        &self.pivots[i * self.steps..(i + 1) * self.steps]
    }
}

/// Factorises all matrices of a batch in place.
pub(super) fn factorise<T: Number>(all: &mut Stack<T>) -> Factored {
    let (count, steps) = (all.count, all.rows.min(all.columns));
    let (mut pivots, mut infos) = (vec![0; count * steps], vec![0; count]);
    let work = all.rows * all.columns * steps;
    let parts = (
        all.parts(),
        Pieces::new(&mut pivots, steps),
        Pieces::new(&mut infos, 1),
    );
    matrices::each(count, work, &parts, |_, (a, pivots, info)| {
        info[0] = dense::factor(a, pivots) as i32;
    });
    Factored {
        pivots,
        steps,
        infos,
    }
}

fn factors(a: &calls::LinalgLuFactorEx, (): &(), outs: &[Tensor]) -> Result<()> {
    with_numbers!(a.A.dtype(), T => factors_of::<T>(a, outs))
}

fn factors_of<T: Number>(a: &calls::LinalgLuFactorEx, outs: &[Tensor]) -> Result<()> {
    let mut all = Stack::<T>::room(&outs[0], &[a.A])?;
    all.load(a.A)?;
    let made = factorise(&mut all);
    if let (Some(i), true) = (made.infos.iter().position(|&v| v != 0), a.check_errors) {
        let info = made.infos[i];
        bail!(
            Runtime,
            "torch.linalg.lu_factor_ex: {}U[{info},{info}] is zero and using it on lu_solve would result in a division by zero. If you \
             still want to perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)",
            batch_note(a.A, i),
        );
    }
    let pivots: Vec<i32> = made.pivots.iter().map(|&p| p as i32 + 1).collect();
    matrices::write_numbers(&outs[1], &pivots)?;
    matrices::write_numbers(&outs[2], &made.infos)?;
    all.store(&outs[0])
}

fn factor(a: &calls::LinalgLuFactor) -> Result<Ret> {
    let made = f::LinalgLuFactorEx::new(a.A)
        .pivot(a.pivot)
        .check_errors(true)
        .call();
    let [lu, pivots, _] = made.map_err(|e| match e.message() {
        m if m.starts_with("torch.linalg.lu_factor_ex: ") => {
            err!(Runtime, "{}", m.replacen("lu_factor_ex", "lu_factor", 1))
        }
        _ => e,
    })?;
    Ok(Ret::Tuple(vec![lu, pivots]))
}

fn old_solve(a: &calls::LuSolve) -> Result<Tensor> {
    crate::warn_once!(
        "torch.lu_solve is deprecated in favor of torch.linalg.lu_solveand will be removed in a future PyTorch release.\n\
         Note that torch.linalg.lu_solve has its arguments reversed.\n\
         X = torch.lu_solve(B, LU, pivots)\n\
         should be replaced with\n\
         X = torch.linalg.lu_solve(LU, pivots, B)"
    );
    f::linalg_lu_solve(a.LU_data, a.LU_pivots, a.input)
}

fn old_lu(a: &calls::Lu) -> Result<Ret> {
    crate::warn_once!(
        "torch.lu is deprecated in favor of torch.linalg.lu_factor / torch.linalg.lu_factor_ex and will be removed in a \
         future PyTorch release.\n\
         LU, pivots = torch.lu(A, compute_pivots)\n\
         should be replaced with\n\
         LU, pivots = torch.linalg.lu_factor(A, compute_pivots)\n\
         and\n\
         LU, pivots, info = torch.lu(A, compute_pivots, get_infos=True)\n\
         should be replaced with\n\
         LU, pivots, info = torch.linalg.lu_factor_ex(A, compute_pivots)"
    );
    let [lu, pivots, info] = f::LinalgLuFactorEx::new(a.A).pivot(a.pivot).call()?;
    Ok(Ret::Tuple(if a.get_infos {
        vec![lu, pivots, info]
    } else {
        vec![lu, pivots]
    }))
}

fn lu_rule(a: &calls::LinalgLu) -> Result<Plan> {
    let t = a.A;
    let (batch, m, n) = check_triangles(t, "linalg.lu")?;
    pivoting(a.pivot)?;
    let k = m.min(n);
    Ok(Plan::many(&[
        (&batch.concat(&[m, m]), t.dtype()),
        (&batch.concat(&[m, k]), t.dtype()),
        (&batch.concat(&[k, n]), t.dtype()),
    ]))
}

fn lu(a: &calls::LinalgLu, (): &(), outs: &[Tensor]) -> Result<()> {
    with_numbers!(a.A.dtype(), T => lu_of::<T>(a, outs))
}

fn lu_of<T: Number>(a: &calls::LinalgLu, outs: &[Tensor]) -> Result<()> {
    let mut all = Stack::<T>::copied(a.A, &lead(a.A.shape()))?;
    let made = factorise(&mut all);
    write_triangles(&all, &outs[1], &outs[2])?;
    write_permutations::<T>(&outs[0], made.steps, &made.pivots)
}

/// Writes the matrices that exchange row `i` with the row that `pivots` names, from 0, one after another.
fn write_permutations<T: Number>(out: &Tensor, steps: usize, pivots: &[usize]) -> Result<()> {
    let mut ps = Stack::<T>::empty_for(out)?;
    let rows = ps.rows;
    matrices::each(ps.count, rows * rows, &ps.parts(), |i, mut p| {
        let mut order: Vec<usize> = (0..rows).collect();
        let pivots = &pivots[i * steps..(i + 1) * steps];
        pivots
            .iter()
            .enumerate()
            .for_each(|(i, &p)| order.swap(i, p));
        p.fill(T::zero());
        order
            .iter()
            .enumerate()
            .for_each(|(j, &i)| p.set(i, j, T::one()));
    });
    ps.store(out)
}

fn triangles_room(room: &mut Room, lower: &Tensor, upper: &Tensor) -> Result<()> {
    room.matrices_for(lower, &[])?;
    room.matrices_for(upper, &[])
}

/// Writes both factors apart.
fn write_triangles<T: Number>(all: &Stack<T>, lower: &Tensor, upper: &Tensor) -> Result<()> {
    let (mut ls, mut us) = (Stack::<T>::empty_for(lower)?, Stack::<T>::empty_for(upper)?);
    let parts = (ls.parts(), us.parts());
    matrices::each(all.count, all.rows * all.columns, &parts, |i, (l, u)| {
        split(all.view(i), l, u);
    });
    ls.store(lower)?;
    us.store(upper)
}

/// L and U of both factors in one matrix.
fn split<T: Number>(f: View<T>, mut l: ViewMut<T>, mut u: ViewMut<T>) {
    for j in 0..l.columns() {
        let to = l.column(j);
        to[..j].fill(T::zero());
        to[j] = T::one();
        to[j + 1..].copy_from_slice(&f.column(j)[j + 1..]);
    }
    let rows = u.rows();
    for j in 0..u.columns() {
        let (to, edge) = (u.column(j), rows.min(j + 1));
        to[..edge].copy_from_slice(&f.column(j)[..edge]);
        to[edge..].fill(T::zero());
    }
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
    with_numbers!(a.LU.dtype(), T => solve_of::<T>(a, batch, outs))
}

fn solve_of<T: Number>(a: &calls::LinalgLuSolve, batch: &Dims, outs: &[Tensor]) -> Result<()> {
    let own = lead(a.LU.shape());
    let factors = Stack::<T>::copied(a.LU, &own)?;
    let (n, steps) = (factors.rows.max(1), factors.rows);
    let pivots = matrices::read_rows(a.pivots, &own)?;
    let lost = "Did you properly pass the result of lu_factor?";
    ensure!(
        pivots.iter().all(|&p| p >= 1),
        Runtime,
        "Pivots given to lu_solve must all be greater or equal to 1. {lost}"
    );
    ensure!(
        pivots.iter().all(|&p| p <= n as i64),
        Runtime,
        "Pivots given to lu_solve must all be smaller or equal to LU.size(-2). {lost}"
    );
    let pivots = pivots.iter().map(|&p| p as usize - 1).collect();
    let made = Factored {
        pivots,
        steps,
        infos: Vec::new(),
    };
    let system = System {
        factors: &factors,
        made: &made,
        own: &own,
        left: a.left,
        adjoint: a.adjoint,
    };
    system.solve(a.B, batch, &outs[0])
}

/// Equations with factorised matrices.
pub(super) struct System<'a, T> {
    /// Of the matrices.
    pub factors: &'a Stack<T>,
    /// What belongs to them.
    pub made: &'a Factored,
    /// Their batch.
    pub own: &'a Dims,
    /// `A X = B`, else `X A = B`.
    pub left: bool,
    /// With the adjoint of A.
    pub adjoint: bool,
}

impl<T: Number> System<'_, T> {
    /// Writes the solutions for a batch of right sides.
    pub fn solve(&self, b: &Tensor, batch: &Dims, out: &Tensor) -> Result<()> {
        // X A = B is the adjoint of A' X' = B'.
        let mut x = if self.left {
            let mut room = Stack::<T>::room(out, &[b])?;
            room.load(b)?;
            room
        } else {
            Stack::<T>::adjoints(b, batch)?
        };
        let origins = matrices::origins(self.own, batch);
        let (count, work) = (x.count, x.rows * x.rows * x.columns);
        matrices::each(count, work, &x.parts(), |i, x| {
            let (f, p) = (self.factors.view(origins[i]), self.made.pivots(origins[i]));
            if self.adjoint == self.left {
                dense::solve_adjoint(f, p, x);
            } else {
                dense::solve(f, p, x);
            }
        });
        if self.left {
            x.store(out)
        } else {
            x.store_adjoints(out)
        }
    }
}

/// What [`System::solve`] takes.
pub(super) fn solutions_room(
    room: &mut Room,
    left: bool,
    b: &Tensor,
    batch: &Dims,
    out: &Tensor,
) -> Result<()> {
    if left {
        room.matrices_for(out, &[b])
    } else {
        room.matrices(b, batch)
    }
}

fn unpack_room(a: &calls::LuUnpack, (): &(), outs: &[Tensor], room: &mut Room) -> Result<()> {
    let batch = lead(a.LU_data.shape());
    if a.unpack_pivots && a.LU_pivots.ndim() <= batch.len() + 1 {
        room.rows_of(a.LU_pivots, &batch)?;
        room.within(|room| room.matrices_for(&outs[0], &[]))?;
    }
    if a.unpack_data {
        room.matrices(a.LU_data, &batch)?;
        triangles_room(room, &outs[1], &outs[2])?;
    }
    Ok(())
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
    with_numbers!(a.LU_data.dtype(), T => unpack_of::<T>(a, outs))
}

fn unpack_of<T: Number>(a: &calls::LuUnpack, outs: &[Tensor]) -> Result<()> {
    let t = a.LU_data;
    let batch = lead(t.shape());
    if a.unpack_pivots {
        let rows = tail(t.shape())[0];
        let own = a.LU_pivots.shape();
        ensure!(
            own.len() <= batch.len() + 1,
            Runtime,
            "torch.lu_unpack: LU_pivots of shape {own} belongs to more matrices than LU_data of shape {} has",
            t.shape()
        );
        let pivots = matrices::read_rows(a.LU_pivots, &batch)?;
        ensure!(
            pivots.iter().all(|p| (1..=rows).contains(p)),
            Runtime,
            "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive.Did you properly pass the result of \
             lu_factor?"
        );
        let steps = a.LU_pivots.shape().last().map_or(0, |&n| n as usize);
        let pivots: Vec<usize> = pivots.into_iter().map(|p| p as usize - 1).collect();
        write_permutations::<T>(&outs[0], steps, &pivots)?;
    }
    if a.unpack_data {
        let all = Stack::<T>::copied(t, &batch)?;
        write_triangles(&all, &outs[1], &outs[2])?;
    }
    Ok(())
}
