//! Losses of pairs of elements; `likelihood`, `margin_loss` and `classes` have the others.

use crate::cpu::map::{Ctx, FromCtx as _};
use crate::cpu::math::Elementary as _;
use crate::ops::core::op::{Cast, F, OpDef, Ret, compose};
use crate::ops::f;
use crate::ops::pointwise::rule::same;
use crate::{DType, Device, Result, Tensor, bail, cpu, ensure, map_op, map_row, warning};
use torchlike_macros::operators;

map_op! { Mse, 2, [light] |x, y, c| (x - y) * (x - y) }

map_op! {
    SmoothL1, 2,
    [light] |x, y, c| if (x - y).abs() < T::ctx(c, 0) {
        0.5 * (x - y) * (x - y) / T::ctx(c, 0)
    } else {
        (x - y).abs() - 0.5 * T::ctx(c, 0)
    }
}

map_op! {
    Huber, 2,
    [light] |x, y, c| if (x - y).abs() <= T::ctx(c, 0) {
        0.5 * (x - y) * (x - y)
    } else {
        T::ctx(c, 0) * ((x - y).abs() - 0.5 * T::ctx(c, 0))
    }
}

map_op! { Bce, 2, [float] |x, y, c| (y - 1.0) * floor100((-x).log1p_()) - y * floor100(x.log_()) }

map_op! { ClampMin, 1, [light] |x, c| if x < T::ctx(c, 0) { T::ctx(c, 0) } else { x } }

/// Logarithms in binary cross entropy do not fall below -100.
#[inline(always)]
fn floor100<T: PartialOrd + From<i8>>(x: T) -> T {
    if x < T::from(-100) { T::from(-100) } else { x }
}

/// One number for a loop.
fn number(v: f64) -> Result<Ctx> {
    Ok(Ctx {
        f: [v, 0.0, 0.0],
        ..Ctx::default()
    })
}

fn bound(a: &calls::_NnClampMin, _: DType) -> Result<Ctx> {
    number(a.min)
}

fn beta(a: &calls::_NnSmoothL1, _: DType) -> Result<Ctx> {
    ensure!(
        a.beta >= 0.0,
        Runtime,
        "smooth_l1_loss does not support negative values for beta."
    );
    number(a.beta)
}

fn delta(a: &calls::_NnHuber, _: DType) -> Result<Ctx> {
    ensure!(
        a.delta > 0.0,
        Runtime,
        "huber_loss does not support non-positive values for delta."
    );
    number(a.delta)
}

fn probabilities(a: &calls::_NnBce, _: DType) -> Result<()> {
    let wrong = [first_beyond(a.input)?, first_beyond(a.target)?];
    let which = match wrong {
        [None, None] => return Ok(()),
        // PyTorch goes from element to element, and asks the input first.
        [Some(i), j] if j.is_none_or(|j| i <= j) => "input",
        _ => "target",
    };
    bail!(Runtime, "all elements of {which} should be between 0 and 1")
}

/// Where the first value is that is no probability.
fn first_beyond(t: &Tensor) -> Result<Option<usize>> {
    let t = t.to_device(Device::CPU)?;
    let mut found = None;
    crate::with_dtype!(t.dtype(), [half float] => T, {
        let beyond = |v: T| !(0.0..=1.0).contains(&crate::Element::to_scalar(v).to_f64());
        if cpu::memory::any_element::<T>(&t, beyond) {
            let t = cpu::copy::dense(&t, t.dtype())?;
            found = cpu::slice::<T>(&t).iter().position(|v| beyond(*v));
        }
    }, else {});
    Ok(found)
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    map_row!(Mse "_nn.mse", 2, same, 0, "(a - b) * (a - b)", "(Tensor self, Tensor target)", "Squared differences.").samples("f32[2, 3], f32[2, 3]").grad("MseLossBackward0 | self: mse_loss_backward(grad, self, target, 0); target: mse_loss_backward(grad, target, self, 0)"),
    map_row!(SmoothL1 "_nn.smooth_l1", 2, same, typed!(beta, DType), 0, "abs_(a - b) < f0 ? T(0.5) * (a - b) * (a - b) / f0 : abs_(a - b) - T(0.5) * f0", "(Tensor self, Tensor target, float beta)", "Differences, squared where small.").samples("f32[2, 3], f32[2, 3], 0.5").grad("SmoothL1LossBackward0 | self: smooth_l1_loss_backward(grad, self, target, 0, beta); target: smooth_l1_loss_backward(grad, target, self, 0, beta)"),
    map_row!(Huber "_nn.huber", 2, same, typed!(delta, DType), 0, "abs_(a - b) <= f0 ? T(0.5) * (a - b) * (a - b) : f0 * (abs_(a - b) - T(0.5) * f0)", "(Tensor self, Tensor target, float delta)", "Differences, squared where small.").samples("f32[2, 3], f32[2, 3], 0.5").grad("HuberLossBackward0 | self: huber_loss_backward(grad, self, target, 0, delta); target: huber_loss_backward(grad, target, self, 0, delta)"),
    map_row!(Bce "_nn.bce", 2, same, check typed!(probabilities, DType), 0, "(b - T(1)) * floor100_(log1p(-a)) - b * floor100_(log(a))", "(Tensor self, Tensor target)", "Cross entropies of truth values.").samples("f32[2, 3].unit, f32[2, 3].unit").grad("BinaryCrossEntropyBackward0 | self: binary_cross_entropy_backward(grad, expand(self, result.sizes), target, None, 0); target: grad * -logit(self)"),
    map_row!(ClampMin "_nn.clamp_min", 1, same, typed!(bound, DType), 0, "a < T(f0) ? T(f0) : a", "(Tensor self, float min)", "Each element, or a bound where it is less.").samples("f32[2, 3], 0.5").grad("ClampMinBackward0 | self: where(self.ge(min), grad, 0)"),
    map_row!(ClampMin "_nn.bounded", 1, same, typed!(|a, _| number(a.min), DType), 0, "a < T(f0) ? T(f0) : a", "(Tensor self, float min)", "Each element, or a bound where it is less, whose gradient knows of no bound.").samples("f32[2, 3].pos, 0.0").grad("CloneBackward0 | self: grad"),
    compose(
        "nn.functional.mse_loss",
        "(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean', Tensor? weight=None)",
        F,
        |a| {
            let r = checked(
                a.input,
                a.target,
                a.weight,
                (a.size_average, a.reduce, a.reduction),
            )?;
            match a.weight {
                None => {
                    let (x, y) = (spread(a.input, a.target)?, spread(a.target, a.input)?);
                    f::_nn_mse_loss(&x, &y, r as i64).map(Ret::from)
                }
                weight => weighted(f::pow(&f::sub(a.input, a.target)?, 2i64)?, weight, r),
            }
        },
        "The mean of squared differences.",
    ).samples("f32[5, 5], f32[5, 5]; f32[5], f32[5], reduction='sum'")
    .amp(Cast::Single, Cast::Single),
    compose(
        "nn.functional.l1_loss",
        "(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean', Tensor? weight=None)",
        F,
        |a| {
            let r = checked(
                a.input,
                a.target,
                a.weight,
                (a.size_average, a.reduce, a.reduction),
            )?;
            weighted(f::abs(&f::sub(a.input, a.target)?)?, a.weight, r)
        },
        "The mean of absolute differences.",
    ).samples("f32[5], f32[5]; f32[5], f32[5], reduction='sum'")
    .amp(Cast::Single, Cast::Single),
    compose(
        "nn.functional.smooth_l1_loss",
        "(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean', float beta=1.0)",
        F,
        smooth_l1,
        "The mean of differences, squared where small.",
    ).samples("f32[5], f32[5]; f32[5], f32[5], reduction='none'")
    .amp(Cast::Single, Cast::Single),
    compose(
        "nn.functional.huber_loss",
        "(Tensor input, Tensor target, str reduction='mean', float delta=1.0, Tensor? weight=None)",
        F,
        huber,
        "The mean of differences, squared where small.",
    ).samples("f32[5], f32[5], delta=8.6981; f32[5], f32[5], reduction='none', delta=8.6981")
    .amp(Cast::Single, Cast::Single),
    compose(
        "nn.functional.kl_div",
        "(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean', bool log_target=False)",
        F,
        kl_div,
        "The divergence of two distributions.",
    ).samples("f32[2], f32[2], reduction='batchmean', log_target=True")
    .amp(Cast::Single, Cast::Single),
    compose(
        "kl_div",
        "(Tensor self, Tensor target, int reduction=Mean, *, bool log_target=False)",
        F,
        |a| {
            reduced(
                divergences(a.input, a.target, a.log_target)?,
                Reduction::of_int(a.reduction),
            )
        },
        "The divergence of two distributions.",
    ).samples("f32[2, 3], f32[2, 3].unit; f32[2, 3], f32[2, 3], 2, log_target=True")
    .amp(Cast::Single, Cast::Single),
    compose(
        "nn.functional.binary_cross_entropy",
        "(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        binary_cross_entropy,
        "Cross entropy of truth values.",
    ).samples(
        "f32[5, 5].unit, f32[5, 5].unit; \
         f32[5, 5].unit, f32[5, 5].unit, reduction='sum', weight=f32[5, 5].unit",
    )
    .amp(Cast::Single, Cast::Refused),
    compose(
        "nn.functional.binary_cross_entropy_with_logits",
        "(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, bool? reduce=None, str reduction='mean', Tensor? pos_weight=None)",
        F,
        checked_logits,
        "Cross entropy of truth values given as logits.",
    ).samples(
        "f32[5, 5], f32[5, 5], weight=f32[1, 5]; \
         f32[5, 5], f32[5, 5], reduction='none', weight=f32[1, 5]",
    )
    .amp(Cast::Single, Cast::Single),
];

/// What becomes of the losses of the elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reduction {
    /// Kept.
    None = 0,
    /// Their mean.
    Mean = 1,
    /// Their sum.
    Sum = 2,
}

impl Reduction {
    /// From PyTorch's number.
    #[must_use]
    pub fn of_int(n: i64) -> Self {
        match n {
            1 => Self::Mean,
            2 => Self::Sum,
            _ => Self::None,
        }
    }

    /// From its name.
    ///
    /// # Errors
    /// If there is none of that name.
    pub fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "none" => Self::None,
            "mean" => Self::Mean,
            "elementwise_mean" => {
                warning::say(
                    "reduction='elementwise_mean' is deprecated. Please use reduction='mean' instead.",
                );
                Self::Mean
            }
            "sum" => Self::Sum,
            other => bail!(Value, "{other} is not a valid value for reduction"),
        })
    }
}

/// `size_average`, `reduce` and `reduction` of a loss.
pub type Asked<'a> = (Option<bool>, Option<bool>, &'a str);

/// The reduction that is asked for.
///
/// # Errors
/// If there is none of that name.
pub fn legacy((size_average, reduce, name): Asked) -> Result<Reduction> {
    if size_average.is_none() && reduce.is_none() {
        return Reduction::named(name);
    }
    let (word, r) = match (size_average.unwrap_or(true), reduce.unwrap_or(true)) {
        (true, true) => ("mean", Reduction::Mean),
        (false, true) => ("sum", Reduction::Sum),
        _ => ("none", Reduction::None),
    };
    warning::say(&format!(
        "size_average and reduce args will be deprecated, please use reduction='{word}' instead."
    ));
    Ok(r)
}

/// Applies a reduction.
///
/// # Errors
/// If the dtype has no mean.
pub fn reduced(t: Tensor, r: Reduction) -> Result<Ret> {
    Ok(match r {
        Reduction::None => t,
        Reduction::Mean => f::mean(&t)?,
        Reduction::Sum => f::sum(&t)?,
    }
    .into())
}

pub(in crate::ops) fn clamp_min(t: &Tensor, min: f64) -> Result<Tensor> {
    if t.dtype().is_integral(true) {
        return f::clamp_min(t, min as i64);
    }
    f::_nn_clamp_min(t, min)
}

/// As `clamp_min`, of what is written without gradients.
pub(in crate::ops) fn bounded(t: &Tensor, min: f64) -> Result<Tensor> {
    if t.dtype().is_integral(true) {
        return f::clamp_min(t, min as i64);
    }
    f::_nn_bounded(t, min)
}

/// Applies a reduction; losses with a weight for each element divide by the weights' sum.
fn weighted(losses: Tensor, weight: Option<&Tensor>, r: Reduction) -> Result<Ret> {
    let Some(weight) = weight else {
        return reduced(losses, r);
    };
    let w = f::mul(&losses, weight)?;
    Ok(match r {
        Reduction::None => w,
        Reduction::Sum => f::sum(&w)?,
        Reduction::Mean => f::div(&f::sum(&w)?, &f::sum(weight)?)?,
    }
    .into())
}

/// One operand with the shape of both: a mean is one over the elements that are compared.
fn spread(t: &Tensor, other: &Tensor) -> Result<Tensor> {
    let shape = crate::dims::broadcast(t.shape(), other.shape())?;
    if *t.shape() == shape {
        return Ok(t.clone());
    }
    f::expand(t, &shape)
}

fn check_weight(input: &Tensor, weight: &Tensor) -> Result<()> {
    ensure!(
        weight.shape() == input.shape(),
        Value,
        "Weights and input must have the same size."
    );
    Ok(())
}

/// The reduction of a loss with weights, which PyTorch names in words of its own.
fn weighted_mode(name: &str) -> Result<Reduction> {
    ensure!(
        matches!(name, "none" | "mean" | "sum"),
        Value,
        "Invalid reduction mode: {name}. Expected one of 'none', 'mean', 'sum'."
    );
    Reduction::named(name)
}

/// Warns of a target that is broadcast with the input.
fn tell_sizes(input: &Tensor, target: &Tensor) {
    if target.shape() != input.shape() {
        warning::say(&format!(
            "Using a target size ({}) that is different to the input size ({}). This will likely lead to incorrect results \
             due to broadcasting. Please ensure they have the same size.",
            torch_size(target),
            torch_size(input)
        ));
    }
}

/// The checks of losses that may have a weight for each element, and their reduction.
fn checked(x: &Tensor, y: &Tensor, weight: Option<&Tensor>, asked: Asked) -> Result<Reduction> {
    tell_sizes(x, y);
    let Some(w) = weight else {
        return legacy(asked);
    };
    crate::dims::broadcast(x.shape(), y.shape())?;
    check_weight(x, w)?;
    match asked {
        (None, None, name) => weighted_mode(name),
        _ => legacy(asked),
    }
}

fn smooth_l1(a: &calls::NnFunctionalSmoothL1Loss) -> Result<Ret> {
    let (x, y) = (a.input, a.target);
    tell_sizes(x, y);
    let r = legacy((a.size_average, a.reduce, a.reduction))?;
    if a.beta == 0.0 {
        return reduced(f::abs(&f::sub(x, y)?)?, r);
    }
    f::_nn_smooth_l1_loss(&spread(x, y)?, &spread(y, x)?, r as i64, a.beta).map(Ret::from)
}

fn huber(a: &calls::NnFunctionalHuberLoss) -> Result<Tensor> {
    let (x, y) = (a.input, a.target);
    tell_sizes(x, y);
    let r = match a.weight {
        Some(w) => {
            check_weight(x, w)?;
            weighted_mode(a.reduction)?
        }
        None => Reduction::named(a.reduction)?,
    };
    let made = match a.weight {
        None => f::_nn_huber_loss(&spread(x, y)?, &spread(y, x)?, r as i64, a.delta)?,
        Some(w) => {
            let losses = f::_nn_huber_loss(x, y, Reduction::None as i64, a.delta)?;
            reduced(f::mul(&losses, w)?, r)?.one()?
        }
    };
    // The result has the input's type whatever the target's.
    made.to_dtype(x.dtype())
}

fn divergences(x: &Tensor, target: &Tensor, log_target: bool) -> Result<Tensor> {
    ensure!(
        !x.dtype().is_complex() && !target.dtype().is_complex(),
        Runtime,
        "kl_div: Complex inputs not supported."
    );
    ensure!(
        !x.dtype().is_integral(true) && !target.dtype().is_integral(true),
        Runtime,
        "kl_div: Integral inputs not supported."
    );
    if log_target {
        let gap = f::sub(target, x)?;
        return f::mul(&f::exp(target)?, &gap);
    }
    let product = f::mul(target, x)?;
    f::sub(&f::xlogy(target, target)?, &product)
}

fn kl_div(a: &calls::NnFunctionalKlDiv) -> Result<Ret> {
    let asked = (a.size_average, a.reduce, a.reduction);
    let batch = asked == (None, None, "batchmean");
    if asked == (None, None, "mean") {
        warning::say(
            "reduction: 'mean' divides the total loss by both the batch size and the support size.'batchmean' divides only by the \
             batch size, and aligns with the KL div math definition.'mean' will be changed to behave the same as 'batchmean' in the \
             next major release.",
        );
    }
    let r = if batch {
        Reduction::Sum
    } else {
        legacy(asked)?
    };
    let out = reduced(divergences(a.input, a.target, a.log_target)?, r)?;
    if batch && a.input.ndim() > 0 {
        return f::div(&out.one()?, a.input.shape()[0]).map(Ret::from);
    }
    Ok(out)
}

pub(in crate::ops) fn torch_size(t: &Tensor) -> String {
    format!("torch.Size({})", t.shape())
}

fn binary_cross_entropy(a: &calls::NnFunctionalBinaryCrossEntropy) -> Result<Tensor> {
    let (x, target) = (a.input, a.target);
    let r = legacy((a.size_average, a.reduce, a.reduction))?;
    ensure!(
        x.shape() == target.shape(),
        Value,
        "Using a target size ({}) that is different to the input size ({}) is deprecated. Please ensure they have the same size.",
        torch_size(target),
        torch_size(x)
    );
    let weight = a
        .weight
        .map(|w| f::expand(w, &crate::dims::broadcast(target.shape(), w.shape())?))
        .transpose()?;
    for t in [Some(target), weight.as_ref()].into_iter().flatten() {
        ensure!(
            t.dtype() == x.dtype(),
            Runtime,
            "Found dtype {} but expected {}",
            if x.dtype().is_float() {
                t.dtype()
            } else {
                target.dtype()
            }
            .scalar_type(),
            x.dtype().scalar_type()
        );
    }
    f::_nn_binary_cross_entropy(x, target, weight.as_ref(), r as i64)
}

fn checked_logits(a: &calls::NnFunctionalBinaryCrossEntropyWithLogits) -> Result<Tensor> {
    let (x, target) = (a.input, a.target);
    let r = legacy((a.size_average, a.reduce, a.reduction))?;
    ensure!(
        x.shape() == target.shape(),
        Value,
        "Target size ({}) must be the same as input size ({})",
        torch_size(target),
        torch_size(x)
    );
    f::BinaryCrossEntropyWithLogits::new(x, target)
        .weight(a.weight)
        .pos_weight(a.pos_weight)
        .reduction(r as i64)
        .call()
}
