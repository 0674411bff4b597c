//! Quantised tensors made of real numbers.

use super::{along, clamped};
use crate::ops::core::helpers;
use crate::ops::core::op::{F, OpDef, compose};
use crate::ops::f;
use crate::parts::Parts;
use crate::plan::ViewPlan;
use crate::{DType, Result, Tensor, bail, ensure};
use std::sync::Arc;
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
        |a| {
            let real = a.zero_point.dtype().is_float();
            let quantizer = Parts::PerChannel {
                scales: f::to_dtype(a.scale, if real { DType::F32 } else { DType::F64 })?,
                zero_points: f::to_dtype(a.zero_point, if real { DType::F32 } else { DType::I64 })?,
                axis: a.axis,
                float_zero_points: real,
            };
            quantizer.check(a.input.shape())?;
            quantized(a.input, quantizer)
        },
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
        "quantize_per_tensor_dynamic",
        "(Tensor self, dtype dtype, bool reduce_range)",
        F,
        dynamic,
        "Numbers quantised by their own smallest and largest.",
    )
    .samples("see tests/test_quantized.py")
    .no_grad(),
];

/// Integers on memory of their own with a quantizer.
fn quantized(t: &Tensor, quantizer: Parts) -> Result<Tensor> {
    crate::warn_once!(
        "torch.quantize_per_tensor, torch.quantize_per_channel and other quantized tensor creation functions that produce tensors with dtype torch.quint8, torch.qint8, and torch.qint32 are deprecated and will be removed in a future PyTorch release. Please see https://github.com/pytorch/pytorch/issues/184982 for more information."
    );
    let dtype = match t.dtype() {
        DType::I8 => DType::QI8,
        DType::U8 => DType::QU8,
        DType::I32 => DType::QI32,
        _ => bail!(
            Runtime,
            "Creation of quantized tensor requires quantized dtype like torch.quint8"
        ),
    };
    let own = f::clone(t)?;
    own.storage().set_parts(Some(Arc::new(quantizer)));
    crate::cpu::view::of(
        &own,
        ViewPlan::reinterpret(
            dtype,
            own.shape().clone(),
            own.strides().clone(),
            own.offset(),
        ),
    )
}

/// Smallest and largest integer of a quantised type, and the type they are kept in.
fn range_of(d: DType) -> Result<(i64, i64, DType)> {
    Ok(match d {
        DType::QI8 => (-128, 127, DType::I8),
        DType::QU8 => (0, 255, DType::U8),
        DType::QI32 => (i64::from(i32::MIN), i64::from(i32::MAX), DType::I32),
        other => bail!(
            Runtime,
            "ScalarType {} is not supported in new_qtensor.",
            other.scalar_type()
        ),
    })
}

/// The integers nearest to `numbers`, within the range of a type.
fn stored(numbers: &Tensor, d: DType) -> Result<Tensor> {
    let (least, most, kept) = range_of(d)?;
    let wide = f::to_dtype(&f::round(numbers)?, DType::F64)?;
    let within = clamped(&wide, least, most)?;
    f::to_dtype(&f::NanToNum::new(&within).nan(least as f64).call()?, kept)
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
    let inverse = f64::from(1.0 / scale as f32);
    let made = stored(&f::add(&f::mul(t, inverse)?, zero as f64)?, d)?;
    f::_make_per_tensor_quantized_tensor(&made, scale, zero)
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
    let made = stored(
        &f::add(&f::mul(t, &inverse)?, &wide(a.zero_points)?)?,
        a.dtype,
    )?;
    let flat = |p: &Tensor| f::reshape(p, &[-1]);
    f::_make_per_channel_quantized_tensor(&made, &flat(a.scales)?, &flat(a.zero_points)?, a.axis)
}

fn dynamic(a: &calls::QuantizePerTensorDynamic) -> Result<Tensor> {
    if a.dtype == DType::F16 {
        return f::to_dtype(a.input, DType::F16);
    }
    let (mut least, mut most, _) = range_of(a.dtype)?;
    ensure!(
        a.dtype != DType::QI32,
        Runtime,
        "dtype QInt32 not supported"
    );
    check_float(a.input)?;
    if a.reduce_range {
        (least, most) = (least / 2, most / 2);
    }
    // Zero is always among what can be told.
    let (low, high) = if a.input.numel() == 0 {
        (0.0, 0.0)
    } else {
        let low = helpers::item(&f::min(a.input)?)?.to_f64();
        let high = helpers::item(&f::max(a.input)?)?.to_f64();
        (low.min(0.0), high.max(0.0))
    };
    let mut scale = (high - low) / (most - least) as f64;
    if !(scale as f32 > 0.0) || (1.0 / scale as f32).is_infinite() {
        scale = 0.1;
    }
    let (from_least, from_most) = (least as f64 - low / scale, most as f64 - high / scale);
    let error = |edge: i64, value: f64| (edge as f64).abs() + (value / scale).abs();
    let zero = if error(least, low) < error(most, high) {
        from_least
    } else {
        from_most
    };
    let zero = zero.round_ties_even().clamp(least as f64, most as f64) as i64;
    per_tensor(a.input, scale, zero, a.dtype)
}
