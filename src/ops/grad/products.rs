//! Gradients of products of matrices.

use crate::ops::core::op::{OpDef, compose};
use crate::ops::f;
use crate::ops::grad::pointwise::scale;
use crate::{Result, Scalar, Tensor};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.mm_left",
        "(Tensor grad, int[] sizes, int[] strides, Tensor mat2, Scalar alpha)",
        0,
        |a| {
            let made = if column_major(a.sizes, a.strides) {
                f::t(&f::mm(&f::conj(a.mat2)?, &f::t(a.grad)?)?)?
            } else {
                f::mm(a.grad, &f::conj(&f::t(a.mat2)?)?)?
            };
            scale(&made, conj(a.alpha))
        },
        "The gradient of a product by its first matrix, column-major if that is.",
    )
    .samples("f32[2, 4], [2, 3], [3, 1], f32[3, 4], 1; f32[2, 4], [2, 3], [1, 2], f32[3, 4], 2"),
    compose(
        "_grad.mm_right",
        "(Tensor grad, int[] sizes, int[] strides, Tensor mat1, Scalar alpha)",
        0,
        |a| {
            let made = if column_major(a.sizes, a.strides) {
                f::t(&f::mm(&f::t(a.grad)?, &f::conj(a.mat1)?)?)?
            } else {
                f::mm(&f::conj(&f::t(a.mat1)?)?, a.grad)?
            };
            scale(&made, conj(a.alpha))
        },
        "The gradient of a product by its second matrix, column-major if that is.",
    )
    .samples("f32[2, 4], [3, 4], [4, 1], f32[2, 3], 1; f32[2, 4], [3, 4], [1, 3], f32[2, 3], 2"),
    compose(
        "_grad.bilinear",
        "(Tensor grad, Tensor input1, Tensor input2, Tensor weight, bool[] needs) -> (Tensor?, Tensor?, Tensor?, Tensor?)",
        0,
        bilinear,
        "The gradients of bilinear.",
    )
    .samples("f32[2, 5], f32[2, 3], f32[2, 4], f32[5, 3, 4], [True, True, True, True]"),
];

/// True for a matrix whose columns lie one after the other.
fn column_major(sizes: &[i64], strides: &[i64]) -> bool {
    strides[0] == 1 && strides[1] == sizes[0]
}

fn conj(s: Scalar) -> Scalar {
    match s {
        Scalar::Complex(c) => Scalar::Complex(c.conj()),
        s => s,
    }
}

fn bilinear(a: &calls::_GradBilinear) -> Result<[Option<Tensor>; 4]> {
    let rows = |t: &Tensor| f::reshape(t, &[-1, t.shape()[t.ndim() - 1]][..]);
    let (g, x, y, w) = (rows(a.grad)?, rows(a.input1)?, rows(a.input2)?, a.weight);
    let of = |equation: &str, tensors: [&Tensor; 3]| {
        f::einsum(equation, &tensors.map(Tensor::clone)[..])
    };
    let wanted = |i: usize| a.needs.get(i) == Some(&true);
    let make = |i: usize| -> Result<Option<Tensor>> {
        if !wanted(i) {
            return Ok(None);
        }
        Ok(Some(match i {
            0 => f::reshape(&of("no,oij,nj->ni", [&g, w, &y])?, a.input1.shape())?,
            1 => f::reshape(&of("no,oij,ni->nj", [&g, w, &x])?, a.input2.shape())?,
            2 => of("no,ni,nj->oij", [&g, &x, &y])?,
            _ => f::sum_dim(&g, &[0i64][..])?,
        }))
    };
    Ok([make(0)?, make(1)?, make(2)?, make(3)?])
}
