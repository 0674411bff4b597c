//! Powers and exponentials of matrices.

use crate::cpu::dense::number::{Factor, Number, Real, set_product};
use crate::cpu::dense::view::{Matrix, View, ViewMut};
use crate::cpu::matrices::{self, Stack};
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, F, FM, FMO, O, OpDef, P, Plan, X, compose, kernel};
use crate::ops::core::typed;
use crate::ops::f;
use crate::ops::linalg::rules::{cubic, lead, with_numbers};
use crate::{DType, Element, MemoryFormat, Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "linalg.matrix_power",
        "(Tensor self, int n)",
        F | O | X | P,
        matrix_power,
        "A matrix to an integer power.",
    )
    .samples("f32[1, 1], 0"),
    compose(
        "matrix_power",
        "(Tensor self, int n)",
        FMO | X | P,
        |a| f::linalg_matrix_power(a.input, a.n),
        "A matrix to an integer power.",
    )
    .samples("f32[1, 1], 0"),
    kernel(
        "linalg.matrix_exp",
        "(Tensor self)",
        F,
        body!(exponential_rule, |a, _, o| exponentials(a.input, &o[0])).unmeasured(),
        "The exponential of a matrix.",
    )
    .samples("f32[5, 5, 5]")
    .grad("self: _grad.matrix_exp(grad, self)")
    .batch(Batch::Lead),
    compose(
        "matrix_exp",
        "(Tensor self)",
        FM,
        |a| f::linalg_matrix_exp(a.input),
        "The exponential of a matrix.",
    )
    .samples("f16[5, 5]"),
];

fn matrix_power(a: &calls::LinalgMatrixPower) -> Result<Tensor> {
    let t = a.input;
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "linalg.matrix_power: The input tensor A must have at least 2 dimensions."
    );
    let (r, c) = (t.shape()[t.ndim() - 2], t.shape()[t.ndim() - 1]);
    ensure!(
        r == c,
        Runtime,
        "linalg.matrix_power: A must be batches of square matrices, but they are {r} by {c} matrices"
    );
    match a.n {
        0 => {
            // Written over a copy, whose history says that the result depends on nothing.
            let made = f::Clone::new(t)
                .memory_format(MemoryFormat::Contiguous)
                .call()?;
            let one = f::Eye::new(r)
                .dtype(t.dtype())
                .device(helpers::beside(t))
                .call()?;
            typed::changed(&f::Copy::new(&made, &one).args()?)
        }
        1 => f::Clone::new(t)
            .memory_format(MemoryFormat::Preserve)
            .call(),
        n if n < 0 => raised(f::linalg_inv(t)?, n.unsigned_abs()),
        n => raised(t.clone(), n.unsigned_abs()),
    }
}

/// A positive power, by repeated squaring.
fn raised(mut base: Tensor, mut n: u64) -> Result<Tensor> {
    if n == 3 {
        return f::matmul(&f::matmul(&base, &base)?, &base);
    }
    while n & 1 == 0 {
        base = f::matmul(&base, &base)?;
        n >>= 1;
    }
    let mut out = base.clone();
    n >>= 1;
    while n > 0 {
        base = f::matmul(&base, &base)?;
        if n & 1 == 1 {
            out = f::matmul(&out, &base)?;
        }
        n >>= 1;
    }
    Ok(out)
}

fn exponential_rule(a: &calls::LinalgMatrixExp) -> Result<Plan> {
    let t = a.input;
    let n = t.ndim();
    ensure!(
        n >= 2,
        Runtime,
        "linalg.matrix_exp: The input tensor A must have at least 2 dimensions."
    );
    let (r, c) = (t.shape()[n - 2], t.shape()[n - 1]);
    ensure!(
        r == c,
        Runtime,
        "linalg.matrix_exp: A must be batches of square matrices, but they are {r} by {c} matrices"
    );
    ensure!(
        t.dtype().is_float() || t.dtype().is_complex(),
        Runtime,
        "linalg.matrix_exp: Expected a floating point or complex tensor as input. Got {}",
        t.dtype().scalar_type()
    );
    Ok(Plan::contiguous(t.shape(), t.dtype()))
}

fn exponentials(t: &Tensor, out: &Tensor) -> Result<()> {
    let dtype = if t.dtype().is_reduced_float() {
        DType::F32
    } else {
        t.dtype()
    };
    with_numbers!(dtype, T => exponentials_of::<T>(t, out))
}

fn exponentials_of<T: Number>(t: &Tensor, out: &Tensor) -> Result<()> {
    let all = Stack::<T>::copied(t, &lead(t.shape()))?;
    let mut results = Stack::<T>::empty_for(out)?;
    let work = cubic(all.rows);
    matrices::each(all.count, work, &results.parts(), |i, to| {
        exponential(all.view(i), to)
    });
    results.store(out)
}

/// Scaled until a short series suffices, then squared back.
fn exponential<T: Number>(m: View<T>, mut to: ViewMut<T>) {
    let n = m.rows();
    let sums = (0..n).map(|j| m.column(j).iter().map(|v| v.abs().double()).sum::<f64>());
    let norm = sums.fold(
        0.0f64,
        |most, v| if v > most || v.is_nan() { v } else { most },
    );
    // As far as eighteen terms reach; every squaring costs digits.
    let reach = if T::Size::DTYPE == DType::F64 {
        1.0
    } else {
        3.0
    };
    let halvings = if norm > reach && norm.is_finite() {
        (norm / reach).log2().ceil() as i32
    } else {
        0
    };
    let scale = T::Size::near(0.5f64.powi(halvings));
    let x = Matrix::from_fn(n, n, |i, j| m.get(i, j).times(scale));
    let mut sum = Matrix::filled(n, n, T::zero());
    sum.view_mut().set_identity();
    let (mut term, mut next) = (sum.clone(), sum.clone());
    for k in 1..19 {
        set_product(
            Factor::Plain(term.view()),
            Factor::Plain(x.view()),
            next.view_mut(),
        );
        let by = T::Size::near(1.0 / f64::from(k));
        next.data.iter_mut().for_each(|v| *v = v.times(by));
        sum.data
            .iter_mut()
            .zip(&next.data)
            .for_each(|(s, &t)| *s += t);
        std::mem::swap(&mut term, &mut next);
    }
    for _ in 0..halvings {
        set_product(
            Factor::Plain(sum.view()),
            Factor::Plain(sum.view()),
            next.view_mut(),
        );
        std::mem::swap(&mut sum, &mut next);
    }
    to.copy(sum.view());
}
