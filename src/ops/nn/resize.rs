//! Interpolation.

use crate::cpu::copy;
use crate::cpu::resize::{self as cpu, Taps};
use crate::ops::core::args::{Arg, Args};
use crate::ops::core::op::{F, KernelBody, OpDef, OutSpec, Plan, Ret, kernel, old_compose};
use crate::{DType, Dims, MemoryFormat, Result, Tensor, bail, dims, ensure, run1};
use smallvec::smallvec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    old_compose(
        "nn.functional.interpolate",
        "(Tensor input, int[]? size=None, float[]? scale_factor=None, str mode='nearest', bool? align_corners=None, bool? recompute_scale_factor=None, bool antialias=False)",
        F,
        |a| {
            interpolate(
                a,
                a.str(3).unwrap_or("nearest"),
                a.opt_bool(4),
                a.opt_bool(5),
                a.bool(6),
            )
        },
        "The input at another size.",
    ),
    old_compose(
        "nn.functional.interpolate#int",
        "(Tensor input, int size, float[]? scale_factor=None, str mode='nearest', bool? align_corners=None, bool? recompute_scale_factor=None, bool antialias=False)",
        F,
        |a| {
            interpolate(
                a,
                a.str(3).unwrap_or("nearest"),
                a.opt_bool(4),
                a.opt_bool(5),
                a.bool(6),
            )
        },
        "The input at another size.",
    ),
    old_compose(
        "nn.functional.upsample",
        "(Tensor input, int[]? size=None, float[]? scale_factor=None, str mode='nearest', bool? align_corners=None)",
        F,
        |a| interpolate(a, a.str(3).unwrap_or("nearest"), a.opt_bool(4), None, false),
        "As interpolate.",
    ),
    old_compose(
        "nn.functional.upsample#int",
        "(Tensor input, int size, float[]? scale_factor=None, str mode='nearest', bool? align_corners=None)",
        F,
        |a| interpolate(a, a.str(3).unwrap_or("nearest"), a.opt_bool(4), None, false),
        "As interpolate.",
    ),
    old_compose(
        "nn.functional.upsample_nearest",
        "(Tensor input, int[]? size=None, float[]? scale_factor=None)",
        F,
        |a| interpolate(a, "nearest", None, None, false),
        "As interpolate.",
    ),
    old_compose(
        "nn.functional.upsample_nearest#int",
        "(Tensor input, int size, float[]? scale_factor=None)",
        F,
        |a| interpolate(a, "nearest", None, None, false),
        "As interpolate.",
    ),
    old_compose(
        "nn.functional.upsample_bilinear",
        "(Tensor input, int[]? size=None, float[]? scale_factor=None)",
        F,
        |a| interpolate(a, "bilinear", Some(true), None, false),
        "As interpolate, corners aligned.",
    ),
    old_compose(
        "nn.functional.upsample_bilinear#int",
        "(Tensor input, int size, float[]? scale_factor=None)",
        F,
        |a| interpolate(a, "bilinear", Some(true), None, false),
        "As interpolate, corners aligned.",
    ),
    kernel(
        "_upsample",
        "(Tensor input, int[] output_size, str mode, bool align_corners, bool antialias, float[] scales)",
        0,
        KernelBody::new(infer, run),
        "",
    ),
    old_compose(
        "_upsample_bilinear2d_aa",
        "(Tensor input, int[] output_size, bool align_corners, float? scales_h=None, float? scales_w=None)",
        F,
        |a| direct(a, "bilinear"),
        "Bilinear interpolation without aliasing.",
    ),
    old_compose(
        "_upsample_bicubic2d_aa",
        "(Tensor input, int[] output_size, bool align_corners, float? scales_h=None, float? scales_w=None)",
        F,
        |a| direct(a, "bicubic"),
        "Bicubic interpolation without aliasing.",
    ),
];

const SMOOTH: &str = "align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic | trilinear";

fn direct(a: &Args, mode: &str) -> Result<Ret> {
    let scales = vec![a.opt_float(3).unwrap_or(0.0), a.opt_float(4).unwrap_or(0.0)];
    Ok(run1!(
        "_upsample",
        a.tensor(0)?,
        a.ints(1)?.clone(),
        mode,
        a.bool(2),
        true,
        Arg::Floats(scales)
    )?
    .into())
}

fn list<T: std::fmt::Display>(values: &[T]) -> String {
    let parts: Vec<String> = values.iter().map(ToString::to_string).collect();
    if parts.len() == 1 {
        format!("({},)", parts[0])
    } else {
        format!("({})", parts.join(", "))
    }
}

fn interpolate(
    a: &Args,
    mode: &str,
    align: Option<bool>,
    recompute: Option<bool>,
    antialias: bool,
) -> Result<Ret> {
    let x = a.tensor(0)?;
    let whole = matches!(mode, "nearest" | "area" | "nearest-exact");
    ensure!(!whole || align.is_none(), Value, "{SMOOTH}");
    let n = x.ndim().saturating_sub(2);
    let sizes = Dims::new(&x.shape()[x.ndim().min(2)..]);
    let size = match &a.values[1] {
        Arg::Int(v) => Some(Dims::filled(n, *v)),
        Arg::Ints(d) => Some(d.clone()),
        _ => None,
    };
    let given = matches!(&a.values[1], Arg::Ints(_));
    let factors = a.opt_floats(2);
    let (mut out, mut scales) = match (size, factors) {
        (Some(_), Some(_)) => bail!(Value, "only one of size or scale_factor should be defined"),
        (Some(s), None) => {
            if given && s.len() != n {
                bail!(
                    Value,
                    "Input and output must have the same number of spatial dimensions, but got input with spatial dimensions of {sizes} \
                     and output size of {}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and output size in (o1, o2, \
                     ...,oK) format.",
                    list(&s)
                );
            }
            (Some(s), Vec::new())
        }
        (None, Some(f)) => {
            if f.len() != n && f.len() != 1 {
                bail!(
                    Value,
                    "Input and scale_factor must have the same number of spatial dimensions, but got input with spatial dimensions of \
                     {sizes} and scale_factor of shape {}. Please provide input tensor in (N, C, d1, d2, ...,dK) format and scale_factor \
                     in (s1, s2, ...,sK) format.",
                    list(f)
                );
            }
            (
                None,
                if f.len() == n {
                    f.to_vec()
                } else {
                    vec![f[0]; n]
                },
            )
        }
        (None, None) => bail!(Value, "either size or scale_factor should be defined"),
    };
    let mut recompute = recompute.unwrap_or(false);
    ensure!(
        !recompute || out.is_none(),
        Value,
        "recompute_scale_factor is not meaningful with an explicit size."
    );
    recompute |= mode == "area" && out.is_none();
    ensure!(
        !antialias || (matches!(mode, "bilinear" | "bicubic" | "lanczos") && x.ndim() == 4),
        Value,
        "Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input"
    );
    let known = matches!(
        mode,
        "nearest" | "area" | "nearest-exact" | "linear" | "bilinear" | "trilinear" | "bicubic"
    );
    if !known || !(1..=3).contains(&n) || (mode == "bicubic" && n != 2) {
        bail!(
            NotImplemented,
            "Input Error: Only 3D, 4D and 5D input Tensors supported (got {}D) for the modes: nearest | linear | bilinear | bicubic | \
             trilinear | lanczos | area | nearest-exact (got {mode})",
            x.ndim()
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
        "Got {}D input, but {mode} mode needs {}D input",
        n + 2,
        needs + 2
    );
    let target = match out.take() {
        Some(s) => s,
        None => (0..n)
            .map(|i| (sizes[i] as f64 * scales[i]).floor() as i64)
            .collect(),
    };
    if recompute {
        scales.clear();
    }
    if mode == "area" {
        return Ok(match n {
            1 => run1!("nn.functional.adaptive_avg_pool1d", x, target)?,
            2 => run1!("nn.functional.adaptive_avg_pool2d", x, target)?,
            _ => run1!("nn.functional.adaptive_avg_pool3d", x, target)?,
        }
        .into());
    }
    Ok(run1!(
        "_upsample",
        x,
        target,
        mode,
        align.unwrap_or(false),
        antialias,
        Arg::Floats(scales)
    )?
    .into())
}

fn format(x: &Tensor) -> MemoryFormat {
    match x.ndim() {
        4 if dims::strides_like_channels_last(x.shape(), x.strides()) => MemoryFormat::ChannelsLast,
        5 if dims::strides_like_channels_last(x.shape(), x.strides()) => {
            MemoryFormat::ChannelsLast3d
        }
        _ => MemoryFormat::Contiguous,
    }
}

fn infer(a: &Args) -> Result<Plan> {
    let (x, size, mode) = (a.tensor(0)?, a.ints(1)?, a.str(2).unwrap_or(""));
    let n = size.len();
    ensure!(
        x.ndim() == n + 2,
        Runtime,
        "It is expected input_size equals to {}, but got size {}",
        n + 2,
        x.ndim()
    );
    let sizes = &x.shape()[2..];
    let names = ["D", "H", "W"];
    let shown = |v: &[i64]| {
        v.iter()
            .enumerate()
            .map(|(i, v)| format!("{}: {v}", names[3 - n + i]))
            .collect::<Vec<_>>()
            .join(", ")
    };
    ensure!(
        sizes.iter().chain(size.iter()).all(|&v| v > 0),
        Runtime,
        "Input and output sizes should be greater than 0, but got input ({}) output ({})",
        shown(sizes),
        shown(size)
    );
    ensure!(
        x.shape()[1] != 0,
        Runtime,
        "Non-empty {}D data tensor expected but got a tensor with sizes {}",
        n + 2,
        x.shape()
    );
    let d = x.dtype();
    let byte = d == DType::U8 && (n == 2 || mode.starts_with("nearest"));
    d.check_kernel(
        (d.is_float() && !d.is_storage_only()) || byte,
        format_args!("upsample_{mode}{n}d"),
    )?;
    let shape = Dims::new(&x.shape()[..2]).concat(size);
    let strides = dims::format_strides(&shape, format(x))?;
    Ok(Plan {
        outs: smallvec![OutSpec {
            shape,
            strides,
            dtype: d
        }],
        device: None,
    })
}

/// Input steps for each output step, in the precision PyTorch computes it in.
fn step(size: i64, out: i64, align: bool, scale: f64, single: bool) -> f64 {
    let round = |v: f64| if single { f64::from(v as f32) } else { v };
    if align {
        return if out > 1 {
            round((size - 1) as f64 / (out - 1) as f64)
        } else {
            0.0
        };
    }
    round(if scale > 0.0 {
        1.0 / scale
    } else {
        size as f64 / out as f64
    })
}

fn nearest(size: i64, out: i64, scale: f64, exact: bool, single: bool) -> Vec<usize> {
    let s = step(size, out, false, scale, single);
    (0..out)
        .map(|i| {
            let at = match (exact, single) {
                (false, true) => (i as f32 * s as f32).floor() as i64,
                (false, false) => (i as f64 * s).floor() as i64,
                (true, true) => ((i as f32 + 0.5) * s as f32).floor() as i64,
                (true, false) => ((i as f64 + 0.5) * s).floor() as i64,
            };
            at.clamp(0, size - 1) as usize
        })
        .collect()
}

/// The cubic kernel with parameter `a` at distance `t`.
fn cubic(t: f64, a: f64) -> f64 {
    let t = t.abs();
    if t <= 1.0 {
        ((a + 2.0) * t - (a + 3.0)) * t * t + 1.0
    } else if t < 2.0 {
        ((a * t - 5.0 * a) * t + 8.0 * a) * t - 4.0 * a
    } else {
        0.0
    }
}

fn taps(size: i64, out: i64, mode: &str, align: bool, scale: f64, single: bool) -> Vec<Taps> {
    let is_cubic = mode == "bicubic";
    let s = step(size, out, align, scale, single);
    (0..out)
        .map(|i| {
            let mut at = if align {
                if single {
                    f64::from(i as f32 * s as f32)
                } else {
                    i as f64 * s
                }
            } else if single {
                f64::from((i as f32 + 0.5).mul_add(s as f32, -0.5))
            } else {
                (i as f64 + 0.5).mul_add(s, -0.5)
            };
            if !is_cubic && size == out {
                at = i as f64;
            }
            if !is_cubic && at < 0.0 {
                at = 0.0;
            }
            let first = (at.floor() as i64).min(size - 1);
            let t = (at - first as f64).clamp(0.0, 1.0);
            let clamp = |p: i64| p.clamp(0, size - 1) as usize;
            let parts = if is_cubic {
                (-1..3)
                    .map(|k| (clamp(first + k), cubic(t - k as f64, -0.75)))
                    .collect()
            } else if t == 0.0 {
                vec![(clamp(first), 1.0)]
            } else {
                vec![(clamp(first), 1.0 - t), (clamp(first + 1), t)]
            };
            Taps { parts }
        })
        .collect()
}

/// Taps of a filter that is as wide as the step, so that no input is skipped.
fn wide_taps(size: i64, out: i64, mode: &str, align: bool, scale: f64, single: bool) -> Vec<Taps> {
    let s = step(size, out, align, scale, single);
    let reach = if mode == "bicubic" { 2.0 } else { 1.0 };
    let support = if s >= 1.0 { reach * s } else { reach };
    let inverse = if s >= 1.0 { 1.0 / s } else { 1.0 };
    (0..out)
        .map(|i| {
            let center = s * (i as f64 + 0.5);
            let from = ((center - support + 0.5) as i64).max(0);
            let to = ((center + support + 0.5) as i64).min(size);
            let mut parts: Vec<(usize, f64)> = (from..to)
                .map(|j| {
                    let t = (j as f64 - center + 0.5) * inverse;
                    (
                        j as usize,
                        if mode == "bicubic" {
                            cubic(t, -0.5)
                        } else {
                            (1.0 - t.abs()).max(0.0)
                        },
                    )
                })
                .collect();
            let total: f64 = parts.iter().map(|p| p.1).sum();
            if total != 0.0 {
                parts.iter_mut().for_each(|p| p.1 /= total);
            }
            Taps { parts }
        })
        .collect()
}

fn run(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (x, size, mode, out) = (a.tensor(0)?, a.ints(1)?, a.str(2).unwrap_or(""), &outs[0]);
    if out.numel() == 0 {
        return Ok(());
    }
    let (align, antialias) = (a.bool(3), a.bool(4));
    let scales = a.opt_floats(5).unwrap_or(&[]);
    let scale = |i: usize| scales.get(i).copied().unwrap_or(0.0);
    let n = size.len();
    let sizes = Dims::new(&x.shape()[2..]);
    let single = x.dtype() != DType::F64;
    let last = format(x) != MemoryFormat::Contiguous;
    // Spatial dimensions begin at 1 with channels innermost, else at 2.
    let order: Vec<usize> = if last {
        std::iter::once(0).chain(2..n + 2).chain([1]).collect()
    } else {
        (0..n + 2).collect()
    };
    let back: Vec<usize> = if last {
        [0, n + 1].into_iter().chain(1..n + 1).collect()
    } else {
        (0..n + 2).collect()
    };
    let first = if last { 1 } else { 2 };
    let x = x.permuted(&order);
    if mode.starts_with("nearest") {
        let x = copy::dense(&x, x.dtype())?;
        let places: [Vec<usize>; 3] = std::array::from_fn(|i| {
            if i + n < 3 {
                vec![0]
            } else {
                nearest(
                    sizes[i + n - 3],
                    size[i + n - 3],
                    scale(i + n - 3),
                    mode == "nearest-exact",
                    single,
                )
            }
        });
        let triple: [usize; 3] = std::array::from_fn(|i| {
            if i + n < 3 {
                1
            } else {
                sizes[i + n - 3] as usize
            }
        });
        let inner = if last { x.shape()[n + 1] as usize } else { 1 };
        let shape = out.permuted(&order).shape().clone();
        return copy::copy(
            out,
            &cpu::choose(&x, &places, triple, inner, &shape)?.permuted(&back),
        );
    }
    let mut y = cpu::working(&x)?;
    for i in (0..n).rev() {
        let f = if antialias { wide_taps } else { taps };
        let taps = f(sizes[i], size[i], mode, align, scale(i), single);
        if sizes[i] == size[i]
            && taps
                .iter()
                .enumerate()
                .all(|(j, t)| t.parts.len() == 1 && t.parts[0] == (j, 1.0))
        {
            continue;
        }
        if out.dtype() == DType::U8 {
            y = round_bytes(&cpu::along(&y, first + i, &fixed_point(taps))?)?;
        } else {
            y = cpu::along(&y, first + i, &taps)?;
        }
    }
    copy::copy(out, &y.permuted(&back))
}

/// Weights rounded to as many binary places as 16 bits hold for the largest: bytes are resampled so.
fn fixed_point(mut taps: Vec<Taps>) -> Vec<Taps> {
    let most = taps
        .iter()
        .flat_map(|t| &t.parts)
        .fold(0.0f64, |a, p| a.max(p.1));
    let mut places = 0;
    while places < 22 && (0.5 + most * f64::from(1u32 << (places + 1))) < 32768.0 {
        places += 1;
    }
    let unit = f64::from(1u32 << places);
    taps.iter_mut()
        .flat_map(|t| &mut t.parts)
        .for_each(|p| p.1 = (p.1 * unit).round() / unit);
    taps
}

/// Rounds to whole numbers from 0 to 255.
fn round_bytes(t: &Tensor) -> Result<Tensor> {
    let t = copy::dense(t, DType::F32)?;
    for v in crate::cpu::slice_mut::<f32>(&t) {
        *v = (*v + 0.5).floor().clamp(0.0, 255.0);
    }
    Ok(t)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_sum_to_one() {
        for mode in ["linear", "bicubic"] {
            for (size, out) in [(4, 7), (9, 3), (5, 5)] {
                for f in [taps, wide_taps] {
                    for t in f(size, out, mode, false, 0.0, true) {
                        assert!((t.parts.iter().map(|p| p.1).sum::<f64>() - 1.0).abs() < 1e-6);
                    }
                }
            }
        }
    }
}
