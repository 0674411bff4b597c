//! Normalisation over a batch.

use crate::ops::core::args::{Arg, Args};
use crate::ops::core::dispatch;
use crate::ops::core::op::{F, KernelBody, O, OpDef, OutSpec, Plan, Ret, X, kernel, old_compose};
use crate::ops::nn::norm::suggested;
use crate::{DType, Dims, Result, Tensor, cpu, ensure, op, run, run1};
use smallvec::smallvec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_nn.batch_norm_train",
        "(Tensor input, Tensor? weight, Tensor? bias, dtype stats, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
        0,
        KernelBody::new(infer_batch_train, |a, o| {
            cpu::norm::batch_norm_train(
                o,
                a.tensor(0)?,
                a.opt_tensor(1),
                a.opt_tensor(2),
                a.float(4)?,
            )
        }),
        "batch_norm with the batch's statistics.",
    ),
    kernel(
        "_nn.batch_norm_eval",
        "(Tensor input, Tensor mean, Tensor var, Tensor? weight, Tensor? bias, float eps)",
        0,
        KernelBody::new(infer_batch_eval, |a, o| {
            cpu::norm::batch_norm_eval(
                &o[0],
                a.tensor(0)?,
                a.tensor(1)?,
                a.tensor(2)?,
                a.opt_tensor(3),
                a.opt_tensor(4),
                a.float(5)?,
            )
        }),
        "batch_norm with given statistics.",
    ),
    old_compose(
        "native_batch_norm",
        "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        F | O | X,
        |a| native_batch_norm(&Batch::of(a, [0, 1, 2, 3, 4], 5)?),
        "batch_norm with its statistics.",
    ),
    old_compose(
        "_native_batch_norm_legit",
        "(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        F | O | X,
        |a| native_batch_norm(&Batch::of(a, [0, 1, 2, 3, 4], 5)?),
        "batch_norm with its statistics.",
    ),
    old_compose(
        "_native_batch_norm_legit#no_stats",
        "(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        F,
        |a| native_batch_norm(&Batch::of(a, [0, 1, 2, 99, 99], 3)?),
        "batch_norm with its statistics.",
    ),
    old_compose(
        "batch_norm",
        "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled)",
        F,
        |a| batch_norm(&Batch::of(a, [0, 1, 2, 3, 4], 5)?),
        "Normalised over all but the channels.",
    ),
    old_compose(
        "nn.functional.batch_norm",
        "(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None, Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-05)",
        F,
        checked_batch_norm,
        "Normalised over all but the channels.",
    ),
    old_compose(
        "instance_norm",
        "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool use_input_stats, float momentum, float eps, bool cudnn_enabled)",
        F,
        |a| instance_norm(&Batch::of(a, [0, 1, 2, 3, 4], 5)?),
        "Normalised over the positions of each channel of each sample.",
    ),
    old_compose(
        "nn.functional.instance_norm",
        "(Tensor input, Tensor? running_mean=None, Tensor? running_var=None, Tensor? weight=None, Tensor? bias=None, bool use_input_stats=True, float momentum=0.1, float eps=1e-05)",
        F,
        checked_instance_norm,
        "Normalised over the positions of each channel of each sample.",
    ),
];

/// PyTorch refuses to normalise single values.
pub(in crate::ops) fn more_than_one(sizes: &[i64], shown: &str) -> Result<()> {
    let n: i64 = sizes
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != 1)
        .map(|(_, s)| s)
        .product();
    ensure!(
        n != 1,
        Value,
        "Expected more than 1 value per channel when training, got input size {shown}"
    );
    Ok(())
}

/// The arguments of a batch normalisation, whatever their order.
struct Batch<'a> {
    x: &'a Tensor,
    weight: Option<&'a Tensor>,
    bias: Option<&'a Tensor>,
    mean: Option<&'a Tensor>,
    var: Option<&'a Tensor>,
    training: bool,
    momentum: f64,
    eps: f64,
}

impl<'a> Batch<'a> {
    /// From positions of input, weight, bias, mean, variance, and that of `training`, `momentum`, `eps`.
    fn of(a: &Args<'a>, at: [usize; 5], flags: usize) -> Result<Self> {
        let opt = |i: usize| {
            if i < a.values.len() {
                a.opt_tensor(i)
            } else {
                None
            }
        };
        Ok(Self {
            x: a.tensor(at[0])?,
            weight: opt(at[1]),
            bias: opt(at[2]),
            mean: opt(at[3]),
            var: opt(at[4]),
            training: a.bool(flags),
            momentum: a.float(flags + 1)?,
            eps: a.float(flags + 2)?,
        })
    }

    fn check(&self) -> Result<()> {
        let features = if self.x.ndim() > 1 {
            self.x.shape()[1]
        } else {
            0
        };
        let fits = |what: &str, t: Option<&Tensor>| -> Result<()> {
            if let Some(t) = t {
                ensure!(
                    t.numel() == features,
                    Runtime,
                    "{what} should contain {features} elements not {}",
                    t.numel()
                );
            }
            Ok(())
        };
        for (what, t) in [("running_mean", self.mean), ("running_var", self.var)] {
            ensure!(
                t.is_some() || self.training,
                Runtime,
                "{what} must be defined in evaluation mode"
            );
            fits(what, t)?;
        }
        fits("weight", self.weight)?;
        fits("bias", self.bias)
    }
}

fn infer_batch_train(a: &Args) -> Result<Plan> {
    let x = a.tensor(0)?;
    x.dtype().check_float_kernel("batch_norm")?;
    let stats = OutSpec::contiguous(&[x.shape()[1]], a.dtype(3).unwrap_or(x.dtype()));
    Ok(Plan {
        outs: smallvec![suggested(x)?, stats.clone(), stats.clone(), stats],
        device: None,
    })
}

fn infer_batch_eval(a: &Args) -> Result<Plan> {
    let x = a.tensor(0)?;
    x.dtype().check_float_kernel("batch_norm")?;
    Ok(Plan {
        outs: smallvec![suggested(x)?],
        device: None,
    })
}

fn native_batch_norm(b: &Batch) -> Result<Ret> {
    b.check()?;
    ensure!(
        b.x.ndim() >= 2,
        Runtime,
        "batch_norm needs at least 2 dimensions, got {}",
        b.x.ndim()
    );
    b.x.dtype().check_float_kernel("batch_norm")?;
    let params = [b.weight, b.bias, b.mean, b.var];
    let half = matches!(b.x.dtype(), DType::F16 | DType::BF16);
    let stats = if half && params.iter().flatten().any(|p| p.dtype() == DType::F32) {
        DType::F32
    } else {
        b.x.dtype()
    };
    if let (false, Some(mean), Some(var)) = (b.training, b.mean, b.var) {
        let out = run1!(
            "_nn.batch_norm_eval",
            b.x,
            mean,
            var,
            b.weight,
            b.bias,
            b.eps
        )?;
        let none = run1!("new_empty", b.x, Dims::from([0]), stats)?;
        return Ok(Ret::Tuple(vec![out, none.clone(), run1!("clone", &none)?]));
    }
    ensure!(
        b.x.numel() > 0,
        Runtime,
        "input tensor must have at least one element, but got input_sizes = {}",
        b.x.shape()
    );
    let mut r = run!("_nn.batch_norm_train", b.x, b.weight, b.bias, stats, b.eps)?.tensors();
    let update = |running: Option<&Tensor>, batch: &Tensor| -> Result<()> {
        let Some(t) = running else { return Ok(()) };
        let batch = batch.to_dtype(t.dtype())?;
        dispatch::call_inplace(&Args::new(
            op!("_nn.update_running")?,
            [Arg::Tensor(t), Arg::Tensor(&batch), Arg::Float(b.momentum)],
        )?)
    };
    update(b.mean, &r[1])?;
    update(b.var, &r[3])?;
    r.truncate(3);
    Ok(Ret::Tuple(r))
}

fn batch_norm(b: &Batch) -> Result<Ret> {
    b.check()?;
    if b.x.numel() == 0 {
        let mut out = run1!("clone", b.x)?;
        if let Some(w) = b.weight {
            out = run1!("mul", &out, &w.selected(0, 0))?;
        }
        if let Some(bias) = b.bias {
            out = run1!("add", &out, &bias.selected(0, 0))?;
        }
        return Ok(out.into());
    }
    Ok(native_batch_norm(b)?.tensors().swap_remove(0).into())
}

fn checked_batch_norm(a: &Args) -> Result<Ret> {
    let b = Batch::of(a, [0, 3, 4, 1, 2], 5)?;
    if b.training {
        more_than_one(b.x.shape(), &format!("torch.Size({})", b.x.shape()))?;
    }
    batch_norm(&b)
}

fn instance_norm(i: &Batch) -> Result<Ret> {
    ensure!(
        i.training || (i.mean.is_some() && i.var.is_some()),
        Runtime,
        "Expected running_mean and running_var to be defined when use_input_stats is false"
    );
    ensure!(
        i.x.ndim() >= 2,
        Runtime,
        "instance_norm needs at least 2 dimensions, got {}",
        i.x.ndim()
    );
    let (n, c) = (i.x.shape()[0], i.x.shape()[1]);
    let mut shape = i.x.shape().clone();
    (shape[0], shape[1]) = (1, n * c);
    let repeated = |t: Option<&Tensor>| -> Result<Option<Tensor>> {
        // A stride of 0 repeats the values for every sample; reshaping copies them.
        t.map(|t| {
            run1!(
                "reshape",
                &t.expand_to(&[n, t.numel()]),
                Dims::from([n * t.numel()])
            )
        })
        .transpose()
    };
    let (weight, bias, mean, var) = (
        repeated(i.weight)?,
        repeated(i.bias)?,
        repeated(i.mean)?,
        repeated(i.var)?,
    );
    let x = run1!("view", &i.x.contiguous()?, shape)?;
    let b = Batch {
        x: &x,
        weight: weight.as_ref(),
        bias: bias.as_ref(),
        mean: mean.as_ref(),
        var: var.as_ref(),
        ..*i
    };
    let out = batch_norm(&b)?.one()?;
    for (running, updated) in [(i.mean, &mean), (i.var, &var)] {
        if let (Some(running), Some(updated), true) = (running, updated, i.training) {
            let mean = run1!(
                "mean#dim",
                &run1!("view", updated, Dims::from([n, c]))?,
                Dims::from([0]),
                false
            )?;
            crate::ops::core::helpers::copy_(running, &mean)?;
        }
    }
    run!("view", &out, i.x.shape().clone())
}

fn checked_instance_norm(a: &Args) -> Result<Ret> {
    let b = Batch::of(a, [0, 3, 4, 1, 2], 5)?;
    if b.training {
        let n: i64 = b.x.shape().iter().skip(2).product();
        ensure!(
            n != 1,
            Value,
            "Expected more than 1 spatial element when training, got input size torch.Size({})",
            b.x.shape()
        );
    }
    instance_norm(&b)
}
