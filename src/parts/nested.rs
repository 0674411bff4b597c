//! How the components of a nested tensor lie in its buffer, as files say it.

use crate::{DType, Result, Tensor, ensure};

/// A size, strides and an offset for each component.
pub struct Components {
    /// The size of each.
    pub sizes: Vec<Vec<i64>>,
    /// The strides of each.
    pub strides: Vec<Vec<i64>>,
    /// Where each begins in the buffer.
    pub offsets: Vec<i64>,
}

impl Components {
    /// What sizes and strides `[components, dimensions]` and offsets `[components]` say.
    ///
    /// # Errors
    /// If they differ in number, or cannot be read.
    pub fn read(sizes: &Tensor, strides: &Tensor, offsets: &Tensor) -> Result<Self> {
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
        Ok(Self {
            sizes: rows(sizes)?,
            strides: rows(strides)?,
            offsets,
        })
    }

    /// Proves that the components lie within the buffer.
    ///
    /// # Errors
    /// If the buffer is no contiguous vector, or too small.
    pub fn check(&self, buffer: &Tensor) -> Result<()> {
        ensure!(
            buffer.ndim() == 1 && buffer.is_contiguous(),
            Checkpoint,
            "the buffer of a nested tensor is not a contiguous vector"
        );
        let layouts = self.sizes.iter().zip(&self.strides);
        for ((size, stride), &offset) in layouts.zip(&self.offsets) {
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
}
