//! Functions of the elements of quantised tensors that PyTorch has as operators of their own.

use super::parts::{Quantized, Uniform, in_order, range_of};
use crate::ops::core::op::{F, OpDef, compose};
use crate::ops::f;
use crate::{Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_quantized_pair",
        "(Tensor self, Tensor other, bool product, float scale, int zero_point, bool relu=False)",
        F,
        pair,
        "The sum or the product of two quantised tensors, quantised anew.",
    )
    .samples("see tests/test_quantized_products.py")
    .no_grad(),
    compose(
        "_quantized_looked_up",
        "(Tensor self, Tensor table, float scale, int zero_point)",
        F,
        |a| {
            let q = Quantized::expected(a.input, "quantized")?;
            let to = Uniform {
                scale: a.scale,
                zero: a.zero_point,
            };
            to.over(&f::_quantized_table(&q.integers, a.table)?)
        },
        "What a table has for each byte of a quantised tensor, with another scale.",
    )
    .samples("see tests/test_quantized_products.py")
    .no_grad(),
];

fn pair(a: &calls::_QuantizedPair) -> Result<Tensor> {
    let name = if a.product { "mul" } else { "add" };
    let d = a.input.dtype();
    ensure!(
        d == a.other.dtype(),
        Runtime,
        "{} operands should have same data type.",
        if a.product { "Mul" } else { "Add" }
    );
    let taken = |t: &Tensor| -> Result<(Tensor, Uniform)> {
        let q = Quantized::expected(t, name)?;
        let by = q.uniform(name)?;
        Ok((q.integers, by))
    };
    let ((x, by_x), (y, by_y)) = (taken(a.input)?, taken(a.other)?);
    let shift = |u: Uniform| f64::from(-(u.zero as f32) * u.scale as f32);
    let to = Uniform {
        scale: a.scale,
        zero: a.zero_point,
    };
    let inverse = f64::from(1.0 / to.scale as f32);
    let numbers = [by_x.scale, shift(by_x), by_y.scale, shift(by_y), inverse];
    let low = if a.relu { to.zero } else { range_of(d)?.0 };
    let x = in_order(&x)?;
    to.over(&f::_quantized_met(
        &x,
        &y,
        a.product,
        to.zero,
        low,
        &numbers[..],
    )?)
}
