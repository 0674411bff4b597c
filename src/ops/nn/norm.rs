//! Normalisation over layers and groups: rules, and the functions of `torch` and `nn.functional` that lead to them.

use crate::cpu::map::{Ctx, FromCtx as _};
use crate::dims::{self, MemoryFormat};
use crate::ops::core::args::{Arg, Args};
use crate::ops::core::dispatch;
use crate::ops::core::op::{F, I, KernelBody, O, OpDef, OutSpec, Plan, Ret, kernel, old_compose};
use crate::ops::nn::batch_norm::more_than_one;
use crate::ops::pointwise::rule::same;
use crate::{DType, Dims, Result, Tensor, bail, cpu, ensure, map_op, map_row, op, run, run1};
use smallvec::smallvec;
use torchlike_macros::operators;

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
#[operators]
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
    old_compose(
        "layer_norm",
        "(Tensor input, int[] normalized_shape, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enable=True)",
        F,
        layer_norm,
        "Normalised over the last dimensions.",
    ),
    old_compose(
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
    old_compose(
        "rms_norm",
        "(Tensor input, int[] normalized_shape, Tensor? weight=None, float? eps=None)",
        F,
        rms_norm,
        "Divided by the root mean square over the last dimensions.",
    ),
    old_compose(
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
    old_compose(
        "group_norm",
        "(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05, bool cudnn_enabled=True)",
        F,
        group_norm,
        "Normalised over groups of channels.",
    ),
    old_compose(
        "nn.functional.group_norm",
        "(Tensor input, int num_groups, Tensor? weight=None, Tensor? bias=None, float eps=1e-05)",
        F,
        checked_group_norm,
        "Normalised over groups of channels.",
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
    old_compose(
        "nn.functional.local_response_norm",
        "(Tensor input, int size, float alpha=0.0001, float beta=0.75, float k=1.0)",
        F,
        local_response_norm,
        "Divided by a power of the mean square over neighbouring channels.",
    ),
    old_compose(
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
    x.dtype().check_float_kernel("LayerNormKernelImpl")?;
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
    x.dtype().check_float_kernel("rms_norm")?;
    Ok(Plan::contiguous(x.shape(), x.dtype()))
}

fn rms_norm(a: &Args) -> Result<Ret> {
    let (x, shape, w) = (a.tensor(0)?, a.ints(1)?, a.opt_tensor(2));
    let lead = check_trailing(x, shape, w, None, "")?;
    x.dtype()
        .check_kernel(x.dtype().is_complex() || x.dtype().is_float(), "rms_norm")?;
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
    x.dtype().check_float_kernel("GroupNormKernelImpl")?;
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

fn infer_window(a: &Args) -> Result<Plan> {
    let x = a.tensor(0)?;
    ensure!(
        a.int(1)? > 0,
        Runtime,
        "kernel size should be greater than zero, but got {}",
        a.int(1)?
    );
    if x.dtype() != DType::I64 {
        x.dtype().check_float_kernel("avg_pool2d_out_frame")?;
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
    crate::ops::core::rules::dim(x, dim)?;
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
