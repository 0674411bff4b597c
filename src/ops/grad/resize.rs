//! Backward of interpolation.

use crate::cpu::resize::Resampling;
use crate::cpu::taps::Mode;
use crate::ops::core::op::{OpDef, Plan, compose, kernel};
use crate::ops::f;
use crate::ops::nn::resize::{axis, check_filled, format, mode};
use crate::{Dims, MemoryFormat, Result, Tensor, dims, ensure, kernels};
use torchlike_macros::operators;

/// A call of the row that all modes share: of the private row's `mode`, from the public one's arguments.
macro_rules! resized {
    ($a:ident, $name:literal, $mode:literal, $align:expr, $anti:literal, [$($scale:ident),+]) => {
        f::_grad_upsample(
            $a.grad_output,
            $a.output_size,
            $a.input_size,
            $name,
            $mode,
            $align,
            $anti,
            &[$($a.$scale.unwrap_or(0.0)),+],
        )
    };
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_grad.upsample",
        "(Tensor grad_output, int[] output_size, int[] input_size, str name, str mode, bool align_corners, bool antialias, float[] scales)",
        0,
        body!(rule, anywhere: |a, found, outs| kernels::resize::run_backward(found, a.grad_output, &outs[0]), scratch: |a, found, outs, room| found.room_backward(room, a.grad_output, &outs[0])),
        "The gradient of an interpolation, for the function `name`.",
    )
    .samples("f32[1, 2, 6, 6], [6, 6], [1, 2, 4, 4], 'upsample_bilinear2d', 'bilinear', False, False, [0.0, 0.0]")
    .grad("grad_output: _upsample(grad, output_size, mode, align_corners, antialias, scales)"),
    compose(
        "_grad.upsample_nearest1d_backward",
        "(Tensor grad_output, int[1] output_size, int[3] input_size, float? scales=None)",
        0,
        |a| resized!(a, "upsample_nearest1d", "nearest", false, false, [scales]),
        "The gradient of interpolation by the element before.",
    )
    .samples("f32[1, 2, 6], [6], [1, 2, 4]"),
    compose(
        "_grad.upsample_nearest2d_backward",
        "(Tensor grad_output, int[2] output_size, int[4] input_size, float? scales_h=None, float? scales_w=None)",
        0,
        |a| resized!(a, "upsample_nearest2d", "nearest", false, false, [scales_h, scales_w]),
        "The gradient of interpolation by the element before.",
    )
    .samples("f32[1, 2, 6, 5].cl, [6, 5], [1, 2, 3, 4], 2.0"),
    compose(
        "_grad.upsample_nearest3d_backward",
        "(Tensor grad_output, int[3] output_size, int[5] input_size, float? scales_d=None, float? scales_h=None, float? scales_w=None)",
        0,
        |a| resized!(a, "upsample_nearest3d", "nearest", false, false, [scales_d, scales_h, scales_w]),
        "The gradient of interpolation by the element before.",
    )
    .samples("f32[1, 2, 4, 4, 3], [4, 4, 3], [1, 2, 2, 2, 2]"),
    compose(
        "_grad._upsample_nearest_exact1d_backward",
        "(Tensor grad_output, int[1] output_size, int[3] input_size, float? scales=None)",
        0,
        |a| resized!(a, "upsample_nearest1d", "nearest-exact", false, false, [scales]),
        "The gradient of interpolation by the nearest element.",
    )
    .samples("f32[1, 2, 6], [6], [1, 2, 4]"),
    compose(
        "_grad._upsample_nearest_exact2d_backward",
        "(Tensor grad_output, int[2] output_size, int[4] input_size, float? scales_h=None, float? scales_w=None)",
        0,
        |a| resized!(a, "upsample_nearest2d", "nearest-exact", false, false, [scales_h, scales_w]),
        "The gradient of interpolation by the nearest element.",
    )
    .samples("f32[1, 2, 6, 5], [6, 5], [1, 2, 3, 4]"),
    compose(
        "_grad._upsample_nearest_exact3d_backward",
        "(Tensor grad_output, int[3] output_size, int[5] input_size, float? scales_d=None, float? scales_h=None, float? scales_w=None)",
        0,
        |a| resized!(a, "upsample_nearest3d", "nearest-exact", false, false, [scales_d, scales_h, scales_w]),
        "The gradient of interpolation by the nearest element.",
    )
    .samples("f32[1, 2, 4, 4, 3], [4, 4, 3], [1, 2, 2, 2, 2]"),
    compose(
        "_grad.upsample_linear1d_backward",
        "(Tensor grad_output, int[1] output_size, int[3] input_size, bool align_corners, float? scales=None)",
        0,
        |a| resized!(a, "upsample_linear1d", "linear", a.align_corners, false, [scales]),
        "The gradient of linear interpolation.",
    )
    .samples("f32[1, 2, 6], [6], [1, 2, 4], True"),
    compose(
        "_grad.upsample_bilinear2d_backward",
        "(Tensor grad_output, int[2] output_size, int[4] input_size, bool align_corners, float? scales_h=None, float? scales_w=None)",
        0,
        |a| resized!(a, "upsample_bilinear2d", "bilinear", a.align_corners, false, [scales_h, scales_w]),
        "The gradient of bilinear interpolation.",
    )
    .samples("f32[1, 2, 6, 5].cl, [6, 5], [1, 2, 3, 4], False; f32[1, 2, 3, 3], [3, 3], [1, 2, 5, 4], True"),
    compose(
        "_grad.upsample_bicubic2d_backward",
        "(Tensor grad_output, int[2] output_size, int[4] input_size, bool align_corners, float? scales_h=None, float? scales_w=None)",
        0,
        |a| resized!(a, "upsample_bicubic2d", "bicubic", a.align_corners, false, [scales_h, scales_w]),
        "The gradient of bicubic interpolation.",
    )
    .samples("f32[1, 2, 6, 5], [6, 5], [1, 2, 3, 4], False"),
    compose(
        "_grad.upsample_trilinear3d_backward",
        "(Tensor grad_output, int[3] output_size, int[5] input_size, bool align_corners, float? scales_d=None, float? scales_h=None, float? scales_w=None)",
        0,
        |a| resized!(a, "upsample_trilinear3d", "trilinear", a.align_corners, false, [scales_d, scales_h, scales_w]),
        "The gradient of trilinear interpolation.",
    )
    .samples("f32[1, 2, 4, 4, 3], [4, 4, 3], [1, 2, 2, 2, 2], False"),
    compose(
        "_grad._upsample_bilinear2d_aa_backward",
        "(Tensor grad_output, int[2] output_size, int[4] input_size, bool align_corners, float? scales_h=None, float? scales_w=None)",
        0,
        |a| resized!(a, "upsample_bilinear2d_aa", "bilinear", a.align_corners, true, [scales_h, scales_w]),
        "The gradient of bilinear interpolation without aliasing.",
    )
    .samples("f32[1, 2, 3, 3], [3, 3], [1, 2, 7, 6], False"),
    compose(
        "_grad._upsample_bicubic2d_aa_backward",
        "(Tensor grad_output, int[2] output_size, int[4] input_size, bool align_corners, float? scales_h=None, float? scales_w=None)",
        0,
        |a| resized!(a, "upsample_bicubic2d_aa", "bicubic", a.align_corners, true, [scales_h, scales_w]),
        "The gradient of bicubic interpolation without aliasing.",
    )
    .samples("f32[1, 2, 3, 3], [3, 3], [1, 2, 7, 6], False"),
];

/// PyTorch keeps channels last where a kernel of its knows them.
fn result_format(grad: &Tensor, how: Mode) -> MemoryFormat {
    let n = grad.ndim() - 2;
    match how {
        Mode::Cubic => MemoryFormat::Contiguous,
        Mode::Nearest | Mode::NearestExact if n == 3 => MemoryFormat::Contiguous,
        _ => format(grad),
    }
}

fn check(a: &calls::_GradUpsample) -> Result<()> {
    let (grad, n) = (a.grad_output, a.output_size.len());
    let whole = Dims::new(&a.input_size[..2]).concat(a.output_size);
    check_filled(&a.input_size[2..], a.output_size)?;
    if n == 1 {
        for (i, &want) in whole.iter().enumerate() {
            let have = grad.shape().get(i).copied().unwrap_or(0);
            ensure!(
                grad.ndim() == 3 && have == want,
                Runtime,
                "Expected a tensor of dimension 3 and tensor.size[{i}] == {want} but got: dimension {} and tensor.size[{i}] = {have}",
                grad.ndim()
            );
        }
    }
    ensure!(
        grad.ndim() == n + 2,
        Runtime,
        "Expected grad_output to be a tensor of dimension {} but got: dimension {}",
        n + 2,
        grad.ndim()
    );
    for (i, (&want, &have)) in whole.iter().zip(grad.shape().iter()).enumerate() {
        ensure!(
            want == have,
            Runtime,
            "Expected grad_output to have the same shape as output; output.size({i}) = {want} but got grad_output.size({i}) = {have}"
        );
    }
    Ok(())
}

fn rule(a: &calls::_GradUpsample) -> Result<(Plan, Resampling)> {
    let (grad, n) = (a.grad_output, a.output_size.len());
    ensure!(
        (1..=3).contains(&n) && a.input_size.len() == n + 2,
        Runtime,
        "It is expected input_size equals to {}, but got size {}",
        n + 2,
        a.input_size.len()
    );
    check(a)?;
    grad.dtype()
        .check_float_kernel(format_args!("{}_backward", a.name))?;
    let how = mode(a.mode);
    let format = result_format(grad, how);
    let strides = dims::format_strides(a.input_size, format)?;
    let plan = Plan::one(Dims::new(a.input_size), strides, grad.dtype());
    let axis = |i: usize| {
        axis(
            a.input_size[i + 2],
            a.output_size[i],
            a.scales.get(i).copied(),
            a.align_corners,
            grad.dtype(),
        )
    };
    let found = Resampling {
        mode: how,
        axes: (0..n).map(axis).collect(),
        antialias: a.antialias,
        channels_last: format != MemoryFormat::Contiguous,
    };
    Ok((plan, found))
}
