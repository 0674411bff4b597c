//! Other layouts of a tensor's memory for kernels: unchecked, and visible here alone, so that an operator made of others cannot
//! make a view that nobody sees.

use crate::plan::ViewPlan;
use crate::{DType, Dims, Tensor};

impl Tensor {
    /// Another layout of the same storage; lazy flags are kept.
    #[inline]
    pub(in crate::cpu) fn view_with(&self, shape: Dims, strides: Dims, offset: i64) -> Self {
        self.raw_view(&ViewPlan::with(self, shape, strides, offset))
    }

    /// The same memory read as another dtype, without lazy flags.
    pub(in crate::cpu) fn reinterpret(
        &self,
        dtype: DType,
        shape: Dims,
        strides: Dims,
        offset: i64,
    ) -> Self {
        self.raw_view(&ViewPlan::reinterpret(dtype, shape, strides, offset))
    }

    /// Expanded to a broadcast shape.
    pub(in crate::cpu) fn expand_to(&self, shape: &[i64]) -> Self {
        self.raw_view(&ViewPlan::expanded(self, shape))
    }

    /// The dimensions in another order.
    pub(in crate::cpu) fn permuted(&self, perm: &[usize]) -> Self {
        self.raw_view(&ViewPlan::of(self).permuted(perm))
    }

    /// With two dimensions swapped.
    pub(in crate::cpu) fn swapped(&self, a: usize, b: usize) -> Self {
        self.raw_view(&ViewPlan::of(self).swapped(a, b))
    }

    /// One index along a dimension, which disappears.
    pub(in crate::cpu) fn selected(&self, dim: usize, index: i64) -> Self {
        self.raw_view(&ViewPlan::of(self).selected(dim, index))
    }

    /// `len` indices from `start` along a dimension.
    pub(in crate::cpu) fn narrowed(&self, dim: usize, start: i64, len: i64) -> Self {
        self.raw_view(&ViewPlan::of(self).narrowed(dim, start, len))
    }
}

#[cfg(test)]
mod tests {
    use super::ViewPlan;
    use crate::{DType, Device, Tensor};

    #[test]
    fn views_of_kernels_leave_no_trace() {
        let t = Tensor::empty(&[2, 3], DType::F32, Device::CPU).unwrap();
        let row = t.selected(0, 1);
        assert_eq!((&row.shape()[..], row.offset()), (&[3][..], 3));
        assert!(t.family().is_none() && row.shares_storage(&t));
        let _view = t.look(&ViewPlan::of(&t).selected(0, 1));
        assert!(t.family().is_some());
    }
}
