//! Least squares.

use crate::cpu::dense::number::{Factor, Number, Real, add_product, set_product};
use crate::cpu::dense::singular::{Vectors, singular};
use crate::cpu::dense::view::{Matrix, View, ViewMut};
use crate::cpu::matrices::{self, Pieces, Stack};
use crate::ops::batch;
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, F, Hidden, O, OpDef, OutSpec, P, Plan, Ret, compose, kernel};
use crate::ops::f;
use crate::ops::linalg::rules::{columnwise, cubic, lead, plan, tail, with_numbers};
use crate::ops::linalg::spectral::singular_values;
use crate::{DType, Dims, Result, Tensor, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_lstsq",
        "(Tensor self, Tensor b, float? rcond, bool full_rank) -> (Tensor X, Tensor residuals, Tensor rank, Tensor singular_values)",
        0,
        body!(rule, write).unmeasured(),
        "",
    )
    .samples("f32[4, 3], f32[4, 2], None, False; f64[2, 3, 4], f64[2, 3, 1], 0.1, False; c64[4, 2], c64[4, 2], None, True")
    .refused()
    .batch(Batch::Lead),
    compose(
        "linalg.lstsq",
        "(Tensor self, Tensor b, float? rcond=None, *, str? driver=None) -> (Tensor solution, Tensor residuals, Tensor rank, Tensor singular_values)",
        F | O | P,
        lstsq,
        "The solutions X for which A X is as near to B as can be, of least size where there are many.",
    )
    .samples("f32[4, 3], f32[4, 2]; f64[3, 4], f64[3, 2], driver='gelsd'; f32[2, 4, 3], f32[2, 4], driver='gels'")
    .grad("LinalgLstsqBackward0 | self, b: _grad.lstsq(grads[0], grads[1], self, b, solution, needs)")
    .batch(Batch::As(typed!(batch::lstsq, Hidden))),
];

/// PyTorch's words before any work is done; true if `b` holds vectors.
fn check(a: &calls::LinalgLstsq) -> Result<bool> {
    let (t, b) = (a.input, a.b);
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "torch.linalg.lstsq: input must have at least 2 dimensions."
    );
    ensure!(
        b.ndim() >= 1,
        Runtime,
        "torch.linalg.lstsq: other must have at least 1 dimension."
    );
    ensure!(
        t.dtype() == b.dtype(),
        Runtime,
        "torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype {} and other's dtype {}",
        t.dtype().scalar_type(),
        b.dtype().scalar_type()
    );
    let apart = t.ndim() - b.ndim().min(t.ndim());
    ensure!(
        b.ndim() <= t.ndim() && apart <= 1,
        Runtime,
        "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1"
    );
    let rows = t.shape()[t.ndim() - 2];
    let batch = t.ndim() - 2;
    let vector = apart == 1 && b.shape()[..batch] == t.shape()[..batch];
    let (at, have) = if vector {
        (1, b.size(-1)?)
    } else {
        (2, b.size(-2)?)
    };
    ensure!(
        rows == have,
        Runtime,
        "torch.linalg.lstsq: input.size(-2) should match other.size(-{at})"
    );
    if let Some(driver) = a.driver {
        ensure!(
            matches!(driver, "gels" | "gelsy" | "gelsd" | "gelss"),
            Runtime,
            "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)"
        );
    }
    ensure!(
        matches!(
            t.dtype(),
            DType::F32 | DType::F64 | DType::C64 | DType::C128
        ),
        Runtime,
        "This function doesn't handle types other than float and double"
    );
    Ok(vector)
}

fn lstsq(a: &calls::LinalgLstsq) -> Result<Ret> {
    let vector = check(a)?;
    let (m, n) = (tail(a.input.shape())[0], tail(a.input.shape())[1]);
    let driver = a.driver.unwrap_or("gelsy");
    let b = if vector {
        f::unsqueeze(a.b, -1)?
    } else {
        a.b.clone()
    };
    let [x, residuals, rank, values] = f::_lstsq(a.input, &b, a.rcond, driver == "gels")?;
    let x = f::narrow(&x, -2, 0, n)?;
    let none = |d: DType| f::NewEmpty::new(a.input, &[0i64][..]).dtype(d).call();
    // Drivers that find the rank say how far off they are where it is full.
    let known = match driver {
        "gels" => m > n,
        "gelsy" => false,
        _ => m > n && (helpers::has_no_values(&rank) || full(&rank, n)?),
    };
    let real = a.input.dtype().to_real();
    Ok(Ret::Tuple(vec![
        if vector { f::squeeze_dim(&x, -1)? } else { x },
        if known { residuals } else { none(real)? },
        if driver == "gels" {
            none(DType::I64)?
        } else {
            rank
        },
        if matches!(driver, "gelss" | "gelsd") {
            values
        } else {
            none(real)?
        },
    ]))
}

fn full(rank: &Tensor, n: i64) -> Result<bool> {
    let all = f::all(&f::eq(rank, n)?)?;
    Ok(helpers::item(&all)?.to_f64() != 0.0)
}

/// The solutions lie in the first rows of a larger matrix, as the routines of LAPACK leave them.
fn rule(a: &calls::_Lstsq) -> Result<(Plan, Dims)> {
    let (t, b) = (a.input, a.b);
    ensure!(
        t.ndim() >= 2 && b.ndim() >= 2,
        Runtime,
        "least squares take matrices, got {} and {} dimensions",
        t.ndim(),
        b.ndim()
    );
    let (m, n) = (t.size(-2)?, t.size(-1)?);
    let (rows, columns) = (b.size(-2)?, b.size(-1)?);
    ensure!(
        rows == m && t.dtype() == b.dtype(),
        Runtime,
        "least squares of {m} rows of {} and {rows} of {}",
        t.dtype(),
        b.dtype()
    );
    let batch = dims::broadcast(&lead(t.shape()), &lead(b.shape()))?;
    let real = t.dtype().to_real();
    let plan = plan([
        columnwise(batch.concat(&[m.max(n), columns]), t.dtype()),
        OutSpec::contiguous(&batch.concat(&[columns]), real),
        OutSpec::contiguous(&lead(t.shape()), DType::I64),
        OutSpec::contiguous(&lead(t.shape()).concat(&[m.min(n)]), real),
    ]);
    Ok((plan, batch))
}

fn write(a: &calls::_Lstsq, batch: &Dims, outs: &[Tensor]) -> Result<()> {
    with_numbers!(a.input.dtype(), T => write_of::<T>(a, batch, outs))
}

fn write_of<T: Number>(a: &calls::_Lstsq, batch: &Dims, outs: &[Tensor]) -> Result<()> {
    let t = a.input;
    let (m, n) = (tail(t.shape())[0] as usize, tail(t.shape())[1] as usize);
    let epsilon = <T::Size as num_traits::Float>::epsilon().double();
    let least = a.rcond.unwrap_or(epsilon * m.max(n) as f64);
    let values = singular_values::<T>(t, "torch.linalg.lstsq")?;
    let steps = m.min(n);
    let rank = |v: &[T::Size]| {
        let top = v.first().map_or(0.0, |v| v.double());
        v.iter().filter(|v| v.double() > least * top).count() as i64
    };
    let count = outs[2].numel() as usize;
    let ranks: Vec<i64> = (0..count)
        .map(|i| rank(&values[i * steps..(i + 1) * steps]))
        .collect();
    let all = Stack::<T>::copied(t, batch)?;
    let rights = Stack::<T>::copied(a.b, batch)?;
    let mut solutions = Stack::<T>::empty_for(&outs[0])?;
    let mut rests = vec![T::Size::default(); all.count * rights.columns];
    let least = if a.full_rank { 0.0 } else { least };
    let parts = (solutions.parts(), Pieces::new(&mut rests, rights.columns));
    matrices::each(all.count, cubic(m.max(n)), &parts, |i, (mut x, rests)| {
        x.fill(T::zero());
        let columns = x.columns();
        solve(
            all.view(i),
            rights.view(i),
            least,
            x.block(0, 0, n, columns),
        );
        let mut apart = Matrix::filled(m, columns, T::zero());
        apart.view_mut().copy(rights.view(i));
        let found = x.view().block(0, 0, n, columns);
        add_product(
            -1,
            Factor::Plain(all.view(i)),
            Factor::Plain(found),
            apart.view_mut(),
        );
        for (j, rest) in rests.iter_mut().enumerate() {
            *rest = apart.view().column(j).iter().map(|v| v.square()).sum();
        }
    });
    solutions.store(&outs[0])?;
    matrices::write_numbers(&outs[1], &rests)?;
    matrices::write_numbers(&outs[2], &ranks)?;
    matrices::write_numbers(&outs[3], &values)
}

/// By singular values, those that are small beside the largest left out.
fn solve<T: Number>(a: View<T>, b: View<T>, least: f64, to: ViewMut<T>) {
    let (m, n) = (a.rows(), a.columns());
    let k = m.min(n);
    let (mut u, mut v) = (
        Matrix::filled(m, k, T::zero()),
        Matrix::filled(n, k, T::zero()),
    );
    let mut values = vec![T::Size::default(); k];
    let mut copy = Matrix::filled(m, n, T::zero());
    copy.view_mut().copy(a);
    let vectors = Vectors {
        u: u.view_mut(),
        v: v.view_mut(),
    };
    singular(copy.view_mut(), &mut values, Some(vectors));
    let top = values.first().map_or(0.0, |v| v.double());
    let mut along = Matrix::filled(k, b.columns(), T::zero());
    set_product(
        Factor::Adjoint(u.view()),
        Factor::Plain(b),
        along.view_mut(),
    );
    for j in 0..b.columns() {
        for (v, &s) in along.view_mut().column(j).iter_mut().zip(&values) {
            *v = if s.double() > least * top {
                v.over(T::real(s))
            } else {
                T::zero()
            };
        }
    }
    set_product(Factor::Plain(v.view()), Factor::Plain(along.view()), to);
}
