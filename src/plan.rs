//! What a rule says of the results: freshly allocated ones, or other looks at the storage of argument 0.

use crate::dims::{self, Dims};
use crate::{DType, Tensor};
use smallvec::{SmallVec, smallvec};

/// What the results of a call look like.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// One entry a result.
    pub outs: SmallVec<[OutSpec; 1]>,
    /// Where the results go, if not where the arguments are.
    pub device: Option<crate::Device>,
}

/// Layout and dtype of one result.
#[derive(Clone, Debug)]
pub struct OutSpec {
    /// Sizes.
    pub shape: Dims,
    /// Strides of a freshly allocated result.
    pub strides: Dims,
    /// Element type.
    pub dtype: DType,
}

impl OutSpec {
    /// A row-major result.
    #[must_use]
    pub fn contiguous(shape: &[i64], dtype: DType) -> Self {
        Self {
            shape: Dims::new(shape),
            strides: crate::dims::contiguous_strides(shape),
            dtype,
        }
    }
}

impl Plan {
    /// A plan with one result.
    #[inline]
    #[must_use]
    pub fn one(shape: Dims, strides: Dims, dtype: DType) -> Self {
        Self {
            outs: smallvec![OutSpec {
                shape,
                strides,
                dtype
            }],
            device: None,
        }
    }

    /// A plan with one row-major result.
    #[must_use]
    pub fn contiguous(shape: &[i64], dtype: DType) -> Self {
        Self {
            outs: smallvec![OutSpec::contiguous(shape, dtype)],
            device: None,
        }
    }

    /// A plan with several row-major results.
    #[must_use]
    pub fn many(specs: &[(&[i64], DType)]) -> Self {
        Self {
            outs: specs
                .iter()
                .map(|(s, d)| OutSpec::contiguous(s, *d))
                .collect(),
            device: None,
        }
    }
}

impl Plan {
    /// The same plan on a device of its own (factories and copies).
    #[must_use]
    pub fn on(mut self, device: crate::Device) -> Self {
        self.device = Some(device);
        self
    }
}

/// Another look at the storage of argument 0. The dispatcher checks that it lies within the storage, and makes the tensor.
#[derive(Clone, Debug)]
pub struct ViewPlan {
    /// Sizes.
    pub shape: Dims,
    /// Strides, in elements.
    pub strides: Dims,
    /// The position of the first element in the storage, in elements.
    pub offset: i64,
    /// Element type.
    pub dtype: DType,
    /// Lazily conjugated.
    pub conj: bool,
    /// Lazily negated.
    pub neg: bool,
    /// Apart from the history of what it is made of, and no view to those who write it (`detach`, `_unsafe_view`).
    pub detached: bool,
}

/// The results of a view.
#[derive(Clone, Debug)]
pub enum Views {
    /// The tensor itself.
    Same,
    /// One.
    One(ViewPlan),
    /// Any number, in order.
    List(Vec<ViewPlan>),
}

impl From<ViewPlan> for Views {
    fn from(v: ViewPlan) -> Self {
        Self::One(v)
    }
}

impl From<Vec<ViewPlan>> for Views {
    fn from(v: Vec<ViewPlan>) -> Self {
        Self::List(v)
    }
}

impl ViewPlan {
    /// The tensor as it is.
    #[must_use]
    pub fn of(t: &Tensor) -> Self {
        Self::with(t, t.shape().clone(), t.strides().clone(), t.offset())
    }

    /// Another layout of the same elements.
    #[must_use]
    pub fn with(t: &Tensor, shape: Dims, strides: Dims, offset: i64) -> Self {
        Self {
            shape,
            strides,
            offset,
            dtype: t.dtype(),
            conj: t.is_conj(),
            neg: t.is_neg(),
            detached: false,
        }
    }

    /// Another layout of the memory, read as another dtype, without lazy flags.
    #[must_use]
    pub fn reinterpret(dtype: DType, shape: Dims, strides: Dims, offset: i64) -> Self {
        Self {
            shape,
            strides,
            offset,
            dtype,
            conj: false,
            neg: false,
            detached: false,
        }
    }

    /// Expanded to a shape that the tensor broadcasts to.
    #[must_use]
    pub fn expanded(t: &Tensor, shape: &[i64]) -> Self {
        Self::with(t, Dims::new(shape), t.strides_for(shape), t.offset())
    }

    /// The same, apart from the tensor's history.
    #[must_use]
    pub fn detached(mut self) -> Self {
        self.detached = true;
        self
    }

    /// The dimensions in another order.
    #[must_use]
    pub fn permuted(mut self, order: &[usize]) -> Self {
        self.shape = self.shape.permuted(order);
        self.strides = self.strides.permuted(order);
        self
    }

    /// Two dimensions swapped.
    #[must_use]
    pub fn swapped(mut self, a: usize, b: usize) -> Self {
        self.shape.swap(a, b);
        self.strides.swap(a, b);
        self
    }

    /// One index along a dimension, which disappears.
    #[must_use]
    pub fn selected(mut self, dim: usize, index: i64) -> Self {
        self.offset += index * self.strides[dim];
        self.shape = self.shape.removed(dim);
        self.strides = self.strides.removed(dim);
        self
    }

    /// `len` indices from `start` along a dimension.
    #[must_use]
    pub fn narrowed(mut self, dim: usize, start: i64, len: i64) -> Self {
        self.offset += start * self.strides[dim];
        self.shape = self.shape.with(dim, len);
        self
    }

    /// With a dimension of size 1 put in.
    #[must_use]
    pub fn unsqueezed(mut self, dim: usize) -> Self {
        let stride = if dim < self.shape.len() {
            self.shape[dim] * self.strides[dim]
        } else {
            1
        };
        self.shape = self.shape.inserted(dim, 1);
        self.strides = self.strides.inserted(dim, stride);
        self
    }

    /// Conjugated, lazily.
    #[must_use]
    pub fn conjugated(mut self) -> Self {
        self.conj = !self.conj;
        self
    }

    /// Bytes that a storage needs for it.
    ///
    /// # Errors
    /// If the size overflows.
    pub fn bytes(&self) -> crate::Result<usize> {
        dims::storage_bytes(&self.shape, &self.strides, self.offset, self.dtype.size())
    }
}
