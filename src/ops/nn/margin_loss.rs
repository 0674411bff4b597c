//! Losses with margins: rankings, embeddings, triplets, several classes.

use crate::ops::core::args::{Arg, Args};
use crate::ops::core::dispatch;
use crate::ops::core::op::{F, KernelBody, OpDef, Plan, Ret, kernel, old_compose};
use crate::ops::nn::dropout::py_float;
use crate::ops::nn::loss::{
    Reduction, clamp_min, legacy, legacy_of, log_sigmoid, reduced, sample_shape, torch_size,
};
use crate::{DType, Dims, Result, Tensor, cpu, ensure, op, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    old_compose(
        "nn.functional.hinge_embedding_loss",
        "(Tensor input, Tensor target, float margin=1.0, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        |a| hinge_embedding(a, legacy(a, 3)?),
        "Distances, or how far they are below a margin.",
    ),
    old_compose(
        "hinge_embedding_loss",
        "(Tensor self, Tensor target, float margin=1.0, int reduction=1)",
        F,
        |a| hinge_embedding(a, Reduction::of_int(a.int(3)?)),
        "Distances, or how far they are below a margin.",
    ),
    old_compose(
        "nn.functional.margin_ranking_loss",
        "(Tensor input1, Tensor input2, Tensor target, float margin=0, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        checked_ranking,
        "How far two inputs are from being ranked as told.",
    ),
    old_compose(
        "margin_ranking_loss",
        "(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1)",
        F,
        |a| ranking(a, Reduction::of_int(a.int(4)?)),
        "How far two inputs are from being ranked as told.",
    ),
    old_compose(
        "nn.functional.cosine_embedding_loss",
        "(Tensor input1, Tensor input2, Tensor target, float margin=0, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        |a| cosine_embedding(a, legacy(a, 4)?),
        "How far directions are from being alike or different as told.",
    ),
    old_compose(
        "cosine_embedding_loss",
        "(Tensor input1, Tensor input2, Tensor target, float margin=0.0, int reduction=1)",
        F,
        |a| cosine_embedding(a, Reduction::of_int(a.int(4)?)),
        "How far directions are from being alike or different as told.",
    ),
    old_compose(
        "nn.functional.soft_margin_loss",
        "(Tensor input, Tensor target, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        soft_margin,
        "log(1 + exp(-target * input)).",
    ),
    old_compose(
        "nn.functional.multilabel_soft_margin_loss",
        "(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        multilabel_soft_margin,
        "Mean cross entropy over independent classes.",
    ),
    old_compose(
        "nn.functional.triplet_margin_loss",
        "(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2, float eps=1e-06, bool swap=False, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        checked_triplet,
        "How much nearer the positive example should be than the negative one.",
    ),
    old_compose(
        "triplet_margin_loss",
        "(Tensor anchor, Tensor positive, Tensor negative, float margin=1.0, float p=2.0, float eps=1e-06, bool swap=False, int reduction=1)",
        F,
        |a| triplet(a, Reduction::of_int(a.int(7)?)),
        "How much nearer the positive example should be than the negative one.",
    ),
    old_compose(
        "nn.functional.triplet_margin_with_distance_loss",
        "(Tensor anchor, Tensor positive, Tensor negative, *, Scalar? distance_function=None, float margin=1.0, bool swap=False, str reduction='mean')",
        F,
        triplet_default,
        "triplet_margin_loss with a distance of one's own.",
    ),
    kernel(
        "_nn.multi_margin_loss",
        "(Tensor input, Tensor target, int p, float margin, Tensor? weight, int reduction)",
        0,
        KernelBody::new(infer_multi_margin, |a, o| {
            cpu::loss::multi_margin(
                &o[0],
                a.tensor(0)?,
                a.tensor(1)?,
                a.int(2)?,
                a.float(3)?,
                a.opt_tensor(4),
                a.int(5)?,
            )
        }),
        "Hinge loss over classes.",
    ),
    old_compose(
        "nn.functional.multi_margin_loss",
        "(Tensor input, Tensor target, int p=1, float margin=1.0, Tensor? weight=None, bool? size_average=None, bool? reduce=None, str reduction='mean')",
        F,
        multi_margin,
        "Hinge loss over classes.",
    ),
    kernel(
        "_nn.multilabel_margin_loss",
        "(Tensor input, Tensor target, int reduction)",
        0,
        KernelBody::new(infer_multilabel_margin, |a, o| {
            cpu::loss::multilabel_margin(&o[0], a.tensor(0)?, a.tensor(1)?, a.int(2)?)
        }),
        "Hinge loss over sets of classes.",
    ),
];

fn hinge_embedding(a: &Args, r: Reduction) -> Result<Ret> {
    let (x, target) = (a.tensor(0)?, a.tensor(1)?);
    let below = clamp_min(&run1!("rsub", x, a.float(2)?)?, 0.0)?;
    let apart = run1!("where", &run1!("ne", target, 1i64)?, &below, 0i64)?;
    let alike = run1!("where", &run1!("ne", target, -1i64)?, x, 0i64)?;
    reduced(run1!("add", &apart, &alike)?, r)
}

fn checked_ranking(a: &Args) -> Result<Ret> {
    let r = legacy(a, 4)?;
    let (x, y, t) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
    ensure!(
        x.ndim() == y.ndim() && x.ndim() == t.ndim(),
        Runtime,
        "margin_ranking_loss : All input tensors should have same dimension but got sizes: input1: {}, input2: {}, target: {} ",
        torch_size(x),
        torch_size(y),
        torch_size(t)
    );
    ranking(a, r)
}

fn ranking(a: &Args, r: Reduction) -> Result<Ret> {
    let product = run1!(
        "mul",
        &run1!("neg", a.tensor(2)?)?,
        &run1!("sub", a.tensor(0)?, a.tensor(1)?)?
    )?;
    let shifted = run1!("add", &product, a.float(3)?)?;
    reduced(clamp_min(&shifted, 0.0)?, r)
}

fn cosine_embedding(a: &Args, r: Reduction) -> Result<Ret> {
    let (x, y, target) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
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
    let dot = |p: &Tensor, q: &Tensor| -> Result<Tensor> {
        run1!(
            "sum#dim",
            &run1!("mul", p, q)?,
            Dims::from([n as i64]),
            false
        )
    };
    let (xx, yy) = (
        run1!("add", &dot(x, x)?, 1e-12)?,
        run1!("add", &dot(y, y)?, 1e-12)?,
    );
    let cos = run1!(
        "div",
        &dot(x, y)?,
        &run1!("sqrt", &run1!("mul", &xx, &yy)?)?
    )?;
    let alike = run1!("rsub", &cos, 1i64)?;
    let apart = clamp_min(&run1!("sub", &cos, a.float(3)?)?, 0.0)?;
    let first = run1!("where", &run1!("eq", target, 1i64)?, &alike, 0i64)?;
    let second = run1!("where", &run1!("eq", target, -1i64)?, &apart, 0i64)?;
    reduced(run1!("add", &first, &second)?, r)
}

fn soft_margin(a: &Args) -> Result<Ret> {
    let r = legacy(a, 2)?;
    let z = run1!("mul", &run1!("neg", a.tensor(1)?)?, a.tensor(0)?)?;
    reduced(run1!("log1p", &run1!("exp", &z)?)?, r)
}

fn multilabel_soft_margin(a: &Args) -> Result<Ret> {
    let (x, target) = (a.tensor(0)?, a.tensor(1)?);
    let there = run1!("mul", target, &log_sigmoid(x)?)?;
    let not = run1!(
        "mul",
        &run1!("rsub", target, 1i64)?,
        &log_sigmoid(&run1!("neg", x)?)?
    )?;
    let mut losses = run1!("neg", &run1!("add", &there, &not)?)?;
    if let Some(w) = a.opt_tensor(2) {
        losses = run1!("mul", &losses, w)?;
    }
    let last = x.ndim() as i64 - 1;
    let classes = x.size(last)?;
    let mean = run1!(
        "div",
        &run1!("sum#dim", &losses, Dims::from([last]), false)?,
        classes
    )?;
    let r = legacy_of(a.opt_bool(3), a.opt_bool(4), a.str(5))
        .map_err(|_| crate::err!(Value, "{} is not valid", a.str(5).unwrap_or_default()))?;
    reduced(mean, r)
}

fn check_triplet(a: &Args) -> Result<()> {
    let (x, p, n) = (
        a.tensor(0)?.ndim(),
        a.tensor(1)?.ndim(),
        a.tensor(2)?.ndim(),
    );
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

fn checked_triplet(a: &Args) -> Result<Ret> {
    let r = legacy(a, 7)?;
    positive_margin(a.float(3)?)?;
    triplet(a, r)
}

fn triplet(a: &Args, r: Reduction) -> Result<Ret> {
    check_triplet(a)?;
    triplet_of(a, a.float(3)?, a.float(4)?, a.float(5)?, a.bool(6), r)
}

fn triplet_default(a: &Args) -> Result<Ret> {
    let r = Reduction::named(a.str(6).unwrap_or("mean"))?;
    positive_margin(a.float(4)?)?;
    check_triplet(a)?;
    triplet_of(a, a.float(4)?, 2.0, 1e-6, a.bool(5), r)
}

fn triplet_of(a: &Args, margin: f64, p: f64, eps: f64, swap: bool, r: Reduction) -> Result<Ret> {
    let (anchor, positive, negative) = (a.tensor(0)?, a.tensor(1)?, a.tensor(2)?);
    let near = run1!("pairwise_distance", anchor, positive, p, eps)?;
    let mut far = run1!("pairwise_distance", anchor, negative, p, eps)?;
    if swap {
        far = run1!(
            "minimum",
            &far,
            &run1!("pairwise_distance", positive, negative, p, eps)?
        )?;
    }
    let gap = run1!("sub", &run1!("add", &near, margin)?, &far)?;
    reduced(clamp_min(&gap, 0.0)?, r)
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

fn infer_multi_margin(a: &Args) -> Result<Plan> {
    let (x, target) = (a.tensor(0)?, a.tensor(1)?);
    let p = a.int(2)?;
    ensure!(p == 1 || p == 2, Value, "only p == 1 and p == 2 supported");
    let (n, classes) = sample_shape(x)?;
    ensure!(
        target.ndim() <= 1 && target.numel() == n,
        Runtime,
        "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch size). Expected target size [{n}], but got {}. Input has shape {}.",
        target.shape(),
        x.shape()
    );
    if let Some(w) = a.opt_tensor(4) {
        ensure!(
            w.ndim() <= 1 && w.numel() == classes,
            Runtime,
            "inconsistent weight size, expected {classes} but got {}",
            w.shape()
        );
    }
    x.dtype().check_kernel(
        matches!(x.dtype(), DType::F32 | DType::F64),
        "multi_margin_loss_cpu_kernel",
    )?;
    check_classes(target)?;
    let kept = a.int(5)? == 0 && target.ndim() > 0;
    Ok(Plan::contiguous(
        if kept { target.shape() } else { &[] },
        x.dtype(),
    ))
}

fn multi_margin(a: &Args) -> Result<Ret> {
    let r = legacy(a, 5)?;
    ensure!(
        a.int(2)? == 1 || a.int(2)? == 2,
        Value,
        "only p == 1 and p == 2 supported"
    );
    ensure!(
        a.opt_tensor(4).is_none_or(|w| w.ndim() == 1),
        Value,
        "weight must be one-dimensional"
    );
    let mut values: Vec<Arg> = a.values[..5].to_vec();
    values.push(Arg::Int(r as i64));
    dispatch::run(op!("_nn.multi_margin_loss")?, &values)
}

fn infer_multilabel_margin(a: &Args) -> Result<Plan> {
    let (x, target) = (a.tensor(0)?, a.tensor(1)?);
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
    x.dtype().check_kernel(
        matches!(x.dtype(), DType::F32 | DType::F64),
        "multilabel_margin_loss_forward_out_frame",
    )?;
    check_classes(target)?;
    let kept = a.int(2)? == 0 && x.ndim() == 2;
    Ok(Plan::contiguous(
        if kept { &x.shape()[..1] } else { &[] },
        x.dtype(),
    ))
}
