//! Normalisation layers: rules, and the functions of `torch` and `nn.functional` that lead to them.

use super::args::{Arg, Args};
use super::dispatch;
use super::op::{F, I, KernelBody, O, OpDef, OutSpec, Plan, Ret, X, compose, kernel};
use super::pointwise::same;
use crate::cpu::map::{Ctx, FromCtx as _};
use crate::dims::{self, MemoryFormat};
use crate::{DType, Dims, Result, Tensor, bail, cpu, ensure, map_op, map_row, op, run, run1};
use smallvec::smallvec;

map_op!(
    Blend,
    2,
    [float] | x,
    y,
    c | x * T::ctx(c, 1) + y * T::ctx(c, 0)
);

fn blend_ctx(a: &Args, _: DType) -> Result<Ctx> {
    let m = a.float(2)?;
    Ok(Ctx {
        f: [m, 1.0 - m, 0.0],
        ..Ctx::default()
    })
}

/// The family's rows.
pub static OPS: &[OpDef] = &[
    map_row!(Blend "_nn.update_running", 2, same, blend_ctx, I, "a * f1 + b * f0", "(Tensor self, Tensor batch, float momentum)", "A running mean of statistics."),
    kernel(
        "native_layer_norm",
        "(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
        F,
        KernelBody::new(infer_layer_norm, |a, o| {
            cpu::norm::layer_norm(
                o,
                a.tensor(0)?,
                a.opt_tensor(2),
                a.opt_tensor(3),
                count(a.ints(1)?),
                a.float(4)?,
            )
        }),
        "layer_norm with its means and inverse deviations.",
    ),
    compose(
        "layer_norm",
        "(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enable=True)",
        F,
        layer_norm,
        "Normalised over the last dimensions.",
    ),
    compose(
        "nn.functional.layer_norm",
        "(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05)",
        F,
        layer_norm,
        "Normalised over the last dimensions.",
    ),
    kernel(
        "_nn.rms_norm",
        "(Tensor input, int[] normalized_shape, Tensor? weight, float eps)",
        0,
        KernelBody::new(infer_rms, |a, o| {
            cpu::norm::rms_norm(
                &o[0],
                a.tensor(0)?,
                a.opt_tensor(2),
                count(a.ints(1)?),
                a.float(3)?,
            )
        }),
        "Divided by the root mean square over the last dimensions.",
    ),
    compose(
        "rms_norm",
        "(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None)",
        F,
        rms_norm,
        "Divided by the root mean square over the last dimensions.",
    ),
    compose(
        "nn.functional.rms_norm",
        "(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None)",
        F,
        rms_norm,
        "Divided by the root mean square over the last dimensions.",
    ),
    kernel(
        "native_group_norm",
        "(Tensor input, Tensor? weight, Tensor? bias, int N, int C, int HxW, int group, float eps) -> (Tensor, Tensor, Tensor)",
        F,
        KernelBody::new(infer_group_norm, run_group_norm),
        "group_norm with its means and inverse deviations.",
    ),
    compose(
        "group_norm",
        "(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enabled=True)",
        F,
        group_norm,
        "Normalised over groups of channels.",
    ),
    compose(
        "nn.functional.group_norm",
        "(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05)",
        F,
        checked_group_norm,
        "Normalised over groups of channels.",
    ),
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
    compose(
        "native_batch_norm",
        "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        F | O | X,
        |a| native_batch_norm(&Batch::of(a, [0, 1, 2, 3, 4], 5)?),
        "batch_norm with its statistics.",
    ),
    compose(
        "_native_batch_norm_legit",
        "(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        F | O | X,
        |a| native_batch_norm(&Batch::of(a, [0, 1, 2, 3, 4], 5)?),
        "batch_norm with its statistics.",
    ),
    compose(
        "_native_batch_norm_legit#no_stats",
        "(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        F,
        |a| native_batch_norm(&Batch::of(a, [0, 1, 2, 99, 99], 3)?),
        "batch_norm with its statistics.",
    ),
    compose(
        "batch_norm",
        "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled)",
        F,
        |a| batch_norm(&Batch::of(a, [0, 1, 2, 3, 4], 5)?),
        "Normalised over all but the channels.",
    ),
    compose(
        "nn.functional.batch_norm",
        "(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None, Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-05)",
        F,
        checked_batch_norm,
        "Normalised over all but the channels.",
    ),
    compose(
        "instance_norm",
        "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool use_input_stats, float momentum, float eps, bool cudnn_enabled)",
        F,
        |a| instance_norm(&Batch::of(a, [0, 1, 2, 3, 4], 5)?),
        "Normalised over the positions of each channel of each sample.",
    ),
    compose(
        "nn.functional.instance_norm",
        "(Tensor input, Tensor? running_mean=None, Tensor? running_var=None, Tensor? weight=None, Tensor? bias=None, bool use_input_stats=True, float momentum=0.1, float eps=1e-05)",
        F,
        checked_instance_norm,
        "Normalised over the positions of each channel of each sample.",
    ),
    kernel(
        "_nn.window_squares",
        "(Tensor input, int size)",
        0,
        KernelBody::new(infer_window, |a, o| {
            cpu::norm::window_squares(&o[0], a.tensor(0)?, a.int(1)? as usize)
        }),
        "The mean of squares over neighbouring channels.",
    ),
    compose(
        "nn.functional.local_response_norm",
        "(Tensor input, int size, float alpha=0.0001, float beta=0.75, float k=1.0)",
        F,
        local_response_norm,
        "Divided by a power of the mean square over neighbouring channels.",
    ),
    compose(
        "nn.functional.normalize",
        "(Tensor input, float p=2.0, int dim=1, float eps=1e-12)",
        F | O,
        normalize,
        "Divided by the norm along a dimension.",
    ),
];

fn count(shape: &[i64]) -> usize {
    shape.iter().product::<i64>() as usize
}

fn float_only(d: DType, kernel: &str) -> Result<()> {
    ensure!(
        matches!(d, DType::F16 | DType::BF16 | DType::F32 | DType::F64),
        NotImplemented,
        "\"{kernel}\" not implemented for '{}'",
        d.scalar_type()
    );
    Ok(())
}

/// Checks that parameters have the input's type, or single precision beside a 16-bit input; gives their type.
fn param_type(x: &Tensor, params: &[Option<&Tensor>]) -> Result<DType> {
    let mut found: Option<DType> = None;
    for p in params.iter().flatten() {
        let d = p.dtype();
        match found {
            Some(first) => ensure!(
                d == first,
                Runtime,
                "expected scalar type {} but found {}",
                first.scalar_type(),
                d.scalar_type()
            ),
            None if d == x.dtype() => {}
            None => {
                ensure!(
                    d == DType::F32 && matches!(x.dtype(), DType::F16 | DType::BF16),
                    Runtime,
                    "mixed dtype (CPU): expect parameter to have scalar type of Float"
                );
            }
        }
        found = Some(d);
    }
    Ok(found.unwrap_or(x.dtype()))
}

/// The checks of layer_norm; gives the number of leading dimensions.
fn check_trailing(
    x: &Tensor,
    shape: &Dims,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    star: &str,
) -> Result<usize> {
    ensure!(
        !shape.is_empty(),
        Runtime,
        "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, but got normalized_shape = {shape}"
    );
    for (what, p) in [("weight", weight), ("bias", bias)] {
        if let Some(p) = p {
            ensure!(
                p.shape() == shape,
                Runtime,
                "Expected {what} to be of same shape as normalized_shape, but got {what} of shape {} and normalized_shape = {shape}",
                p.shape()
            );
        }
    }
    let lead = x
        .ndim()
        .checked_sub(shape.len())
        .filter(|&lead| x.shape()[lead..] == shape[..]);
    let Some(lead) = lead else {
        let inner: Vec<String> = shape.iter().map(ToString::to_string).collect();
        bail!(
            Runtime,
            "Given normalized_shape={shape}, expected input with shape [*{star}{}], but got input of size{}",
            inner.join(", "),
            x.shape()
        )
    };
    Ok(lead)
}

fn infer_layer_norm(a: &Args) -> Result<Plan> {
    let x = a.tensor(0)?;
    let lead = check_trailing(x, a.ints(1)?, a.opt_tensor(2), a.opt_tensor(3), ", ")?;
    float_only(x.dtype(), "LayerNormKernelImpl")?;
    let stats = param_type(x, &[a.opt_tensor(2), a.opt_tensor(3)])?;
    let mut shape = Dims::filled(x.ndim(), 1);
    shape[..lead].copy_from_slice(&x.shape()[..lead]);
    Ok(Plan::many(&[
        (x.shape(), x.dtype()),
        (&shape, stats),
        (&shape, stats),
    ]))
}

fn layer_norm(a: &Args) -> Result<Ret> {
    let r = dispatch::run(op!("native_layer_norm")?, &a.values[..5])?;
    Ok(r.tensors().swap_remove(0).into())
}

fn infer_rms(a: &Args) -> Result<Plan> {
    let x = a.tensor(0)?;
    float_only(x.dtype(), "rms_norm")?;
    Ok(Plan::contiguous(x.shape(), x.dtype()))
}

fn rms_norm(a: &Args) -> Result<Ret> {
    let (x, shape, w) = (a.tensor(0)?, a.ints(1)?, a.opt_tensor(2));
    let lead = check_trailing(x, shape, w, None, "")?;
    ensure!(
        x.dtype().is_complex() || x.dtype().is_float(),
        NotImplemented,
        "\"rms_norm\" not implemented for '{}'",
        x.dtype().scalar_type()
    );
    let eps = a.opt_float(3).unwrap_or(match x.dtype().to_real() {
        DType::F64 => f64::EPSILON,
        DType::F16 => 0.000_976_562_5,
        DType::BF16 => 0.007_812_5,
        _ => f64::from(f32::EPSILON),
    });
    if !x.dtype().is_complex() && w.is_none_or(|w| !w.dtype().is_complex()) {
        let w = w.map_or(Arg::None, Arg::Tensor);
        return dispatch::run(
            op!("_nn.rms_norm")?,
            &[Arg::Tensor(x), Arg::Ints(shape.clone()), w, Arg::Float(eps)],
        );
    }
    let dims: Dims = (lead as i64..x.ndim() as i64).collect();
    let mean = run1!("mean#dim", &run1!("mul", x, x)?, dims, true)?;
    let mut r = run1!("mul", x, &run1!("rsqrt", &run1!("add", &mean, eps)?)?)?;
    if let Some(w) = w {
        r = run1!("mul", &r, w)?;
    }
    Ok(r.to_dtype(x.dtype())?.into())
}

/// Row-major strides, or channels-last ones if the input is so.
fn suggested(x: &Tensor) -> Result<OutSpec> {
    let last = dims::strides_like_channels_last(x.shape(), x.strides());
    let strides = match x.ndim() {
        4 if last => dims::format_strides(x.shape(), MemoryFormat::ChannelsLast)?,
        5 if last => dims::format_strides(x.shape(), MemoryFormat::ChannelsLast3d)?,
        _ => dims::contiguous_strides(x.shape()),
    };
    Ok(OutSpec {
        shape: x.shape().clone(),
        strides,
        dtype: x.dtype(),
    })
}

fn check_groups(
    x: &Tensor,
    channels: i64,
    groups: i64,
    params: [Option<&Tensor>; 2],
) -> Result<()> {
    ensure!(
        groups > 0,
        Runtime,
        "Expected num groups to be greater than 0, got {groups}"
    );
    ensure!(
        channels % groups == 0,
        Runtime,
        "Expected number of channels in input to be divisible by num_groups, but got input of shape {} and num_groups={groups}",
        x.shape()
    );
    for (what, p) in ["weight", "bias"].iter().zip(params) {
        if let Some(p) = p {
            ensure!(
                p.ndim() == 1 && p.numel() == channels,
                Runtime,
                "Expected {what} to be a vector of size equal to the number of channels in input, but got {what} of shape {} and input of shape {}",
                p.shape(),
                x.shape()
            );
        }
    }
    Ok(())
}

fn infer_group_norm(a: &Args) -> Result<Plan> {
    let x = a.tensor(0)?;
    let (n, c, size, groups) = (a.int(3)?, a.int(4)?, a.int(5)?, a.int(6)?);
    check_groups(x, c, groups, [a.opt_tensor(1), a.opt_tensor(2)])?;
    let fits = n.checked_mul(c).and_then(|v| v.checked_mul(size)) == Some(x.numel());
    ensure!(
        fits,
        Runtime,
        "Expected X.numel() == N * C * HxW to be true, but got false."
    );
    let stats = param_type(x, &[a.opt_tensor(1), a.opt_tensor(2)])?;
    float_only(x.dtype(), "GroupNormKernelImpl")?;
    Ok(Plan {
        outs: smallvec![
            suggested(x)?,
            OutSpec::contiguous(&[n, groups], stats),
            OutSpec::contiguous(&[n, groups], stats)
        ],
        device: None,
    })
}

fn run_group_norm(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (n, c, size, groups) = (
        a.int(3)? as usize,
        a.int(4)? as usize,
        a.int(5)? as usize,
        a.int(6)? as usize,
    );
    cpu::norm::group_norm(
        outs,
        a.tensor(0)?,
        a.opt_tensor(1),
        a.opt_tensor(2),
        [n, groups, c / groups, size],
        a.float(7)?,
    )
}

fn group_norm(a: &Args) -> Result<Ret> {
    let (x, groups) = (a.tensor(0)?, a.int(1)?);
    ensure!(
        x.ndim() >= 2,
        Runtime,
        "Expected at least 2 dimensions for input tensor but received {}",
        x.ndim()
    );
    let (n, c) = (x.shape()[0], x.shape()[1]);
    check_groups(x, c, groups, [a.opt_tensor(2), a.opt_tensor(3)])?;
    let size: i64 = x.shape()[2..].iter().product();
    let x = if suggested(x)?.strides == *x.strides() {
        x.clone()
    } else {
        x.contiguous()?
    };
    let values = [
        Arg::Tensor(&x),
        a.values[2].clone(),
        a.values[3].clone(),
        n.into(),
        c.into(),
        size.into(),
        groups.into(),
        a.float(4)?.into(),
    ];
    Ok(dispatch::run(op!("native_group_norm")?, &values)?
        .tensors()
        .swap_remove(0)
        .into())
}

/// PyTorch refuses to normalise single values.
fn more_than_one(sizes: &[i64], shown: &str) -> Result<()> {
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

fn checked_group_norm(a: &Args) -> Result<Ret> {
    let (x, groups) = (a.tensor(0)?, a.int(1)?);
    ensure!(
        x.ndim() >= 2,
        Runtime,
        "Expected at least 2 dimensions for input tensor but received {}",
        x.ndim()
    );
    ensure!(
        groups != 0,
        ZeroDivision,
        "integer division or modulo by zero"
    );
    let mut sizes = x.shape().to_vec();
    (sizes[0], sizes[1]) = ((sizes[0] * sizes[1]).div_euclid(groups), groups);
    more_than_one(&sizes, &Dims::new(&sizes).to_string())?;
    group_norm(a)
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
    float_only(x.dtype(), "batch_norm")?;
    let stats = OutSpec::contiguous(&[x.shape()[1]], a.dtype(3).unwrap_or(x.dtype()));
    Ok(Plan {
        outs: smallvec![suggested(x)?, stats.clone(), stats.clone(), stats],
        device: None,
    })
}

fn infer_batch_eval(a: &Args) -> Result<Plan> {
    let x = a.tensor(0)?;
    float_only(x.dtype(), "batch_norm")?;
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
    float_only(b.x.dtype(), "batch_norm")?;
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
            super::call::copy_(running, &mean)?;
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

fn infer_window(a: &Args) -> Result<Plan> {
    let x = a.tensor(0)?;
    ensure!(
        a.int(1)? > 0,
        Runtime,
        "kernel size should be greater than zero, but got {}",
        a.int(1)?
    );
    if x.dtype() != DType::I64 {
        float_only(x.dtype(), "avg_pool2d_out_frame")?;
    }
    Ok(Plan::contiguous(x.shape(), x.dtype()))
}

fn local_response_norm(a: &Args) -> Result<Ret> {
    let x = a.tensor(0)?;
    ensure!(
        x.ndim() >= 3,
        Value,
        "Expected 3D or higher dimensionality                          input (got {} dimensions)",
        x.ndim()
    );
    if x.numel() == 0 {
        return Ok(x.clone().into());
    }
    let div = run1!("_nn.window_squares", x, a.int(1)?)?;
    let div = run1!("add", &run1!("mul", &div, a.float(2)?)?, a.float(4)?)?;
    run!("div", x, &run1!("pow", &div, a.float(3)?)?)
}

fn normalize(a: &Args) -> Result<Ret> {
    let (x, p, dim, eps) = (a.tensor(0)?, a.float(1)?, a.int(2)?, a.float(3)?);
    super::rules::dim(x, dim)?;
    let norm = run1!("linalg.vector_norm", x, p, Dims::from([dim]), true)?;
    run!("div", x, &run1!("_nn.clamp_min", &norm, eps)?)
}

#[cfg(test)]
mod tests {
    use crate::{Dims, Tensor, run1};

    fn close(t: &Tensor, want: &[f32]) {
        for (a, b) in t.to_vec::<f32>().unwrap().iter().zip(want) {
            assert!((a - b).abs() < 1e-6, "{a} {b}");
        }
    }

    #[test]
    fn layers_and_losses_agree_with_pytorch() {
        let x = Tensor::from_slice(&[1f32, 2., 4., 8., 0., -1., 3., 5.], &[2, 4]).unwrap();
        let y = run1!("nn.functional.layer_norm", &x, Dims::from([4])).unwrap();
        close(
            &y,
            &[
                -1.025_754_6,
                -0.652_752_94,
                0.093_250_416,
                1.585_257,
                -0.733_798_74,
                -1.153_112_3,
                0.524_141_97,
                1.362_769_1,
            ],
        );
        let y = run1!("softmax", &x, 0i64).unwrap();
        close(
            &y,
            &[
                0.731_058_6,
                0.952_574_13,
                0.731_058_6,
                0.952_574_13,
                0.268_941_43,
                0.047_425_874,
                0.268_941_43,
                0.047_425_874,
            ],
        );
        let classes = Tensor::from_slice(&[3i64, 1], &[2]).unwrap();
        close(
            &run1!("nn.functional.cross_entropy", &x, &classes).unwrap(),
            &[3.078_243_5],
        );
    }
}
