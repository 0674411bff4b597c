//! Padding in all modes, and shuffles between channels and pixels.

use crate::cpu::pad::{self as host, Table};
use crate::dims::{self, MemoryFormat};
use crate::ops::arrange::join::suggested_format;
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, Cast, F, Hidden, OpDef, Plan, compose, kernel};
use crate::ops::{batch, f};
use crate::{Dims, Result, Tensor, bail, ensure, err, kernels, mode};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "constant_pad_nd",
        "(Tensor self, int[] pad, Scalar value=0)",
        F,
        body!(constant, anywhere: |a, _, outs| kernels::arrange::pad(
            &outs[0], a.input, a.pad, a.value
        )),
        "The tensor with a number around it.",
    ).samples("f32[3, 4], (0, 1), 1.0; c64[3, 4], (2, 2); f32[3, 4], (0, 2, 0, 1), 1.0")
    .grad("self: _grad.pad_back(grad, pad)")
    .batch(Batch::Lead),
    kernel(
        "_pad_mode",
        "(Tensor self, int[] pad, str mode)",
        0,
        body!(by_mode, anywhere: write_by_mode, scratch: |a, _, outs, room| match outs[0].numel() {
            0 => Ok(()),
            _ => host::room(room, &outs[0], a.input),
        }),
        "",
    ).samples(
        "f32[1, 4, 4], [1, 1, 2, 0], 'reflect'; \
         f32[2, 4], [1, 2], 'replicate'; \
         f32[2, 4], [1, 2], 'circular'",
    )
    .batch(Batch::As(typed!(batch::pad_mode, Hidden)))
    .grad("{mode reflect=Reflection replicate=Replication circular=Circular}Pad{pad.count 2=1 4=2 6=3}DBackward0 | self: (_grad.reflection_pad1d_backward(grad, self, pad) if pad.count == 2 else _grad.reflection_pad2d_backward(grad, self, pad) if pad.count == 4 else _grad.reflection_pad3d_backward(grad, self, pad)) if mode == 'reflect' else (_grad.replication_pad1d_backward(grad, self, pad) if pad.count == 2 else _grad.replication_pad2d_backward(grad, self, pad) if pad.count == 4 else _grad.replication_pad3d_backward(grad, self, pad)) if mode == 'replicate' else _grad.circular_back(grad, self.sizes, pad)"),
    compose(
        "_nn.pad_near",
        "(Tensor self, int[] pad, str mode)",
        0,
        |a| f::_pad_mode(a.input, a.pad, a.mode),
        "The tensor with its mirror image in one or two dimensions, or its edge, around it.",
    ).samples("f32[2, 4], [1, 2], 'replicate'; f32[2, 4], [1, 2], 'reflect'")
    .amp(Cast::Single, Cast::Kept),
    compose(
        "nn.functional.pad",
        "(Tensor input, int[] pad, str mode='constant', float? value=None)",
        F,
        pad,
        "The tensor with elements around it: a number, its mirror image, its edge, or itself again.",
    ).samples(
        "f32[3, 4], (2, 2); \
         b8[3, 4], (1, 2), 'circular'; \
         f32[3, 4], (-1, -2, 1, 1), 'constant', 1.0",
    ),
    compose(
        "pixel_shuffle",
        "(Tensor self, int upscale_factor)",
        F,
        pixel_shuffle,
        "Channels spread over blocks of pixels.",
    ).samples("f32[2, 3, 4], upscale_factor=1; b8[2, 3, 4], upscale_factor=1")
    .grad("self: grad.pixel_unshuffle(upscale_factor); jvp: linear"),
    compose(
        "pixel_unshuffle",
        "(Tensor self, int downscale_factor)",
        F,
        pixel_unshuffle,
        "Blocks of pixels gathered into channels.",
    ).samples("f32[2, 3, 4], downscale_factor=1; c64[2, 3, 4], downscale_factor=1")
    .grad("self: grad.pixel_shuffle(downscale_factor); jvp: linear"),
    compose(
        "channel_shuffle",
        "(Tensor self, int groups)",
        F,
        channel_shuffle,
        "Channels of several groups interleaved.",
    ).samples("f32[2, 3, 4], 3; b8[2, 3, 4], 3")
    .grad("self: _grad.channel_shuffle_back(grad, groups)"),
];

/// The sizes after padding; pads come in pairs from the last dimension.
pub(in crate::ops) fn padded(shape: &[i64], pad: &[i64]) -> Result<Dims> {
    let mut out = Dims::new(shape);
    for (k, pair) in pad.chunks(2).enumerate() {
        let d = shape.len() - 1 - k;
        out[d] = shape[d]
            .checked_add(pair[0])
            .and_then(|s| s.checked_add(pair[1]))
            .ok_or_else(|| err!(Runtime, "pad: the size of the result overflows"))?;
    }
    Ok(out)
}

fn check_pad(t: &Tensor, pad: &[i64]) -> Result<()> {
    ensure!(
        pad.len() % 2 == 0,
        Runtime,
        "Padding length must be divisible by 2"
    );
    ensure!(
        pad.len() / 2 <= t.ndim(),
        Runtime,
        "Padding length should be less than or equal to two times the input dimension but got padding length {} and input of dimension {}",
        pad.len(),
        t.ndim()
    );
    Ok(())
}

/// The sizes that negative pads leave.
fn cut(shape: &[i64], pad: &[i64]) -> Result<Dims> {
    let mut out = Dims::new(shape);
    for (k, pair) in pad.chunks(2).enumerate() {
        let d = shape.len() - 1 - k;
        let left = pair[0].min(0).saturating_neg();
        let right = pair[1].min(0).saturating_neg();
        out[d] = shape[d].saturating_sub(left).saturating_sub(right);
        ensure!(
            out[d] >= 0,
            Runtime,
            "narrow(): length must be non-negative."
        );
    }
    Ok(out)
}

fn constant(a: &calls::ConstantPadNd) -> Result<Plan> {
    let (t, pad) = (a.input, a.pad);
    ensure!(
        pad.len() % 2 == 0,
        Runtime,
        "Length of pad must be even but instead it equals {}",
        pad.len()
    );
    ensure!(
        pad.len() / 2 <= t.ndim(),
        Runtime,
        "Length of pad should be no more than twice the number of dimensions of the input. Pad length is {}while the input has \
         {}dimensions.",
        pad.len(),
        t.ndim()
    );
    crate::ops::core::fits::check_fits(a.value, t.dtype())?;
    let shape = padded(t.shape(), pad)?;
    let rest = cut(t.shape(), pad)?;
    if pad.iter().all(|&p| p <= 0) {
        let strides = dims::preserved_strides(&rest, t.strides());
        return Ok(Plan::one(shape, strides, t.dtype()));
    }
    for (k, pair) in pad.chunks(2).enumerate() {
        let d = t.ndim() - 1 - k;
        ensure!(
            shape[d] >= 0,
            Runtime,
            "The input size {}, plus negative padding {} and {} resulted in a negative output size, which is invalid. Check dimension {d} \
             of your input.",
            t.shape()[d],
            pair[0],
            pair[1]
        );
    }
    let strides = dims::format_strides(&shape, suggested_format(t))?;
    Ok(Plan::one(shape, strides, t.dtype()))
}

fn pad(a: &calls::NnFunctionalPad) -> Result<Tensor> {
    let (t, pad, mode) = (a.input, a.pad, a.mode);
    check_pad(t, pad)?;
    if mode == "constant" {
        let value = a.value.unwrap_or(0.0);
        return f::ConstantPadNd::new(t, pad).value(value).call();
    }
    ensure!(
        a.value.is_none_or(|v| v == 0.0),
        Runtime,
        "Padding mode \"{mode}\" doesn't take in value argument"
    );
    if !is_padded_inside(t, pad) {
        bail!(
            NotImplemented,
            "Padding size {} is not supported for {}D input tensor.\nSupported combinations for non-constant padding:\n  - 2D or 3D input: \
             padding size = 2 (pads last dimension)\n  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)\n  - 4D or 5D input: \
             padding size = 6 (pads last 3 dimensions)",
            pad.len(),
            t.ndim()
        );
    }
    ensure!(
        matches!(mode, "reflect" | "replicate" | "circular"),
        NotImplemented,
        "Unrecognised padding mode {mode}"
    );
    if mode == "circular" && t.requires_grad() && mode::grad_enabled() {
        return recorded_circular(t, pad);
    }
    if mode == "replicate" || mode == "reflect" && pad.len() <= 4 {
        return f::_nn_pad_near(t, pad, mode);
    }
    f::_pad_mode(t, pad, mode)
}

/// Circular padding as the copies that its gradient is made of: the tensor itself, then what lies around it.
fn recorded_circular(t: &Tensor, pad: &[i64]) -> Result<Tensor> {
    check_pad(t, pad)?;
    let shape = padded(t.shape(), pad)?;
    check_circular(t, pad, &shape)?;
    let out = f::new_empty(t, &shape)?;
    let part = |t: &Tensor, d: usize, start: i64, end: i64| {
        f::Slice::new(t).dim(d as i64).start(start).end(end).call()
    };
    let pairs: Vec<(usize, i64, i64)> = pad
        .chunks(2)
        .enumerate()
        .map(|(k, pair)| (t.ndim() - 1 - k, pair[0], pair[1]))
        .rev()
        .collect();
    let (mut to, mut from) = (out.clone(), t.clone());
    for &(d, left, right) in &pairs {
        to = part(&to, d, left.max(0), shape[d] - right.max(0))?;
        from = part(&from, d, (-left).max(0), t.shape()[d] - (-right).max(0))?;
    }
    helpers::copy_(&to, &from)?;
    for &(d, left, right) in &pairs {
        let end = shape[d] - right.max(0);
        if left > 0 {
            helpers::copy_(&part(&out, d, 0, left)?, &part(&out, d, end - left, end)?)?;
        }
        if right > 0 {
            let first = part(&out, d, left.max(0), left.max(0) + right)?;
            helpers::copy_(&part(&out, d, end, shape[d])?, &first)?;
        }
    }
    Ok(out)
}

/// One to three dimensions that are padded, after one or two that are not.
fn is_padded_inside(t: &Tensor, pad: &[i64]) -> bool {
    let n = pad.len() / 2;
    (1..=3).contains(&n) && (t.ndim() == n + 1 || t.ndim() == n + 2)
}

/// Rule of the modes that take elements from elsewhere in the tensor.
fn by_mode(a: &calls::_PadMode) -> Result<Plan> {
    let (t, pad, mode) = (a.input, a.pad, a.mode);
    check_pad(t, pad)?;
    ensure!(
        is_padded_inside(t, pad),
        NotImplemented,
        "Only 2D, 3D, 4D, 5D padding with non-constant padding are supported for now"
    );
    let shape = padded(t.shape(), pad)?;
    if mode == "circular" {
        check_circular(t, pad, &shape)?;
        return Ok(Plan::contiguous(&shape, t.dtype()));
    }
    check_edges(t, pad, &shape, mode)?;
    crate::ops::create::factory::check_size(&shape)?;
    // One-dimensional and unbatched results are row-major.
    let format = if pad.len() >= 4 {
        suggested_format(t)
    } else {
        MemoryFormat::Contiguous
    };
    let strides = dims::format_strides(&shape, format)?;
    Ok(Plan::one(shape, strides, t.dtype()))
}

fn write_by_mode(a: &calls::_PadMode, (): &(), outs: &[Tensor]) -> Result<()> {
    let (t, out) = (a.input, &outs[0]);
    if out.numel() == 0 {
        return Ok(());
    }
    let tables: Vec<Option<Table>> = (0..t.ndim())
        .map(|d| {
            let pair = a.pad.chunks(2).nth(t.ndim() - 1 - d)?;
            let (from, to) = (t.shape()[d], out.shape()[d]);
            Some(Table::of(a.mode, [from, to], [pair[0], pair[1]]))
        })
        .collect();
    kernels::arrange::from_tables(out, t, &tables)
}

fn check_circular(t: &Tensor, pad: &[i64], shape: &[i64]) -> Result<()> {
    for (k, pair) in pad.chunks(2).enumerate() {
        let d = t.ndim() - 1 - k;
        ensure!(
            pair[0] <= t.shape()[d] && pair[1] <= t.shape()[d],
            Runtime,
            "Padding value causes wrapping around more than once."
        );
        ensure!(
            shape[d] >= 0,
            Runtime,
            "Negative padding value is resulting in an empty dimension"
        );
    }
    Ok(())
}

/// What mirrored and repeated edges need.
fn check_edges(t: &Tensor, pad: &[i64], shape: &[i64], mode: &str) -> Result<()> {
    let n = pad.len() / 2;
    let batch = usize::from(t.ndim() == n + 2);
    ensure!(
        t.shape()[batch..].iter().all(|&d| d > 0),
        Runtime,
        "Expected {}D or {}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: {}",
        n + 1,
        n + 2,
        t.shape()
    );
    for (k, pair) in pad.chunks(2).enumerate() {
        let d = t.ndim() - 1 - k;
        if mode == "reflect" {
            ensure!(
                pair[0] < t.shape()[d] && pair[1] < t.shape()[d],
                Runtime,
                "Argument #{}: Padding size should be less than the corresponding input dimension, but got: padding ({}, {}) at dimension \
                 {d} of input {}",
                4 + 2 * k,
                pair[0],
                pair[1],
                t.shape()
            );
        }
    }
    let names = ["W", "H", "D"];
    let show = |s: &[i64], last: &str| {
        let each = (0..n)
            .rev()
            .map(|k| format!("{}: {}", names[k], s[s.len() - 1 - k]));
        let each: Vec<_> = each.collect();
        match &each[..] {
            [others @ .., width] if !others.is_empty() => {
                format!("{}{last}{width}", others.join(" "))
            }
            alone => alone.concat(),
        }
    };
    // As PyTorch spaces it.
    let end = if n == 2 && mode != "reflect" { " " } else { "" };
    let tail = &shape[shape.len() - n..];
    ensure!(
        tail.iter().any(|&d| d >= 1),
        Runtime,
        "input ({}{end}) is too small. Calculated output {}",
        show(t.shape(), ", "),
        show(shape, " ")
    );
    Ok(())
}

/// The format of a shuffled image: channels-last stays so.
fn finish(t: Tensor, input: &Tensor) -> Result<Tensor> {
    let format = suggested_format(input);
    let done = t.is_contiguous() && !t.shares_storage(input);
    if format == MemoryFormat::Contiguous && done {
        return Ok(t);
    }
    f::Clone::new(&t).memory_format(format).call()
}

fn pixel_shuffle(a: &calls::PixelShuffle) -> Result<Tensor> {
    let (t, r) = (a.input, a.upscale_factor);
    let n = t.ndim();
    ensure!(
        n >= 3,
        Runtime,
        "pixel_shuffle expects input to have at least 3 dimensions, but got input with {n} dimension(s)"
    );
    ensure!(
        r > 0,
        Runtime,
        "pixel_shuffle expects a positive upscale_factor, but got {r}"
    );
    let (c, h, w) = (t.shape()[n - 3], t.shape()[n - 2], t.shape()[n - 1]);
    let square = r
        .checked_mul(r)
        .ok_or_else(|| err!(Runtime, "upscale_factor is too large, ({r})^2 overflowed"))?;
    ensure!(
        c % square == 0,
        Runtime,
        "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but input.size(-3)={c} is \
         not divisible by {square}"
    );
    let lead = &t.shape()[..n - 3];
    let apart = f::reshape(t, &Dims::new(lead).concat(&[c / square, r, r, h, w]))?;
    let b = n as i64 - 3;
    let order: Vec<i64> = (0..b).chain([b, b + 3, b + 1, b + 4, b + 2]).collect();
    let out = f::reshape(
        &f::permute(&apart, &order)?,
        &Dims::new(lead).concat(&[c / square, h * r, w * r]),
    )?;
    finish(out, t)
}

fn pixel_unshuffle(a: &calls::PixelUnshuffle) -> Result<Tensor> {
    let (t, r) = (a.input, a.downscale_factor);
    let n = t.ndim();
    ensure!(
        n >= 3,
        Runtime,
        "pixel_unshuffle expects input to have at least 3 dimensions, but got input with {n} dimension(s)"
    );
    ensure!(
        r > 0,
        Runtime,
        "pixel_unshuffle expects a positive downscale_factor, but got {r}"
    );
    let (c, h, w) = (t.shape()[n - 3], t.shape()[n - 2], t.shape()[n - 1]);
    ensure!(
        h % r == 0,
        Runtime,
        "pixel_unshuffle expects height to be divisible by downscale_factor, but input.size(-2)={h} is not divisible by {r}"
    );
    ensure!(
        w % r == 0,
        Runtime,
        "pixel_unshuffle expects width to be divisible by downscale_factor, but input.size(-1)={w} is not divisible by {r}"
    );
    let lead = &t.shape()[..n - 3];
    let apart = f::reshape(t, &Dims::new(lead).concat(&[c, h / r, r, w / r, r]))?;
    let b = n as i64 - 3;
    let order: Vec<i64> = (0..b).chain([b, b + 2, b + 4, b + 1, b + 3]).collect();
    let channels = c
        .checked_mul(r)
        .and_then(|x| x.checked_mul(r))
        .ok_or_else(|| err!(Runtime, "downscale_factor is too large, ({r})^2 overflowed"))?;
    let out = f::reshape(
        &f::permute(&apart, &order)?,
        &Dims::new(lead).concat(&[channels, h / r, w / r]),
    )?;
    finish(out, t)
}

fn channel_shuffle(a: &calls::ChannelShuffle) -> Result<Tensor> {
    let (t, groups) = (a.input, a.groups);
    ensure!(
        t.ndim() > 2,
        Runtime,
        "channel_shuffle expects input with > 2 dims, but got input with sizes {}",
        t.shape()
    );
    let c = t.shape()[1];
    ensure!(
        groups > 0,
        Runtime,
        "Number of groups to divide channels in must be positive. Value of groups:{groups}"
    );
    ensure!(
        c % groups == 0,
        Runtime,
        "Number of channels must be divisible by groups. Got {c} channels and {groups} groups."
    );
    let tail = &t.shape()[2..];
    let apart = f::reshape(
        t,
        &Dims::new(&[t.shape()[0], groups, c / groups]).concat(tail),
    )?;
    let out = f::reshape(&f::transpose(&apart, 1, 2)?, t.shape())?;
    let out = if groups == 1 || c == groups {
        f::Clone::new(&out)
            .memory_format(MemoryFormat::Contiguous)
            .call()?
    } else {
        out
    };
    finish(out, t)
}
