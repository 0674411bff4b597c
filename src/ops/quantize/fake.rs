//! Real numbers as if they had been quantised.
//!
//! Sources: Jacob and others, "Quantization and training of neural networks for efficient integer-arithmetic-only
//! inference" (2018); gradients of scales: Esser and others, "Learned step size quantization" (2020).

use super::{along, clamped};
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, F, OpDef, Ret, compose};
use crate::ops::f;
use crate::{DType, Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "fake_quantize_per_tensor_affine_cachemask",
        "(Tensor self, float scale, int zero_point, int quant_min, int quant_max) -> (Tensor output, Tensor mask)",
        0,
        |a| {
            let zero = a.zero_point;
            check_range(a.quant_min, a.quant_max)?;
            check_zero(a.quant_min <= zero && zero <= a.quant_max)?;
            let numbers = f::add(&steps(a.input, &f::NewFull::new(a.input, &[][..], a.scale).dtype(DType::F32).call()?)?, zero)?;
            let real = f::mul(&f::sub(&clamped(&numbers, a.quant_min, a.quant_max)?, zero)?, a.scale)?;
            outputs(a.input, &numbers, &real, a.quant_min, a.quant_max)
        },
        "Numbers rounded to those that integers stand for, and which of these lie within bounds.",
    )
    .samples("f32[4], 0.5, 1, -8, 7")
    .grad("self: grads[0] * mask")
    .batch(Batch::Pointwise),
    compose(
        "fake_quantize_per_tensor_affine",
        "(Tensor self, float scale, int zero_point, int quant_min, int quant_max)",
        F,
        |a| {
            let [made, _] = f::fake_quantize_per_tensor_affine_cachemask(
                a.input, a.scale, a.zero_point, a.quant_min, a.quant_max,
            )?;
            Ok(made)
        },
        "Numbers rounded to those that integers stand for.",
    )
    .samples("f32[4], 0.5, 1, -8, 7; f64[2, 3], 0.1, 0, 0, 255"),
    compose(
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
        "(Tensor self, Tensor scale, Tensor zero_point, Tensor fake_quant_enabled, int quant_min, int quant_max) -> (Tensor output, Tensor mask)",
        F,
        |a| {
            check_range(a.quant_min, a.quant_max)?;
            let zero = &f::reshape(&f::to_dtype(a.zero_point, DType::F32)?, &[])?;
            let scale = &f::reshape(&f::to_dtype(a.scale, DType::F32)?, &[])?;
            let numbers = f::add(&steps(a.input, scale)?, zero)?;
            let real = f::mul(&f::sub(&clamped(&numbers, a.quant_min, a.quant_max)?, zero)?, scale)?;
            outputs(a.input, &numbers, &real, a.quant_min, a.quant_max)
        },
        "Numbers rounded to those that integers stand for, by tensors of one scale and zero.",
    )
    .samples("f32[4], f32(0.5), i64(1), i64(1), -8, 7")
    .grad("FakeQuantizePerTensorAffineCachemaskTensorQparamsBackward0 | self: grads[0] * mask; scale, zero_point: never")
    .batch(Batch::Each),
    compose(
        "fake_quantize_per_tensor_affine#tensors",
        "(Tensor self, Tensor scale, Tensor zero_point, int quant_min, int quant_max)",
        F,
        |a| {
            let on = f::NewOnes::new(a.input, &[1i64][..]).dtype(DType::I64).call()?;
            let [made, _] = f::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams(
                a.input, a.scale, a.zero_point, &on, a.quant_min, a.quant_max,
            )?;
            Ok(made)
        },
        "Numbers rounded to those that integers stand for, by tensors of one scale and zero.",
    )
    .samples("f32[4], f32(0.5), i64(1), -8, 7"),
    compose(
        "fake_quantize_per_channel_affine_cachemask",
        "(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max) -> (Tensor output, Tensor mask)",
        0,
        fake_per_channel,
        "Numbers rounded to those that integers stand for along a dimension, and which of these lie within bounds.",
    )
    .samples("f32[2, 3], f32([0.5, 0.25]), i32([0, 1]), 0, -8, 7")
    .grad("self: grads[0] * mask; scale, zero_point: never")
    .batch(Batch::Each),
    compose(
        "fake_quantize_per_channel_affine",
        "(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max)",
        F,
        |a| {
            let [made, _] = f::fake_quantize_per_channel_affine_cachemask(
                a.input, a.scale, a.zero_point, a.axis, a.quant_min, a.quant_max,
            )?;
            Ok(made)
        },
        "Numbers rounded to those that integers stand for along a dimension.",
    )
    .samples("f32[2, 3], f32([0.5, 0.25]), i32([0, 1]), 0, -8, 7"),
    compose(
        "_fake_quantize_learnable_per_tensor_affine",
        "(Tensor self, Tensor scale, Tensor zero_point, int quant_min, int quant_max, float grad_factor=1.)",
        F,
        |a| {
            check_range(a.quant_min, a.quant_max)?;
            let (scale, zero) = (f::reshape(a.scale, &[])?, f::reshape(a.zero_point, &[])?);
            learned(a.input, &scale, &zero, a.quant_min, a.quant_max)
        },
        "Numbers rounded to those that integers stand for, whose scale and zero have gradients.",
    )
    .samples("f32[4], f32([0.5]), f32([1.]), -8, 7")
    .grad("self, scale, zero_point: _grad.learned_quantizer(grad, self, scale, zero_point, -1, quant_min, quant_max, grad_factor)")
    .batch(Batch::Each),
    compose(
        "_fake_quantize_learnable_per_channel_affine",
        "(Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max, float grad_factor=1.)",
        F,
        |a| {
            check_range(a.quant_min, a.quant_max)?;
            let axis = channel_axis(a.input, a.axis)?;
            let (scale, zero) = (along(a.scale, a.input, axis)?, along(a.zero_point, a.input, axis)?);
            learned(a.input, &scale, &zero, a.quant_min, a.quant_max)
        },
        "Numbers rounded to those that integers stand for along a dimension, whose scales and zeros have gradients.",
    )
    .samples("f32[2, 3], f32([0.5, 0.25]), f32([0., 1.]), 0, -8, 7")
    .grad("self, scale, zero_point: _grad.learned_quantizer(grad, self, scale, zero_point, axis, quant_min, quant_max, grad_factor)")
    .batch(Batch::Each),
    compose(
        "_grad.learned_quantizer",
        "(Tensor grad, Tensor self, Tensor scale, Tensor zero_point, int axis, int quant_min, int quant_max, float grad_factor) -> (Tensor, Tensor, Tensor)",
        0,
        learned_backward,
        "The gradients of numbers, scale and zero of a quantizer.",
    )
    .samples("f32[4], f32[4], f32([0.5]), f32([1.]), -1, -8, 7, 1.0"),
];

fn check_range(least: i64, most: i64) -> Result<()> {
    ensure!(
        least <= most,
        Runtime,
        "`quant_min` should be less than or         equal to `quant_max`."
    );
    Ok(())
}

fn check_zero(within: bool) -> Result<()> {
    ensure!(
        within,
        Runtime,
        "`zero_point` must be between `quant_min` and `quant_max`."
    );
    Ok(())
}

/// How many steps of a scale numbers are away from zero, rounded, in single precision.
fn steps(t: &Tensor, scale: &Tensor) -> Result<Tensor> {
    f::round(&parts_of_steps(t, scale)?)
}

/// The same before they are rounded.
fn parts_of_steps(t: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let d = t.dtype();
    d.check_kernel(
        d.is_float() && !d.is_storage_only(),
        "fake_quantize_tensor_cachemask_kernel_type_handling",
    )?;
    let wide = if d.is_reduced_float() {
        f::to_dtype(t, DType::F32)?
    } else {
        t.clone()
    };
    f::mul(&wide, &f::to_dtype(&f::reciprocal(scale)?, wide.dtype())?)
}

/// The result in the input's type, and where the integers lie within bounds.
fn outputs(t: &Tensor, numbers: &Tensor, real: &Tensor, least: i64, most: i64) -> Result<Ret> {
    let mask = f::logical_and(&f::ge(numbers, least)?, &f::le(numbers, most)?)?;
    Ok(Ret::Tuple(vec![f::to_dtype(real, t.dtype())?, mask]))
}

fn channel_axis(t: &Tensor, axis: i64) -> Result<usize> {
    ensure!(
        (0..t.ndim() as i64).contains(&axis),
        Runtime,
        "`axis` must be between 0 and number of dimensions of input"
    );
    Ok(axis as usize)
}

fn fake_per_channel(a: &calls::FakeQuantizePerChannelAffineCachemask) -> Result<Ret> {
    let t = a.input;
    ensure!(
        matches!(a.scale.dtype(), DType::F32 | DType::BF16),
        Runtime,
        "Scale must be Float or BFloat16, found {}",
        a.scale.dtype().scalar_type()
    );
    ensure!(
        matches!(a.zero_point.dtype(), DType::I32 | DType::F32 | DType::F16),
        Runtime,
        "Zero-point must be Int32, Float or Half, found {}",
        a.zero_point.dtype().scalar_type()
    );
    check_range(a.quant_min, a.quant_max)?;
    let axis = crate::dims::wrap_dim(a.axis, t.ndim())?;
    ensure!(
        t.ndim() > 0,
        Runtime,
        "dimensions of scale and zero-point are not consistent with input tensor"
    );
    ensure!(
        a.scale.numel() == t.shape()[axis] && a.zero_point.numel() == a.scale.numel(),
        Runtime,
        "dimensions of scale and zero-point are not consistent with input tensor"
    );
    if !helpers::has_no_values(a.zero_point) && a.zero_point.numel() > 0 {
        let least = helpers::item(&f::min(a.zero_point)?)?.to_f64();
        let most = helpers::item(&f::max(a.zero_point)?)?.to_f64();
        check_zero(least >= a.quant_min as f64 && most <= a.quant_max as f64)?;
    }
    let scale = &along(&f::to_dtype(a.scale, DType::F32)?, t, axis)?;
    let zero = &along(&f::to_dtype(a.zero_point, DType::F32)?, t, axis)?;
    // A zero that is no integer is added first, as PyTorch does.
    let numbers = if a.zero_point.dtype().is_float() {
        f::round(&f::add(&parts_of_steps(t, scale)?, zero)?)?
    } else {
        f::add(&steps(t, scale)?, zero)?
    };
    let real = f::mul(
        &f::sub(&clamped(&numbers, a.quant_min, a.quant_max)?, zero)?,
        scale,
    )?;
    outputs(t, &numbers, &real, a.quant_min, a.quant_max)
}

/// A zero that is learned counts as the nearest integer within bounds.
fn whole(zero: &Tensor, least: i64, most: i64) -> Result<Tensor> {
    clamped(&f::round(zero)?, least, most)
}

fn learned(t: &Tensor, scale: &Tensor, zero: &Tensor, least: i64, most: i64) -> Result<Tensor> {
    let zero = &whole(zero, least, most)?;
    let numbers = f::add(&steps(t, scale)?, zero)?;
    let real = f::mul(&f::sub(&clamped(&numbers, least, most)?, zero)?, scale)?;
    f::to_dtype(&real, t.dtype())
}

fn learned_backward(a: &calls::_GradLearnedQuantizer) -> Result<Ret> {
    let (t, grad) = (a.input, a.grad);
    let shown = |p: &Tensor| match usize::try_from(a.axis) {
        Ok(axis) => along(p, t, axis),
        Err(_) => f::reshape(p, &[]),
    };
    let scale = &shown(a.scale)?;
    let zero = &whole(&shown(a.zero_point)?, a.quant_min, a.quant_max)?;
    // Rounded after zero is added, as PyTorch's gradient does and its forward does not.
    let inverse = f::to_dtype(&f::reciprocal(scale)?, t.dtype())?;
    let numbers = &f::round(&f::add(&f::mul(t, &inverse)?, zero)?)?;
    let kept = clamped(numbers, a.quant_min, a.quant_max)?;
    let within = &f::eq(numbers, &kept)?;
    let real = f::mul(&f::sub(&kept, zero)?, scale)?;
    let by_scale = f::where_(
        within,
        &f::div(&f::sub(&real, t)?, scale)?,
        &f::sub(&kept, zero)?,
    )?;
    let by_zero = f::where_(
        within,
        &f::zeros_like(&real)?,
        &f::neg(&f::expand(scale, t.shape())?)?,
    )?;
    let gathered = |by: &Tensor, like: &Tensor| {
        let all = f::mul(&f::mul(grad, by)?, a.grad_factor)?;
        let sum = match usize::try_from(a.axis) {
            Ok(axis) => {
                let over: Vec<i64> = (0..t.ndim() as i64).filter(|&d| d != axis as i64).collect();
                if over.is_empty() {
                    all
                } else {
                    f::sum_dim(&all, &over[..])?
                }
            }
            Err(_) => f::sum(&all)?,
        };
        f::reshape(&sum, like.shape())
    };
    Ok(Ret::Tuple(vec![
        f::mul(grad, within)?,
        gathered(&by_scale, a.scale)?,
        gathered(&by_zero, a.zero_point)?,
    ]))
}
