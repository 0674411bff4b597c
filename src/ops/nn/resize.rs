//! Interpolation.

use crate::cpu::resize::Resampling;
use crate::cpu::taps::{Axis, Mode};
use crate::ops::core::op::{Batch, Cast, F, Hidden, OpDef, Plan, compose, kernel};
use crate::ops::{batch, f};
use crate::{DType, Dims, MemoryFormat, Result, Tensor, bail, dims, ensure, kernels, warning};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "nn.functional.interpolate",
        "(Tensor input, int[]? size=None, float[]? scale_factor=None, str mode='nearest', bool? align_corners=None, bool? recompute_scale_factor=None, bool antialias=False)",
        F,
        interpolate,
        "The input at another size.",
    ).samples("f32[2, 3, 4, 4], (3, 3); f32[2, 3, 4], (3,), mode='linear', align_corners=True"),
    compose(
        "nn.functional.interpolate#int",
        "(Tensor input, int size, float[]? scale_factor=None, str mode='nearest', bool? align_corners=None, bool? recompute_scale_factor=None, bool antialias=False)",
        F,
        |a| {
            let size = Dims::filled(a.input.ndim().saturating_sub(2), a.size);
            f::NnFunctionalInterpolate::new(a.input)
                .size(&size[..])
                .scale_factor(a.scale_factor)
                .mode(a.mode)
                .align_corners(a.align_corners)
                .recompute_scale_factor(a.recompute_scale_factor)
                .antialias(a.antialias)
                .call()
        },
        "The input at another size.",
    ).samples("f32[1, 2, 4], 6; f32[1, 2, 4, 4], 6, mode='bilinear', align_corners=True"),
    compose(
        "nn.functional.upsample",
        "(Tensor input, int[]? size=None, float[]? scale_factor=None, str mode='nearest', bool? align_corners=None)",
        F,
        |a| {
            deprecated("upsample");
            f::NnFunctionalInterpolate::new(a.input)
                .size(a.size)
                .scale_factor(a.scale_factor)
                .mode(a.mode)
                .align_corners(a.align_corners)
                .call()
        },
        "As interpolate.",
    ).samples("f32[1, 2, 4, 4], [6, 6]; f32[1, 2, 4], scale_factor=[2.0]"),
    compose(
        "nn.functional.upsample#int",
        "(Tensor input, int size, float[]? scale_factor=None, str mode='nearest', bool? align_corners=None)",
        F,
        |a| {
            deprecated("upsample");
            f::NnFunctionalInterpolateInt::new(a.input, a.size)
                .scale_factor(a.scale_factor)
                .mode(a.mode)
                .align_corners(a.align_corners)
                .call()
        },
        "As interpolate.",
    ).samples("f32[1, 2, 4, 4], 6, mode='bilinear'"),
    compose(
        "nn.functional.upsample_nearest",
        "(Tensor input, int[]? size=None, float[]? scale_factor=None)",
        F,
        |a| {
            deprecated("upsample_nearest");
            f::NnFunctionalInterpolate::new(a.input)
                .size(a.size)
                .scale_factor(a.scale_factor)
                .call()
        },
        "As interpolate.",
    ).samples("f32[2, 3, 4], size=(5,)"),
    compose(
        "nn.functional.upsample_nearest#int",
        "(Tensor input, int size, float[]? scale_factor=None)",
        F,
        |a| {
            deprecated("upsample_nearest");
            f::NnFunctionalInterpolateInt::new(a.input, a.size)
                .scale_factor(a.scale_factor)
                .call()
        },
        "As interpolate.",
    ).samples("f32[1, 2, 4, 4], 6"),
    compose(
        "nn.functional.upsample_bilinear",
        "(Tensor input, int[]? size=None, float[]? scale_factor=None)",
        F,
        |a| {
            deprecated("upsample_bilinear");
            f::NnFunctionalInterpolate::new(a.input)
                .size(a.size)
                .scale_factor(a.scale_factor)
                .mode("bilinear")
                .align_corners(true)
                .call()
        },
        "As interpolate, corners aligned.",
    ).samples("f32[2, 3, 4, 4], scale_factor=0.6"),
    compose(
        "nn.functional.upsample_bilinear#int",
        "(Tensor input, int size, float[]? scale_factor=None)",
        F,
        |a| {
            deprecated("upsample_bilinear");
            f::NnFunctionalInterpolateInt::new(a.input, a.size)
                .scale_factor(a.scale_factor)
                .mode("bilinear")
                .align_corners(true)
                .call()
        },
        "As interpolate, corners aligned.",
    ).samples("f32[1, 2, 4, 4], 6"),
    kernel(
        "_upsample",
        "(Tensor input, int[] output_size, str mode, bool align_corners, bool antialias, float[] scales)",
        0,
        body!(rule, anywhere: run, scratch: |a, found, outs, room| found.room(room, a.input, &outs[0])),
        "",
    ).samples("f32[1, 2, 4, 4], [6, 6], 'bilinear', False, False, [nan, nan]")
    .grad("Upsample{mode nearest=Nearest nearest-exact=NearestExact linear=Linear bilinear=Bilinear bicubic=Bicubic trilinear=Trilinear}{output_size.count}D{antialias true=Aa false=}Backward0 | input: _grad.upsample(grad, output_size, input.sizes, 'upsample', mode, align_corners, antialias, scales)")
    .batch(Batch::As(typed!(batch::upsample, Hidden)))
    .amp(Cast::Kept, Cast::Single),
    compose(
        "_upsample_bilinear2d_aa",
        "(Tensor input, int[] output_size, bool align_corners, float? scales_h=None, float? scales_w=None)",
        0,
        |a| {
            check_image_size(a.output_size)?;
            let scales = [a.scales_h.unwrap_or(0.0), a.scales_w.unwrap_or(0.0)];
            f::_upsample(
                a.input,
                a.output_size,
                "bilinear",
                a.align_corners,
                true,
                &scales,
            )
        },
        "Bilinear interpolation without aliasing.",
    ).samples("f32[1, 2, 6, 6], [3, 3], False")
    .amp(Cast::Kept, Cast::Single),
    compose(
        "_upsample_bicubic2d_aa",
        "(Tensor input, int[] output_size, bool align_corners, float? scales_h=None, float? scales_w=None)",
        0,
        |a| {
            check_image_size(a.output_size)?;
            let scales = [a.scales_h.unwrap_or(0.0), a.scales_w.unwrap_or(0.0)];
            f::_upsample(
                a.input,
                a.output_size,
                "bicubic",
                a.align_corners,
                true,
                &scales,
            )
        },
        "Bicubic interpolation without aliasing.",
    ).samples("f32[1, 2, 6, 6], [3, 3], True")
    .amp(Cast::Kept, Cast::Single),
];

/// Warns of a function that `interpolate` has replaced.
fn deprecated(name: &str) {
    warning::say(&format!(
        "`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead."
    ));
}

const SMOOTH: &str = "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear";

fn check_image_size(size: &[i64]) -> Result<()> {
    ensure!(
        size.len() == 2,
        Runtime,
        "It is expected output_size equals to 2, but got size {}",
        size.len()
    );
    Ok(())
}

fn list<T: std::fmt::Display>(values: &[T]) -> String {
    let parts: Vec<String> = values.iter().map(ToString::to_string).collect();
    if parts.len() == 1 {
        format!("({},)", parts[0])
    } else {
        format!("({})", parts.join(", "))
    }
}

fn interpolate(a: &calls::NnFunctionalInterpolate) -> Result<Tensor> {
    let (x, mode) = (a.input, a.mode);
    let whole = matches!(mode, "nearest" | "area" | "nearest-exact");
    ensure!(!whole || a.align_corners.is_none(), Value, "{SMOOTH}");
    let target = target(a, &x.shape()[x.ndim().min(2)..])?;
    let recompute = a.recompute_scale_factor.unwrap_or(false);
    ensure!(
        !recompute || a.size.is_none(),
        Value,
        "recompute_scale_factor is not meaningful with an explicit size."
    );
    ensure!(
        !a.antialias || (matches!(mode, "bilinear" | "bicubic" | "lanczos") && x.ndim() == 4),
        Value,
        "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input"
    );
    check_mode(mode, x.ndim())?;
    if mode == "area" {
        return match target.size.len() {
            1 => f::adaptive_avg_pool1d(x, &target.size),
            2 => f::nn_functional_adaptive_avg_pool2d(x, &target.size),
            _ => f::nn_functional_adaptive_avg_pool3d(x, &target.size),
        };
    }
    let align = a.align_corners.unwrap_or(false);
    let scales: &[f64] = if recompute { &[] } else { &target.scales[..] };
    f::_upsample(x, &target.size, mode, align, a.antialias, scales)
}

/// What the result's sizes are to be, and by which factors if those were given.
struct Target {
    size: Dims,
    scales: Vec<f64>,
}

fn target(a: &calls::NnFunctionalInterpolate, sizes: &[i64]) -> Result<Target> {
    let n = sizes.len();
    match (a.size, a.scale_factor) {
        (Some(_), Some(_)) => bail!(Value, "only one of size or scale_factor should be defined"),
        (None, None) => bail!(Value, "either size or scale_factor should be defined"),
        (Some(s), None) => {
            ensure!(
                s.len() == n,
                Value,
                "Input and output must have the same number of spatial dimensions, but got input with spatial dimensions of {} \
                 and output size of {}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and output size in (o1, o2, \
                 ...,oK) format.",
                Dims::new(sizes),
                list(s)
            );
            Ok(Target {
                size: Dims::new(s),
                scales: Vec::new(),
            })
        }
        (None, Some(factors)) => {
            ensure!(
                factors.len() == n || factors.len() == 1,
                Value,
                "Input and scale_factor must have the same number of spatial dimensions, but got input with spatial dimensions of \
                 {} and scale_factor of shape {}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and scale_factor \
                 in (s1, s2, ...,sK) format.",
                Dims::new(sizes),
                list(factors)
            );
            let scales = if factors.len() == n {
                factors.to_vec()
            } else {
                vec![factors[0]; n]
            };
            let scaled = |(&s, f): (&i64, &f64)| (s as f64 * f).floor() as i64;
            Ok(Target {
                size: sizes.iter().zip(&scales).map(scaled).collect(),
                scales,
            })
        }
    }
}

/// Whether there is such a mode for tensors of so many dimensions.
fn check_mode(mode: &str, ndim: usize) -> Result<()> {
    let n = ndim.saturating_sub(2);
    let known = matches!(
        mode,
        "nearest" | "area" | "nearest-exact" | "linear" | "bilinear" | "trilinear" | "bicubic"
    );
    if !known || !(1..=3).contains(&n) || (mode == "bicubic" && n != 2) {
        bail!(
            NotImplemented,
            "Input Error: Only 3D, 4D and 5D input Tensors supported (got {ndim}D) for the modes: nearest | linear | bilinear | bicubic | \
             trilinear | lanczos | area | nearest-exact (got {mode})"
        );
    }
    let needs = match mode {
        "linear" => 1,
        "bilinear" => 2,
        "trilinear" => 3,
        _ => n,
    };
    ensure!(
        needs == n,
        NotImplemented,
        "Got {ndim}D input, but {mode} mode needs {}D input",
        needs + 2
    );
    Ok(())
}

/// The format of a result.
pub(in crate::ops) fn format(x: &Tensor) -> MemoryFormat {
    match x.ndim() {
        4 if dims::strides_like_channels_last(x.shape(), x.strides()) => MemoryFormat::ChannelsLast,
        5 if dims::strides_like_channels_last(x.shape(), x.strides()) => {
            MemoryFormat::ChannelsLast3d
        }
        _ => MemoryFormat::Contiguous,
    }
}

/// No spatial size of input or output may be 0.
pub(in crate::ops) fn check_filled(sizes: &[i64], size: &[i64]) -> Result<()> {
    let n = size.len();
    let names = ["D", "H", "W"];
    let shown = |v: &[i64]| {
        v.iter()
            .enumerate()
            .map(|(i, v)| format!("{}: {v}", names[3 - n + i]))
            .collect::<Vec<_>>()
            .join(", ")
    };
    ensure!(
        sizes.iter().chain(size).all(|&v| v > 0),
        Runtime,
        "Input and output sizes should be greater than 0, but got input ({}) output ({})",
        shown(sizes),
        shown(size)
    );
    Ok(())
}

fn check_sizes(x: &Tensor, size: &[i64]) -> Result<()> {
    let n = size.len();
    ensure!(
        x.ndim() == n + 2,
        Runtime,
        "It is expected input_size equals to {}, but got size {}",
        n + 2,
        x.ndim()
    );
    check_filled(&x.shape()[2..], size)?;
    ensure!(
        x.shape()[1] != 0,
        Runtime,
        "Non-empty {}D data tensor expected but got a tensor with sizes {}",
        n + 2,
        x.shape()
    );
    Ok(())
}

/// The mode of a name.
pub(in crate::ops) fn mode(name: &str) -> Mode {
    match name {
        "nearest" => Mode::Nearest,
        "nearest-exact" => Mode::NearestExact,
        "bicubic" => Mode::Cubic,
        _ => Mode::Linear,
    }
}

/// A dimension of `size` elements that becomes one of `out`.
pub(in crate::ops) fn axis(
    size: i64,
    out: i64,
    scale: Option<f64>,
    align: bool,
    dtype: DType,
) -> Axis {
    Axis {
        size,
        out,
        scale: scale.unwrap_or(0.0),
        align,
        single: dtype != DType::F64,
    }
}

/// The kernel that PyTorch names: one for small images and those with channels innermost, and one for all others.
#[cold]
fn kernel_name(a: &calls::_Upsample) -> String {
    let (x, size, n) = (a.input, a.output_size, a.output_size.len());
    if a.antialias {
        return "compute_index_ranges_weights".to_owned();
    }
    let innermost = format(x) != MemoryFormat::Contiguous && x.shape()[1] > 3;
    let small = n == 2 && size.iter().sum::<i64>() <= 128;
    let (word, own) = match mode(a.mode) {
        Mode::Cubic => ("cubic", None),
        Mode::Linear => ("linear", Some(a.mode)),
        Mode::Nearest | Mode::NearestExact => ("nearest", Some("nearest")),
    };
    match own.filter(|_| n > 1 && (innermost || small)) {
        Some(own) => format!("upsample_{own}{n}d_channels_last"),
        None => format!("compute_indices_weights_{word}"),
    }
}

fn rule(a: &calls::_Upsample) -> Result<(Plan, Resampling)> {
    let (x, size, mode) = (a.input, a.output_size, a.mode);
    let n = size.len();
    check_sizes(x, size)?;
    let d = x.dtype();
    let byte = d == DType::U8 && (n == 2 || mode.starts_with("nearest"));
    d.check_kernel(
        (d.is_float() && !d.is_storage_only()) || byte,
        format_args!("{}", kernel_name(a)),
    )?;
    let shape = Dims::new(&x.shape()[..2]).concat(size);
    let format = format(x);
    let strides = dims::format_strides(&shape, format)?;
    let axis = |i: usize| {
        let scale = a.scales.get(i).copied();
        axis(x.shape()[i + 2], size[i], scale, a.align_corners, d)
    };
    let found = Resampling {
        mode: self::mode(mode),
        axes: (0..n).map(axis).collect(),
        antialias: a.antialias,
        channels_last: format != MemoryFormat::Contiguous,
    };
    Ok((Plan::one(shape, strides, d), found))
}

fn run(a: &calls::_Upsample, found: &Resampling, outs: &[Tensor]) -> Result<()> {
    kernels::resize::run(found, a.input, &outs[0])
}
