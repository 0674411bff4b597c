//! Padding in all modes, and shuffles between channels and pixels.

use crate::dims::{self, MemoryFormat};
use crate::ops::arrange::join::suggested_format;
use crate::ops::core::args::Args;
use crate::ops::core::op::{F, KernelBody, OpDef, Plan, Ret, kernel, old_compose};
use crate::{Dims, Result, Scalar, Tensor, bail, cpu, ensure, err, run, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "constant_pad_nd",
        "(Tensor self, int[] pad, Scalar value=0)",
        F,
        KernelBody::new(infer_constant, constant),
        "The tensor with a number around it.",
    ),
    kernel(
        "_pad_mode",
        "(Tensor self, int[] pad, str mode)",
        F,
        KernelBody::new(infer_mode, pad_mode),
        "",
    ),
    old_compose(
        "nn.functional.pad",
        "(Tensor input, int[] pad, str mode='constant', float? value=None)",
        F,
        pad,
        "The tensor with elements around it: a number, its mirror image, its edge, or itself again.",
    ),
    old_compose(
        "pixel_shuffle",
        "(Tensor self, int upscale_factor)",
        F,
        pixel_shuffle,
        "Channels spread over blocks of pixels.",
    ),
    old_compose(
        "pixel_unshuffle",
        "(Tensor self, int downscale_factor)",
        F,
        pixel_unshuffle,
        "Blocks of pixels gathered into channels.",
    ),
    old_compose(
        "channel_shuffle",
        "(Tensor self, int groups)",
        F,
        channel_shuffle,
        "Channels of several groups interleaved.",
    ),
];

/// The sizes after padding; pads come in pairs from the last dimension.
fn padded(shape: &[i64], pad: &[i64]) -> Result<Dims> {
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

/// What is left of the tensor after negative pads.
fn cropped(t: &Tensor, pad: &[i64]) -> Result<Tensor> {
    let mut out = t.clone();
    for (k, pair) in pad.chunks(2).enumerate() {
        let d = t.ndim() - 1 - k;
        let (left, right) = (
            pair[0].min(0).saturating_neg(),
            pair[1].min(0).saturating_neg(),
        );
        let size = out.shape()[d];
        let len = size.saturating_sub(left).saturating_sub(right);
        ensure!(len >= 0, Runtime, "narrow(): length must be non-negative.");
        out = out.narrowed(d, left, len);
    }
    Ok(out)
}

fn infer_constant(a: &Args) -> Result<Plan> {
    let (t, pad) = (a.tensor(0)?, a.ints(1)?);
    check_pad(t, pad)?;
    crate::ops::index::mask::check_fits(a.scalar(2)?, t.dtype())?;
    let shape = padded(t.shape(), pad)?;
    if pad.iter().all(|&p| p <= 0) {
        let rest = cropped(t, pad)?;
        return Ok(Plan::one(
            shape,
            dims::preserved_strides(rest.shape(), rest.strides()),
            t.dtype(),
        ));
    }
    cropped(t, pad)?;
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

fn constant(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, pad, out) = (a.tensor(0)?, a.ints(1)?, &outs[0]);
    if pad.iter().any(|&p| p > 0) {
        cpu::fill(out, a.scalar(2)?)?;
    }
    let inverse: Dims = pad.iter().map(|p| -p).collect();
    let (inner, rest) = (cropped(out, &inverse)?, cropped(t, pad)?);
    if inner.numel() == 0 {
        Ok(())
    } else {
        cpu::copy::copy(&inner, &rest)
    }
}

fn pad(a: &Args) -> Result<Ret> {
    let (t, pad, mode) = (a.tensor(0)?, a.ints(1)?, a.str(2).unwrap_or("constant"));
    check_pad(t, pad)?;
    if mode == "constant" {
        let value = a.opt_float(3).unwrap_or(0.0);
        return run!("constant_pad_nd", t, pad.clone(), Scalar::Float(value));
    }
    ensure!(
        a.opt_float(3).is_none_or(|v| v == 0.0),
        Runtime,
        "Padding mode \"{mode}\" doesn't take in value argument"
    );
    let n = pad.len() / 2;
    if !(1..=3).contains(&n) || (t.ndim() != n + 1 && t.ndim() != n + 2) {
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
    run!("_pad_mode", t, pad.clone(), mode)
}

fn infer_mode(a: &Args) -> Result<Plan> {
    let (t, pad, mode) = (a.tensor(0)?, a.ints(1)?, a.str(2).unwrap_or(""));
    let n = pad.len() / 2;
    let shape = padded(t.shape(), pad)?;
    if mode == "circular" {
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
        return Ok(Plan::contiguous(&shape, t.dtype()));
    }
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
    let show = |s: &[i64], sep: &str| {
        (0..n)
            .rev()
            .map(|k| format!("{}: {}", names[k], s[s.len() - 1 - k]))
            .collect::<Vec<_>>()
            .join(sep)
    };
    let tail = &shape[shape.len() - n..];
    ensure!(
        tail.iter().any(|&d| d >= 1),
        Runtime,
        "input ({}) is too small. Calculated output {}",
        show(t.shape(), ", "),
        show(&shape, " ")
    );
    crate::ops::create::factory::check_size(&shape)?;
    // One-dimensional and unbatched results are row-major.
    let format = if n >= 2 {
        suggested_format(t)
    } else {
        MemoryFormat::Contiguous
    };
    Ok(Plan::one(
        shape.clone(),
        dims::format_strides(&shape, format)?,
        t.dtype(),
    ))
}

/// For each place of a padded dimension, where in the input it comes from.
fn sources(mode: &str, size: i64, left: i64, right: i64, out: i64) -> Vec<usize> {
    // Only what negative pads leave goes round.
    let ring = (out - left.max(0) - right.max(0)).max(1);
    (0..out)
        .map(|j| {
            let x = j - left;
            let x = match mode {
                "reflect" if x < 0 => -x,
                "reflect" if x >= size => 2 * (size - 1) - x,
                "circular" => (-left).max(0) + (j - left.max(0)).rem_euclid(ring),
                _ => x,
            };
            x.clamp(0, (size - 1).max(0)) as usize
        })
        .collect()
}

fn pad_mode(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, pad, mode, out) = (a.tensor(0)?, a.ints(1)?, a.str(2).unwrap_or(""), &outs[0]);
    if out.numel() == 0 {
        return Ok(());
    }
    let src = cpu::copy::dense(t, t.dtype())?;
    let dst = if out.is_contiguous() {
        out.clone()
    } else {
        Tensor::empty(out.shape(), out.dtype(), crate::Device::CPU)?
    };
    let tables: Vec<Option<Vec<usize>>> = (0..t.ndim())
        .map(|d| {
            let k = t.ndim() - 1 - d;
            (2 * k < pad.len()).then(|| {
                sources(
                    mode,
                    t.shape()[d],
                    pad[2 * k],
                    pad[2 * k + 1],
                    out.shape()[d],
                )
            })
        })
        .collect();
    cpu::index::pick_grid(&dst, &src, &tables);
    if out.is_contiguous() {
        Ok(())
    } else {
        cpu::copy::copy(out, &dst)
    }
}

/// The format of a shuffled image: channels-last stays so.
fn finish(t: &Tensor, input: &Tensor) -> Result<Ret> {
    match suggested_format(input) {
        MemoryFormat::Contiguous if t.is_contiguous() && !t.shares_storage(input) => {
            Ok(t.clone().into())
        }
        MemoryFormat::Contiguous => run!("clone", t, MemoryFormat::Contiguous),
        f => run!("clone", t, f),
    }
}

fn pixel_shuffle(a: &Args) -> Result<Ret> {
    let (t, r) = (a.tensor(0)?, a.int(1)?);
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
    let apart = run1!(
        "reshape",
        t,
        Dims::new(lead).concat(&[c / square, r, r, h, w])
    )?;
    let b = n - 3;
    let order: Vec<usize> = (0..b).chain([b, b + 3, b + 1, b + 4, b + 2]).collect();
    let out = run1!(
        "reshape",
        &apart.permuted(&order),
        Dims::new(lead).concat(&[c / square, h * r, w * r])
    )?;
    finish(&out, t)
}

fn pixel_unshuffle(a: &Args) -> Result<Ret> {
    let (t, r) = (a.tensor(0)?, a.int(1)?);
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
    let apart = run1!(
        "reshape",
        t,
        Dims::new(lead).concat(&[c, h / r, r, w / r, r])
    )?;
    let b = n - 3;
    let order: Vec<usize> = (0..b).chain([b, b + 2, b + 4, b + 1, b + 3]).collect();
    let channels = c
        .checked_mul(r)
        .and_then(|x| x.checked_mul(r))
        .ok_or_else(|| err!(Runtime, "downscale_factor is too large, ({r})^2 overflowed"))?;
    let out = run1!(
        "reshape",
        &apart.permuted(&order),
        Dims::new(lead).concat(&[channels, h / r, w / r])
    )?;
    finish(&out, t)
}

fn channel_shuffle(a: &Args) -> Result<Ret> {
    let (t, groups) = (a.tensor(0)?, a.int(1)?);
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
    let apart = run1!(
        "reshape",
        t,
        Dims::new(&[t.shape()[0], groups, c / groups]).concat(tail)
    )?;
    let out = run1!("reshape", &apart.swapped(1, 2), t.shape().clone())?;
    let out = if groups == 1 || c == groups {
        run1!("clone", &out, MemoryFormat::Contiguous)?
    } else {
        out
    };
    finish(&out, t)
}
