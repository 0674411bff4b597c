//! Quantised tensors made of real numbers.

use super::along;
use super::parts::{Quantized, Uniform, quantized_type, range_of, with_quantizer};
use crate::ops::core::helpers;
use crate::ops::core::op::{F, OpDef, compose};
use crate::ops::f;
use crate::parts::Parts;
use crate::{DType, Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_make_per_tensor_quantized_tensor",
        "(Tensor self, float scale, int zero_point)",
        F,
        |a| {
            let quantizer = Parts::PerTensor {
                scale: a.scale,
                zero_point: a.zero_point,
            };
            quantized(a.input, quantizer)
        },
        "Integers as quantised numbers, one scale and zero for all.",
    )
    .samples("see tests/test_quantized.py")
    .no_grad(),
    compose(
        "_make_per_channel_quantized_tensor",
        "(Tensor self, Tensor scale, Tensor zero_point, int axis)",
        F,
        |a| quantized(a.input, by_channel(a.input, a.scale, a.zero_point, a.axis)?),
        "Integers as quantised numbers, a scale and zero for each index of one dimension.",
    )
    .samples("see tests/test_quantized.py")
    .no_grad(),
    compose(
        "quantize_per_tensor",
        "(Tensor self, float scale, int zero_point, dtype dtype)",
        F,
        |a| per_tensor(a.input, a.scale, a.zero_point, a.dtype),
        "The nearest numbers that integers stand for, one scale and zero for all.",
    )
    .samples("see tests/test_quantized.py")
    .no_grad(),
    compose(
        "quantize_per_tensor#tensors",
        "(Tensor self, Tensor scale, Tensor zero_point, dtype dtype)",
        F,
        |a| {
            let nothing = [a.input, a.scale, a.zero_point].map(helpers::has_no_values);
            if nothing == [true; 3] {
                // What is not there has any scale.
                return per_tensor(a.input, 1.0, 0, a.dtype);
            }
            let (scale, zero) = (helpers::item(a.scale)?, helpers::item(a.zero_point)?);
            per_tensor(a.input, scale.to_f64(), zero.to_f64() as i64, a.dtype)
        },
        "The nearest numbers that integers stand for, one scale and zero for all.",
    )
    .samples("see tests/test_quantized.py")
    .no_grad(),
    compose(
        "quantize_per_tensor#list",
        "(Tensor[] tensors, Tensor scales, Tensor zero_points, dtype dtype) -> Tensor[]",
        F,
        |a| {
            let mut made = Vec::with_capacity(a.tensors.len());
            for (t, i) in a.tensors.iter().zip(0..) {
                let scale = helpers::item(&f::select(a.scales, 0, i)?)?;
                let zero = helpers::item(&f::select(a.zero_points, 0, i)?)?;
                made.push(per_tensor(t, scale.to_f64(), zero.to_f64() as i64, a.dtype)?);
            }
            Ok(made)
        },
        "Several tensors quantised, a scale and zero for each.",
    )
    .samples("see tests/test_quantized.py")
    .no_grad(),
    compose(
        "quantize_per_channel",
        "(Tensor self, Tensor scales, Tensor zero_points, int axis, dtype dtype)",
        F,
        per_channel,
        "The nearest numbers that integers stand for, a scale and zero for each index of one dimension.",
    )
    .samples("see tests/test_quantized.py")
    .no_grad(),
    compose(
        "_dequantize",
        "(Tensor self)",
        F,
        |a| Quantized::expected(a.input, "dequantize")?.reals(),
        "The real numbers that a quantised tensor stands for.",
    )
    .samples("see tests/test_quantized.py")
    .no_grad(),
    compose(
        "quantize_per_tensor_dynamic",
        "(Tensor self, dtype dtype, bool reduce_range)",
        F,
        dynamic,
        "Numbers quantised by their own smallest and largest.",
    )
    .samples("see tests/test_quantized.py")
    .no_grad(),
];

/// The smallest scale that is chosen.
const SMALLEST: f64 = 6.1e-5f32 as f64;

/// Integers on memory of their own with a quantizer.
fn quantized(t: &Tensor, quantizer: Parts) -> Result<Tensor> {
    warned();
    quantized_type(t.dtype())?;
    with_quantizer(&f::clone(t)?, quantizer)
}

/// A quantizer of a tensor's channels, which lie along `axis`.
fn by_channel(t: &Tensor, scales: &Tensor, zeros: &Tensor, axis: i64) -> Result<Parts> {
    let real = zeros.dtype().is_float();
    let quantizer = Parts::PerChannel {
        scales: f::to_dtype(scales, if real { DType::F32 } else { DType::F64 })?,
        zero_points: f::to_dtype(zeros, if real { DType::F32 } else { DType::I64 })?,
        axis,
        float_zero_points: real,
    };
    quantizer.check(t.shape())?;
    Ok(quantizer)
}

fn warned() {
    crate::warn_once!(
        "torch.quantize_per_tensor, torch.quantize_per_channel and other quantized tensor creation functions that produce tensors with dtype torch.quint8, torch.qint8, and torch.qint32 are deprecated and will be removed in a future PyTorch release. Please see https://github.com/pytorch/pytorch/issues/184982 for more information."
    );
}

fn check_float(t: &Tensor) -> Result<()> {
    ensure!(
        t.dtype() == DType::F32,
        Runtime,
        "Quantize only works on Float Tensor, got {}",
        t.dtype().scalar_type()
    );
    Ok(())
}

fn per_tensor(t: &Tensor, scale: f64, zero: i64, d: DType) -> Result<Tensor> {
    let (least, most, _) = range_of(d)?;
    check_float(t)?;
    ensure!(
        zero <= most,
        Runtime,
        "quantize_tensor_per_tensor_affine zero_point {zero} is above upper bound."
    );
    ensure!(
        zero >= least,
        Runtime,
        "quantize_tensor_per_tensor_affine zero_point {zero} is below lower bound."
    );
    warned();
    Uniform { scale, zero }.of_reals(t, d)
}

fn per_channel(a: &calls::QuantizePerChannel) -> Result<Tensor> {
    let t = a.input;
    range_of(a.dtype)?;
    check_float(t)?;
    ensure!(
        (0..t.ndim() as i64).contains(&a.axis),
        Runtime,
        "Channel axis out of range in per channel affine quantization. Got: {}Expected: [0, {})",
        a.axis,
        t.ndim()
    );
    let channels = t.shape()[a.axis as usize];
    ensure!(
        a.scales.numel() == channels,
        Runtime,
        "length of scales must equal to channel, expected {channels} got, {}",
        a.scales.numel()
    );
    ensure!(
        a.zero_points.numel() == channels,
        Runtime,
        "length of zero_points must equal to channel, expected {channels} got, {}",
        a.zero_points.numel()
    );
    let axis = a.axis as usize;
    let wide = |p: &Tensor| along(&f::to_dtype(p, DType::F32)?, t, axis);
    let inverse = f::reciprocal(&wide(a.scales)?)?;
    let (_, _, kept) = range_of(a.dtype)?;
    let made = f::_quantized_steps(t, &inverse, &wide(a.zero_points)?, kept)?;
    let flat = |p: &Tensor| f::reshape(p, &[-1]);
    warned();
    let quantizer = by_channel(&made, &flat(a.scales)?, &flat(a.zero_points)?, a.axis)?;
    with_quantizer(&made, quantizer)
}

fn dynamic(a: &calls::QuantizePerTensorDynamic) -> Result<Tensor> {
    if a.dtype == DType::F16 {
        return f::to_dtype(a.input, DType::F16);
    }
    let to = chosen(a.input, a.dtype, a.reduce_range)?;
    per_tensor(a.input, to.scale, to.zero, a.dtype)
}

/// The quantizer whose integers reach from the smallest to the largest of real numbers.
///
/// # Errors
/// If the type is none of bytes, or the numbers are not in single precision.
pub(super) fn chosen(t: &Tensor, d: DType, reduce_range: bool) -> Result<Uniform> {
    let (mut least, mut most, _) = range_of(d)?;
    ensure!(d != DType::QI32, Runtime, "dtype QInt32 not supported");
    check_float(t)?;
    if reduce_range {
        (least, most) = (least / 2, most / 2);
    }
    // Zero is always among what can be told; what is not there has any scale.
    let (mut low, mut high) = if t.numel() == 0 || helpers::has_no_values(t) {
        (0.0, 0.0)
    } else {
        let [low, high] = f::Aminmax::new(t).call()?;
        let number = |t: &Tensor| -> Result<f64> { Ok(helpers::item(t)?.to_f64()) };
        (number(&low)?.min(0.0), number(&high)?.max(0.0))
    };
    let mut scale = (high - low) / (most - least) as f64;
    if !(scale as f32 > 0.0) || (1.0 / scale as f32).is_infinite() {
        scale = 0.1;
    }
    // Scales that are too small are made larger, and what they reach with them.
    if scale < SMALLEST {
        let reach = SMALLEST * (most - least) as f64;
        let wider = SMALLEST / scale;
        (low, high) = match (low == 0.0, high == 0.0) {
            (true, _) => (low, reach),
            (_, true) => (-reach, high),
            _ => (low * wider, high * wider),
        };
        scale = SMALLEST;
    }
    let (from_least, from_most) = (least as f64 - low / scale, most as f64 - high / scale);
    let error = |edge: i64, value: f64| (edge as f64).abs() + (value / scale).abs();
    let zero = if error(least, low) < error(most, high) {
        from_least
    } else {
        from_most
    };
    let zero = zero.round_ties_even().clamp(least as f64, most as f64) as i64;
    Ok(Uniform { scale, zero })
}
