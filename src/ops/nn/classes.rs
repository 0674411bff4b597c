//! Losses of classification: negative log likelihood and cross entropy.

use crate::ops::core::args::{Arg, Args};
use crate::ops::core::dispatch;
use crate::ops::core::op::{F, KernelBody, OpDef, OutSpec, Plan, Ret, kernel, old_compose};
use crate::ops::nn::loss::{Reduction, reduced};
use crate::{DType, Dims, Result, Tensor, bail, cpu, ensure, op, run1};
use smallvec::smallvec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_nn.nll_loss",
        "(Tensor input, Tensor target, Tensor? weight, int reduction, int ignore_index) -> (Tensor, Tensor)",
        0,
        KernelBody::new(infer_nll, |a, o| {
            cpu::loss::nll(
                o,
                a.tensor(0)?,
                a.tensor(1)?,
                a.opt_tensor(2),
                a.int(3)?,
                a.int(4)?,
            )
        }),
        "Minus the log probabilities of the classes, and the total weight.",
    ),
    old_compose(
        "nn.functional.nll_loss",
        "(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, int ignore_index=-100, bool? reduce=None, str reduction='mean')",
        F,
        |a| {
            nll(
                a.tensor(0)?,
                a.tensor(1)?,
                a.opt_tensor(2),
                reduction(a)?,
                a.int(4)?,
            )
            .map(Ret::from)
        },
        "Minus the log probability of the class.",
    ),
    old_compose(
        "nn.functional.cross_entropy",
        "(Tensor input, Tensor target, Tensor? weight=None, bool? size_average=None, int ignore_index=-100, bool? reduce=None, str reduction='mean', float label_smoothing=0.0)",
        F,
        cross_entropy,
        "Cross entropy between scores and classes or class probabilities.",
    ),
];

/// `size_average`, `reduce` and `reduction` at positions 3, 5 and 6.
fn reduction(a: &Args) -> Result<Reduction> {
    if a.opt_bool(3).is_none() && a.opt_bool(5).is_none() {
        return Reduction::named(a.str(6).unwrap_or("mean"));
    }
    Ok(
        match (a.opt_bool(3).unwrap_or(true), a.opt_bool(5).unwrap_or(true)) {
            (true, true) => Reduction::Mean,
            (false, true) => Reduction::Sum,
            _ => Reduction::None,
        },
    )
}

fn infer_nll(a: &Args) -> Result<Plan> {
    let (x, target, weight) = (a.tensor(0)?, a.tensor(1)?, a.opt_tensor(2));
    let (xs, ts) = (x.shape(), target.shape());
    let classes = if x.ndim() == 1 { xs[0] } else { xs[1] };
    if x.ndim() <= 2 {
        ensure!(
            target.ndim() <= 1,
            Runtime,
            "0D or 1D target tensor expected, multi-target not supported"
        );
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
        if let Some(w) = weight {
            ensure!(
                w.ndim() == 1 && w.numel() == classes,
                Runtime,
                "weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of shape: {}",
                w.shape()
            );
        }
    } else {
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
        if let Some(w) = weight {
            ensure!(
                w.numel() == classes,
                Runtime,
                "weight tensor should be defined either for all or no classes"
            );
        }
    }
    ensure!(
        matches!(target.dtype(), DType::I64 | DType::U8),
        Runtime,
        "expected target dtype to be Long or Byte, but got {}",
        target.dtype().scalar_type()
    );
    x.dtype().check_float_kernel("nll_loss_out_frame")?;
    if let Some(w) = weight {
        ensure!(
            w.dtype() == x.dtype(),
            Runtime,
            "expected scalar type {} but found {}",
            x.dtype().scalar_type(),
            w.dtype().scalar_type()
        );
    }
    let kept = a.int(3)? == 0 && x.ndim() > 1;
    let out = OutSpec::contiguous(if kept { ts } else { &[] }, x.dtype());
    Ok(Plan {
        outs: smallvec![out, OutSpec::contiguous(&[], x.dtype())],
        device: None,
    })
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
    let w = weight.map_or(Arg::None, Arg::Tensor);
    let values = [
        Arg::Tensor(x),
        Arg::Tensor(target),
        w,
        Arg::Int(r as i64),
        Arg::Int(ignore),
    ];
    Ok(dispatch::run(op!("_nn.nll_loss")?, &values)?
        .tensors()
        .swap_remove(0))
}

/// A weight for each class, shaped so that it broadcasts along the class dimension.
fn along(weight: &Tensor, x: &Tensor) -> Result<Tensor> {
    if x.ndim() <= 1 {
        return Ok(weight.clone());
    }
    let mut shape = Dims::filled(x.ndim(), 1);
    shape[1] = weight.numel();
    run1!("reshape", weight, shape)
}

fn cross_entropy(a: &Args) -> Result<Ret> {
    let (x, target, weight) = (a.tensor(0)?, a.tensor(1)?, a.opt_tensor(2));
    let (r, ignore, smoothing) = (reduction(a)?, a.int(4)?, a.float(7)?);
    let d = i64::from(x.ndim() != 1);
    let classes = x.size(d)?;
    if x.shape() == target.shape() {
        ensure!(
            target.dtype().is_float(),
            Runtime,
            "Expected floating point type for target with class probabilities, got {}",
            target.dtype().scalar_type()
        );
        ensure!(
            ignore < 0,
            Runtime,
            "ignore_index is not supported for floating point target"
        );
        return probabilities(x, target, weight, r, smoothing, d, classes);
    }
    ensure!(
        (0.0..=1.0).contains(&smoothing),
        Runtime,
        "label_smoothing must be between 0.0 and 1.0. Got: {smoothing}"
    );
    let logs = run1!("log_softmax", x, d)?;
    let plain = nll(&logs, target, weight, r, ignore)?;
    if smoothing == 0.0 {
        return Ok(plain.into());
    }
    // The uniform part: the mean of all classes' losses, where the target is not ignored.
    let scaled = match weight {
        Some(w) => run1!("mul", &logs, &along(w, x)?)?,
        None => logs,
    };
    let uniform = run1!("neg", &run1!("sum#dim", &scaled, Dims::from([d]), false)?)?;
    let ignored = run1!("eq", target, ignore)?;
    let ignored = if ignored.shape() == uniform.shape() {
        ignored
    } else {
        run1!("reshape", &ignored, uniform.shape().clone())?
    };
    let uniform = run1!("masked_fill", &uniform, &ignored, 0i64)?;
    let uniform = match r {
        Reduction::None => uniform,
        Reduction::Sum => run1!("sum", &uniform)?,
        Reduction::Mean => {
            let count = match weight {
                Some(w) => {
                    let safe = run1!("masked_fill", target, &run1!("eq", target, ignore)?, 0i64)?;
                    let flat = run1!("reshape", &safe, Dims::from([-1]))?;
                    let gathered = run1!("index_select", w, 0i64, &flat)?;
                    let gone = run1!("reshape", &ignored, Dims::from([-1]))?;
                    run1!("sum", &run1!("masked_fill", &gathered, &gone, 0i64)?)?
                }
                None => run1!("sum", &run1!("logical_not", &ignored)?)?,
            };
            run1!("div", &run1!("sum", &uniform)?, &count)?
        }
    };
    let first = run1!("mul", &plain, 1.0 - smoothing)?;
    let second = run1!("mul", &uniform, smoothing / classes as f64)?;
    Ok(run1!("add", &first, &second)?.into())
}

fn probabilities(
    x: &Tensor,
    target: &Tensor,
    weight: Option<&Tensor>,
    r: Reduction,
    smoothing: f64,
    d: i64,
    classes: i64,
) -> Result<Ret> {
    if let Some(w) = weight {
        ensure!(
            w.ndim() == 1 && w.numel() == classes,
            Runtime,
            "cross_entropy: weight tensor should be defined either for all {classes} classes or no classes but got weight tensor of shape: {}",
            w.shape()
        );
    }
    ensure!(
        (0.0..=1.0).contains(&smoothing),
        Runtime,
        "label_smoothing must be between 0.0 and 1.0. Got: {smoothing}"
    );
    let logs = run1!("log_softmax", x, d)?;
    let mut target = target.clone();
    if smoothing > 0.0 {
        target = run1!(
            "add",
            &run1!("mul", &target, 1.0 - smoothing)?,
            smoothing / classes as f64
        )?;
    }
    let mut product = run1!("mul", &logs, &target)?;
    if let Some(w) = weight {
        product = run1!("mul", &product, &along(w, x)?)?;
    }
    match r {
        Reduction::None => reduced(
            run1!("neg", &run1!("sum#dim", &product, Dims::from([d]), false)?)?,
            r,
        ),
        Reduction::Sum => reduced(run1!("neg", &run1!("sum", &product)?)?, Reduction::None),
        Reduction::Mean => {
            let samples = x.numel() / classes.max(1);
            let sum = run1!("neg", &run1!("sum", &product)?)?;
            Ok(run1!("div", &sum, samples)?.into())
        }
    }
}
