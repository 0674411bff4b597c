//! Average and power-average pooling.

use crate::cpu::pooling::Rule;
use crate::ops::core::op::{Batch, Cast, F, O, OpDef, Plan, X, compose, kernel};
use crate::ops::f;
use crate::ops::nn::pool::{Asked, Pooling, check_1d, only, pooled, regular, run, scratch};
use crate::{DType, Result, Tensor, bail, ensure};
use torchlike_macros::operators;

macro_rules! asked {
    ($a:ident, $n:literal, $name:literal) => {
        Asked {
            n: $n,
            name: $name,
            x: $a.input,
            kernel: $a.kernel_size,
            stride: $a.stride.unwrap_or(&[]),
            padding: $a.padding,
            dilation: None,
            ceil: $a.ceil_mode,
        }
    };
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "avg_pool1d",
        "(Tensor input, int[1] kernel_size, int[1] stride=[], int[1] padding=0, bool ceil_mode=False, bool count_include_pad=True)",
        F,
        sequences,
        "The means of windows.",
    ).samples("f32[2, 3, 6], 2; f32[3, 6], 3, 1, 1, False, False"),
    compose(
        "nn.functional.avg_pool1d",
        "(Tensor input, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, bool ceil_mode=False, bool count_include_pad=True)",
        F,
        |a| {
            f::AvgPool1d::new(a.input, a.kernel_size)
                .stride(a.stride.unwrap_or(&[]))
                .padding(a.padding)
                .ceil_mode(a.ceil_mode)
                .count_include_pad(a.count_include_pad)
                .call()
        },
        "The means of windows.",
    ).samples(
        "f32[3, 4], (3,); \
         i64[3, 4], (3,); \
         f32[3, 4], (7,), stride=(3,), padding=(3,), ceil_mode=True",
    ),
    kernel(
        "nn.functional.avg_pool2d",
        "(Tensor input, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None)",
        F | O | X,
        body!(
            |a| {
                check_planes(a.input)?;
                rule(
                    &asked!(a, 2, "avg_pool2d"),
                    a.divisor_override,
                    a.count_include_pad,
                )
            },
            anywhere: run, scratch: scratch
        ),
        "The means of windows.",
    ).samples(
        "f32[2, 3, 4], (2, 2), (), (0,), False, True, -2; \
         i64[2, 3, 4], 3, 1, 1, True, False, 2; \
         f32[2, 3, 4], (6, 6), (3, 3), (2, 3), True, True, 2",
    )
    .grad("input: _grad.avg_pool2d_backward(grad, input, kernel_size, stride if stride.given else [], padding, ceil_mode, count_include_pad, divisor_override)")
    .batch(Batch::Fold(3)),
    kernel(
        "nn.functional.avg_pool3d",
        "(Tensor input, int[3] kernel_size, int[3]? stride=None, int[3] padding=0, bool ceil_mode=False, bool count_include_pad=True, int? divisor_override=None)",
        F | O | X,
        body!(
            |a| rule(
                &asked!(a, 3, "avg_pool3d"),
                a.divisor_override,
                a.count_include_pad
            ),
            anywhere: run, scratch: scratch
        ),
        "The means of windows.",
    ).samples(
        "f32[1, 2, 5, 5, 5], (2, 3, 4), stride=(1, 2, 2), padding=(0, 1, 2); \
         i64[2, 3, 3, 4, 4], (2, 2, 2)",
    )
    .grad("input: _grad.avg_pool3d_backward(grad, input, kernel_size, stride if stride.given else [], padding, ceil_mode, count_include_pad, divisor_override)")
    .batch(Batch::Fold(4))
    .amp(Cast::Single, Cast::Kept),
    compose(
        "nn.functional.lp_pool1d",
        "(Tensor input, float norm_type, int[1] kernel_size, int[1]? stride=None, bool ceil_mode=False)",
        F,
        |a| {
            let means = |x: &Tensor| {
                f::NnFunctionalAvgPool1d::new(x, a.kernel_size)
                    .stride(a.stride)
                    .ceil_mode(a.ceil_mode)
                    .call()
            };
            let most = |x: &Tensor| {
                f::MaxPool1d::new(x, a.kernel_size)
                    .stride(a.stride.unwrap_or(&[]))
                    .ceil_mode(a.ceil_mode)
                    .call()
            };
            power_means(a.input, a.norm_type, count(a.kernel_size, 1), means, most)
        },
        "Power means of windows.",
    ).samples("f32[2, 3, 6].pos, 2.0, 2"),
    compose(
        "nn.functional.lp_pool2d",
        "(Tensor input, float norm_type, int[2] kernel_size, int[2]? stride=None, bool ceil_mode=False)",
        F,
        |a| {
            let means = |x: &Tensor| {
                f::NnFunctionalAvgPool2d::new(x, a.kernel_size)
                    .stride(a.stride)
                    .ceil_mode(a.ceil_mode)
                    .call()
            };
            let most = |x: &Tensor| {
                f::MaxPool2d::new(x, a.kernel_size)
                    .stride(a.stride.unwrap_or(&[]))
                    .ceil_mode(a.ceil_mode)
                    .call()
            };
            power_means(a.input, a.norm_type, count(a.kernel_size, 2), means, most)
        },
        "Power means of windows.",
    ).samples("f32[1, 2, 6, 6].pos, 2.0, 2"),
    compose(
        "nn.functional.lp_pool3d",
        "(Tensor input, float norm_type, int[3] kernel_size, int[3]? stride=None, bool ceil_mode=False)",
        F,
        |a| {
            let means = |x: &Tensor| {
                f::NnFunctionalAvgPool3d::new(x, a.kernel_size)
                    .stride(a.stride)
                    .ceil_mode(a.ceil_mode)
                    .call()
            };
            let most = |x: &Tensor| {
                f::MaxPool3d::new(x, a.kernel_size)
                    .stride(a.stride.unwrap_or(&[]))
                    .ceil_mode(a.ceil_mode)
                    .call()
            };
            power_means(a.input, a.norm_type, count(a.kernel_size, 3), means, most)
        },
        "Power means of windows.",
    ).samples("f32[1, 2, 4, 4, 4].pos, 2.0, 2"),
];

/// PyTorch looks for the planes of images before it looks at anything else.
fn check_planes(x: &Tensor) -> Result<()> {
    let k = x.ndim().max(1) as i64;
    if x.ndim() < 3 {
        bail!(
            Index,
            "Dimension out of range (expected to be in range of [{}, {}], but got -3)",
            -k,
            k - 1
        );
    }
    Ok(())
}

fn rule<'a>(a: &Asked<'a>, divisor: Option<i64>, padding: bool) -> Result<(Plan, Pooling<'a>)> {
    ensure!(divisor != Some(0), Runtime, "divisor must be not zero");
    let regular = regular(a)?;
    let d = a.x.dtype();
    d.check_kernel(
        (d.is_float() && !d.is_storage_only()) || d == DType::I64,
        a.name,
    )?;
    pooled(a.x, regular, Rule::Mean { divisor, padding }, false)
}

/// Sequences are images of one row.
fn sequences(a: &calls::AvgPool1d) -> Result<Tensor> {
    check_1d(a.input, "avg_pool1d")?;
    let (k, p) = (a.kernel_size, a.padding);
    let stride = if a.stride.is_empty() { k } else { a.stride };
    let kernel = [1, only(k, "avg_pool1d", "kernel_size")?];
    let stride = [1, only(stride, "avg_pool1d", "stride")?];
    let padding = [0, only(p, "avg_pool1d", "padding")?];
    let wide = f::unsqueeze(a.input, -2)?;
    let means = f::NnFunctionalAvgPool2d::new(&wide, &kernel)
        .stride(&stride[..])
        .padding(&padding)
        .ceil_mode(a.ceil_mode)
        .count_include_pad(a.count_include_pad)
        .call()?;
    f::squeeze_dim(&means, -2)
}

/// The elements of a window in `n` dimensions.
fn count(kernel: &[i64], n: u32) -> i64 {
    match kernel {
        [k] => k.saturating_pow(n),
        _ => kernel.iter().fold(1, |p, &k| p.saturating_mul(k)),
    }
}

fn power_means(
    x: &Tensor,
    norm: f64,
    count: i64,
    means: impl FnOnce(&Tensor) -> Result<Tensor>,
    most: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    // Of infinite powers only the largest element is left, or the smallest.
    if norm == f64::INFINITY {
        return most(&f::abs(x)?);
    }
    if norm == f64::NEG_INFINITY {
        return f::neg(&most(&f::neg(&f::abs(x)?)?)?);
    }
    let out = means(&f::pow(x, norm)?)?;
    let signed = f::mul(&f::sign(&out)?, &f::relu(&f::abs(&out)?)?)?;
    f::pow(&f::mul(&signed, count)?, 1.0 / norm)
}
