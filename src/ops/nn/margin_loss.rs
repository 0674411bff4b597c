//! Losses with margins: rankings, embeddings, triplets, several classes.

use crate::ops::core::op::{Cast, F, OpDef, Plan, Ret, compose, kernel};
use crate::ops::f;
use crate::ops::nn::dropout::py_float;
use crate::ops::nn::loss::{Reduction, clamp_min, legacy, reduced, torch_size};
use crate::{DType, Result, Tensor, cpu, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "nn.functional.hinge_embedding_loss",
        "(Tensor input, Tensor target, float margin=1.0, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        |a| {
            let r = legacy((a.size_average, a.reduce, a.reduction))?;
            let call = f::HingeEmbeddingLoss::new(a.input, a.target);
            call.margin(a.margin).reduction(r as i64).call()
        },
        "Distances, or how far they are below a margin.",
    ).samples("f32[10], f32[10]; f32[5, 5], f32[5, 5], reduction='none', margin=8.3962")
    .amp(Cast::Single, Cast::Single),
    compose(
        "hinge_embedding_loss",
        "(Tensor self, Tensor target, float margin=1.0, int reduction=Mean)",
        F,
        hinge_embedding,
        "Distances, or how far they are below a margin.",
    ).samples("f32[2, 3], i64([[1, -1, 1], [1, 1, -1]])")
    .amp(Cast::Single, Cast::Single),
    compose(
        "nn.functional.margin_ranking_loss",
        "(Tensor input1, Tensor input2, Tensor target, float margin=0, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        checked_ranking,
        "How far two inputs are from being ranked as told.",
    ).samples("f32[10], f32[10], f32[10]; f32[()], f32[()], f32[()], margin=1.0, reduction='none'")
    .amp(Cast::Single, Cast::Single),
    compose(
        "margin_ranking_loss",
        "(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=Mean)",
        F,
        ranking,
        "How far two inputs are from being ranked as told.",
    ).samples("f32[3], f32[3], f32([1, -1, 1])")
    .amp(Cast::Single, Cast::Single),
    compose(
        "nn.functional.cosine_embedding_loss",
        "(Tensor input1, Tensor input2, Tensor target, float margin=0, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        |a| {
            let r = legacy((a.size_average, a.reduce, a.reduction))?;
            let call = f::CosineEmbeddingLoss::new(a.input1, a.input2, a.target);
            call.margin(a.margin).reduction(r as i64).call()
        },
        "How far directions are from being alike or different as told.",
    ).samples(
        "f32[5, 5], f32[5, 5], f32[5], reduction='sum', margin=0.9329; \
         b8[5, 5], b8[5, 5], b8([True, True, True, True, True]), reduction='sum', margin=0.9329",
    )
    .amp(Cast::Single, Cast::Single),
    compose(
        "cosine_embedding_loss",
        "(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=Mean)",
        F,
        cosine_embedding,
        "How far directions are from being alike or different as told.",
    ).samples("f32[2, 3], f32[2, 3], i64([1, -1])")
    .amp(Cast::Single, Cast::Single),
    compose(
        "nn.functional.soft_margin_loss",
        "(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        soft_margin,
        "log(1 + exp(-target * input)).",
    ).samples("f32[5], f32[5], reduction='sum'")
    .amp(Cast::Single, Cast::Single),
    compose(
        "nn.functional.multilabel_soft_margin_loss",
        "(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        multilabel_soft_margin,
        "Mean cross entropy over independent classes.",
    ).samples("f32[5], f32[5]; f32[5, 5], f32[5, 5], weight=f32[5, 5]"),
    compose(
        "nn.functional.triplet_margin_loss",
        "(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2, float eps=1e-06, bool swap=False, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        checked_triplet,
        "How much nearer the positive example should be than the negative one.",
    ).samples(
        "f32[5, 10], f32[5, 10], f32[5, 10]; \
         i64[5, 10], i64[5, 10], i64[5, 10], reduction='none'; \
         f32[5, 10], f32[5, 10], f32[5, 10], swap=True",
    )
    .amp(Cast::Single, Cast::Single),
    compose(
        "triplet_margin_loss",
        "(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2.0, float eps=1e-06, bool swap=False, int reduction=Mean)",
        F,
        triplet,
        "How much nearer the positive example should be than the negative one.",
    ).samples(
        "f32[2, 3], f32[2, 3], f32[2, 3]; \
         f32[2, 3], f32[2, 3], f32[2, 3], swap=True, reduction=0",
    )
    .amp(Cast::Single, Cast::Single),
    kernel(
        "_nn.multi_margin_loss",
        "(Tensor input, Tensor target, int p, float margin, Tensor? weight, int reduction)",
        0,
        body!(rule_multi_margin, run_multi_margin, scratch: |a, _, outs, room| {
            room.dense(a.target, DType::I64)?;
            room.all_dense([Some(a.input), a.weight], DType::F64)?;
            room.empty(outs[0].shape(), DType::F64).map(drop)
        }),
        "Hinge loss over classes.",
    ).samples("f32[2, 3], i64([0, 2]), 1, 1.0, None, 1; f32[2, 3], i64([0, 2]), 2, 0.5, f32[3], 0")
    .grad("MultiMarginLossBackward0 | input: multi_margin_loss_backward(grad, input, target, p, margin, weight, reduction); weight: never('multi_margin_loss')"),
    compose(
        "nn.functional.multi_margin_loss",
        "(Tensor input, Tensor target, int p=1, float margin=1.0, Tensor? weight=None, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        multi_margin,
        "Hinge loss over classes.",
    ).samples("f32[10, 5], i64[10].below(4); f32[5], i64(1), p=2, margin=7, weight=f32[5]")
    .amp(Cast::Single, Cast::Single),
    kernel(
        "_nn.multilabel_margin_loss",
        "(Tensor input, Tensor target, int reduction) -> (Tensor, Tensor)",
        0,
        body!(rule_multilabel_margin, run_multilabel_margin, scratch: |a, _, outs, room| {
            room.dense(a.input, DType::F64)?;
            room.dense(a.target, DType::I64)?;
            room.dense(&outs[1], DType::F32)?;
            room.empty(outs[0].shape(), DType::F64).map(drop)
        }),
        "Hinge loss over sets of classes, and which classes are in the set.",
    ).samples("f32[2, 3], i64([[0, 2, -1], [1, -1, 0]]), 1")
    .grad("MultilabelMarginLossBackward0 | input: multilabel_margin_loss_backward(grad, input, target, reduction, result1)"),
    compose(
        "nn.functional.multilabel_margin_loss",
        "(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        |a| {
            let r = legacy((a.size_average, a.reduce, a.reduction))?;
            let [loss, _] = f::_nn_multilabel_margin_loss(a.input, a.target, r as i64)?;
            Ok(loss)
        },
        "Hinge loss over sets of classes.",
    ).samples("f32[10, 5], i64[10, 5].below(5)")
    .amp(Cast::Single, Cast::Single),
];

fn hinge_embedding(a: &calls::HingeEmbeddingLoss) -> Result<Ret> {
    let (x, target) = (a.input, a.target);
    let margin = f::full_like(x, a.margin)?;
    let below = clamp_min(&f::sub(&margin, x)?, 0.0)?;
    let apart = f::where_(&f::ne(target, 1i64)?, &below, 0i64)?;
    let alike = f::where_(&f::ne(target, -1i64)?, x, 0i64)?;
    reduced(f::add(&apart, &alike)?, Reduction::of_int(a.reduction))
}

fn checked_ranking(a: &calls::NnFunctionalMarginRankingLoss) -> Result<Tensor> {
    let r = legacy((a.size_average, a.reduce, a.reduction))?;
    let (x, y, t) = (a.input1, a.input2, a.target);
    ensure!(
        x.ndim() == y.ndim() && x.ndim() == t.ndim(),
        Runtime,
        "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: {}, input2: {}, target: {} ",
        torch_size(x),
        torch_size(y),
        torch_size(t)
    );
    f::MarginRankingLoss::new(x, y, t)
        .margin(a.margin)
        .reduction(r as i64)
        .call()
}

fn ranking(a: &calls::MarginRankingLoss) -> Result<Ret> {
    let gap = f::sub(a.input1, a.input2)?;
    let product = f::mul(&f::neg(a.target)?, &gap)?;
    let shifted = f::_add_number(&product, a.margin)?;
    reduced(clamp_min(&shifted, 0.0)?, Reduction::of_int(a.reduction))
}

fn cosine_embedding(a: &calls::CosineEmbeddingLoss) -> Result<Ret> {
    let (x, y, target) = (a.input1, a.input2, a.target);
    let n = target.ndim();
    ensure!(
        n <= 1,
        Runtime,
        "0D or 1D target tensor expected, multi-target not supported"
    );
    ensure!(
        x.ndim() == n + 1 && y.ndim() == n + 1,
        Runtime,
        "{n}D target tensor expects {}D input tensors, but found inputs with sizes {} and {}.",
        n + 1,
        x.shape(),
        y.shape()
    );
    let dot = |p: &Tensor, q: &Tensor| f::sum_dim(&f::mul(p, q)?, &[n as i64][..]);
    let product = dot(x, y)?;
    let [xx, yy] = [x, y].map(|t| f::_add_number(&dot(t, t)?, 1e-12));
    let (xx, yy) = (xx?, yy?);
    let cos = f::div(&product, &f::sqrt(&f::mul(&xx, &yy)?)?)?;
    let alike = f::sub(&f::ones_like(&cos)?, &cos)?;
    let apart = clamp_min(&f::_sub_number(&cos, a.margin)?, 0.0)?;
    let first = f::where_(&f::eq(target, 1i64)?, &alike, 0i64)?;
    let second = f::where_(&f::eq(target, -1i64)?, &apart, 0i64)?;
    reduced(f::add(&first, &second)?, Reduction::of_int(a.reduction))
}

fn soft_margin(a: &calls::NnFunctionalSoftMarginLoss) -> Result<Tensor> {
    let r = legacy((a.size_average, a.reduce, a.reduction))?;
    f::_nn_soft_margin_loss(a.input, a.target, r as i64)
}

fn multilabel_soft_margin(a: &calls::NnFunctionalMultilabelSoftMarginLoss) -> Result<Ret> {
    let (x, target) = (a.input, a.target);
    let there = f::mul(target, &f::nn_functional_logsigmoid(x)?)?;
    let rest = f::rsub(target, 1i64)?;
    let not = f::mul(&rest, &f::nn_functional_logsigmoid(&f::neg(x)?)?)?;
    let mut losses = f::neg(&f::add(&there, &not)?)?;
    if let Some(w) = a.weight {
        losses = f::mul(&losses, w)?;
    }
    let last = x.ndim() as i64 - 1;
    let classes = x.size(last)?;
    let mean = f::div(&f::sum_dim(&losses, &[last][..])?, classes)?;
    let r = legacy((a.size_average, a.reduce, a.reduction))
        .map_err(|_| crate::err!(Value, "{} is not valid", a.reduction))?;
    reduced(mean, r)
}

fn check_triplet(tensors: [&Tensor; 3]) -> Result<()> {
    let [x, p, n] = tensors.map(Tensor::ndim);
    ensure!(
        x == p && p == n,
        Runtime,
        "The anchor, positive, and negative tensors are expected to have the same number of dimensions, but got: anchor {x}D, \
         positive {p}D, and negative {n}D inputs"
    );
    Ok(())
}

fn positive_margin(margin: f64) -> Result<()> {
    ensure!(
        margin > 0.0,
        Value,
        "margin must be greater than 0, got {}",
        py_float(margin)
    );
    Ok(())
}

fn checked_triplet(a: &calls::NnFunctionalTripletMarginLoss) -> Result<Tensor> {
    let r = legacy((a.size_average, a.reduce, a.reduction))?;
    positive_margin(a.margin)?;
    f::TripletMarginLoss::new(a.anchor, a.positive, a.negative)
        .margin(a.margin)
        .p(a.p)
        .eps(a.eps)
        .swap(a.swap)
        .reduction(r as i64)
        .call()
}

fn triplet(a: &calls::TripletMarginLoss) -> Result<Ret> {
    check_triplet([a.anchor, a.positive, a.negative])?;
    let distance = |x: &Tensor, y: &Tensor| f::PairwiseDistance::new(x, y).p(a.p).eps(a.eps).call();
    let near = distance(a.anchor, a.positive)?;
    let mut far = distance(a.anchor, a.negative)?;
    if a.swap {
        far = f::minimum(&far, &distance(a.positive, a.negative)?)?;
    }
    let gap = f::sub(&f::_add_number(&near, a.margin)?, &far)?;
    reduced(clamp_min(&gap, 0.0)?, Reduction::of_int(a.reduction))
}

fn check_classes(target: &Tensor) -> Result<()> {
    ensure!(
        target.dtype() == DType::I64,
        Runtime,
        "expected scalar type Long but found {}",
        target.dtype().scalar_type()
    );
    Ok(())
}

/// Checks the operands of a hinge loss over classes.
pub(in crate::ops) fn check_multi_margin(
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    kernel: &str,
) -> Result<()> {
    let (n, classes) = sample_shape(x)?;
    ensure!(
        target.ndim() <= 1 && target.numel() == n,
        Runtime,
        "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch size). Expected target size [{n}], but got {}. Input has shape {}.",
        target.shape(),
        x.shape()
    );
    if let Some(w) = weight {
        ensure!(
            w.ndim() <= 1 && w.numel() == classes,
            Runtime,
            "inconsistent weight size, expected {classes} but got {}",
            w.shape()
        );
    }
    x.dtype()
        .check_kernel(matches!(x.dtype(), DType::F32 | DType::F64), kernel)?;
    check_classes(target)
}

fn rule_multi_margin(a: &calls::_NnMultiMarginLoss) -> Result<Plan> {
    let (x, target) = (a.input, a.target);
    ensure!(
        a.p == 1 || a.p == 2,
        Value,
        "only p == 1 and p == 2 supported"
    );
    check_multi_margin(x, target, a.weight, "multi_margin_loss_cpu_kernel")?;
    let kept = a.reduction == 0 && target.ndim() > 0;
    Ok(Plan::contiguous(
        if kept { target.shape() } else { &[] },
        x.dtype(),
    ))
}

fn run_multi_margin(a: &calls::_NnMultiMarginLoss, (): &(), outs: &[Tensor]) -> Result<()> {
    cpu::loss::multi_margin(
        &outs[0],
        a.input,
        a.target,
        a.p,
        a.margin,
        a.weight,
        a.reduction,
    )
}

fn multi_margin(a: &calls::NnFunctionalMultiMarginLoss) -> Result<Tensor> {
    let r = legacy((a.size_average, a.reduce, a.reduction))?;
    ensure!(
        a.p == 1 || a.p == 2,
        Value,
        "only p == 1 and p == 2 supported"
    );
    ensure!(
        a.weight.is_none_or(|w| w.ndim() == 1),
        Value,
        "weight must be one-dimensional"
    );
    f::_nn_multi_margin_loss(a.input, a.target, a.p, a.margin, a.weight, r as i64)
}

/// Checks the operands of a hinge loss over sets of classes.
pub(in crate::ops) fn check_multilabel_margin(
    x: &Tensor,
    target: &Tensor,
    kernel: &str,
) -> Result<()> {
    sample_shape(x)?;
    let fits = x.ndim() > 1 && target.shape() == x.shape()
        || x.ndim() <= 1 && target.ndim() <= 1 && target.numel() == x.numel();
    ensure!(
        fits,
        Runtime,
        "inconsistent target size: {} for input of size: {}",
        target.shape(),
        x.shape()
    );
    x.dtype()
        .check_kernel(matches!(x.dtype(), DType::F32 | DType::F64), kernel)?;
    check_classes(target)
}

fn rule_multilabel_margin(a: &calls::_NnMultilabelMarginLoss) -> Result<Plan> {
    let x = a.input;
    check_multilabel_margin(x, a.target, "multilabel_margin_loss_forward_out_frame")?;
    let kept = a.reduction == 0 && x.ndim() == 2;
    let losses: &[i64] = if kept { &x.shape()[..1] } else { &[] };
    Ok(Plan::many(&[
        (losses, x.dtype()),
        (a.target.shape(), x.dtype()),
    ]))
}

fn run_multilabel_margin(
    a: &calls::_NnMultilabelMarginLoss,
    (): &(),
    outs: &[Tensor],
) -> Result<()> {
    cpu::loss::multilabel_margin(outs, a.input, a.target, a.reduction)
}

/// The shape of losses of samples, for inputs of one sample or a batch.
fn sample_shape(x: &Tensor) -> Result<(i64, i64)> {
    let s = x.shape();
    let fits = match x.ndim() {
        0 => true,
        1 => s[0] != 0,
        2 => s[1] != 0,
        _ => false,
    };
    ensure!(
        fits,
        Runtime,
        "Expected non-empty vector or matrix with optional 0-dim batch size, but got: {s}"
    );
    Ok(match x.ndim() {
        2 => (s[0], s[1]),
        n => (1, if n == 1 { s[0] } else { 1 }),
    })
}
