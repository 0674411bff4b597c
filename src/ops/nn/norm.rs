//! Normalisation over layers and groups: rules, and the functions of `torch` and `nn.functional` that lead to them.

use crate::cpu::map::{Ctx, FromCtx as _};
use crate::dims::{self, MemoryFormat};
use crate::ops::batch;
use crate::ops::core::op::{Batch, Cast, F, Hidden, O, OpDef, OutSpec, Plan, Ret, compose, kernel};
use crate::ops::f;
use crate::ops::nn::batch_norm::more_than_one;
use crate::ops::pointwise::rule::same;
use crate::{DType, Dims, Result, Tensor, bail, cpu, ensure, kernels, map_op, map_row};
use smallvec::smallvec;
use torchlike_macros::operators;

map_op! { Blend, 2, [float] |x, y, c| x * T::ctx(c, 1) + y * T::ctx(c, 0) }

fn blend_ctx(a: &calls::_NnUpdateRunning, _: DType) -> Result<Ctx> {
    Ok(Ctx {
        f: [a.momentum, 1.0 - a.momentum, 0.0],
        ..Ctx::default()
    })
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    map_row!(Blend "_nn.update_running", 2, same, typed!(blend_ctx, DType), 0, "a * f1 + b * f0", "(Tensor self, Tensor batch, float momentum)", "A running mean of statistics.").samples("f32[3], f32[3], 0.1").grad("self: grad * (1.0 - momentum); batch: grad * momentum"),
    kernel(
        "native_layer_norm",
        "(Tensor input, int[] normalized_shape, Tensor? weight, Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
        F,
        body!(rule_layer_norm, anywhere: run_layer_norm, scratch: |a, _, outs, room| cpu::norm::scratch(room, a.input, [a.weight, a.bias], outs)),
        "layer_norm with its means and inverse deviations.",
    ).samples("f32[1, 2, 3], (1, 2, 3), None, None, 0.5")
    .grad("input, weight, bias: native_layer_norm_backward(grad, input, normalized_shape, result1, result2, weight, bias, needs)")
    .batch(Batch::As(typed!(batch::layer_norm, Hidden)))
    .amp(Cast::Kept, Cast::Single),
    compose(
        "layer_norm",
        "(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enable=True)",
        F,
        |a| layer_norm(a.input, a.normalized_shape, a.weight, a.bias, a.eps),
        "Normalised over the last dimensions.",
    ).samples("f32[1], (1,), f32[1], f32[1]; f32[2, 2, 3], (2, 3), f32[2, 3], f32[2, 3], eps=-0.5")
    .amp(Cast::Kept, Cast::Single),
    compose(
        "nn.functional.layer_norm",
        "(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05)",
        F,
        |a| layer_norm(a.input, a.normalized_shape, a.weight, a.bias, a.eps),
        "Normalised over the last dimensions.",
    ).samples("f32[1, 2], (2,); f32[2, 2, 3], (2, 3), f32[2, 3], f32[2, 3], eps=-0.5")
    .amp(Cast::Kept, Cast::Single),
    kernel(
        "_fused_rms_norm",
        "(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)",
        F,
        body!(rule_fused_rms_norm, anywhere: run_fused_rms_norm, scratch: |a, _, outs, room| cpu::norm::scratch(room, a.input, [a.weight], outs)),
        "rms_norm with its inverse root mean squares.",
    ).samples("f32[2, 3], (3,), f32[3], None; bf16[2, 3], (3,), None, 0.5")
    .grad("input, weight: _fused_rms_norm_backward(grad, input, normalized_shape, result1, weight, needs)")
    .batch(Batch::As(typed!(batch::rms_norm, Hidden))),
    kernel(
        "_nn.rms_norm",
        "(Tensor input, int[] normalized_shape, Tensor? weight, float eps)",
        0,
        body!(rule_rms_norm, anywhere: run_rms_norm, scratch: |a, _, outs, room| cpu::norm::scratch(room, a.input, [a.weight], outs)),
        "Divided by the root mean square over the last dimensions.",
    ).samples("f32[2, 3], [3], f32[3], 1e-5; f32[2, 3], [2, 3], None, 1e-5")
    .through(typed!(recorded_rms_norm)),
    compose(
        "rms_norm",
        "(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None)",
        F,
        rms_norm,
        "Divided by the root mean square over the last dimensions.",
    ).samples("f32[2, 3], (3,), f32[3]; f32[2, 3, 4], (3, 4), eps=0.5")
    .amp(Cast::Kept, Cast::Single),
    kernel(
        "native_group_norm",
        "(Tensor input, Tensor? weight, Tensor? bias, int N, int C, int HxW, int group, float eps) -> (Tensor, Tensor, Tensor)",
        F,
        body!(rule_group_norm, anywhere: run_group_norm, scratch: |a, _, outs, room| cpu::norm::scratch(room, a.input, [a.weight, a.bias], outs)),
        "group_norm with its means and inverse deviations.",
    ).samples("f32[1, 6, 3], f32[6], f32[6], 1, 6, 3, 2, 0.5")
    .grad("input, weight, bias: _grad.group_norm_all(grads[0], grads[1], grads[2], input, result1, result2, weight, N, C, HxW, group, needs)")
    .batch(Batch::As(typed!(batch::group_norm, Hidden))),
    compose(
        "group_norm",
        "(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enabled=True)",
        F,
        |a| group_norm(a.input, a.num_groups, a.weight, a.bias, a.eps),
        "Normalised over groups of channels.",
    ).samples("f32[1, 6, 3], 2, weight=f32[6], bias=f32[6], eps=0.5")
    .amp(Cast::Kept, Cast::Single),
    compose(
        "nn.functional.group_norm",
        "(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05)",
        F,
        checked_group_norm,
        "Normalised over groups of channels.",
    ).samples("f32[3, 4], 1; f32[2, 6, 3], 2, weight=f32[6], bias=f32[6], eps=-0.5")
    .amp(Cast::Kept, Cast::Single),
    compose(
        "nn.functional.normalize",
        "(Tensor input, float p=2.0, int[1]? dim=1, float eps=1e-12)",
        F | O,
        normalize,
        "Divided by the norm along a dimension.",
    ).samples("f32[3, 4]; c64[3, 4], eps=0.0001; f32[3, 4], p=1.2, dim=0; f32[2, 3, 4], dim=(0, 2)"),
];

fn count(shape: &[i64]) -> usize {
    shape.iter().product::<i64>() as usize
}

/// Checks that parameters have the input's type, or single precision beside a 16-bit input; gives their type.
pub(super) fn param_type(x: &Tensor, params: &[Option<&Tensor>]) -> Result<DType> {
    let mut given = params.iter().flatten().map(|p| p.dtype());
    let Some(first) = given.next() else {
        return Ok(x.dtype());
    };
    if first != x.dtype() {
        ensure!(
            first == DType::F32 && given.clone().all(|d| d == DType::F32),
            Runtime,
            "mixed dtype (CPU): expect parameter to have scalar type of Float"
        );
        ensure!(
            matches!(x.dtype(), DType::F16 | DType::BF16),
            Runtime,
            "mixed dtype (CPU): all inputs must share same datatype."
        );
    }
    given.try_for_each(|d| first.check_same(d))?;
    Ok(first)
}

/// The checks of layer_norm; gives the number of leading dimensions.
pub(in crate::ops) fn check_trailing(
    x: &Tensor,
    shape: &[i64],
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    star: &str,
) -> Result<usize> {
    let shape = &Dims::new(shape);
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

/// The layout of the results, and the number of elements that are normalised together.
fn rule_layer_norm(a: &calls::NativeLayerNorm) -> Result<(Plan, usize)> {
    let x = a.input;
    let lead = check_trailing(x, a.normalized_shape, a.weight, a.bias, ", ")?;
    let stats = param_type(x, &[a.weight, a.bias])?;
    x.dtype().check_float_kernel("LayerNormKernelImpl")?;
    let mut shape = Dims::filled(x.ndim(), 1);
    shape[..lead].copy_from_slice(&x.shape()[..lead]);
    let plan = Plan::many(&[(x.shape(), x.dtype()), (&shape, stats), (&shape, stats)]);
    Ok((plan, count(a.normalized_shape)))
}

fn run_layer_norm(a: &calls::NativeLayerNorm, n: &usize, outs: &[Tensor]) -> Result<()> {
    kernels::norm::layer_norm(outs, a.input, a.weight, a.bias, *n, a.eps)
}

fn layer_norm(
    x: &Tensor,
    shape: &[i64],
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    let [out, ..] = f::native_layer_norm(x, shape, weight, bias, eps)?;
    Ok(out)
}

fn rule_rms_norm(a: &calls::_NnRmsNorm) -> Result<(Plan, usize)> {
    let x = a.input;
    x.dtype().check_float_kernel("rms_norm")?;
    let plan = Plan::contiguous(x.shape(), x.dtype());
    Ok((plan, count(a.normalized_shape)))
}

fn run_rms_norm(a: &calls::_NnRmsNorm, n: &usize, outs: &[Tensor]) -> Result<()> {
    kernels::norm::rms_norm(&outs[0], None, a.input, a.weight, *n, a.eps)
}

/// The layout of the results, and the number of elements that are normalised together.
fn rule_fused_rms_norm(a: &calls::_FusedRmsNorm) -> Result<(Plan, usize)> {
    let x = a.input;
    let lead = check_trailing(x, a.normalized_shape, a.weight, None, "")?;
    x.dtype().check_float_kernel("rms_norm")?;
    let mut shape = Dims::filled(x.ndim(), 1);
    shape[..lead].copy_from_slice(&x.shape()[..lead]);
    let stats = cpu::norm::compute_type(x.dtype());
    let plan = Plan::many(&[(x.shape(), x.dtype()), (&shape, stats)]);
    Ok((plan, count(a.normalized_shape)))
}

fn run_fused_rms_norm(a: &calls::_FusedRmsNorm, n: &usize, outs: &[Tensor]) -> Result<()> {
    let eps = a.eps.unwrap_or_else(|| a.input.dtype().epsilon());
    kernels::norm::rms_norm(&outs[0], Some(&outs[1]), a.input, a.weight, *n, eps)
}

fn rms_norm(a: &calls::RmsNorm) -> Result<Tensor> {
    let (x, weight) = (a.input, a.weight);
    let lead = check_trailing(x, a.normalized_shape, weight, None, "")?;
    x.dtype()
        .check_kernel(x.dtype().is_complex() || x.dtype().is_float(), "rms_norm")?;
    let eps = a.eps.unwrap_or_else(|| x.dtype().epsilon());
    if let Some(w) = weight.filter(|w| w.dtype() != x.dtype()) {
        crate::warn_once!(
            "Mismatch dtype between input and weight: input dtype = {}, weight dtype = {}, Cannot dispatch to fused \
             implementation.",
            x.dtype().cpp_name(),
            w.dtype().cpp_name()
        );
    }
    if !x.dtype().is_complex() && weight.is_none_or(|w| !w.dtype().is_complex()) {
        return f::_nn_rms_norm(x, a.normalized_shape, weight, eps);
    }
    let dims: Dims = (lead as i64..x.ndim() as i64).collect();
    let mean = f::MeanDim::new(&f::pow(x, 2i64)?, &*dims)
        .keepdim(true)
        .call()?;
    let mut r = f::mul(x, &f::rsqrt(&f::_add_number(&mean, eps)?)?)?;
    if let Some(w) = weight {
        r = f::mul(&r, w)?;
    }
    r.to_dtype(x.dtype())
}

/// Row-major strides, or channels-last ones if the input is so.
pub(in crate::ops) fn suggested(x: &Tensor) -> Result<OutSpec> {
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

pub(in crate::ops) fn check_groups(
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
                // Of either, PyTorch shows the shape of the weight.
                params[0].map_or(&Dims::from([0]), Tensor::shape),
                x.shape()
            );
        }
    }
    Ok(())
}

/// The layout of the results, and samples, groups, channels of a group and positions of a channel.
fn rule_group_norm(a: &calls::NativeGroupNorm) -> Result<(Plan, [usize; 4])> {
    let (x, n, c, size, groups) = (a.input, a.N, a.C, a.HxW, a.group);
    check_groups(x, c, groups, [a.weight, a.bias])?;
    let fits = n.checked_mul(c).and_then(|v| v.checked_mul(size)) == Some(x.numel());
    ensure!(
        fits,
        Runtime,
        "Expected X.numel() == N * C * HxW to be true, but got false."
    );
    let stats = param_type(x, &[a.weight, a.bias])?;
    x.dtype().check_float_kernel("GroupNormKernelImpl")?;
    let plan = Plan {
        outs: smallvec![
            suggested(x)?,
            OutSpec::contiguous(&[n, groups], stats),
            OutSpec::contiguous(&[n, groups], stats)
        ],
        device: None,
    };
    Ok((plan, [n, groups, c / groups, size].map(|v| v as usize)))
}

fn run_group_norm(a: &calls::NativeGroupNorm, sizes: &[usize; 4], outs: &[Tensor]) -> Result<()> {
    kernels::norm::group_norm(outs, a.input, a.weight, a.bias, *sizes, a.eps)
}

fn at_least_two_dims(x: &Tensor) -> Result<()> {
    ensure!(
        x.ndim() >= 2,
        Runtime,
        "Expected at least 2 dimensions for input tensor but received {}",
        x.ndim()
    );
    Ok(())
}

fn group_norm(
    x: &Tensor,
    groups: i64,
    weight: Option<&Tensor>,
    bias: Option<&Tensor>,
    eps: f64,
) -> Result<Tensor> {
    at_least_two_dims(x)?;
    let (n, c) = (x.shape()[0], x.shape()[1]);
    check_groups(x, c, groups, [weight, bias])?;
    let size: i64 = x.shape()[2..].iter().product();
    let x = if suggested(x)?.strides == *x.strides() {
        x.clone()
    } else {
        x.contiguous()?
    };
    let [out, ..] = f::native_group_norm(&x, weight, bias, n, c, size, groups, eps)?;
    Ok(out)
}

fn checked_group_norm(a: &calls::NnFunctionalGroupNorm) -> Result<Tensor> {
    let (x, groups) = (a.input, a.num_groups);
    at_least_two_dims(x)?;
    ensure!(
        groups != 0,
        ZeroDivision,
        "integer division or modulo by zero"
    );
    let mut sizes = x.shape().clone();
    (sizes[0], sizes[1]) = ((sizes[0] * sizes[1]).div_euclid(groups), groups);
    more_than_one(&sizes, || sizes.to_string())?;
    group_norm(x, groups, a.weight, a.bias, a.eps)
}

fn normalize(a: &calls::NnFunctionalNormalize) -> Result<Tensor> {
    let x = a.input;
    for dim in a.dim.unwrap_or_default() {
        crate::ops::core::rules::dim(x, *dim)?;
    }
    let norm = f::LinalgVectorNorm::new(x)
        .ord(a.p)
        .dim(a.dim)
        .keepdim(true)
        .call()?;
    let bounded = f::_nn_clamp_min(&norm, a.eps)?;
    f::div(x, &f::expand(&bounded, x.shape())?)
}

/// `rms_norm` as the calls that its gradient is made of.
fn recorded_rms_norm(a: &calls::_NnRmsNorm) -> Result<Ret> {
    let (x, weight, eps) = (a.input, a.weight, a.eps);
    let count = a.normalized_shape.len();
    let over: Vec<i64> = (x.ndim() - count..x.ndim()).map(|d| d as i64).collect();
    let wide = if matches!(x.dtype(), DType::F16 | DType::BF16) {
        f::to_dtype(x, DType::F32)?
    } else {
        x.clone()
    };
    let mean = f::MeanDim::new(&f::pow(&wide, 2i64)?, &over[..])
        .keepdim(true)
        .call()?;
    let mut made = f::mul(&wide, &f::rsqrt(&f::_add_number(&mean, eps)?)?)?;
    if let Some(w) = weight {
        made = f::mul(&made, w)?;
    }
    f::to_dtype(&made, x.dtype()).map(Ret::One)
}

#[cfg(test)]
mod tests {
    use crate::Tensor;
    use crate::ops::f;

    fn close(t: &Tensor, want: &[f32]) {
        for (a, b) in t.to_vec::<f32>().unwrap().iter().zip(want) {
            assert!((a - b).abs() < 1e-6, "{a} {b}");
        }
    }

    #[test]
    fn layers_and_losses_agree_with_pytorch() {
        let x = Tensor::from_slice(&[1f32, 2., 4., 8., 0., -1., 3., 5.], &[2, 4]).unwrap();
        let y = f::nn_functional_layer_norm(&x, &[4]).unwrap();
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
        let y = f::softmax(&x, 0).unwrap();
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
            &f::nn_functional_cross_entropy(&x, &classes).unwrap(),
            &[3.078_243_5],
        );
    }
}
