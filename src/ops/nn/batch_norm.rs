//! Normalisation over a batch.

use crate::cpu::norm::compute_type;
use crate::cpu::room::Room;
use crate::ops::batch;
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, F, Hidden, O, OpDef, OutSpec, Plan, Ret, X, compose, kernel};
use crate::ops::nn::dropout::py_float;
use crate::ops::nn::norm::{param_type, suggested};
use crate::ops::{Call, Form, dispatch, f};
use crate::{DType, Dims, MemoryFormat, Result, Tensor, bail, cpu, dims, ensure, kernels, mode};
use smallvec::smallvec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_nn.batch_norm_train",
        "(Tensor input, Tensor? weight, Tensor? bias, Tensor? mean, Tensor? var, dtype stats, float eps) -> (Tensor, Tensor, Tensor, Tensor)",
        0,
        body!(rule_train, anywhere: run_train, scratch: |a, _, outs, room| batch_scratch(room, a.input, outs, [a.weight, a.bias, None, None])),
        "batch_norm with the batch's statistics.",
    ).samples("f32[2, 3, 4], f32[3], f32[3], None, None, f32, 1e-5; f32[2, 3, 4], f32[3], None, f32[3], f32[3], f32, 1e-5")
    .grad("NativeBatchNormBackward0 | input, weight, bias: native_batch_norm_backward(grad, input, weight, mean, var, result1, result2, True, eps, needs)")
    .batch(Batch::As(typed!(batch::batch_norm, Hidden))),
    kernel(
        "_nn.batch_norm_eval",
        "(Tensor input, Tensor mean, Tensor var, Tensor? weight, Tensor? bias, float eps)",
        0,
        body!(rule_eval, anywhere: run_eval, scratch: |a, _, outs, room| batch_scratch(room, a.input, outs, [a.weight, a.bias, Some(a.mean), Some(a.var)])),
        "batch_norm with given statistics.",
    ).samples("f32[2, 3, 4], f32[3], f32[3].pos, f32[3], f32[3], 1e-5")
    .grad("NativeBatchNormBackward0 | input, weight, bias: native_batch_norm_backward(grad, input, weight, mean, var, None, None, False, eps, needs)")
    .batch(Batch::As(typed!(batch::batch_norm_eval, Hidden))),
    compose(
        "native_batch_norm",
        "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        F | O | X,
        native_batch_norm,
        "batch_norm with its statistics.",
    ).samples("f32[3, 2, 3, 4], f32[2], f32[2], f32[2], f32[2], True, -1.0, 0.5")
    .grad("input, weight, bias: native_batch_norm_backward(grad, input, weight, running_mean, running_var, result1, result2, training, eps, needs); running_mean, running_var: never"),
    compose(
        "_native_batch_norm_legit",
        "(Tensor input, Tensor? weight, Tensor? bias, Tensor running_mean, Tensor running_var, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        F | O | X,
        |a| {
            let [mean, var] = [a.running_mean, a.running_var];
            three(f::native_batch_norm(
                a.input, a.weight, a.bias, mean, var, a.training, a.momentum, a.eps,
            ))
        },
        "batch_norm with its statistics.",
    ).samples("f32[2, 1], f32[1], f32[1], f32[1], f32[1], True, 0.5, 0.0")
    .grad("input, weight, bias: native_batch_norm_backward(grad, input, weight, running_mean, running_var, result1, result2, training, eps, needs); running_mean, running_var: never"),
    compose(
        "_native_batch_norm_legit#no_stats",
        "(Tensor input, Tensor? weight, Tensor? bias, bool training, float momentum, float eps) -> (Tensor, Tensor, Tensor)",
        F,
        |a| {
            three(f::native_batch_norm(
                a.input, a.weight, a.bias, None, None, a.training, a.momentum, a.eps,
            ))
        },
        "batch_norm with its statistics.",
    ).samples("f64[3, 4], None, None, True, 0.5, 0.0")
    .grad("NativeBatchNormLegitBackward1 | input, weight, bias: native_batch_norm_backward(grad, input, weight, None, None, result1, result2, training, eps, needs)"),
    compose(
        "batch_norm",
        "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, float momentum, float eps, bool cudnn_enabled)",
        F,
        |a| {
            let channels = Channels::of(a.weight, a.bias, a.running_mean, a.running_var);
            batch_norm(a.input, channels, a.training, a.momentum, a.eps)
        },
        "Normalised over all but the channels.",
    ).samples(
        "f32[2, 3, 4], f32[3], f32[3], f32[3], f32[3].pos, True, 0.1, 1e-5, True; \
         f32[2, 3], None, None, f32[3], f32[3].pos, False, 0.1, 1e-5, True",
    ),
    compose(
        "nn.functional.batch_norm",
        "(Tensor input, Tensor? running_mean, Tensor? running_var, Tensor? weight=None, Tensor? bias=None, bool training=False, float momentum=0.1, float eps=1e-05)",
        F,
        checked_batch_norm,
        "Normalised over all but the channels.",
    ).samples(
        "f32[2, 1], f32[1], f32[1], f32[1], f32[1], training=True; \
         f32[3, 1], f32[1], f32[1], f32[1], f32[1], training=True, momentum=0.0",
    ),
    compose(
        "instance_norm",
        "(Tensor input, Tensor? weight, Tensor? bias, Tensor? running_mean, Tensor? running_var, bool use_input_stats, float momentum, float eps, bool cudnn_enabled)",
        F,
        instance_norm,
        "Normalised over the positions of each channel of each sample.",
    ).samples("f32[2, 3, 4], f32[3], f32[3], None, None, True, 0.1, 1e-5, True"),
    compose(
        "nn.functional.instance_norm",
        "(Tensor input, Tensor? running_mean=None, Tensor? running_var=None, Tensor? weight=None, Tensor? bias=None, bool use_input_stats=True, float momentum=0.1, float eps=1e-05)",
        F,
        checked_instance_norm,
        "Normalised over the positions of each channel of each sample.",
    ).samples(
        "f32[2, 3, 4]; \
         f32[5, 5, 5], running_mean=f32[5], running_var=f32[5], weight=f32[5], bias=f32[5], momentum=0.5, eps=0.6",
    ),
];

/// PyTorch refuses to normalise single values.
pub(in crate::ops) fn more_than_one(sizes: &[i64], shown: impl Fn() -> String) -> Result<()> {
    let n: i64 = sizes
        .iter()
        .enumerate()
        .filter(|(i, _)| *i != 1)
        .map(|(_, s)| s)
        .product();
    ensure!(
        n != 1,
        Value,
        "Expected more than 1 value per channel when training, got input size {}",
        shown()
    );
    Ok(())
}

fn three(results: Result<[Tensor; 3]>) -> Result<Ret> {
    Ok(Ret::Tuple(results?.into()))
}

/// The tensors that belong to the channels of an input.
#[derive(Clone, Copy)]
struct Channels<'a> {
    weight: Option<&'a Tensor>,
    bias: Option<&'a Tensor>,
    mean: Option<&'a Tensor>,
    var: Option<&'a Tensor>,
}

impl<'a> Channels<'a> {
    fn of(
        weight: Option<&'a Tensor>,
        bias: Option<&'a Tensor>,
        mean: Option<&'a Tensor>,
        var: Option<&'a Tensor>,
    ) -> Self {
        Self {
            weight,
            bias,
            mean,
            var,
        }
    }

    /// Checks that all have one element for each channel, and that statistics are there unless the batch gives them.
    fn check(&self, x: &Tensor, training: bool) -> Result<()> {
        let features = if x.ndim() > 1 { x.shape()[1] } else { 0 };
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
                t.is_some() || training,
                Runtime,
                "{what} must be defined in evaluation mode"
            );
            fits(what, t)?;
        }
        fits("weight", self.weight)?;
        fits("bias", self.bias)
    }
}

/// Every parameter and statistic that is given has a value a channel.
fn check_lengths(channels: i64, given: [Option<&Tensor>; 4]) -> Result<()> {
    match given.into_iter().flatten().find(|p| p.numel() != channels) {
        None => Ok(()),
        Some(p) => bail!(
            Runtime,
            "batch_norm of {channels} channels was given {} values for them",
            p.numel()
        ),
    }
}

/// As the input suggests, as in PyTorch's kernel: plain where it is that too, channels-last also where that shows only if
/// dimensions of size 1 are left out.
fn lies(x: &Tensor) -> Result<OutSpec> {
    let mut spec = suggested(x)?;
    if x.is_contiguous() {
        spec.strides = dims::contiguous_strides(x.shape());
        return Ok(spec);
    }
    for format in [MemoryFormat::ChannelsLast, MemoryFormat::ChannelsLast3d] {
        if dims::is_channels_last(x.shape(), x.strides(), format) {
            spec.strides = dims::format_strides(x.shape(), format)?;
        }
    }
    Ok(spec)
}

fn rule_train(a: &calls::_NnBatchNormTrain) -> Result<Plan> {
    let x = a.input;
    x.dtype().check_float_kernel("batch_norm")?;
    let channels = x.size(1)?;
    check_lengths(channels, [a.weight, a.bias, a.mean, a.var])?;
    let stats = OutSpec::contiguous(&[channels], a.stats);
    Ok(Plan {
        outs: smallvec![lies(x)?, stats.clone(), stats.clone(), stats],
        device: None,
    })
}

fn run_train(a: &calls::_NnBatchNormTrain, (): &(), outs: &[Tensor]) -> Result<()> {
    kernels::batch_norm::train(outs, a.input, a.weight, a.bias, a.eps)
}

fn rule_eval(a: &calls::_NnBatchNormEval) -> Result<Plan> {
    let x = a.input;
    x.dtype().check_float_kernel("batch_norm")?;
    check_lengths(x.size(1)?, [a.weight, a.bias, Some(a.mean), Some(a.var)])?;
    Ok(Plan {
        outs: smallvec![lies(x)?],
        device: None,
    })
}

fn run_eval(a: &calls::_NnBatchNormEval, (): &(), outs: &[Tensor]) -> Result<()> {
    kernels::batch_norm::eval(&outs[0], a.input, a.mean, a.var, a.weight, a.bias, a.eps)
}

/// Batches are read and written as they lie if that is channels last, else row-major.
fn batch_scratch(
    room: &mut Room,
    x: &Tensor,
    outs: &[Tensor],
    more: [Option<&Tensor>; 4],
) -> Result<()> {
    let c = compute_type(x.dtype());
    room.operands(more, &outs[1..], c)?;
    if cpu::batch::lies_last(&outs[0], x) {
        return Ok(());
    }
    room.operands([Some(x)], &outs[..1], x.dtype())
}

fn native_batch_norm(a: &calls::NativeBatchNorm) -> Result<Ret> {
    let channels = Channels::of(a.weight, a.bias, a.running_mean, a.running_var);
    let (out, stats) = normalised(a.input, channels, a.training, a.momentum, a.eps)?;
    let [mean, deviation] = match stats {
        Ok(stats) => stats,
        Err(dtype) => {
            let none = f::NewEmpty::new(a.input, &[0]).dtype(dtype).call()?;
            [none.clone(), f::clone(&none)?]
        }
    };
    Ok(Ret::Tuple(vec![out, mean, deviation]))
}

/// The result, and the batch's means and inverse deviations or, where they are not taken, the type that they would have.
fn normalised(
    x: &Tensor,
    channels: Channels<'_>,
    training: bool,
    momentum: f64,
    eps: f64,
) -> Result<(Tensor, std::result::Result<[Tensor; 2], DType>)> {
    channels.check(x, training)?;
    x.size(1)?;
    x.dtype().check_float_kernel("batch_norm")?;
    let stats = param_type(
        x,
        &[channels.weight, channels.bias, channels.mean, channels.var],
    )?;
    let running = [
        ("running_mean", channels.mean),
        ("running_var", channels.var),
    ];
    for (name, t) in running {
        ensure!(
            !(mode::grad_enabled() && t.is_some_and(Tensor::requires_grad)),
            Runtime,
            "The function 'native_batch_norm' is not differentiable with respect to argument '{name}'. This input cannot have requires_grad True."
        );
    }
    if let (false, Some(mean), Some(var)) = (training, channels.mean, channels.var) {
        let out = f::_nn_batch_norm_eval(x, mean, var, channels.weight, channels.bias, eps)?;
        return Ok((out, Err(stats)));
    }
    ensure!(
        x.numel() > 0,
        Runtime,
        "input tensor must have at least one element, but got input_sizes = {}",
        x.shape()
    );
    let (mean, var) = (channels.mean, channels.var);
    // Running statistics move once, whatever weights of several examples do with what is normalised.
    let after =
        |t: Option<&Tensor>| x.batch().is_empty() && t.is_some_and(|t| !t.batch().is_empty());
    let after = after(channels.weight) || after(channels.bias);
    let (weight, bias) = if after {
        (None, None)
    } else {
        (channels.weight, channels.bias)
    };
    let [mut out, mean, deviation, var] =
        f::_nn_batch_norm_train(x, weight, bias, mean, var, stats, eps)?;
    if after {
        out = affine(&out, channels.weight, channels.bias)?;
    }
    for (running, batch) in [(channels.mean, &mean), (channels.var, &var)] {
        if let Some(t) = running {
            let batch = batch.to_dtype(t.dtype())?;
            update(t, &batch, momentum)?;
        }
    }
    Ok((out, Ok([mean, deviation])))
}

/// Times a weight, plus a bias, of each channel.
fn affine(x: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<Tensor> {
    let mut out = x.clone();
    let mut shape = Dims::filled(x.ndim(), 1);
    shape[1] = -1;
    if let Some(w) = weight {
        out = f::mul(&out, &f::reshape(w, &shape[..])?)?;
    }
    if let Some(b) = bias {
        out = f::add(&out, &f::reshape(b, &shape[..])?)?;
    }
    f::to_dtype(&out, x.dtype())
}

/// Brings a running statistic on. The change is not counted: the gradient's node has saved the statistic, as PyTorch's has, and
/// needs no values of it.
fn update(running: &Tensor, batch: &Tensor, momentum: f64) -> Result<()> {
    let call = f::_NnUpdateRunning::new(running, batch, momentum);
    let (args, form) = (call.args()?, Form::Within(running));
    dispatch::call(Call { args: &args, form }).map(drop)
}

fn batch_norm(
    x: &Tensor,
    channels: Channels<'_>,
    training: bool,
    momentum: f64,
    eps: f64,
) -> Result<Tensor> {
    if x.numel() == 0 {
        channels.check(x, training)?;
        let mut out = f::clone(x)?;
        if let Some(w) = channels.weight {
            out = f::mul(&out, &f::select(w, 0, 0)?)?;
        }
        if let Some(bias) = channels.bias {
            out = f::add(&out, &f::select(bias, 0, 0)?)?;
        }
        return Ok(out);
    }
    Ok(normalised(x, channels, training, momentum, eps)?.0)
}

fn checked_batch_norm(a: &calls::NnFunctionalBatchNorm) -> Result<Tensor> {
    if a.training {
        let shape = a.input.shape();
        more_than_one(shape, || format!("torch.Size({shape})"))?;
        ensure!(
            a.eps > 0.0 || a.eps.is_nan(),
            Value,
            "batch_norm eps must be positive during training, but got {}",
            py_float(a.eps)
        );
    }
    ensure!(
        a.eps >= 0.0 || a.eps.is_nan(),
        Value,
        "batch_norm eps must be non-negative, but got {}",
        py_float(a.eps)
    );
    let channels = Channels::of(a.weight, a.bias, a.running_mean, a.running_var);
    batch_norm(a.input, channels, a.training, a.momentum, a.eps)
}

fn instance_norm(a: &calls::InstanceNorm) -> Result<Tensor> {
    let x = a.input;
    ensure!(
        a.use_input_stats || (a.running_mean.is_some() && a.running_var.is_some()),
        Runtime,
        "Expected running_mean and running_var to be defined when use_input_stats is false"
    );
    ensure!(
        x.ndim() >= 2,
        Runtime,
        "instance_norm needs at least 2 dimensions, got {}",
        x.ndim()
    );
    let (n, c) = (x.shape()[0], x.shape()[1]);
    let mut shape = x.shape().clone();
    (shape[0], shape[1]) = (1, n * c);
    let repeated = |t: Option<&Tensor>| t.map(|t| f::repeat(t, &[n])).transpose();
    let (weight, bias) = (repeated(a.weight)?, repeated(a.bias)?);
    // Running statistics of any type are read as the weight's, or else the input's, as in PyTorch.
    let kind = a.weight.map_or(x.dtype(), Tensor::dtype);
    let statistics = |t: Option<&Tensor>| match repeated(t)? {
        Some(t) => Ok(Some(t.to_dtype(kind)?)),
        t => Ok::<_, crate::Error>(t),
    };
    let (mean, var) = (statistics(a.running_mean)?, statistics(a.running_var)?);
    let flat = f::view(&x.contiguous()?, &shape)?;
    let channels = Channels::of(weight.as_ref(), bias.as_ref(), mean.as_ref(), var.as_ref());
    let out = batch_norm(&flat, channels, a.use_input_stats, a.momentum, a.eps)?;
    for (running, updated) in [(a.running_mean, &mean), (a.running_var, &var)] {
        if let (Some(running), Some(updated), true) = (running, updated, a.use_input_stats) {
            let mean = f::mean_dim(&f::view(updated, &[n, c])?, &[0][..])?;
            helpers::copy_(running, &mean)?;
        }
    }
    f::view(&out, x.shape())
}

fn checked_instance_norm(a: &calls::NnFunctionalInstanceNorm) -> Result<Tensor> {
    if a.use_input_stats {
        let n: i64 = a.input.shape().iter().skip(2).product();
        ensure!(
            n != 1,
            Value,
            "Expected more than 1 spatial element when training, got input size torch.Size({})",
            a.input.shape()
        );
    }
    f::instance_norm(
        a.input,
        a.weight,
        a.bias,
        a.running_mean,
        a.running_var,
        a.use_input_stats,
        a.momentum,
        a.eps,
        true,
    )
}
