//! Gradients of losses, by the input.

use crate::cpu::map::{Ctx, FromCtx as _};
use crate::cpu::math::Elementary as _;
use crate::cpu::room::Room;
use crate::ops::batch;
use crate::ops::core::op::{Batch, Hidden, Lies, OpDef, Plan, Ret, compose, kernel};
use crate::ops::f;
use crate::ops::nn::classes::{check_images, check_vectors};
use crate::ops::nn::loss::Reduction;
use crate::ops::nn::margin_loss::{check_multi_margin, check_multilabel_margin};
use crate::ops::pointwise::rule::same;
use crate::{DType, Result, Tensor, cpu, ensure, kernels, map_op, map_row};
use torchlike_macros::operators;

map_op! { Mse, 3, [light] |g, x, y, c| T::ctx(c, 0) * (x - y) * g }

map_op! {
    SmoothL1, 3,
    [light] |g, x, y, c| if x - y <= -T::ctx(c, 1) {
        -T::ctx(c, 0) * g
    } else if x - y >= T::ctx(c, 1) {
        T::ctx(c, 0) * g
    } else {
        T::ctx(c, 0) * (x - y) * g / T::ctx(c, 1)
    }
}

map_op! {
    Huber, 3,
    [light] |g, x, y, c| if x - y <= -T::ctx(c, 1) {
        -T::ctx(c, 0) * g * T::ctx(c, 1)
    } else if x - y >= T::ctx(c, 1) {
        T::ctx(c, 0) * g * T::ctx(c, 1)
    } else {
        T::ctx(c, 0) * (x - y) * g
    }
}

map_op! { SoftMargin, 3, [float] |g, x, y, c| -T::ctx(c, 0) * y * (-y * x).sigmoid_() * g }

map_op! { Bce, 3, [light] |g, p, y, c| g * (p - y) / at_least((1.0 - p) * p, 1e-12) / T::ctx(c, 0) }

/// A divisor that is not too small.
#[inline(always)]
fn at_least<T: PartialOrd>(x: T, low: T) -> T {
    if x < low { low } else { x }
}

/// The factor that the mean of as many losses as `x` has elements brings, and a number of the loss.
fn factor(reduction: i64, x: &Tensor, number: f64) -> Ctx {
    let mean = Reduction::of_int(reduction) == Reduction::Mean;
    let scale = if mean { 1.0 / x.numel() as f64 } else { 1.0 };
    Ctx {
        f: [scale, number, 0.0],
        ..Ctx::default()
    }
}

fn mse_ctx(a: &calls::_GradMseLossBackward, _: DType) -> Result<Ctx> {
    let mut ctx = factor(a.reduction, a.input, 0.0);
    ctx.f[0] *= 2.0;
    Ok(ctx)
}

fn smooth_l1_ctx(a: &calls::_GradSmoothL1LossBackward, _: DType) -> Result<Ctx> {
    Ok(factor(a.reduction, a.input, a.beta))
}

fn huber_ctx(a: &calls::_GradHuberLossBackward, _: DType) -> Result<Ctx> {
    check_types(a.input, &[a.target, a.grad_output])?;
    Ok(factor(a.reduction, a.input, a.delta))
}

fn soft_margin_ctx(a: &calls::_GradSoftMarginLossBackward, _: DType) -> Result<Ctx> {
    Ok(factor(a.reduction, a.input, 0.0))
}

/// How many losses the mean is taken of.
fn bce_ctx(a: &calls::_GradBinaryCrossEntropyBackwardPlain, _: DType) -> Result<Ctx> {
    check_types(a.grad_output, &[a.input, a.target])?;
    let mean = Reduction::of_int(a.reduction) == Reduction::Mean;
    let count = if mean { a.input.numel() as f64 } else { 1.0 };
    Ok(Ctx {
        f: [count, 0.0, 0.0],
        ..Ctx::default()
    })
}

fn check_types(first: &Tensor, others: &[&Tensor]) -> Result<()> {
    for t in others {
        ensure!(
            t.dtype() == first.dtype(),
            Runtime,
            "Found dtype {} but expected {}",
            t.dtype().scalar_type(),
            first.dtype().scalar_type()
        );
    }
    Ok(())
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    map_row!(Mse "_grad.mse_loss_backward", 3, same, typed!(mse_ctx, DType), 0, "f0 * (b - c) * a", "(Tensor grad_output, Tensor self, Tensor target, int reduction)", "The gradient of mse_loss.").lies(Lies::Dense).samples("f32[()], f32[3, 4], f32[3, 4], 1; bf16[3, 4], bf16[3, 4], bf16[3, 4], 0").grad("grad_output: mse_loss_backward(grad, self, target, reduction); self: grad * grad_output * (2.0 / self.numel if reduction == 1 else 2.0); target: grad * grad_output * (-2.0 / self.numel if reduction == 1 else -2.0)").batch(Batch::As(typed!(|a, h| batch::averaged([a.grad_output, a.input, a.target], a.reduction, h, |[g, x, y], r| f::_grad_mse_loss_backward(g, x, y, r)), Hidden))),
    map_row!(SmoothL1 "_grad.smooth_l1_loss_backward", 3, same, typed!(smooth_l1_ctx, DType), 0, "b - c <= -f1 ? -f0 * a : b - c >= f1 ? f0 * a : f0 * (b - c) * a / f1", "(Tensor grad_output, Tensor self, Tensor target, int reduction, float beta)", "The gradient of smooth_l1_loss.").lies(Lies::Dense).samples("f32[()], f32[3, 4], f32[3, 4], 1, 0.5; f32[3], f32[3], f32[3], 0, 0.0").grad("grad_output: smooth_l1_loss_backward(grad, self, target, reduction, beta); self: _grad.smooth_l1_curve(grad * grad_output, self, target, reduction, beta); target: -_grad.smooth_l1_curve(grad * grad_output, self, target, reduction, beta)").batch(Batch::As(typed!(|a, h| batch::averaged([a.grad_output, a.input, a.target], a.reduction, h, |[g, x, y], r| f::_grad_smooth_l1_loss_backward(g, x, y, r, a.beta)), Hidden))),
    map_row!(Huber "_grad.huber_loss_backward", 3, same, typed!(huber_ctx, DType), 0, "b - c <= -f1 ? -f0 * a * f1 : b - c >= f1 ? f0 * a * f1 : f0 * (b - c) * a", "(Tensor grad_output, Tensor self, Tensor target, int reduction, float delta)", "The gradient of huber_loss.").lies(Lies::Dense).samples("f32[()], f32[3, 4], f32[3, 4], 1, 0.5; f32[3], f32[3], f32[3], 0, 1.0").grad("grad_output: huber_loss_backward(grad, self, target, reduction, delta); self: _grad.huber_curve(grad * grad_output, self, target, reduction, delta); target: -_grad.huber_curve(grad * grad_output, self, target, reduction, delta)").batch(Batch::As(typed!(|a, h| batch::averaged([a.grad_output, a.input, a.target], a.reduction, h, |[g, x, y], r| f::_grad_huber_loss_backward(g, x, y, r, a.delta)), Hidden))),
    map_row!(SoftMargin "_grad.soft_margin_loss_backward", 3, same, typed!(soft_margin_ctx, DType), 0, "-f0 * c * sigmoid_(-c * b) * a", "(Tensor grad_output, Tensor self, Tensor target, int reduction)", "The gradient of soft_margin_loss.").lies(Lies::GradientLast).samples("f32[()], f32[3, 4], f32[3, 4], 1; f32[3], f32[3], f32[3], 0").grad("grad_output: soft_margin_loss_backward(grad, self, target, reduction); self: grad * grad_output * target * target * sigmoid(-target * self) * (1 - sigmoid(-target * self)) * (1.0 / self.numel if reduction == 1 else 1.0)").batch(Batch::As(typed!(|a, h| batch::averaged([a.grad_output, a.input, a.target], a.reduction, h, |[g, x, y], r| f::_grad_soft_margin_loss_backward(g, x, y, r)), Hidden))),
    map_row!(Bce "_grad.binary_cross_entropy_backward#plain", 3, same, typed!(bce_ctx, DType), 0, "a * (b - c) / max_((T(1) - b) * b, T(1e-12)) / f0", "(Tensor grad_output, Tensor self, Tensor target, int reduction)", "The gradient of binary_cross_entropy without weights.").lies(Lies::Second).samples("f32[()], f32[3, 4].unit, f32[3, 4].unit, 1").through(typed!(plain_binary_cross_entropy)).batch(Batch::As(typed!(|a, h| batch::averaged([a.grad_output, a.input, a.target], a.reduction, h, batch::binary_cross_entropies), Hidden))),
    compose(
        "_grad.binary_cross_entropy_backward",
        "(Tensor grad_output, Tensor self, Tensor target, Tensor? weight=None, int reduction=1)",
        0,
        binary_cross_entropy,
        "The gradient of binary_cross_entropy.",
    ).samples("f32[()], f32[3, 4].unit, f32[3, 4].unit; f32[3], f32[3].unit, f32[3].unit, f32[3], 0"),
    compose(
        "_grad.huber_curve",
        "(Tensor grad, Tensor self, Tensor target, int reduction, float delta)",
        0,
        |a| {
            let curved = f::lt(&f::abs(&f::sub(a.input, a.target)?)?, a.delta)?;
            f::where_(&curved, &f::mul(a.grad, mean_factor(a.reduction, a.input))?, 0.0)
        },
        "The second derivative of huber_loss.",
    ).samples("f32[3, 4], f32[3, 4], f32[3, 4], 1, 0.5"),
    compose(
        "_grad.smooth_l1_curve",
        "(Tensor grad, Tensor self, Tensor target, int reduction, float beta)",
        0,
        |a| {
            if a.beta == 0.0 {
                return f::zeros_like(a.input);
            }
            let made = f::_grad_huber_curve(a.grad, a.input, a.target, a.reduction, a.beta)?;
            f::div(&made, a.beta)
        },
        "The second derivative of smooth_l1_loss.",
    ).samples("f32[3, 4], f32[3, 4], f32[3, 4], 1, 0.5; f32[3], f32[3], f32[3], 0, 0.0"),
    compose(
        "_grad.binary_cross_entropy_target",
        "(Tensor grad, Tensor self, Tensor target, Tensor? weight, int reduction)",
        0,
        |a| {
            let slope = f::logit(a.input)?;
            f::Neg::new(&slope).call_()?;
            weighed(a.grad, &slope, a.weight, a.reduction)
        },
        "The gradient of binary_cross_entropy by its target.",
    ).samples("f32[()], f32[3, 4].unit, f32[3, 4].unit, None, 1; f32[3], f32[3].unit, f32[3].unit, f32[3], 0"),
    compose(
        "_grad.binary_cross_entropy_with_logits",
        "(Tensor grad, Tensor self, Tensor target, Tensor? weight, Tensor? pos_weight, int reduction)",
        0,
        logits,
        "The gradient of binary_cross_entropy_with_logits.",
    ).samples("f32[()], f32[3, 4], f32[3, 4].unit, None, None, 1; f32[3], f32[3], f32[3].unit, f32[3], f32[3].pos, 0"),
    compose(
        "_grad.binary_cross_entropy_with_logits_target",
        "(Tensor grad, Tensor self, Tensor target, Tensor? weight, Tensor? pos_weight, int reduction)",
        0,
        logits_target,
        "The gradient of binary_cross_entropy_with_logits by its target.",
    ).samples("f32[()], f32[3, 4], f32[3, 4].unit, None, None, 1; f32[3], f32[3], f32[3].unit, f32[3], f32[3].pos, 2"),
    kernel(
        "_grad.nll_loss_backward",
        "(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index, Tensor total_weight)",
        0,
        body!(rule_nll, anywhere: run_nll, scratch: |a, (), outs, room| nll_scratch(room, outs, [a.grad_output, a.target, a.total_weight], a.weight, a.reduction)),
        "The gradient of nll_loss.",
    ).samples("f32[()], f32[2, 3], i64([0, 2]), None, 1, -100, f32(2.0); bf16[2], bf16[2, 3], i64([0, 2]), bf16[3].pos, 0, 0, bf16[()].pos")
    .grad("grad_output: _nn.nll_loss(grad, target, weight, reduction, ignore_index)[0]; self: zeros_like(grad)"),
    kernel(
        "_grad.nll_loss2d_backward",
        "(Tensor grad_output, Tensor self, Tensor target, Tensor? weight, int reduction, int ignore_index, Tensor total_weight)",
        0,
        body!(rule_nll2d, anywhere: run_nll2d, scratch: |a, (), outs, room| nll_scratch(room, outs, [a.grad_output, a.target, a.total_weight], a.weight, a.reduction)),
        "The gradient of nll_loss of images.",
    ).samples("f32[()], f32[2, 3, 2, 1], i64([[[0], [2]], [[1], [1]]]), None, 1, -100, f32(4.0)")
    .grad("grad_output: _nn.nll_loss(grad, target, weight, reduction, ignore_index)[0]; self: zeros_like(grad)"),
    kernel(
        "_grad.multi_margin_loss_backward",
        "(Tensor grad_output, Tensor self, Tensor target, Scalar p, Scalar margin, Tensor? weight=None, int reduction=1)",
        0,
        body!(rule_multi_margin, run_multi_margin, scratch: |a, _, outs, room| {
            room.dense(a.target, DType::I64)?;
            room.operands([Some(a.grad_output), Some(a.input), a.weight], outs, outs[0].dtype())
        }),
        "The gradient of multi_margin_loss.",
    ).samples("f32[()], f32[2, 3], i64([0, 2]), 1, 1; f64[2], f64[2, 3], i64([0, 2]), 2, 0.5, f64[3], 0")
    .refused(),
    kernel(
        "_grad.multilabel_margin_loss_backward",
        "(Tensor grad_output, Tensor self, Tensor target, int reduction, Tensor is_target)",
        0,
        body!(rule_multilabel_margin, run_multilabel_margin, scratch: |a, _, outs, room| {
            room.dense(a.target, DType::I64)?;
            let operands = [a.grad_output, a.input, a.is_target].map(Some);
            room.operands(operands, outs, outs[0].dtype())
        }),
        "The gradient of multilabel_margin_loss.",
    ).samples("f32[()], f32[2, 3], i64([[0, 2, -1], [1, -1, 0]]), 1, f32([[1, 0, 1], [0, 1, 0]])")
    .refused(),
];

fn binary_cross_entropy(a: &calls::_GradBinaryCrossEntropyBackward) -> Result<Tensor> {
    let out = f::_grad_binary_cross_entropy_backward_plain(
        a.grad_output,
        a.input,
        a.target,
        a.reduction,
    )?;
    match a.weight {
        Some(w) => f::mul(&out, w),
        None => Ok(out),
    }
}

/// The loop of binary_cross_entropy as operators that have gradients.
fn plain_binary_cross_entropy(a: &calls::_GradBinaryCrossEntropyBackwardPlain) -> Result<Ret> {
    let x = a.input;
    let spread = f::clamp_min(&f::mul(&f::rsub(x, 1.0)?, x)?, 1e-12)?;
    let made = f::div(&f::mul(a.grad_output, &f::sub(x, a.target)?)?, &spread)?;
    f::mul(&made, mean_factor(a.reduction, x)).map(Ret::One)
}

/// What the mean of as many losses as `x` has elements multiplies each by.
fn mean_factor(reduction: i64, x: &Tensor) -> f64 {
    factor(reduction, x, 0.0).f[0]
}

/// A gradient by what the loss of a truth value says of it, its weight and the reduction.
fn weighed(
    grad: &Tensor,
    slope: &Tensor,
    weight: Option<&Tensor>,
    reduction: i64,
) -> Result<Tensor> {
    let made = f::mul(grad, slope)?;
    let made = match weight {
        Some(w) => f::mul(&made, w)?,
        None => made,
    };
    if reduction == 1 {
        f::Div::new(&made, slope.numel()).call_()?;
    }
    Ok(made)
}

fn logits(a: &calls::_GradBinaryCrossEntropyWithLogits) -> Result<Tensor> {
    let (x, y) = (a.input, a.target);
    let slope = match a.pos_weight {
        Some(p) => {
            let t = f::mul(p, y)?;
            f::sub(
                &f::mul(&f::sub(&f::add(&t, 1.0)?, y)?, &f::sigmoid(x)?)?,
                &t,
            )?
        }
        None => f::sub(&f::sigmoid(x)?, y)?,
    };
    weighed(a.grad, &slope, a.weight, a.reduction)
}

fn logits_target(a: &calls::_GradBinaryCrossEntropyWithLogitsTarget) -> Result<Tensor> {
    let x = a.input;
    let slope = match a.pos_weight {
        Some(p) => {
            let log = f::nn_functional_logsigmoid(x)?;
            f::sub(&f::mul(&f::rsub(p, 1.0)?, &log)?, x)?
        }
        None => f::neg(x)?,
    };
    weighed(a.grad, &slope, a.weight, a.reduction)
}

/// What both gradients of nll_loss ask of their operands; the result is row-major.
fn check_nll(
    x: &Tensor,
    target: &Tensor,
    floats: [Option<&Tensor>; 3],
    total: &Tensor,
    kernel: &str,
) -> Result<Plan> {
    ensure!(
        total.numel() == 1,
        Runtime,
        "expected total_weight to be a  single element tensor, got: {} ({} elements)",
        total.shape(),
        total.numel()
    );
    ensure!(
        matches!(target.dtype(), DType::I64 | DType::U8),
        Runtime,
        "expected scalar type Long but found {}",
        target.dtype().scalar_type()
    );
    x.dtype().check_float_kernel(kernel)?;
    for t in floats.into_iter().flatten() {
        x.dtype().check_same(t.dtype())?;
    }
    Ok(Plan::contiguous(x.shape(), x.dtype()))
}

fn single(g: &Tensor) -> Result<()> {
    ensure!(
        g.ndim() <= 1 && g.numel() == 1,
        Runtime,
        "Expected a single element grad_output tensor, but got: {}",
        g.shape()
    );
    Ok(())
}

fn rule_nll(a: &calls::_GradNllLossBackward) -> Result<Plan> {
    let (g, x) = (a.grad_output, a.input);
    ensure!(
        x.ndim() == 1 || x.ndim() == 2,
        Runtime,
        "input tensor should be 1D or 2D"
    );
    let one = x.ndim() == 1 && a.target.ndim() == 1;
    ensure!(
        !one,
        Runtime,
        "size mismatch (got input: {}, target: {})",
        x.shape(),
        a.target.shape()
    );
    check_vectors(x, a.target, None)?;
    ensure!(
        a.weight
            .is_none_or(|w| w.numel() == x.shape()[x.ndim() - 1]),
        Runtime,
        "weight tensor should be defined either for all or no classes"
    );
    if a.reduction == 0 && x.ndim() == 2 {
        ensure!(
            g.ndim() == 1 && g.numel() == x.shape()[0],
            Runtime,
            "Expected a tensor of dimension 1 and tensor.size[0] == {} but got: dimension {} and tensor.size[0] = {}",
            x.shape()[0],
            g.ndim(),
            g.shape().first().copied().unwrap_or(0)
        );
    } else {
        single(g)?;
    }
    let floats = [Some(g), a.weight, Some(a.total_weight)];
    check_nll(
        x,
        a.target,
        floats,
        a.total_weight,
        "nll_loss_backward_out_frame",
    )
}

fn rule_nll2d(a: &calls::_GradNllLoss2dBackward) -> Result<Plan> {
    let (g, x, target) = (a.grad_output, a.input, a.target);
    ensure!(
        target.ndim() == 3,
        Runtime,
        "only batches of spatial targets supported (3D tensors) but got targets of dimension: {}",
        target.ndim()
    );
    ensure!(
        x.ndim() == 4,
        Runtime,
        "only batches of spatial inputs supported (4D tensors), but got input of dimension: {}",
        x.ndim()
    );
    check_images(x, target, a.weight)?;
    if a.reduction == 0 {
        ensure!(
            g.ndim() == 3,
            Runtime,
            "grad_output must have same dimension as target (3) but got dimension: {}",
            g.shape()
        );
        ensure!(
            g.shape() == target.shape(),
            Runtime,
            "size mismatch (got grad_output: {} target: {}",
            g.shape(),
            target.shape()
        );
    } else {
        single(g)?;
    }
    let floats = [Some(g), a.weight, Some(a.total_weight)];
    check_nll(
        x,
        target,
        floats,
        a.total_weight,
        "nll_loss2d_backward_out_frame",
    )
}

fn nll_scratch(
    room: &mut Room,
    outs: &[Tensor],
    [g, target, total]: [&Tensor; 3],
    weight: Option<&Tensor>,
    reduction: i64,
) -> Result<()> {
    let total = (reduction == 1).then_some(total);
    room.all_dense([Some(g), weight, total], DType::F64)?;
    room.dense(target, DType::I64)?;
    room.operands([], outs, outs[0].dtype())
}

macro_rules! run_nll {
    ($name:ident, $call:ident) => {
        fn $name(a: &calls::$call, (): &(), outs: &[Tensor]) -> Result<()> {
            let total = (a.reduction == 1).then_some(a.total_weight);
            kernels::loss::nll_backward(
                &outs[0],
                a.grad_output,
                a.target,
                a.weight,
                total,
                a.ignore_index,
            )
        }
    };
}
run_nll!(run_nll, _GradNllLossBackward);
run_nll!(run_nll2d, _GradNllLoss2dBackward);

/// The gradient of each sample's loss: one number, or one a sample.
fn check_gradients(g: &Tensor, samples: i64) -> Result<()> {
    ensure!(
        g.numel() == 1 || g.numel() == samples,
        Runtime,
        "expected a gradient for all of {samples} samples or for each, but got {}",
        g.shape()
    );
    Ok(())
}

fn rule_multi_margin(a: &calls::_GradMultiMarginLossBackward) -> Result<(Plan, i64)> {
    let x = a.input;
    let p = a.p.to_i64();
    ensure!(
        p == 1 || p == 2,
        Runtime,
        "only p == 1 and p == 2 supported"
    );
    check_multi_margin(
        x,
        a.target,
        a.weight,
        "multi_margin_loss_backward_cpu_kernel",
    )?;
    check_gradients(a.grad_output, a.target.numel())?;
    Ok((Plan::contiguous(x.shape(), x.dtype()), p))
}

fn run_multi_margin(
    a: &calls::_GradMultiMarginLossBackward,
    p: &i64,
    outs: &[Tensor],
) -> Result<()> {
    cpu::loss_backward::multi_margin(
        &outs[0],
        [a.grad_output, a.input, a.target],
        *p,
        a.margin.to_f64(),
        a.weight,
        a.reduction == 1,
    )
}

fn rule_multilabel_margin(a: &calls::_GradMultilabelMarginLossBackward) -> Result<Plan> {
    let x = a.input;
    check_multilabel_margin(x, a.target, "multilabel_margin_loss_backward_out_frame")?;
    ensure!(
        a.is_target.shape() == a.target.shape(),
        Runtime,
        "Expected tensor for argument #3 'target' to have same size as tensor for argument #5 'is_target'; but {} does not equal {} \
         (while checking arguments for multilabel_margin_loss_backward_cpu_template)",
        a.target.shape(),
        a.is_target.shape()
    );
    let samples = if x.ndim() == 2 { x.shape()[0] } else { 1 };
    check_gradients(a.grad_output, samples)?;
    Ok(Plan::contiguous(x.shape(), x.dtype()))
}

fn run_multilabel_margin(
    a: &calls::_GradMultilabelMarginLossBackward,
    (): &(),
    outs: &[Tensor],
) -> Result<()> {
    let operands = [a.grad_output, a.input, a.target, a.is_target];
    cpu::loss_backward::multilabel_margin(&outs[0], operands, a.reduction == 1)
}
