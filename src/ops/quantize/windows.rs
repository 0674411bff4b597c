//! Convolutions of quantised tensors by words of bytes.

use crate::ops::core::op::{F, OpDef, Plan, kernel};
use crate::ops::f;
use crate::ops::nn::conv;
use crate::plan::ViewPlan;
use crate::{DType, MemoryFormat, Result, Tensor, cpu, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_quantized_windows",
        "(Tensor self, int from_zero, Tensor weight, Tensor? packed, Tensor zeros, Tensor factor, Tensor bias, int[] stride, int[] padding, int[] dilation, int groups, int zero_point, int low)",
        0,
        body!(windows_rule, |a, g, o| {
            cpu::conv::bytes::convolve(&o[0], a.input, (a.weight, a.packed), g, &ends(a))
        }, scratch: |a, g, o, room| {
            cpu::conv::bytes::room(room, &o[0], a.input, (a.weight, a.packed), g, &ends(a))
        }),
        "A convolution of bytes, less their zero points, as bytes of another scale.",
    )
    .samples(
        "u8[1, 2, 5, 6], 3, i8[17, 2, 3, 3], None, i64[1], f32[1].unit, f32[17], [1, 1], [1, 1], [1, 1], 1, 7, 0; \
         u8[2, 70, 5, 6].cl, 200, i8[32, 35, 3, 2], None, i64[32], f32[32].unit, f32[1], [2, 1], [1, 0], [1, 2], 2, 7, 7",
    )
    .no_grad(),
    kernel(
        "_quantized_packed",
        "(Tensor self, int[] stride, int[] padding, int[] dilation, int groups)",
        F,
        body!(packed_rule, |a, g, o| match o[0].numel() {
            0 => Ok(()),
            _ => cpu::copy::copy(&o[0], &cpu::conv::bytes::packed(a.input, g)?),
        }, scratch: |a, g, o, room| match o[0].numel() {
            0 => Ok(()),
            _ => cpu::conv::bytes::packed_room(room, a.input, g).map(drop),
        }),
        "Weights of a convolution of quantised numbers as it reads them, and their sums; nothing of such that it reads as they are.",
    )
    .samples("i8[17, 2, 3, 3], [1, 1], [1, 1], [1, 1], 1; i8[32, 35, 3, 2], [2, 1], [1, 0], [1, 2], 2")
    .no_grad(),
];

fn ends<'a>(a: &calls::_QuantizedWindows<'a>) -> cpu::conv::bytes::Ends<'a> {
    cpu::conv::bytes::Ends {
        from: a.from_zero as u8,
        zeros: a.zeros,
        factors: a.factor,
        biases: a.bias,
        zero: a.zero_point,
        low: a.low,
    }
}

fn windows_rule(a: &calls::_QuantizedWindows) -> Result<(Plan, cpu::conv::Geometry)> {
    let (x, w) = (a.input, a.weight);
    ensure!(
        x.dtype() == DType::U8 && w.dtype() == DType::I8 && matches!(x.ndim(), 4 | 5),
        Runtime,
        "expected images of bytes, and weights of signed bytes"
    );
    let (shape, mut geometry) = bytes_geometry(x, w, a.stride, a.padding, a.dilation, a.groups)?;
    ensure!(
        (0..256).contains(&a.from_zero) && geometry.inputs > 0,
        Runtime,
        "expected a byte as zero point, and channels"
    );
    for (t, fits) in [
        (a.zeros, a.zeros.dtype() == DType::I64),
        (a.factor, a.factor.dtype().is_float()),
        (a.bias, a.bias.dtype().is_float()),
    ] {
        ensure!(
            fits && t.ndim() == 1 && [1, shape[1]].contains(&t.numel()),
            Runtime,
            "expected a number for each output"
        );
    }
    geometry.exact = true;
    let format = match x.ndim() {
        4 => MemoryFormat::ChannelsLast,
        _ => MemoryFormat::ChannelsLast3d,
    };
    let strides = dims::format_strides(&shape, format)?;
    Ok((Plan::one(shape, strides, DType::U8), geometry))
}

fn packed_rule(a: &calls::_QuantizedPacked) -> Result<(Plan, cpu::conv::Geometry)> {
    let w = a.input;
    let lists = [a.stride, a.padding, a.dilation];
    ensure!(
        w.dtype() == DType::I8
            && matches!(w.ndim(), 4 | 5)
            && w.numel() > 0
            && lists.iter().all(|l| l.len() == w.ndim() - 2)
            && a.stride.iter().chain(a.dilation).all(|&v| v > 0)
            && a.groups > 0
            && w.shape()[0] % a.groups == 0,
        Runtime,
        "expected weights of signed bytes, and how a window moves"
    );
    let (s, axes) = (w.shape(), w.ndim() - 2);
    // One window that lies within an image.
    let reach = |d: usize| a.dilation[d] * (s[d + 2] - 1) + 1;
    let size: Vec<i64> = (0..axes).map(reach).collect();
    let usizes = |s: &[i64]| conv::triple(s, 1usize, |v| v as usize);
    let g = cpu::conv::Geometry {
        batch: 1,
        inputs: (s[1] * a.groups) as usize,
        outputs: s[0] as usize,
        groups: a.groups as usize,
        size: usizes(&size),
        out: [1; 3],
        window: usizes(&s[2..]),
        stride: conv::triple(a.stride, 1, |v| v),
        pad: conv::triple(a.padding, 0, |v| v),
        dilation: conv::triple(a.dilation, 1, |v| v),
        transposed: false,
        channels_last: true,
        exact: true,
    };
    let size = cpu::conv::bytes::size_of_packed(&g) as i64;
    Ok((Plan::contiguous(&[size], DType::I32), g))
}

/// Sizes of a convolution of bytes.
pub(super) fn bytes_geometry(
    x: &Tensor,
    w: &Tensor,
    stride: &[i64],
    padding: &[i64],
    dilation: &[i64],
    groups: i64,
) -> Result<(crate::Dims, cpu::conv::Geometry)> {
    // Convolutions are of one type; signs are no matter of sizes.
    let (shape, strides) = (w.shape().clone(), w.strides().clone());
    let view = ViewPlan::reinterpret(x.dtype(), shape, strides, w.offset());
    let w = cpu::view::of(w, view)?;
    let none = vec![0; stride.len()];
    conv::geometry(&f::Convolution::new(
        x, &w, None, stride, padding, dilation, false, &none, groups,
    ))
}
