//! Backward of convolutions.

use crate::cpu::conv::{self, Geometry};
use crate::cpu::room::Room;
use crate::ops::core::op::{Batch, Hidden, OpDef, Plan, compose, kernel};
use crate::ops::nn::conv::{format_of, geometry};
use crate::ops::{batch, f, grad};
use crate::{DType, Dims, MemoryFormat, Result, Tensor, dims, ensure, kernels};
use torchlike_macros::operators;

/// What the gradients are computed from.
struct Parts<'a> {
    grad: &'a Tensor,
    forward: f::Convolution<'a>,
}

macro_rules! parts {
    ($a:ident) => {
        Parts {
            grad: $a.grad_output,
            forward: f::Convolution::new(
                $a.input,
                $a.weight,
                None,
                $a.stride,
                $a.padding,
                $a.dilation,
                $a.transposed,
                $a.output_padding,
                $a.groups,
            ),
        }
    };
}
/// A call of one of the rows below.
macro_rules! gradient {
    ($a:ident, $row:ident) => {
        f::$row(
            $a.grad_output,
            $a.input,
            $a.weight,
            $a.stride,
            $a.padding,
            $a.dilation,
            $a.transposed,
            $a.output_padding,
            $a.groups,
        )
    };
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.convolution_backward",
        "(Tensor grad_output, Tensor input, Tensor weight, int[]? bias_sizes, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups, bool[3] output_mask) -> (Tensor?, Tensor?, Tensor?)",
        0,
        convolution_backward,
        "The gradients of a convolution's input, weight and bias.",
    )
    .samples(
        "f32[2, 4, 3], f32[2, 3, 5], f32[4, 3, 3], [4], [1], [0], [1], False, [0], 1, [True, True, True]; \
         f32[1, 4, 3, 3], f32[1, 4, 5, 5], f32[4, 2, 3, 3], None, [2, 2], [1, 1], [1, 1], False, [0, 0], 2, [True, False, False]",
    ),
    kernel(
        "_grad.convolution_input",
        "(Tensor grad_output, Tensor input, Tensor weight, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups)",
        0,
        body!(
            |a| rule(&parts!(a), false),
            anywhere: |a, found, outs| input_gradient(&parts!(a), found, &outs[0]),
            scratch: |a, found, outs, room| input_scratch(&parts!(a), found, &outs[0], room)
        )
        .flops(typed!(|a| Ok(input_flops(&parts!(a))))),
        "The gradient of a convolution's input.",
    )
    .samples(
        "f32[1, 3, 3], f32[1, 2, 5], f32[3, 2, 3], [1], [0], [1], False, [0], 1; \
         f32[2, 4, 3, 3].cl, f32[2, 4, 5, 5].cl, f32[4, 1, 3, 3], [2, 2], [1, 1], [1, 1], False, [0, 0], 4; \
         f32[1, 3, 12], f32[1, 2, 5], f32[2, 3, 3], [2], [0], [1], True, [1], 1",
    )
    .grad("ConvolutionBackwardBackward0 | grad_output: convolution(grad, weight, None, stride, padding, dilation, transposed, output_padding, groups); input: None; weight: _grad.convolution_weight(grad_output, grad, weight, stride, padding, dilation, transposed, output_padding, groups)")
    .batch(Batch::As(typed!(batch::convolution_input, Hidden))),
    kernel(
        "_grad.convolution_weight",
        "(Tensor grad_output, Tensor input, Tensor weight, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups)",
        0,
        body!(
            |a| rule(&parts!(a), true),
            anywhere: |a, found, outs| weight_gradient(&parts!(a), found, &outs[0]),
            scratch: |a, found, outs, room| weight_scratch(&parts!(a), found, &outs[0], room)
        )
        .flops(typed!(|a| Ok(weight_flops(&parts!(a))))),
        "The gradient of a convolution's weight.",
    )
    .samples(
        "f32[1, 3, 3], f32[1, 2, 5], f32[3, 2, 3], [1], [0], [1], False, [0], 1; \
         f32[2, 4, 3, 3].cl, f32[2, 4, 5, 5].cl, f32[4, 1, 3, 3], [2, 2], [1, 1], [1, 1], False, [0, 0], 4; \
         f32[1, 3, 12], f32[1, 2, 5], f32[2, 3, 3], [2], [0], [1], True, [1], 1",
    )
    .grad("ConvolutionBackwardBackward0 | grad_output: convolution(input, grad, None, stride, padding, dilation, transposed, output_padding, groups); input: _grad.convolution_input(grad_output, input, grad, stride, padding, dilation, transposed, output_padding, groups); weight: None")
    .batch(Batch::As(typed!(batch::convolution_weight, Hidden))),
    compose(
        "_grad.conv_tbc_backward",
        "(Tensor grad, Tensor input, Tensor weight, int pad, bool[3] output_mask) -> (Tensor?, Tensor?, Tensor?)",
        0,
        conv_tbc_backward,
        "The gradients of `conv_tbc`.",
    )
    .samples("f32[4, 2, 4], f32[5, 2, 3], f32[2, 3, 4], 0, [True, True, True]; f32[6, 2, 4], f32[5, 2, 3], f32[2, 3, 4], 1, [True, False, False]"),
];

fn convolution_backward(a: &calls::_GradConvolutionBackward) -> Result<[Option<Tensor>; 3]> {
    let [input, weight, bias] = grad::needs(a.output_mask)?;
    let input = input.then(|| gradient!(a, _grad_convolution_input));
    let weight = weight.then(|| gradient!(a, _grad_convolution_weight));
    let bias = bias.then(|| {
        let grad = a.grad_output;
        if let (0, Some(sizes)) = (grad.numel(), a.bias_sizes) {
            return f::new_zeros(grad, sizes);
        }
        let others: Dims = (0..grad.ndim() as i64).filter(|&d| d != 1).collect();
        f::SumDim::new(grad, Some(&others[..])).call()
    });
    Ok([input.transpose()?, weight.transpose()?, bias.transpose()?])
}

fn conv_tbc_backward(a: &calls::_GradConvTbcBackward) -> Result<[Option<Tensor>; 3]> {
    let [input, weight, bias] = grad::needs(a.output_mask)?;
    let g = f::permute(a.grad, &[1, 2, 0])?;
    let x = f::permute(a.input, &[1, 2, 0])?;
    let w = f::permute(a.weight, &[2, 1, 0])?;
    let (pad, one, zero) = ([a.pad], [1], [0]);
    let input = input.then(|| {
        let made = f::_grad_convolution_input(&g, &x, &w, &one, &pad, &one, false, &zero, 1)?;
        f::Contiguous::new(&f::permute(&made, &[2, 0, 1])?).call()
    });
    let weight = weight.then(|| {
        let made = f::_grad_convolution_weight(&g, &x, &w, &one, &pad, &one, false, &zero, 1)?;
        f::Contiguous::new(&f::permute(&made, &[2, 1, 0])?).call()
    });
    let bias = bias.then(|| f::SumDim::new(a.grad, Some(&[0, 1][..])).call());
    Ok([input.transpose()?, weight.transpose()?, bias.transpose()?])
}

/// What a rule found: the forward's sizes, and the strides of a gradient that the kernel writes itself.
struct Found {
    geometry: Geometry,
    strides: Dims,
}

/// Types that a library computes in PyTorch, which has kernels of its own for the others.
fn in_library(d: DType) -> bool {
    matches!(d, DType::F32 | DType::BF16)
}

/// The format of the gradients: that of the result, but for volumes that PyTorch's own kernels compute.
fn format_for(x: &Tensor, w: &Tensor) -> MemoryFormat {
    match format_of(x, w) {
        MemoryFormat::ChannelsLast3d if !in_library(x.dtype()) => MemoryFormat::Contiguous,
        format => format,
    }
}

/// Whether the gradient of a weight has its very strides: PyTorch's own kernels for images keep those of a weight that is laid
/// out in several formats at once, unless windows are dilated.
fn keeps_strides(a: &f::Convolution, g: &Geometry, format: MemoryFormat) -> bool {
    let plain = a.transposed || g.dilation == [1; 3];
    a.weight.ndim() == 4
        && plain
        && !in_library(a.input.dtype())
        && a.weight.is_contiguous_in(format)
}

/// The rule of both gradients: of the weight, or of the input.
fn rule(p: &Parts, of_weight: bool) -> Result<(Plan, Found)> {
    let (x, w) = (p.forward.input, p.forward.weight);
    let (shape, mut geometry) = geometry(&p.forward)?;
    ensure!(
        *p.grad.shape() == shape,
        Runtime,
        "expected a gradient of shape {shape} for the result of the convolution, but got {}",
        p.grad.shape()
    );
    x.dtype().check_same(p.grad.dtype())?;
    let format = format_for(x, w);
    geometry.channels_last = format != MemoryFormat::Contiguous;
    let shape = if of_weight { w.shape() } else { x.shape() };
    let strides = if of_weight && keeps_strides(&p.forward, &geometry, format) {
        w.strides().clone()
    } else {
        dims::format_strides(shape, format)?
    };
    let plan = Plan::one(shape.clone(), strides.clone(), x.dtype());
    Ok((plan, Found { geometry, strides }))
}

/// The convolution in the other direction: from results to inputs.
fn backwards(g: &Geometry) -> Geometry {
    Geometry {
        inputs: g.outputs,
        outputs: g.inputs,
        size: g.out,
        out: g.size,
        transposed: !g.transposed,
        ..g.clone()
    }
}

/// The complex conjugate; real tensors are that themselves.
fn conjugate(t: &Tensor) -> Tensor {
    if t.dtype().is_complex() {
        t.clone().with_conj(!t.is_conj())
    } else {
        t.clone()
    }
}

/// The gradient of the input is a convolution in the other direction, with the same weight.
fn input_gradient(p: &Parts, found: &Found, out: &Tensor) -> Result<()> {
    let (g, w) = (backwards(&found.geometry), conjugate(p.forward.weight));
    if *out.strides() == found.strides {
        return kernels::conv::convolve(out, p.grad, &w, None, &g);
    }
    let (shape, strides) = (out.shape().clone(), found.strides.clone());
    let dense = Tensor::empty_strided(shape, strides, out.dtype(), out.device())?;
    kernels::conv::convolve(&dense, p.grad, &w, None, &g)?;
    kernels::copy(out, &dense)
}

/// The gradient of the weight, for which input and result change places in a transposed convolution.
fn weight_gradient(p: &Parts, found: &Found, out: &Tensor) -> Result<()> {
    let (g, x) = (&found.geometry, conjugate(p.forward.input));
    if g.transposed {
        let g = backwards(g);
        return kernels::conv::weight_gradient(out, &x, p.grad, &g);
    }
    kernels::conv::weight_gradient(out, p.grad, &x, g)
}

fn input_scratch(p: &Parts, found: &Found, out: &Tensor, room: &mut Room) -> Result<()> {
    let (g, w) = (backwards(&found.geometry), conjugate(p.forward.weight));
    if *out.strides() != found.strides {
        room.empty(out.shape(), out.dtype())?;
    }
    conv::room::convolve(room, out, p.grad, &w, None, &g)
}

fn weight_scratch(p: &Parts, found: &Found, out: &Tensor, room: &mut Room) -> Result<()> {
    let (g, x) = (&found.geometry, conjugate(p.forward.input));
    if g.transposed {
        return conv::room::weight_gradient(room, out, &x, p.grad, &backwards(g));
    }
    conv::room::weight_gradient(room, out, p.grad, &x, g)
}

/// Elements of all dimensions from `first` on.
fn elements(t: &Tensor, first: usize) -> i64 {
    t.shape().iter().skip(first).product()
}

/// A multiplication and an addition for each weight of a group at each position of the smaller side.
fn input_flops(p: &Parts) -> u64 {
    let side = if p.forward.transposed {
        p.forward.input
    } else {
        p.grad
    };
    (2 * side.numel().saturating_mul(elements(p.forward.weight, 1))) as u64
}

/// As a convolution of all channels of the input with all channels of the result: groups are not told apart, as in PyTorch.
fn weight_flops(p: &Parts) -> u64 {
    let (x, grad) = (p.forward.input, p.grad);
    let (side, other) = if p.forward.transposed {
        (x, grad)
    } else {
        (grad, x)
    };
    let channels = other.shape().get(1).copied().unwrap_or(1);
    let window = elements(p.forward.weight, 2);
    (2 * side.numel().saturating_mul(channels).saturating_mul(window)) as u64
}
