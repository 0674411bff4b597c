//! Gradients of products of matrices.

use crate::ops::core::op::{OpDef, Plan, compose, kernel};
use crate::ops::f;
use crate::ops::grad::pointwise::scale;
use crate::{Result, Scalar, cpu, ensure};
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
    kernel(
        "_grad.bilinear_weight",
        "(Tensor grad_rows, Tensor input1, Tensor input2)",
        0,
        body!(bilinear_rule, |a, (), outs| cpu::bilinear::weight_gradient(&outs[0], a.grad_rows, a.input1, a.input2), scratch: |a, (), outs, room| {
            let each = a.grad_rows.shape()[1] * a.input1.shape()[1];
            let operands = [a.grad_rows, a.input1, a.input2].map(Some);
            cpu::bilinear::room(room, &outs[0], operands, a.grad_rows.shape()[0], each)
        }),
        "The gradient of bilinear by its weight, of rows.",
    )
    .samples("f32[2, 5], f32[2, 3], f32[2, 4]")
    .grad("grad_rows: _nn.trilinear(input1, grad, input2); input1: _nn.trilinear(grad_rows, transpose(grad, 0, 1), input2); input2: _nn.trilinear(grad_rows, transpose(transpose(grad, 1, 2), 0, 1), input1)"),
];

fn bilinear_rule(a: &calls::_GradBilinearWeight) -> Result<Plan> {
    let (g, x, y) = (a.grad_rows, a.input1, a.input2);
    let rows = [g, x, y].map(|t| (t.ndim() == 2).then(|| t.shape()[0]));
    ensure!(
        rows[0].is_some() && rows == [rows[0]; 3],
        Runtime,
        "the gradient of bilinear expects as many rows of each, got {}, {} and {}",
        g.shape(),
        x.shape(),
        y.shape()
    );
    let dtype = g.dtype();
    dtype.check_kernel(!dtype.is_complex(), "bilinear")?;
    let shape = [g, x, y].map(|t| t.shape()[1]);
    Ok(Plan::contiguous(&shape, dtype))
}

/// True for a matrix whose columns lie one after the other.
fn column_major(sizes: &[i64], strides: &[i64]) -> bool {
    matches!((sizes, strides), ([rows, _], [1, apart]) if rows == apart)
}

fn conj(s: Scalar) -> Scalar {
    match s {
        Scalar::Complex(c) => Scalar::Complex(c.conj()),
        s => s,
    }
}
