//! Convolutions.

use crate::cpu::conv::{self, Geometry};
use crate::cpu::matrix::has_product;
use crate::ops::batch;
use crate::ops::core::op::{Batch, Cast, F, Hidden, OpDef, Plan, compose, kernel};
use crate::ops::f;
use crate::ops::nn::conv_sizes::{
    check_bias_dtype, check_dilation, check_sizes, check_window, expanded, reaches, sizes,
    transposed_sizes,
};
use crate::ops::view::shape::type_name;
use crate::{Dims, MemoryFormat, Result, Scalar, Tensor, bail, dims, ensure, kernels, mode};
use num_complex::Complex64;
use torchlike_macros::operators;

/// What the rows of all dimensions take.
struct Operands<'a, P> {
    x: &'a Tensor,
    w: &'a Tensor,
    bias: Option<&'a Tensor>,
    stride: &'a [i64],
    padding: P,
    dilation: &'a [i64],
    groups: i64,
}

macro_rules! operands {
    ($a:ident) => {
        Operands {
            x: $a.input,
            w: $a.weight,
            bias: $a.bias,
            stride: $a.stride,
            padding: $a.padding,
            dilation: $a.dilation,
            groups: $a.groups,
        }
    };
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "conv1d",
        "(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, int[1] padding=0, int[1] dilation=1, int groups=1)",
        F,
        |a| ordinary(1, "conv1d", &operands!(a)),
        "A convolution over sequences.",
    ).samples(
        "f32[1, 4, 5], f32[3, 4, 3], None; \
         c64[4, 5], c64[3, 4, 3], None; \
         f32[4, 8], f32[2, 2, 3], f32[2], stride=3, padding=1, groups=2, dilation=2",
    )
    .amp(Cast::Low, Cast::Low),
    compose(
        "conv1d#padding",
        "(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, str padding='valid', int[1] dilation=1, int groups=1)",
        F,
        |a| padded_by_name(1, "conv1d", &operands!(a)),
        "A convolution over sequences.",
    ).samples("c64[1, 4, 5], c64[1, 4, 3], None, stride=(2,)")
    .amp(Cast::Low, Cast::Kept),
    compose(
        "conv2d",
        "(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, int[2] padding=0, int[2] dilation=1, int groups=1)",
        F,
        |a| ordinary(2, "conv2d", &operands!(a)),
        "A convolution over images.",
    ).samples(
        "f32[4, 5, 5], f32[3, 4, 3, 3], None; \
         i64[4, 5, 5], i64[3, 4, 3, 3], None; \
         f32[4, 5, 5], f32[1, 4, 2, 3], f32[1], stride=2, padding=1, dilation=(2, 3)",
    )
    .amp(Cast::Low, Cast::Low),
    compose(
        "conv2d#padding",
        "(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, str padding='valid', int[2] dilation=1, int groups=1)",
        F,
        |a| padded_by_name(2, "conv2d", &operands!(a)),
        "A convolution over images.",
    ).samples("f32[4, 5, 5], f32[1, 4, 2, 3], f32[1], padding='same', dilation=3")
    .amp(Cast::Low, Cast::Kept),
    compose(
        "conv3d",
        "(Tensor input, Tensor weight, Tensor? bias=None, int[3] stride=1, int[3] padding=0, int[3] dilation=1, int groups=1)",
        F,
        |a| ordinary(3, "conv3d", &operands!(a)),
        "A convolution over volumes.",
    ).samples(
        "f32[9, 3, 1, 9], f32[3, 3, 3, 1, 9], f32[3], groups=3; \
         f32[9, 3, 1, 9], f32[3, 3, 3, 1, 9], f32[3], stride=(2, 2, 2), groups=3",
    )
    .amp(Cast::Low, Cast::Low),
    compose(
        "conv3d#padding",
        "(Tensor input, Tensor weight, Tensor? bias=None, int[3] stride=1, str padding='valid', int[3] dilation=1, int groups=1)",
        F,
        |a| padded_by_name(3, "conv3d", &operands!(a)),
        "A convolution over volumes.",
    ).samples(
        "f32[1, 1, 1, 1, 10], f32[1, 1, 1, 1, 4], None; \
         c64[1, 1, 4, 4, 4], c64[1, 1, 1, 1, 1], c64[1], padding='same'",
    )
    .amp(Cast::Low, Cast::Kept),
    compose(
        "conv_transpose1d",
        "(Tensor input, Tensor weight, Tensor? bias=None, int[1] stride=1, int[1] padding=0, int[1] output_padding=0, int groups=1, int[1] dilation=1)",
        F,
        |a| transposed(1, "conv_transpose1d", &operands!(a), a.output_padding),
        "A transposed convolution.",
    ).samples("f32[3, 4], f32[3, 3, 3], f32[3], stride=(2,), padding=2, output_padding=(1,)")
    .amp(Cast::Low, Cast::Low),
    compose(
        "conv_transpose2d",
        "(Tensor input, Tensor weight, Tensor? bias=None, int[2] stride=1, int[2] padding=0, int[2] output_padding=0, int groups=1, int[2] dilation=1)",
        F,
        |a| transposed(2, "conv_transpose2d", &operands!(a), a.output_padding),
        "A transposed convolution.",
    ).samples("f32[2, 5, 5], f32[2, 4, 3, 3], None; i64[2, 5, 5], i64[2, 4, 3, 3], None")
    .amp(Cast::Low, Cast::Low),
    compose(
        "conv_transpose3d",
        "(Tensor input, Tensor weight, Tensor? bias=None, int[3] stride=1, int[3] padding=0, int[3] output_padding=0, int groups=1, int[3] dilation=1)",
        F,
        |a| transposed(3, "conv_transpose3d", &operands!(a), a.output_padding),
        "A transposed convolution.",
    ).samples(
        "f32[1, 1, 4, 3, 4], f32[1, 2, 3, 4, 5], None, stride=2, padding=1, output_padding=1; \
         i64[4, 5, 5, 5], i64[4, 8, 3, 3, 3], None",
    )
    .amp(Cast::Low, Cast::Low),
    kernel(
        "convolution",
        "(Tensor input, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, bool transposed, int[] output_padding, int groups)",
        F,
        body!(rule, anywhere: run, scratch: |a, found, outs, room| {
            if *outs[0].strides() != found.strides {
                room.empty(outs[0].shape(), outs[0].dtype())?;
            }
            conv::room::convolve(room, &outs[0], a.input, a.weight, a.bias, &found.geometry)
        }).flops(typed!(flops)),
        "A convolution of any kind.",
    ).samples(
        "f32[1, 2, 5], f32[3, 2, 3], f32[3], [1], [1], [1], False, [0], 1; \
         f32[1, 4, 5, 5], f32[4, 2, 3, 3], None, [2, 2], [1, 1], [1, 1], False, [0, 0], 2; \
         f32[1, 2, 5], f32[2, 3, 3], None, [2], [0], [1], True, [1], 1",
    )
    .grad("input, weight, bias: _grad.convolution_backward(grad, input, weight, bias.sizes if bias.given else [0], stride, padding, dilation, transposed, output_padding, groups, needs)")
    .batch(Batch::As(typed!(batch::convolution, Hidden)))
    .amp(Cast::Kept, Cast::Low),
];

/// Multiplications and additions: of each result element those over the weights of a group; transposed, of each input element.
fn flops(a: &calls::Convolution) -> Result<u64> {
    let weights = a.weight.shape();
    let kernel: i64 = weights.iter().skip(2).product();
    let per = weights.get(1).copied().unwrap_or(1).saturating_mul(kernel);
    let elements = if a.transposed {
        a.input.numel()
    } else {
        use crate::ops::core::op::Ruled as _;
        let (plan, _) = rule(a)?.split();
        plan.outs
            .iter()
            .map(|o| o.shape.iter().product::<i64>())
            .sum()
    };
    Ok(2 * elements.saturating_mul(per) as u64)
}

/// Runs on `x` with the batch dimension that an unbatched input lacks.
fn in_batches(
    x: &Tensor,
    n: usize,
    name: &str,
    run: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    ensure!(
        x.ndim() == n + 1 || x.ndim() == n + 2,
        Runtime,
        "Expected {}D (unbatched) or {}D (batched) input to {name}, but got input of size: {}",
        n + 1,
        n + 2,
        x.shape()
    );
    if x.ndim() == n + 2 {
        run(x)
    } else {
        f::squeeze_dim(&run(&f::unsqueeze(x, 0)?)?, 0)
    }
}

fn ordinary(n: usize, name: &str, o: &Operands<&[i64]>) -> Result<Tensor> {
    let zeros = Dims::filled(n, 0);
    check_bias_dtype(o.x, o.bias)?;
    in_batches(o.x, n, name, |x| {
        by_parts(x, o, |x, w, bias| {
            f::convolution(
                x, w, bias, o.stride, o.padding, o.dilation, false, &zeros, o.groups,
            )
        })
    })
}

/// A convolution. One of complex numbers that wants a gradient is three of real ones: of real and imaginary parts, and of
/// their sums.
fn by_parts<P>(
    x: &Tensor,
    o: &Operands<P>,
    run: impl Fn(&Tensor, &Tensor, Option<&Tensor>) -> Result<Tensor>,
) -> Result<Tensor> {
    let wanted = [Some(x), Some(o.w), o.bias]
        .into_iter()
        .flatten()
        .any(Tensor::requires_grad);
    if !(wanted && mode::grad_enabled() && x.dtype().is_complex() && o.w.dtype() == x.dtype()) {
        return run(x, o.w, o.bias);
    }
    let parts = |t: &Tensor| -> Result<[Tensor; 2]> {
        let both = f::view_as_real(&f::resolve_conj(t)?)?;
        Ok([f::select(&both, -1, 0)?, f::select(&both, -1, 1)?])
    };
    let ([xr, xi], [wr, wi]) = (parts(x)?, parts(o.w)?);
    let bias = o.bias.map(parts).transpose()?;
    let real = run(&xr, &wr, bias.as_ref().map(|b| &b[0]))?;
    let imaginary = run(&xi, &wi, None)?;
    let sum = bias.map(|[re, im]| f::add(&re, &im)).transpose()?;
    let both = run(&f::add(&xr, &xi)?, &f::add(&wr, &wi)?, sum.as_ref())?;
    let turned = f::sub(&f::sub(&both, &real)?, &imaginary)?;
    let turned = f::_mul_number(&turned, Scalar::Complex(Complex64::new(0.0, 1.0)))?;
    f::add(&f::sub(&real, &imaginary)?, &turned)
}

fn transposed(n: usize, name: &str, o: &Operands<&[i64]>, output: &[i64]) -> Result<Tensor> {
    in_batches(o.x, n, name, |x| {
        by_parts(x, o, |x, w, bias| {
            f::convolution(
                x, w, bias, o.stride, o.padding, o.dilation, true, output, o.groups,
            )
        })
    })
}

fn padded_by_name(n: usize, name: &str, o: &Operands<&str>) -> Result<Tensor> {
    let zeros = Dims::filled(n, 0);
    let convolved = |x: &Tensor, padding: &[i64]| {
        by_parts(x, o, |x, w, bias| {
            f::convolution(
                x, w, bias, o.stride, padding, o.dilation, false, &zeros, o.groups,
            )
        })
    };
    in_batches(o.x, n, name, |x| match o.padding {
        "valid" => convolved(x, &zeros),
        "same" => {
            let (front, more) = same_padding(n, o)?;
            if more.iter().all(|&m| m == 0) {
                return convolved(x, &front);
            }
            crate::warn_once!(
                "Using padding='same' with even kernel lengths and odd dilation may require a zero-padded copy of the input be created"
            );
            convolved(&f::constant_pad_nd(x, &more)?, &front)
        }
        other => bail!(Runtime, "Invalid padding string: '{other}'"),
    })
}

/// The padding on both sides that keeps sizes, and the list of `constant_pad_nd` for the zeros that odd totals
/// have behind besides.
fn same_padding(n: usize, o: &Operands<&str>) -> Result<(Dims, Dims)> {
    let w = o.w;
    ensure!(
        w.ndim() > 2,
        Runtime,
        "weight should have at least three dimensions"
    );
    ensure!(
        o.stride.iter().all(|&s| s == 1),
        Runtime,
        "padding='same' is not supported for strided convolutions"
    );
    ensure!(
        w.ndim() == n + 2 && o.dilation.len() == n,
        Runtime,
        "expected dilation to be a single integer value or a list of {} values to match the convolution dimensions, but got \
         dilation={}",
        w.ndim() - 2,
        Dims::new(o.dilation)
    );
    let total = |i: usize| o.dilation[i].saturating_mul((w.shape()[i + 2] - 1).max(0));
    let front = (0..n).map(|i| total(i) / 2).collect();
    let more = (0..n).rev().flat_map(|i| [0, total(i) % 2]).collect();
    Ok((front, more))
}

/// The parameters of a convolution, a value for each dimension.
pub(super) struct Lists {
    pub(super) stride: Dims,
    pub(super) padding: Dims,
    pub(super) dilation: Dims,
    pub(super) output: Dims,
}

fn lists(a: &calls::Convolution, n: usize) -> Result<Lists> {
    let l = Lists {
        stride: expanded(a.stride, n, "stride")?,
        padding: expanded(a.padding, n, "padding")?,
        dilation: expanded(a.dilation, n, "dilation")?,
        output: expanded(a.output_padding, n, "output_padding")?,
    };
    ensure!(
        l.padding.iter().all(|&p| p >= 0),
        Runtime,
        "negative padding is not supported"
    );
    ensure!(
        l.output.iter().all(|&p| p >= 0),
        Runtime,
        "negative output_padding is not supported"
    );
    ensure!(
        l.stride.iter().all(|&s| s > 0),
        Runtime,
        "non-positive stride is not supported"
    );
    ensure!(
        a.groups > 0,
        Runtime,
        "non-positive groups is not supported"
    );
    ensure!(
        l.dilation.iter().all(|&d| d >= 0),
        Runtime,
        "dilation should be greater than zero"
    );
    Ok(l)
}

/// Checks input, weight and bias against each other; the number of output channels.
fn channels(a: &calls::Convolution) -> Result<i64> {
    let (x, w, groups) = (a.input, a.weight, a.groups);
    let (xs, ws, dims) = (x.shape(), w.shape(), w.ndim());
    ensure!(
        x.ndim() == dims,
        Runtime,
        "Expected {dims}-dimensional input for {dims}-dimensional weight {ws}, but got {}-dimensional input of size {xs} instead",
        x.ndim()
    );
    ensure!(
        ws[0] >= groups,
        Runtime,
        "Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got weight of size {ws} instead"
    );
    ensure!(
        ws[0] % groups == 0,
        Runtime,
        "Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of size [{ws}] instead"
    );
    let (wanted, outputs, given, prefix) = if a.transposed {
        (
            ws[0],
            ws[1] * groups,
            "transposed=1".into(),
            "transposed=1, ",
        )
    } else {
        (ws[1] * groups, ws[0], format!("groups={groups}"), "")
    };
    ensure!(
        xs[1] == wanted,
        Runtime,
        "Given {given}, weight of size {ws}, expected input{xs} to have {wanted} channels, but got {} channels instead",
        xs[1]
    );
    if let Some(b) = a.bias {
        ensure!(
            b.ndim() == 1 && b.shape()[0] == outputs,
            Runtime,
            "Given {prefix}weight of size {ws}, expected bias to be 1-dimensional with {outputs} elements, but got bias of size {} instead",
            b.shape()
        );
    }
    Ok(outputs)
}

fn check_dtypes(a: &calls::Convolution) -> Result<()> {
    let d = a.input.dtype();
    if a.weight.dtype() != d {
        ensure!(
            !d.is_complex() || a.weight.dtype().is_complex(),
            Runtime,
            "Input type ({}) and weight type ({}) should be the same",
            type_name(a.input),
            type_name(a.weight)
        );
        d.check_same(a.weight.dtype())?;
    }
    check_bias_dtype(a.input, a.bias)?;
    d.check_kernel(
        has_product(d),
        format_args!("slow_conv{}d_cpu", (a.input.ndim() - 2).max(2)),
    )
}

/// The format of a result: channels last if either operand is laid out so.
pub(in crate::ops) fn format_of(x: &Tensor, w: &Tensor) -> MemoryFormat {
    let last = |t: &Tensor| dims::strides_like_channels_last(t.shape(), t.strides());
    match x.ndim() {
        4 if last(x) || last(w) => MemoryFormat::ChannelsLast,
        5 if last(x) || last(w) => MemoryFormat::ChannelsLast3d,
        _ => MemoryFormat::Contiguous,
    }
}

pub(in crate::ops) fn triple<T: Copy>(values: &[i64], fill: T, f: impl Fn(i64) -> T) -> [T; 3] {
    let lead = 3 - values.len().min(3);
    std::array::from_fn(|i| if i < lead { fill } else { f(values[i - lead]) })
}

/// What the rule found: the sizes, and the strides of a result that the kernel writes itself.
struct Found {
    geometry: Geometry,
    strides: Dims,
}

/// Checks a call; the shape of the result, and the sizes for the kernel.
pub(in crate::ops) fn geometry(a: &calls::Convolution) -> Result<(Dims, Geometry)> {
    let (x, w) = (a.input, a.weight);
    ensure!(
        w.ndim() > 2,
        Runtime,
        "weight should have at least three dimensions"
    );
    let n = w.ndim() - 2;
    ensure!(n <= 3, Runtime, "unsupported ConvNd parameters");
    let l = lists(a, n)?;
    if !a.transposed {
        check_bias_dtype(x, a.bias)?;
    }
    let outputs = channels(a)?;
    check_window(&a.weight.shape()[2..])?;
    check_dilation(&l.dilation, a.transposed)?;
    let (spatial, reach) = (&x.shape()[2..], reaches(w, &l));
    let out = if a.transposed {
        transposed_sizes(spatial, &reach, &l)?
    } else {
        sizes(spatial, &reach, &l)?
    };
    check_sizes(x, &out)?;
    check_dtypes(a)?;
    let (batch, inputs) = (x.shape()[0], x.shape()[1]);
    let outputs = if inputs == 0 { 0 } else { outputs };
    let usizes = |s: &[i64]| triple(s, 1usize, |v| v as usize);
    let geometry = Geometry {
        batch: batch as usize,
        inputs: inputs as usize,
        outputs: outputs as usize,
        groups: a.groups as usize,
        size: usizes(spatial),
        out: usizes(&out),
        window: usizes(&w.shape()[2..]),
        stride: triple(&l.stride, 1, |v| v),
        pad: triple(&l.padding, 0, |v| v),
        dilation: triple(&l.dilation, 1, |v| v),
        transposed: a.transposed,
        channels_last: format_of(x, w) != MemoryFormat::Contiguous,
        exact: false,
    };
    Ok((Dims::from([batch, outputs]).concat(&out), geometry))
}

fn rule(a: &calls::Convolution) -> Result<(Plan, Found)> {
    let (shape, geometry) = geometry(a)?;
    let strides = dims::format_strides(&shape, format_of(a.input, a.weight))?;
    let plan = Plan::one(shape, strides.clone(), a.input.dtype());
    Ok((plan, Found { geometry, strides }))
}

fn run(a: &calls::Convolution, found: &Found, outs: &[Tensor]) -> Result<()> {
    let (out, g) = (&outs[0], &found.geometry);
    if *out.strides() == found.strides {
        return kernels::conv::convolve(out, a.input, a.weight, a.bias, g);
    }
    let (shape, strides) = (out.shape().clone(), found.strides.clone());
    let dense = Tensor::empty_strided(shape, strides, out.dtype(), out.device())?;
    kernels::conv::convolve(&dense, a.input, a.weight, a.bias, g)?;
    kernels::copy(out, &dense)
}
