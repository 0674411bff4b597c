//! What makes a tensor more than a strided view of numbers: sparse tensors, and how quantised integers
//! stand for real numbers. The parts hang on the storage, so views share them and plain tensors pay nothing.
//!
//! A sparse tensor has a shape, and a meta storage without bytes, so that no kernel can ever touch memory
//! through it; the dispatcher refuses it by name, and what can be done with it goes through its parts.

mod check;
pub mod nested;

use crate::plan::ViewPlan;
use crate::{DType, Device, Result, Tensor, bail, ensure};
use std::sync::Arc;

/// The order of the two index tensors of a compressed sparse tensor, and whether it stores blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compressed {
    /// Compressed rows.
    Csr,
    /// Compressed columns.
    Csc,
    /// Compressed rows of blocks.
    Bsr,
    /// Compressed columns of blocks.
    Bsc,
}

impl Compressed {
    /// True if rows are compressed, false for columns.
    #[must_use]
    pub fn rows(self) -> bool {
        matches!(self, Self::Csr | Self::Bsr)
    }

    /// True if values are blocks.
    #[must_use]
    pub fn blocks(self) -> bool {
        matches!(self, Self::Bsr | Self::Bsc)
    }
}

/// How the elements of a tensor are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// In one block of memory.
    Strided,
    /// By coordinates.
    Coo,
    /// With compressed rows or columns.
    Compressed(Compressed),
}

impl Layout {
    /// PyTorch's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Strided => "strided",
            Self::Coo => "sparse_coo",
            Self::Compressed(kind) => match kind {
                Compressed::Csr => "sparse_csr",
                Compressed::Csc => "sparse_csc",
                Compressed::Bsr => "sparse_bsr",
                Compressed::Bsc => "sparse_bsc",
            },
        }
    }

    /// The layout of this name.
    #[must_use]
    pub fn of(name: &str) -> Option<Self> {
        Some(match name {
            "strided" => Self::Strided,
            "sparse_coo" => Self::Coo,
            "sparse_csr" => Self::Compressed(Compressed::Csr),
            "sparse_csc" => Self::Compressed(Compressed::Csc),
            "sparse_bsr" => Self::Compressed(Compressed::Bsr),
            "sparse_bsc" => Self::Compressed(Compressed::Bsc),
            _ => return None,
        })
    }

    /// The name in messages, `SparseCsr`; coordinates are just `Sparse`.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Strided => "Strided",
            Self::Coo => "Sparse",
            Self::Compressed(Compressed::Csr) => "SparseCsr",
            Self::Compressed(Compressed::Csc) => "SparseCsc",
            Self::Compressed(Compressed::Bsr) => "SparseBsr",
            Self::Compressed(Compressed::Bsc) => "SparseBsc",
        }
    }
}

/// The parts of a tensor that is more than a strided view.
#[derive(Clone, Debug)]
pub enum Parts {
    /// Coordinates `[sparse dimensions, entries]` and values `[entries, dense dimensions...]`.
    Coo {
        /// Positions, int64.
        indices: Tensor,
        /// Values.
        values: Tensor,
        /// Whether positions are known to be sorted and distinct.
        coalesced: bool,
    },
    /// Compressed rows or columns.
    Compressed {
        /// Which of the four layouts.
        kind: Compressed,
        /// Where each row (or column) begins, `[batch..., rows + 1]`.
        compressed: Tensor,
        /// The column (or row) of each entry, `[batch..., entries]`.
        plain: Tensor,
        /// Values, `[batch..., entries, block..., dense...]`.
        values: Tensor,
    },
    /// One scale and zero point for all elements: `scale * (q - zero_point)`.
    PerTensor {
        /// The scale.
        scale: f64,
        /// The integer that stands for zero.
        zero_point: i64,
    },
    /// A scale and zero point for each index of one dimension.
    PerChannel {
        /// Scales, one-dimensional.
        scales: Tensor,
        /// Zero points, one-dimensional; real numbers if `float_zero_points`.
        zero_points: Tensor,
        /// The dimension.
        axis: i64,
        /// Whether it is PyTorch's `per_channel_affine_float_qparams`.
        float_zero_points: bool,
    },
    /// Quantised numbers of less than a byte each, the first in a byte's lowest bits.
    Packed {
        /// All of them, one-dimensional, of type uint8.
        bytes: Tensor,
        /// The type they are of.
        dtype: DType,
        /// How they stand for real numbers.
        quantizer: Box<Parts>,
    },
}

impl Parts {
    /// PyTorch's name of the layout.
    #[must_use]
    pub fn layout(&self) -> &'static str {
        self.stored().name()
    }

    /// The layout.
    #[must_use]
    pub fn stored(&self) -> Layout {
        match self {
            Self::Coo { .. } => Layout::Coo,
            Self::Compressed { kind, .. } => Layout::Compressed(*kind),
            _ => Layout::Strided,
        }
    }

    /// PyTorch's name of the quantisation scheme.
    #[must_use]
    pub fn qscheme(&self) -> Option<&'static str> {
        match self {
            Self::PerTensor { .. } => Some("per_tensor_affine"),
            Self::PerChannel {
                float_zero_points: false,
                ..
            } => Some("per_channel_affine"),
            Self::PerChannel { .. } => Some("per_channel_affine_float_qparams"),
            Self::Packed { quantizer, .. } => quantizer.qscheme(),
            _ => None,
        }
    }

    /// What says how quantised integers stand for real numbers.
    #[must_use]
    pub fn quantizer(&self) -> Option<&Self> {
        match self {
            Self::PerTensor { .. } | Self::PerChannel { .. } => Some(self),
            Self::Packed { quantizer, .. } => Some(quantizer),
            _ => None,
        }
    }

    /// True for sparse and packed tensors, whose own storage holds nothing.
    #[must_use]
    pub fn is_opaque(&self) -> bool {
        !matches!(self, Self::PerTensor { .. } | Self::PerChannel { .. })
    }

    /// What it is, for messages.
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match self {
            Self::Coo { .. } => "sparse COO",
            Self::Compressed { .. } => "compressed sparse",
            _ => "quantized",
        }
    }

    /// The tensors it is made of.
    #[must_use]
    pub fn tensors(&self) -> Vec<&Tensor> {
        match self {
            Self::Coo {
                indices, values, ..
            } => vec![indices, values],
            Self::Compressed {
                compressed,
                plain,
                values,
                ..
            } => vec![compressed, plain, values],
            Self::PerTensor { .. } => vec![],
            Self::PerChannel {
                scales,
                zero_points,
                ..
            } => vec![scales, zero_points],
            Self::Packed {
                bytes, quantizer, ..
            } => {
                let mut all = quantizer.tensors();
                all.push(bytes);
                all
            }
        }
    }

    /// The device that the values are on.
    #[must_use]
    pub fn device(&self) -> Device {
        match self {
            Self::Coo { values, .. } | Self::Compressed { values, .. } => values.device(),
            Self::Packed { bytes, .. } => bytes.device(),
            _ => Device::CPU,
        }
    }

    /// A sparse or packed tensor of this shape, after [`Parts::check`].
    ///
    /// # Errors
    /// As [`Parts::check`].
    pub fn into_tensor(mut self, shape: &[i64], dtype: DType) -> Result<Tensor> {
        crate::dims::storage_bytes(shape, &crate::dims::contiguous_strides(shape), 0, 1)?;
        self.check(shape)?;
        // The history is that of the whole.
        if let Self::Coo { values, .. } | Self::Compressed { values, .. } = &mut self {
            *values = values.bare();
        }
        let strides = crate::dims::contiguous_strides(shape);
        let t = Tensor::hollow(shape.into(), strides, 0, dtype);
        t.storage().set_parts(Some(Arc::new(self)));
        Ok(t)
    }

    /// Proves that the parts fit one another and `shape`, indices included where their data is here.
    ///
    /// # Errors
    /// Says which part does not fit.
    pub fn check(&self, shape: &[i64]) -> Result<()> {
        match self {
            Self::Coo {
                indices, values, ..
            } => check::coo(indices, values, shape),
            Self::Compressed {
                kind,
                compressed,
                plain,
                values,
            } => check::compressed(*kind, [compressed, plain, values], shape),
            Self::PerTensor { scale, .. } => {
                ensure!(
                    scale.is_finite(),
                    Checkpoint,
                    "a quantized tensor with a scale of {scale}"
                );
                Ok(())
            }
            Self::PerChannel {
                scales,
                zero_points,
                axis,
                ..
            } => {
                let channels = usize::try_from(*axis).ok().and_then(|a| shape.get(a));
                ensure!(
                    channels.is_some_and(
                        |n| scales.shape()[..] == [*n] && zero_points.shape()[..] == [*n]
                    ),
                    Checkpoint,
                    "the scales and zero points of a quantized tensor do not fit its shape {shape:?} and axis {axis}"
                );
                Ok(())
            }
            Self::Packed {
                bytes,
                dtype,
                quantizer,
            } => {
                let per_byte = dtype.per_byte().unwrap_or(1);
                let count = crate::dims::storage_bytes(
                    shape,
                    &crate::dims::contiguous_strides(shape),
                    0,
                    1,
                )?;
                ensure!(
                    bytes.dtype() == DType::U8
                        && bytes.shape()[..] == [count.div_ceil(per_byte) as i64]
                        && bytes.is_contiguous(),
                    Checkpoint,
                    "the bytes of a packed tensor do not fit its shape {shape:?}"
                );
                quantizer.check(shape)
            }
        }
    }
}

/// The device that counts: a sparse tensor is where its values are.
#[inline]
pub fn located(t: &Tensor) -> Device {
    if !t.storage().is_opaque() {
        return t.device();
    }
    t.storage().parts().map_or(Device::META, |p| p.device())
}

/// The integers of a quantised tensor, on its own memory.
///
/// # Errors
/// If there is not one for each element.
pub fn integers(t: &Tensor) -> Result<Tensor> {
    let dtype = match t.dtype() {
        DType::QI8 => DType::I8,
        DType::QU8 => DType::U8,
        DType::QI32 => DType::I32,
        other => bail!(Runtime, "int_repr(): {other} is no quantized dtype"),
    };
    Ok(t.look(&ViewPlan::reinterpret(
        dtype,
        t.shape().clone(),
        t.strides().clone(),
        t.offset(),
    )))
}
