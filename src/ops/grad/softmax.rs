//! Gradients of softmax and log_softmax, by their results.

use crate::ops::core::op::{F, OpDef, Plan, kernel};
use crate::ops::core::rules;
use crate::{DType, Result, Tensor, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_softmax_backward_data",
        "(Tensor grad_output, Tensor output, int dim, dtype input_dtype)",
        F,
        body!(
            |a| rule(a.grad_output, a.output, a.dim, a.input_dtype, false),
            anywhere: |a, dim, outs| kernels::softmax::backward(&outs[0], a.grad_output, a.output, *dim, false),
            scratch: |a, _, outs, room| room.operands([Some(a.grad_output), Some(a.output)], outs, outs[0].dtype())
        ),
        "The gradient of softmax.",
    ).samples("f32[3, 4], f32[3, 4], 1, f32; bf16[3, 4, 2], bf16[3, 4, 2], 1, bf16; f64[()], f64[()], 0, f64")
    .grad("grad_output: _softmax_backward_data(grad, output, dim, input_dtype); output: grad * grad_output - (output * grad_output).sum([dim], True) * grad - grad_output * (output * grad).sum([dim], True)"),
    kernel(
        "_log_softmax_backward_data",
        "(Tensor grad_output, Tensor output, int dim, dtype input_dtype)",
        F,
        body!(
            |a| rule(a.grad_output, a.output, a.dim, a.input_dtype, true),
            anywhere: |a, dim, outs| kernels::softmax::backward(&outs[0], a.grad_output, a.output, *dim, true),
            scratch: |a, _, outs, room| room.operands([Some(a.grad_output), Some(a.output)], outs, outs[0].dtype())
        ),
        "The gradient of log_softmax.",
    ).samples("f32[3, 4], f32[3, 4], 1, f32; bf16[3, 4, 2], bf16[3, 4, 2], 1, bf16; f64[()], f64[()], 0, f64")
    .grad("grad_output: grad - (grad * output.exp()).sum([dim], True); output: -grad_output.sum([dim], True) * output.exp() * grad"),
];

/// The layout of the result, and the dimension.
fn rule(g: &Tensor, y: &Tensor, dim: i64, input: DType, log: bool) -> Result<(Plan, usize)> {
    let d = rules::dim(g, dim)?;
    let name = if log { "log_softmax" } else { "softmax" };
    ensure!(
        g.shape() == y.shape(),
        Runtime,
        "Expected tensor for argument #1 'grad' to have same size as tensor for argument #2 'output'; but {} does not equal {} \
         (while checking arguments for {name}_backward)",
        g.shape(),
        y.shape()
    );
    let last = if g.ndim() == 0 || d == g.ndim() - 1 {
        "_lastdim"
    } else {
        ""
    };
    g.dtype()
        .check_float_kernel(format!("{name}_backward{last}_kernel_impl"))?;
    let result = if g.dtype() == DType::F32 && input == DType::F16 {
        input
    } else {
        g.dtype()
    };
    g.dtype().check_same(y.dtype())?;
    Ok((Plan::contiguous(g.shape(), result), d))
}
