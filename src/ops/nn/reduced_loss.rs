//! Losses of pairs of elements, reduced: each is one operator, as in PyTorch, whatever it is made of here.

use crate::ops::core::misfit;
use crate::ops::core::op::{Cast, F, OpDef, Ret, compose};
use crate::ops::f;
use crate::ops::nn::loss::{Reduction, reduced};
use crate::{DType, Result, Tensor, dtype, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_nn.mse_loss",
        "(Tensor self, Tensor target, int reduction)",
        0,
        |a| reduced(f::_nn_mse(a.input, a.target)?, Reduction::of_int(a.reduction)),
        "Squared differences, reduced.",
    )
    .samples("f32[2, 3], f32[2, 3], 1; f32[2, 3], f32[3], 0; f32[3], f32[3], 2")
    .grad("self: mse_loss_backward(grad, self, target, reduction); target: mse_loss_backward(grad, target, self, reduction)"),
    compose(
        "_nn.smooth_l1_loss",
        "(Tensor self, Tensor target, int reduction, float beta)",
        0,
        |a| reduced(f::_nn_smooth_l1(a.input, a.target, a.beta)?, Reduction::of_int(a.reduction)),
        "Differences, squared where small, reduced.",
    )
    .samples("f32[2, 3], f32[2, 3], 1, 0.5; f32[3], f32[3], 0, 1.0")
    .grad("SmoothL1LossBackward0 | self: smooth_l1_loss_backward(grad, self, target, reduction, beta); target: smooth_l1_loss_backward(grad, target, self, reduction, beta)"),
    compose(
        "_nn.huber_loss",
        "(Tensor self, Tensor target, int reduction, float delta)",
        0,
        |a| reduced(f::_nn_huber(a.input, a.target, a.delta)?, Reduction::of_int(a.reduction)),
        "Differences, squared where small, reduced.",
    )
    .samples("f32[2, 3], f32[2, 3], 1, 0.5; f32[3], f32[3], 0, 1.0")
    .grad("self: huber_loss_backward(grad, self, target, reduction, delta); target: huber_loss_backward(grad, target, self, reduction, delta)"),
    compose(
        "_nn.soft_margin_loss",
        "(Tensor self, Tensor target, int reduction)",
        0,
        |a| {
            let z = f::mul(&f::neg(a.input)?, a.target)?;
            ensure!(
                z.shape() == a.input.shape(),
                Runtime,
                "output with shape {} doesn't match the broadcast shape {}",
                a.input.shape(),
                z.shape()
            );
            // PyTorch computes in place: losses have the type of the scores.
            let d = a.input.dtype();
            let z = f::exp(&written_as(d, z)?)?;
            let losses = f::log1p(&written_as(d, z)?)?;
            reduced(written_as(d, losses)?, Reduction::of_int(a.reduction))
        },
        "log(1 + exp(-target * input)), reduced.",
    )
    .samples("f32[2, 3], f32([1., -1., 1.]), 1; f32[3], f32([1., -1., 1.]), 0")
    .grad("self: soft_margin_loss_backward(grad, self, target, reduction); target: never"),
    compose(
        "_nn.binary_cross_entropy",
        "(Tensor self, Tensor target, Tensor? weight, int reduction)",
        0,
        |a| {
            let mut losses = f::_nn_bce(a.input, a.target)?;
            if let Some(w) = a.weight {
                losses = f::mul(&losses, w)?;
            }
            reduced(losses, Reduction::of_int(a.reduction))
        },
        "Cross entropies of truth values, reduced.",
    )
    .samples("f32[2, 3].unit, f32[2, 3].unit, None, 1; f32[3].unit, f32[3].unit, f32[3].pos, 0")
    .grad("self: binary_cross_entropy_backward(grad, self, target, weight, reduction); target: _grad.binary_cross_entropy_target(grad, self, target, weight, reduction); weight: never"),
    compose(
        "binary_cross_entropy_with_logits",
        "(Tensor self, Tensor target, Tensor? weight=None, Tensor? pos_weight=None, int reduction=Mean)",
        F,
        logits,
        "Cross entropy of truth values given as logits.",
    )
    .samples("f32[2, 3], f32[2, 3].unit; f32[2, 3], f32[2, 3].unit, f32[3], f32[3].pos, 0")
    .grad("self: _grad.binary_cross_entropy_with_logits(grad, self, target, weight, pos_weight, reduction); target: _grad.binary_cross_entropy_with_logits_target(grad, self, target, weight, pos_weight, reduction); weight, pos_weight: never")
    .amp(Cast::Single, Cast::Single),
];

fn logits(a: &calls::BinaryCrossEntropyWithLogits) -> Result<Ret> {
    let (x, target) = (a.input, a.target);
    let mut log = f::nn_functional_logsigmoid(x)?;
    if let Some(p) = a.pos_weight {
        let factor = f::add(&f::mul(&f::sub(p, 1i64)?, target)?, 1i64)?;
        log = written_as(log.dtype(), f::mul(&factor, &log)?)?;
    }
    // PyTorch computes in place: losses have the type of the targets.
    let rest = f::rsub(target, 1i64)?;
    let d = rest.dtype();
    let mut losses = written_as(d, f::mul(&rest, x)?)?;
    losses = written_as(d, f::sub(&losses, &log)?)?;
    if let Some(w) = a.weight {
        losses = written_as(d, f::mul(&losses, w)?)?;
    }
    reduced(losses, Reduction::of_int(a.reduction))
}

/// A result as a tensor of a type would have it, if it was written there.
fn written_as(d: DType, t: Tensor) -> Result<Tensor> {
    if t.dtype() == d {
        return Ok(t);
    }
    if !dtype::can_cast(t.dtype(), d) {
        return Err(misfit::uncastable(t.dtype(), d));
    }
    f::to_dtype(&t, d)
}
