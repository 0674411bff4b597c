//! What makes a tensor more than a strided view of numbers: sparse and nested tensors, and how quantised integers
//! stand for real numbers. The parts hang on the storage, so views share them and plain tensors pay nothing.
//!
//! A sparse or nested tensor has a shape, and a meta storage without bytes, so that no kernel can ever touch memory
//! through it; the dispatcher refuses it by name, and what can be done with it goes through its parts.

use crate::{DType, Device, Result, Tensor, ensure, err};
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
    /// Tensors of different sizes, one after another in one buffer.
    Nested {
        /// All elements, one-dimensional.
        buffer: Tensor,
        /// The size of each component, `[components, dimensions]`.
        sizes: Vec<Vec<i64>>,
        /// The strides of each.
        strides: Vec<Vec<i64>>,
        /// Where each begins in the buffer.
        offsets: Vec<i64>,
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
    /// The parts of a nested tensor as files keep them: sizes and strides `[components, dimensions]`, offsets
    /// `[components]`.
    ///
    /// # Errors
    /// If they differ in number, or cannot be read.
    pub fn nested(
        buffer: Tensor,
        sizes: &Tensor,
        strides: &Tensor,
        offsets: &Tensor,
    ) -> Result<Self> {
        let numbers = |t: &Tensor| t.to_dtype(DType::I64)?.to_vec::<i64>();
        let offsets = numbers(offsets)?;
        let rows = |t: &Tensor| -> Result<Vec<Vec<i64>>> {
            let all = numbers(t)?;
            let width = all.len().checked_div(offsets.len()).unwrap_or(0);
            ensure!(
                all.len() == width * offsets.len(),
                Checkpoint,
                "a nested tensor whose sizes, strides and offsets differ in number"
            );
            let row = |i: usize| all[i * width..(i + 1) * width].to_vec();
            Ok((0..offsets.len()).map(row).collect())
        };
        Ok(Self::Nested {
            buffer,
            sizes: rows(sizes)?,
            strides: rows(strides)?,
            offsets,
        })
    }

    /// PyTorch's name of the layout.
    #[must_use]
    pub fn layout(&self) -> &'static str {
        match self {
            Self::Coo { .. } => "sparse_coo",
            Self::Compressed { kind, .. } => match kind {
                Compressed::Csr => "sparse_csr",
                Compressed::Csc => "sparse_csc",
                Compressed::Bsr => "sparse_bsr",
                Compressed::Bsc => "sparse_bsc",
            },
            _ => "strided",
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

    /// True for sparse, nested and packed tensors, whose own storage holds nothing.
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
            Self::Nested { .. } => "nested",
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
            Self::Nested { buffer, .. } => vec![buffer],
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
            Self::Nested { buffer, .. } => buffer.device(),
            Self::Packed { bytes, .. } => bytes.device(),
            _ => Device::CPU,
        }
    }

    /// A sparse, nested or packed tensor of this shape, after [`Parts::check`].
    ///
    /// # Errors
    /// As [`Parts::check`].
    pub fn into_tensor(self, shape: &[i64], dtype: DType) -> Result<Tensor> {
        crate::dims::storage_bytes(shape, &crate::dims::contiguous_strides(shape), 0, 1)?;
        self.check(shape)?;
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
            } => check_coo(indices, values, shape),
            Self::Compressed {
                kind,
                compressed,
                plain,
                values,
            } => check_compressed(*kind, [compressed, plain, values], shape),
            Self::Nested {
                buffer,
                sizes,
                strides,
                offsets,
            } => {
                ensure!(
                    sizes.len() == strides.len() && sizes.len() == offsets.len(),
                    Checkpoint,
                    "a nested tensor whose sizes, strides and offsets differ in number"
                );
                ensure!(
                    buffer.ndim() == 1 && buffer.is_contiguous(),
                    Checkpoint,
                    "the buffer of a nested tensor is not a contiguous vector"
                );
                for ((size, stride), &offset) in sizes.iter().zip(strides).zip(offsets) {
                    let sane = size.len() == stride.len()
                        && size.len() <= crate::dims::MAX_NDIM
                        && offset >= 0
                        && size.iter().chain(stride).all(|&n| n >= 0);
                    let need = if sane {
                        crate::dims::storage_bytes(size, stride, offset, 1)?
                    } else {
                        usize::MAX
                    };
                    ensure!(
                        i64::try_from(need).is_ok_and(|n| n <= buffer.numel()),
                        Checkpoint,
                        "a component of a nested tensor reaches outside its buffer"
                    );
                }
                Ok(())
            }
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

fn is_index(t: &Tensor) -> bool {
    matches!(t.dtype(), DType::I64 | DType::I32)
}

/// The values of an index tensor whose data is here.
fn values_of(t: &Tensor) -> Result<Option<Vec<i64>>> {
    if t.is_meta() {
        return Ok(None);
    }
    t.to_device(Device::CPU)?
        .to_dtype(DType::I64)?
        .to_vec::<i64>()
        .map(Some)
}

fn check_coo(indices: &Tensor, values: &Tensor, shape: &[i64]) -> Result<()> {
    let bad = |what: &str| {
        err!(
            Checkpoint,
            "a sparse COO tensor of shape {shape:?} with indices {} and values {}: {what}",
            indices.shape(),
            values.shape()
        )
    };
    ensure!(
        indices.dtype() == DType::I64 && indices.ndim() == 2 && values.ndim() >= 1,
        Checkpoint,
        "{}",
        bad("indices must be a matrix of int64")
    );
    let (sparse, entries) = (indices.shape()[0], indices.shape()[1]);
    let dense = usize::try_from(sparse)
        .ok()
        .and_then(|n| shape.get(n..))
        .ok_or_else(|| bad("more sparse dimensions than dimensions"))?;
    ensure!(
        values.shape()[0] == entries && values.shape()[1..] == *dense,
        Checkpoint,
        "{}",
        bad("they do not fit each other")
    );
    ensure!(
        indices.device() == values.device(),
        Checkpoint,
        "{}",
        bad("they are on different devices")
    );
    let Some(at) = values_of(indices)? else {
        return Ok(());
    };
    for (row, &size) in at
        .chunks_exact(usize::try_from(entries).unwrap_or(0).max(1))
        .zip(shape)
    {
        if let Some(i) = row.iter().find(|&&i| i < 0 || i >= size) {
            return Err(bad(&format!(
                "index {i} lies outside a dimension of {size}"
            )));
        }
    }
    Ok(())
}

fn check_compressed(kind: Compressed, parts: [&Tensor; 3], shape: &[i64]) -> Result<()> {
    let [compressed, plain, values] = parts;
    let bad = |what: &str| {
        err!(
            Checkpoint,
            "a compressed sparse tensor of shape {shape:?} with indices {} and {} and values {}: {what}",
            compressed.shape(),
            plain.shape(),
            values.shape()
        )
    };
    ensure!(
        is_index(compressed) && compressed.dtype() == plain.dtype(),
        Checkpoint,
        "{}",
        bad("indices must be int32 or int64")
    );
    let batch = compressed
        .ndim()
        .checked_sub(1)
        .filter(|&b| plain.ndim() == b + 1 && shape.len() >= b + 2 && values.ndim() > b)
        .ok_or_else(|| bad("too few dimensions"))?;
    let block = if kind.blocks() { 2 } else { 0 };
    let dense = shape.len() - batch - 2;
    ensure!(
        values.ndim() == batch + 1 + block + dense,
        Checkpoint,
        "{}",
        bad("the values have the wrong number of dimensions")
    );
    let entries = plain.shape()[batch];
    let (mut rows, mut columns) = (shape[batch], shape[batch + 1]);
    if kind.blocks() {
        let (r, c) = (values.shape()[batch + 1], values.shape()[batch + 2]);
        ensure!(
            r > 0 && c > 0 && rows % r == 0 && columns % c == 0,
            Checkpoint,
            "{}",
            bad("blocks do not divide the shape")
        );
        (rows, columns) = (rows / r, columns / c);
    }
    if !kind.rows() {
        (rows, columns) = (columns, rows);
    }
    let fits = compressed.shape()[..batch] == shape[..batch]
        && plain.shape()[..batch] == shape[..batch]
        && values.shape()[..batch] == shape[..batch]
        && values.shape()[batch] == entries
        && values.shape()[batch + 1 + block..] == shape[batch + 2..]
        && rows.checked_add(1) == Some(compressed.shape()[batch]);
    ensure!(fits, Checkpoint, "{}", bad("they do not fit each other"));
    ensure!(
        compressed.device() == values.device() && plain.device() == values.device(),
        Checkpoint,
        "{}",
        bad("they are on different devices")
    );
    let (Some(starts), Some(at)) = (values_of(compressed)?, values_of(plain)?) else {
        return Ok(());
    };
    let step = usize::try_from(entries).unwrap_or(0);
    for (b, starts) in starts
        .chunks_exact(compressed.shape()[batch] as usize)
        .enumerate()
    {
        let rising = starts.windows(2).all(|w| w[0] <= w[1]);
        ensure!(
            rising && starts.first() == Some(&0) && starts.last() == Some(&entries),
            Checkpoint,
            "{}",
            bad("the compressed indices do not rise from 0 to the number of entries")
        );
        let at = at.get(b * step..(b + 1) * step).unwrap_or(&[]);
        for w in starts.windows(2) {
            let row = &at[w[0] as usize..w[1] as usize];
            ensure!(
                row.iter().all(|&i| (0..columns).contains(&i))
                    && row.windows(2).all(|p| p[0] < p[1]),
                Checkpoint,
                "{}",
                bad("an index lies outside its dimension, or is out of order")
            );
        }
    }
    Ok(())
}

/// The device that counts: a sparse tensor is where its values are.
pub fn located(t: &Tensor) -> Device {
    if !t.storage().is_opaque() {
        return t.device();
    }
    t.storage().parts().map_or(Device::META, |p| p.device())
}
