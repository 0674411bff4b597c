//! What memory tensors share.

use crate::{Tensor, dims};

/// What memory two tensors share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overlap {
    /// None, as far as the test can see.
    None,
    /// They lie alike in the same memory.
    Whole,
    /// Any other.
    Part,
}

impl Tensor {
    /// How two tensors share memory, by the test PyTorch uses: layouts with gaps or repetitions are not looked at.
    #[must_use]
    pub fn overlap(&self, other: &Self) -> Overlap {
        if std::ptr::eq(self, other) {
            return Overlap::Whole;
        }
        let seen = |t: &Self| t.numel() > 0 && dims::is_dense(t.shape(), t.strides());
        if !self.shares_storage(other) || !seen(self) || !seen(other) {
            return Overlap::None;
        }
        let bytes = |t: &Self| {
            let size = t.dtype.size() as i64;
            let start = t.offset * size;
            start..start + t.numel() * size
        };
        let (a, b) = (bytes(self), bytes(other));
        if a == b && self.strides() == other.strides() {
            Overlap::Whole
        } else if a.start < b.end && b.start < a.end {
            Overlap::Part
        } else {
            Overlap::None
        }
    }

    /// True if several indices lead to one element (as in an expanded tensor), by the test PyTorch uses.
    #[must_use]
    pub fn has_internal_overlap(&self) -> bool {
        let mut dims = self.shape.iter().zip(self.strides.iter());
        dims.any(|(&d, &s)| d > 1 && s == 0) && self.numel() > 0
    }
}
