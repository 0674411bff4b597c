//! Losses of classification: negative log likelihood and cross entropy.

use crate::ops::batch;
use crate::ops::core::op::{Batch, Cast, F, Hidden, OpDef, OutSpec, Plan, Ret, compose, kernel};
use crate::ops::f;
use crate::ops::nn::loss::{Reduction, legacy, reduced};
use crate::{DType, Dims, Result, Tensor, bail, ensure, kernels};
use smallvec::smallvec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_nn.nll_loss",
        "(Tensor input, Tensor target, Tensor? weight, int reduction, int ignore_index) -> (Tensor, Tensor)",
        0,
        body!(rule_nll, anywhere: run_nll, scratch: |a, (), outs, room| {
            room.dense(a.input, crate::cpu::loss::read_type(a.input.dtype()))?;
            room.dense(a.target, DType::I64)?;
            room.all_dense([a.weight], DType::F64)?;
            let losses = if a.reduction == 0 { a.target.numel() } else { 1 };
            room.elements(losses.max(outs[1].numel()) as usize, DType::F64)
        }),
        "Minus the log probabilities of the classes, and the total weight.",
    ).samples("f32[2, 3], i64([0, 2]), None, 1, -100; f32[2, 3], i64([0, 2]), f32[3].pos, 2, 0")
    .grad("{input.ndim 1=NllLoss 2=NllLoss 3=NllLoss2D 4=NllLoss2D 5=NllLoss2D 6=NllLoss2D 7=NllLoss2D 8=NllLoss2D}Backward0 | input: nll_loss_backward(grad, input, target, weight, reduction, ignore_index, result1) if input.ndim < 3 else _grad.nll_loss_of_many(grad, input, target, weight, reduction, ignore_index, result1); weight: constant('nll_loss{input.ndim 1= 2= 3=2d 4=2d 5=2d}_forward')")
    .batch(Batch::As(typed!(batch::nll_loss, Hidden))),
    compose(
        "nn.functional.nll_loss",
        "(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, int ignore_index=-100, bool? reduce=None, str reduction='mean')",
        F,
        |a| {
            let r = legacy((a.size_average, a.reduce, a.reduction))?;
            nll(a.input, a.target, a.weight, r, a.ignore_index)
        },
        "Minus the log probability of the class.",
    ).samples(
        "f32[2, 3], i64([0, 0]), reduction='sum'; \
         f32[3], i64(2), weight=f32[3], reduction='none'",
    )
    .amp(Cast::Single, Cast::Single),
    compose(
        "nn.functional.cross_entropy",
        "(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, int ignore_index=-100, bool? reduce=None, str reduction='mean', float label_smoothing=0.0)",
        F,
        cross_entropy,
        "Cross entropy between scores and classes or class probabilities.",
    ).samples("f32[2, 3], f32[2, 3]; f32[2, 3], i64([0, 0]), weight=f32[3], reduction='sum'")
    .amp(Cast::Single, Cast::Kept),
];

/// Checks of samples that are vectors of scores.
pub(in crate::ops) fn check_vectors(
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
) -> Result<()> {
    let (xs, ts) = (x.shape(), target.shape());
    ensure!(
        target.ndim() <= 1,
        Runtime,
        "0D or 1D target tensor expected, multi-target not supported"
    );
    check_target(target)?;
    if x.ndim() == 1 && target.ndim() == 1 {
        ensure!(
            ts[0] == 1,
            Value,
            "For 1D input, 1D target must have size 1, but got target size: {}",
            ts[0]
        );
    }
    let fits = x.ndim() == 1 || target.ndim() == 1 && xs[0] == ts[0];
    ensure!(
        fits,
        Runtime,
        "size mismatch (got input: {xs}, target: {ts})"
    );
    let classes = xs[x.ndim() - 1];
    if let Some(w) = weight {
        ensure!(
            w.ndim() == 1 && w.numel() == classes,
            Runtime,
            "weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of shape: {}",
            w.shape()
        );
    }
    Ok(())
}

fn check_target(target: &Tensor) -> Result<()> {
    ensure!(
        matches!(target.dtype(), DType::I64 | DType::U8),
        Runtime,
        "expected target dtype to be Long or Byte, but got {}",
        target.dtype().scalar_type()
    );
    Ok(())
}

/// Checks of samples with scores at each of many positions.
pub(in crate::ops) fn check_images(
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
) -> Result<()> {
    let (xs, ts) = (x.shape(), target.shape());
    if x.ndim() == 4 {
        ensure!(
            target.ndim() == 3,
            Runtime,
            "only batches of spatial targets supported (3D tensors) but got targets of dimension: {}",
            target.ndim()
        );
        ensure!(
            xs[0] == ts[0] && xs[2..] == ts[1..],
            Runtime,
            "size mismatch (got input: {xs} , target: {ts}"
        );
    } else if ts.is_empty() || xs[2..] != ts[1..] {
        bail!(
            Runtime,
            "Expected target size {}, got {ts}",
            Dims::new(&xs[..1]).concat(&xs[2..])
        );
    }
    check_target(target)?;
    if let Some(w) = weight {
        ensure!(
            w.numel() == xs[1],
            Runtime,
            "weight tensor should be defined either for all or no classes"
        );
    }
    Ok(())
}

fn rule_nll(a: &calls::_NnNllLoss) -> Result<Plan> {
    let (x, target, weight) = (a.input, a.target, a.weight);
    if x.ndim() <= 2 {
        check_vectors(x, target, weight)?;
    } else {
        check_images(x, target, weight)?;
    }
    x.dtype().check_float_kernel("nll_loss_out_frame")?;
    if let Some(w) = weight {
        x.dtype().check_same(w.dtype())?;
    }
    let kept = a.reduction == 0 && x.ndim() > 1;
    let out = OutSpec::contiguous(if kept { target.shape() } else { &[] }, x.dtype());
    Ok(Plan {
        outs: smallvec![out, OutSpec::contiguous(&[], x.dtype())],
        device: None,
    })
}

fn run_nll(a: &calls::_NnNllLoss, (): &(), outs: &[Tensor]) -> Result<()> {
    kernels::loss::nll(
        outs,
        a.input,
        a.target,
        a.weight,
        a.reduction,
        a.ignore_index,
    )
}

fn nll(
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    r: Reduction,
    ignore: i64,
) -> Result<Tensor> {
    ensure!(
        x.ndim() >= 1,
        Value,
        "Expected 1 or more dimensions (got 0)"
    );
    if x.ndim() > 1 {
        ensure!(
            target.ndim() >= 1 && x.shape()[0] == target.shape()[0],
            Value,
            "Expected input batch_size ({}) to match target batch_size ({}).",
            x.shape()[0],
            target.shape().first().copied().unwrap_or(0)
        );
    }
    if matches!(x.ndim(), 3 | 5..) && x.numel() > 0 {
        let (n, classes) = (x.shape()[0], x.shape()[1]);
        let each = Dims::from(&[n][..]).concat(&x.shape()[2..]);
        if *target.shape() == each {
            // Any number of dimensions is as two.
            let image = f::view(&x.contiguous()?, &[n, classes, 1, -1])?;
            let target = f::view(&target.contiguous()?, &[n, 1, -1])?;
            let [loss, _] = f::_nn_nll_loss(&image, &target, weight, r as i64, ignore)?;
            return match r {
                Reduction::None => f::view(&loss, &each),
                _ => Ok(loss),
            };
        }
    }
    let [loss, _] = f::_nn_nll_loss(x, target, weight, r as i64, ignore)?;
    Ok(loss)
}

/// A weight for each class, shaped so that it broadcasts along the class dimension.
fn along(weight: &Tensor, x: &Tensor) -> Result<Tensor> {
    if x.ndim() <= 1 {
        return Ok(weight.clone());
    }
    let mut shape = Dims::filled(x.ndim(), 1);
    shape[1] = weight.numel();
    f::reshape(weight, &shape)
}

/// The sum over classes, negated.
fn minus_sum(t: &Tensor, dim: i64) -> Result<Tensor> {
    f::neg(&f::sum_dim(t, &[dim][..])?)
}

/// The dimension of the classes, and how many there are.
fn class_dim(x: &Tensor) -> Result<(i64, i64)> {
    let d = i64::from(x.ndim() != 1);
    Ok((d, x.size(d)?))
}

fn cross_entropy(a: &calls::NnFunctionalCrossEntropy) -> Result<Ret> {
    let (x, target) = (a.input, a.target);
    let r = legacy((a.size_average, a.reduce, a.reduction))?;
    if x.shape() == target.shape() {
        return probabilities(a, r);
    }
    let (d, classes) = class_dim(x)?;
    let smoothing = checked_smoothing(a.label_smoothing)?;
    let logs = f::log_softmax(x, d)?;
    let plain = nll(&logs, target, a.weight, r, a.ignore_index)?;
    if smoothing == 0.0 {
        return Ok(plain.into());
    }
    let uniform = uniform_part(a, logs, d, r)?;
    let first = f::_mul_number(&plain, 1.0 - smoothing)?;
    let second = f::_mul_number(&uniform, smoothing / classes as f64)?;
    f::add(&first, &second).map(Ret::from)
}

/// The mean of all classes' losses times their number, where the target is not ignored.
fn uniform_part(
    a: &calls::NnFunctionalCrossEntropy,
    logs: Tensor,
    d: i64,
    r: Reduction,
) -> Result<Tensor> {
    let scaled = match a.weight {
        Some(w) => f::mul(&logs, &along(w, a.input)?)?,
        None => logs,
    };
    let losses = minus_sum(&scaled, d)?;
    let mut ignored = f::eq(a.target, a.ignore_index)?;
    if ignored.shape() != losses.shape() {
        ignored = f::reshape(&ignored, losses.shape())?;
    }
    f::MaskedFill::new(&losses, &ignored, 0i64).call_()?;
    match r {
        Reduction::None => Ok(losses),
        Reduction::Sum => f::sum(&losses),
        Reduction::Mean => {
            let weight = counted_weight(a, &ignored)?;
            f::div(&f::sum(&losses)?, &weight)
        }
    }
}

/// The total weight of the targets that are not ignored.
fn counted_weight(a: &calls::NnFunctionalCrossEntropy, ignored: &Tensor) -> Result<Tensor> {
    let Some(w) = a.weight else {
        return f::sum(&f::bitwise_not(ignored)?);
    };
    let safe = f::masked_fill(a.target, &f::eq(a.target, a.ignore_index)?, 0i64)?;
    let gathered = f::index_select(w, 0, &f::reshape(&safe, &[-1])?)?;
    let gone = f::reshape(ignored, &[-1])?;
    f::sum(&f::masked_fill(&gathered, &gone, 0i64)?)
}

/// How much labels are smoothed; less than nothing is nothing.
fn checked_smoothing(smoothing: f64) -> Result<f64> {
    ensure!(
        smoothing <= 1.0,
        Runtime,
        "label_smoothing must be between 0.0 and 1.0. Got: {smoothing}"
    );
    Ok(smoothing.max(0.0))
}

/// Cross entropy where the target holds a probability for each class.
fn probabilities(a: &calls::NnFunctionalCrossEntropy, r: Reduction) -> Result<Ret> {
    let (x, weight) = (a.input, a.weight);
    ensure!(
        a.target.dtype().is_float(),
        Runtime,
        "Expected floating point type for target with class probabilities, got {}",
        a.target.dtype().scalar_type()
    );
    let (d, classes) = class_dim(x)?;
    ensure!(
        a.ignore_index < 0,
        Runtime,
        "ignore_index is not supported for floating point target"
    );
    if let Some(w) = weight {
        ensure!(
            w.ndim() == 1 && w.numel() == classes,
            Runtime,
            "cross_entropy: weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of shape: {}",
            w.shape()
        );
    }
    let smoothing = checked_smoothing(a.label_smoothing)?;
    let logs = f::log_softmax(x, d)?;
    let mut target = a.target.clone();
    if smoothing > 0.0 {
        let kept = f::_mul_number(&target, 1.0 - smoothing)?;
        target = f::_add_number(&kept, smoothing / classes as f64)?;
    }
    let factors = weight.map(|w| along(w, x)).transpose()?;
    let mut product = f::mul(&logs, &target)?;
    if let Some(factors) = factors {
        product = f::mul(&product, &factors)?;
    }
    match r {
        Reduction::None => reduced(minus_sum(&product, d)?, r),
        Reduction::Sum => f::neg(&f::sum(&product)?).map(Ret::from),
        Reduction::Mean => {
            let samples = x.numel() / classes.max(1);
            let sum = f::neg(&f::sum(&product)?)?;
            f::_div_number(&sum, samples).map(Ret::from)
        }
    }
}
