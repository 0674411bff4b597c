//! Quantised tensors taken apart: integers, scales and zero points, which are plain tensors.

use crate::ops::f;
use crate::parts::{Parts, integers};
use crate::plan::ViewPlan;
use crate::{DType, MemoryFormat, Result, Tensor, bail, dims};
use std::sync::Arc;

/// The integers of a quantised tensor, and how they stand for real numbers.
pub(crate) struct Quantized {
    /// On the tensor's own memory, with which they share the quantizer.
    pub integers: Tensor,
    /// One scale for all, or one for each channel.
    pub quantizer: Parts,
}

/// One scale and zero point for all elements.
#[derive(Clone, Copy)]
pub(crate) struct Uniform {
    pub scale: f64,
    pub zero: i64,
}

/// The quantised type of integers.
pub(crate) fn quantized_type(d: DType) -> Result<DType> {
    Ok(match d {
        DType::I8 => DType::QI8,
        DType::U8 => DType::QU8,
        DType::I32 => DType::QI32,
        _ => bail!(
            Runtime,
            "Creation of quantized tensor requires quantized dtype like torch.quint8"
        ),
    })
}

/// Smallest and largest integer of a quantised type, and the type they are kept in.
pub(crate) fn range_of(d: DType) -> Result<(i64, i64, DType)> {
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

/// A number that broadcasts over every tensor.
pub(crate) fn number(v: f64, like: &Tensor) -> Result<Tensor> {
    f::NewFull::new(like, &[][..], v).dtype(DType::F32).call()
}

/// The integers row after row, or with channels innermost where they lie so: what results look like.
pub(crate) fn in_order(t: &Tensor) -> Result<Tensor> {
    let last = dims::strides_like_channels_last(t.shape(), t.strides());
    let format = match t.ndim() {
        4 if last => MemoryFormat::ChannelsLast,
        5 if last => MemoryFormat::ChannelsLast3d,
        _ => MemoryFormat::Contiguous,
    };
    f::Contiguous::new(t).memory_format(format).call()
}

impl Quantized {
    /// The parts of a tensor, if it is quantised and has an integer for each element.
    pub fn of(t: &Tensor) -> Option<Self> {
        if !t.dtype().is_quantized() {
            return None;
        }
        let quantizer = match &*t.storage().parts()? {
            q @ (Parts::PerTensor { .. } | Parts::PerChannel { .. }) => q.clone(),
            _ => return None,
        };
        let integers = integers(t).ok()?;
        Some(Self {
            integers,
            quantizer,
        })
    }

    /// The parts of an operator's argument.
    pub fn expected(t: &Tensor, name: &str) -> Result<Self> {
        Self::of(t).ok_or_else(|| {
            crate::err!(
                NotImplemented,
                "{name}: expected a quantized tensor, got one of {}",
                t.dtype().scalar_type()
            )
        })
    }

    /// The only scale and zero point.
    pub fn uniform(&self, name: &str) -> Result<Uniform> {
        match self.quantizer {
            Parts::PerTensor { scale, zero_point } => Ok(Uniform {
                scale,
                zero: zero_point,
            }),
            _ => bail!(
                Runtime,
                "{name} only works for per tensor quantized tensors"
            ),
        }
    }

    /// Scales in single precision and zero points, one or as many as channels, and the dimension of these.
    pub fn numbers(&self) -> Result<(Tensor, Tensor, usize)> {
        match &self.quantizer {
            Parts::PerChannel {
                scales,
                zero_points,
                axis,
                ..
            } => Ok((
                f::to_dtype(scales, DType::F32)?,
                f::to_dtype(zero_points, DType::I64)?,
                *axis as usize,
            )),
            Parts::PerTensor { scale, zero_point } => Ok((
                f::NewFull::new(&self.integers, &[1i64][..], *scale)
                    .dtype(DType::F32)
                    .call()?,
                f::NewFull::new(&self.integers, &[1i64][..], *zero_point)
                    .dtype(DType::I64)
                    .call()?,
                0,
            )),
            _ => bail!(Runtime, "expected a quantized tensor"),
        }
    }

    /// The real numbers.
    pub fn reals(&self) -> Result<Tensor> {
        if let Parts::PerTensor { scale, zero_point } = self.quantizer {
            let q = &in_order(&self.integers)?;
            return f::_QuantizedReals::new(q, &number(scale, q)?, &number(zero_point as f64, q)?)
                .call();
        }
        let Parts::PerChannel {
            scales,
            zero_points,
            axis,
            ..
        } = &self.quantizer
        else {
            bail!(Runtime, "expected a quantized tensor");
        };
        let (axis, q) = (*axis as usize, &self.integers);
        // What zero points and scales are kept in decides what the numbers are computed in.
        let by = scales.dtype();
        let along = |p: &Tensor| f::to_dtype(&super::along(p, q, axis)?, by);
        f::_quantized_reals(q, &along(scales)?, &along(zero_points)?)
    }
}

impl Uniform {
    /// The real numbers that integers stand for.
    pub fn reals(self, integers: &Tensor) -> Result<Tensor> {
        f::_quantized_reals(
            integers,
            &number(self.scale, integers)?,
            &number(self.zero as f64, integers)?,
        )
    }

    /// The real numbers that integers stand for, rounded once.
    pub fn reals_once(self, integers: &Tensor) -> Result<Tensor> {
        let scale = self.scale as f32;
        let shift = f64::from(-(self.zero as f32) * scale);
        f::_QuantizedReals::new(
            integers,
            &number(self.scale, integers)?,
            &number(shift, integers)?,
        )
        .once(true)
        .call()
    }

    /// The nearest integers of a quantised type; the zero point counts before they are rounded.
    pub fn nearest(self, reals: &Tensor, d: DType) -> Result<Tensor> {
        let (_, _, kept) = range_of(d)?;
        let inverse = f64::from(1.0 / self.scale as f32);
        f::_quantized_steps(
            reals,
            &number(inverse, reals)?,
            &number(self.zero as f64, reals)?,
            kept,
        )
    }

    /// The nearest integers; the zero point is added after they are rounded.
    pub fn rounded_first(self, reals: &Tensor, d: DType) -> Result<Tensor> {
        let (low, _, kept) = range_of(d)?;
        let inverse = f64::from(1.0 / self.scale as f32);
        let (by, none) = (number(inverse, reals)?, number(0.0, reals)?);
        f::_quantized_anew(reals, &by, &none, self.zero, low, kept)
    }

    /// Integers with this quantizer, on the memory they are in, which nobody else has.
    pub fn over(self, integers: &Tensor) -> Result<Tensor> {
        with_quantizer(
            integers,
            Parts::PerTensor {
                scale: self.scale,
                zero_point: self.zero,
            },
        )
    }

    /// A quantised tensor of real numbers.
    pub fn of_reals(self, reals: &Tensor, d: DType) -> Result<Tensor> {
        self.over(&self.nearest(reals, d)?)
    }
}

/// Integers with a quantizer, on the memory they are in, which nobody else has.
pub(crate) fn with_quantizer(integers: &Tensor, quantizer: Parts) -> Result<Tensor> {
    let dtype = quantized_type(integers.dtype())?;
    integers.storage().set_parts(Some(Arc::new(quantizer)));
    let view = ViewPlan::reinterpret(
        dtype,
        integers.shape().clone(),
        integers.strides().clone(),
        integers.offset(),
    );
    crate::cpu::view::of(integers, view)
}
