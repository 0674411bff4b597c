//! The gradient of ctc_loss.

use crate::cpu::ctc::{self as kernels, Left};
use crate::ops::core::op::{OpDef, Plan, compose, kernel};
use crate::ops::f;
use crate::ops::nn::ctc::{check, lengths, sequences};
use crate::{DType, Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_grad._ctc_loss_backward",
        "(Tensor grad, Tensor log_probs, Tensor targets, int[] input_lengths, int[] target_lengths, Tensor neg_log_likelihood, Tensor log_alpha, int blank, bool zero_infinity=False)",
        0,
        body!(rule, run, scratch: |a, _, outs, room| kernels::gradient_room(room, &outs[0], &sequences!(a), &left(a))),
        "The gradient of ctc_loss.",
    ).samples("f32[2], f32[4, 2, 3], i64([[1, 2], [2, 1]]), [4, 3], [2, 1], f32[2], f32[2, 4, 5], 0")
    .refused(),
    compose(
        "_grad._ctc_loss_backward#tensors",
        "(Tensor grad, Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, Tensor neg_log_likelihood, Tensor log_alpha, int blank, bool zero_infinity=False)",
        0,
        |a| {
            let (steps, labels) = lengths(a.input_lengths, a.target_lengths)?;
            let (losses, alpha) = (a.neg_log_likelihood, a.log_alpha);
            f::_GradCtcLossBackward::new(a.grad, a.log_probs, a.targets, &steps, &labels, losses, alpha, a.blank)
                .zero_infinity(a.zero_infinity)
                .call()
        },
        "The gradient of ctc_loss.",
    ).samples("f32[2], f32[4, 2, 3], i64([[1, 2], [2, 1]]), i64([4, 3]), i64([2, 1]), f32[2], f32[2, 4, 5], 0, True"),
];

fn rule(a: &calls::_GradCtcLossBackward) -> Result<Plan> {
    let x = a.log_probs;
    let longest = check(&sequences!(a), a.blank)?;
    x.dtype().check_kernel(
        matches!(x.dtype(), DType::F32 | DType::F64),
        "ctc_loss_backward_cpu",
    )?;
    let (steps, n) = (x.shape()[0], x.shape()[1]);
    let shapes: [(&Tensor, &[i64]); 3] = [
        (a.grad, &[n]),
        (a.neg_log_likelihood, &[n]),
        (a.log_alpha, &[n, steps, 2 * longest + 1]),
    ];
    for (t, shape) in shapes {
        ensure!(
            t.shape()[..] == *shape,
            Runtime,
            "ctc_loss_backward: expected a tensor of shape {}, but got {}",
            crate::Dims::new(shape),
            t.shape()
        );
    }
    Ok(Plan::contiguous(x.shape(), x.dtype()))
}

fn run(a: &calls::_GradCtcLossBackward, (): &(), outs: &[Tensor]) -> Result<()> {
    kernels::gradient(&outs[0], &sequences!(a), &left(a))
}

fn left<'a>(a: &calls::_GradCtcLossBackward<'a>) -> Left<'a> {
    Left {
        g: a.grad,
        losses: a.neg_log_likelihood,
        alpha: a.log_alpha,
        zero_infinity: a.zero_infinity,
    }
}
