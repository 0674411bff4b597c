//! Gradients of products of Householder reflections.

use super::needs;
use crate::ops::core::helpers;
use crate::ops::core::op::{OpDef, compose};
use crate::ops::f;
use crate::{Dims, Result, Tensor};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.householder_product",
        "(Tensor grad, Tensor input, Tensor tau, bool[2] needs) -> (Tensor?, Tensor?)",
        0,
        |a| reflected(a.grad, a.input, a.tau, needs(a.needs)?),
        "The gradients of householder_product.",
    )
    .samples("f64[4, 3], f64[4, 3], f64[3], [True, True]; c64[2, 4, 4], c64[2, 4, 4], c64[2, 2], [True, False]"),
    compose(
        "_grad.ormqr",
        "(Tensor grad, Tensor self, Tensor tau, Tensor other, bool left, bool transpose, bool[2] needs) -> (Tensor?, Tensor?)",
        0,
        ormqr,
        "The gradients of the reflections that ormqr multiplies by.",
    )
    .samples("f64[4, 2], f64[4, 3], f64[3], f64[4, 2], True, False, [True, True]; c64[2, 4], c64[4, 3], c64[3], c64[2, 4], False, True, [True, True]"),
];

/// One reflection: its vector as a column, and its factor.
struct Reflection {
    v: Tensor,
    tau: Tensor,
}

impl Reflection {
    /// The one of column `i`: zeros, a one, and what stands below the diagonal.
    fn of(input: &Tensor, tau: &Tensor, i: i64) -> Result<Self> {
        let rows = input.size(-2)?;
        let below = f::narrow(input, -1, i, 1)?;
        let below = f::narrow(&below, -2, i + 1, rows - i - 1)?;
        let lead = &input.shape()[..input.ndim() - 2];
        let sized = |n: i64| Dims::new(lead).concat(&[n, 1]);
        let zeros = f::new_zeros(input, &sized(i))?;
        let one = f::NewOnes::new(input, &sized(1)).call()?;
        let v = f::Cat::new(&[zeros, one, below][..]).dim(-2).call()?;
        let tau = f::unsqueeze(&f::narrow(tau, -1, i, 1)?, -1)?;
        Ok(Self { v, tau })
    }

    /// `v` times a row for each matrix: what a matrix has along it.
    fn along(&self, t: &Tensor) -> Result<Tensor> {
        f::matmul(&f::mH(&self.v)?, t)
    }

    /// The reflection of a matrix, or the adjoint's.
    fn apply(&self, t: &Tensor, adjoint: bool) -> Result<Tensor> {
        let tau = if adjoint {
            f::conj(&self.tau)?
        } else {
            self.tau.clone()
        };
        f::sub(t, &f::mul(&f::mul(&tau, &self.v)?, &self.along(t)?)?)
    }
}

/// The gradients of the vectors and factors, where `grad` is that of the first columns of the reflections' product.
fn reflected(
    grad: &Tensor,
    input: &Tensor,
    tau: &Tensor,
    [want_input, want_tau]: [bool; 2],
) -> Result<[Option<Tensor>; 2]> {
    let (rows, columns) = (input.size(-2)?, grad.size(-1)?);
    let count = tau.size(-1)?;
    if count == 0 || input.numel() == 0 {
        return Ok([None, None]);
    }
    let all = (0..count).map(|i| Reflection::of(input, tau, i));
    let all: Vec<Reflection> = all.collect::<Result<_>>()?;
    // What each reflection was applied to, the last one first.
    let unit = f::EyeM::new(rows, columns)
        .dtype(input.dtype())
        .device(helpers::beside(input))
        .call()?;
    let mut before = vec![f::expand(&unit, grad.shape())?];
    for r in all.iter().skip(1).rev() {
        before.push(r.apply(&before[before.len() - 1], false)?);
    }
    let (mut g, mut by_v, mut by_tau) = (grad.clone(), Vec::new(), Vec::new());
    for (r, p) in all.iter().zip(before.iter().rev()) {
        let (across, along) = (r.along(&g)?, f::mH(&r.along(p)?)?);
        by_tau.push(f::squeeze_dim(&f::neg(&f::matmul(&across, &along)?)?, -1)?);
        let first = f::mul(&f::conj(&r.tau)?, &f::matmul(&g, &along)?)?;
        let second = f::mul(&r.tau, &f::matmul(p, &f::mH(&across)?)?)?;
        by_v.push(f::neg(&f::add(&first, &second)?)?);
        g = r.apply(&g, true)?;
    }
    let by_input = if want_input {
        let rest = Dims::new(&input.shape()[..input.ndim() - 1]).concat(&[input.size(-1)? - count]);
        by_v.push(f::new_zeros(input, &rest)?);
        let below = f::Tril::new(&f::Cat::new(&by_v).dim(-1).call()?)
            .diagonal(-1)
            .call()?;
        Some(if input.is_contiguous() {
            below
        } else {
            // A sum lies as its first operand.
            f::add(&f::zeros_like(input)?, &below)?
        })
    } else {
        None
    };
    let by_tau = if want_tau {
        Some(f::Cat::new(&by_tau).dim(-1).call()?)
    } else {
        None
    };
    Ok([by_input, by_tau])
}

fn ormqr(a: &calls::_GradOrmqr) -> Result<[Option<Tensor>; 2]> {
    let by = |x: &Tensor, y: &Tensor| f::matmul(x, y);
    // The gradient of the whole orthogonal matrix.
    let whole = match (a.left, a.transpose) {
        (true, false) => by(a.grad, &f::mH(a.other)?)?,
        (true, true) => by(a.other, &f::mH(a.grad)?)?,
        (false, false) => by(&f::mH(a.other)?, a.grad)?,
        (false, true) => by(&f::mH(a.grad)?, a.other)?,
    };
    reflected(&whole, a.input, a.tau, needs(a.needs)?)
}
