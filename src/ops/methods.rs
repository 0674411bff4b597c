//! What a tensor can do: methods for what programs call most, each an operator of the table.

use crate::ops::core::helpers;
use crate::ops::core::typed::Operand;
use crate::ops::f;
use crate::{DType, Device, Dims, Element, MemoryFormat, Result, Scalar, Tensor, bail, dims};

/// Methods that are the function of the same name in [`f`].
macro_rules! methods {
    ($($(#[$doc:meta])+ $name:ident($($arg:ident: $t:ty),*);)+) => {
        #[allow(clippy::needless_lifetimes, reason = "methods with arguments need the name")]
        impl Tensor {$(
            $(#[$doc])+
            ///
            /// # Errors
            /// What the operator's rule or kernel reports.
            pub fn $name<'a>(&'a self $(, $arg: $t)*) -> Result<Tensor> {
                f::$name(self $(, $arg)*)
            }
        )+}
    };
}

methods! {
    /// The sum with a tensor that broadcasts, or a number.
    add(other: impl Into<Operand<'a>>);
    /// The difference.
    sub(other: impl Into<Operand<'a>>);
    /// The product, element by element.
    mul(other: impl Into<Operand<'a>>);
    /// The quotient, element by element.
    div(other: impl Into<Operand<'a>>);
    /// Each element negated.
    neg();
    /// e to the power of each element.
    exp();
    /// The natural logarithm of each element.
    log();
    /// The square root of each element.
    sqrt();
    /// The hyperbolic tangent of each element.
    tanh();
    /// 1 / (1 + exp(-x)).
    sigmoid();
    /// x where it is positive, else 0.
    relu();
    /// The product of matrices, batches of them, or vectors.
    matmul(other: &'a Tensor);
    /// Values along a dimension that sum to one.
    softmax(dim: i64);
    /// The sum of all elements.
    sum();
    /// The mean of all elements.
    mean();
    /// The same values in another shape; a view where possible. One size may be -1.
    reshape(shape: &'a [i64]);
    /// The same memory in another shape.
    view(size: &'a [i64]);
    /// Two dimensions swapped, as a view.
    transpose(dim0: i64, dim1: i64);
    /// Dimensions in another order, as a view.
    permute(dims: &'a [i64]);
    /// A dimension of size 1 put in, as a view.
    unsqueeze(dim: i64);
    /// One index of a dimension, as a view.
    select(dim: i64, index: i64);
    /// A range of a dimension, as a view.
    narrow(dim: i64, start: i64, length: i64);
    /// Dimensions of size 1 repeated without copying.
    expand(size: &'a [i64]);
}

impl Tensor {
    /// A 0-dimensional CPU tensor.
    ///
    /// # Errors
    /// If the dtype cannot be computed with.
    pub fn scalar(value: Scalar, dtype: DType) -> Result<Self> {
        let t = Self::empty(&[], dtype, Device::CPU)?;
        crate::cpu::fill(&t, value)?;
        Ok(t)
    }

    /// A row-major CPU tensor with the values of a slice.
    ///
    /// # Errors
    /// If the number of values is not that of the shape.
    pub fn from_slice<T: Element>(values: &[T], shape: &[i64]) -> Result<Self> {
        if dims::numel(shape)? != values.len() as i64 {
            bail!(
                Value,
                "{} values do not fill shape {}",
                values.len(),
                Dims::new(shape)
            );
        }
        let t = Self::empty(shape, T::DTYPE, Device::CPU)?;
        crate::cpu::write_slice(&t, values);
        Ok(t)
    }

    /// The elements in row-major order.
    ///
    /// # Errors
    /// If the tensor is not of type `T` or its data cannot be had.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if self.dtype() != T::DTYPE {
            bail!(
                Type,
                "expected a tensor of {}, got {}",
                T::DTYPE,
                self.dtype()
            );
        }
        let settled = self.settled();
        let all = settled.as_ref().unwrap_or(self);
        if !all.batch().is_empty() {
            return Err(helpers::data_dependent());
        }
        let real = all.to_device(Device::CPU)?.contiguous()?;
        // A fake tensor may claim to be on the host.
        if real.storage().is_hollow() && real.numel() > 0 {
            bail!(NotImplemented, "Cannot copy out of meta tensor; no data!");
        }
        Ok(crate::cpu::read_slice(&real))
    }

    /// Row-major with the same values; itself if it is so already.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn contiguous(&self) -> Result<Self> {
        if self.is_contiguous() && !self.is_lazy() {
            return Ok(self.clone());
        }
        helpers::clone(self, MemoryFormat::Contiguous)
    }

    /// With another dtype; itself if it has that already.
    ///
    /// # Errors
    /// If there is no conversion.
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        helpers::to_copy(self, dtype, self.device())
    }

    /// On another device; itself if it is there already.
    ///
    /// # Errors
    /// If the data cannot be had: a meta tensor has none.
    pub fn to_device(&self, device: Device) -> Result<Self> {
        if self.device() == device.canonical() {
            self.check_inside()?;
            return Ok(self.clone());
        }
        helpers::to_copy(self, self.dtype(), device)
    }

    /// The only element.
    ///
    /// # Errors
    /// If there is not exactly one element, or on meta.
    pub fn item(&self) -> Result<Scalar> {
        helpers::item(self)
    }
}
