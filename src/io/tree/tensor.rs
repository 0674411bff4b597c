//! Tensors of a checkpoint: strided, quantised, sparse and nested.

use super::Value;
use crate::DType;
use smallvec::SmallVec;

/// Which class of tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TensorClass {
    /// `torch.Tensor`.
    Tensor,
    /// `torch.nn.Parameter`.
    Parameter,
}

/// A strided tensor: a view of a storage, proved to lie within it.
#[derive(Clone, Debug)]
pub struct TensorRef {
    /// The number of its storage in [`Tree::storages`].
    pub storage: u32,
    /// The type of its elements.
    pub dtype: DType,
    /// Tensor or parameter.
    pub class: TensorClass,
    /// Whether it requires a gradient.
    pub requires_grad: bool,
    /// Whether its elements are to be conjugated.
    pub conj: bool,
    /// Whether its elements are to be negated.
    pub neg: bool,
    /// Elements of the storage before its first.
    pub offset: i64,
    /// Python attributes: `None`, a dictionary, or a pair of dictionaries (`__dict__` and slots).
    pub attrs: Value,
    /// How its integers stand for real numbers, if it is quantised.
    pub quant: Option<Box<Quant>>,
    pub(crate) dims: SmallVec<[i64; 8]>,
}

/// How quantised integers stand for real numbers: `scale * (q - zero_point)`.
#[derive(Clone, Debug)]
pub struct Quant {
    /// The scale, unless there are channels.
    pub scale: f64,
    /// The integer that stands for zero, unless there are channels.
    pub zero_point: i64,
    /// Scales and zero points for each index of one dimension.
    pub channels: Option<Channels>,
}

/// Scales and zero points of the channels of a quantised tensor.
#[derive(Clone, Copy, Debug)]
pub struct Channels {
    /// A vector of floats.
    pub scales: Value,
    /// A vector of integers, or of floats if `float`.
    pub zero_points: Value,
    /// The dimension they belong to.
    pub axis: i64,
    /// Whether it is PyTorch's `per_channel_affine_float_qparams`.
    pub float: bool,
}

/// What kind of tensor a [`Composite`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompositeKind {
    /// Sparse, as indices and values; true if coalesced.
    Coo(bool),
    /// Sparse, as compressed indices, plain indices and values.
    Compressed(crate::parts::Compressed),
    /// Nested, as buffer, sizes, strides and offsets; its shape is empty.
    Nested,
    /// Quantised numbers of less than a byte, as a vector of bytes, which holds the quantizer and the type.
    Packed,
}

/// A tensor made of other tensors.
#[derive(Clone, Debug)]
pub struct Composite {
    /// What it is.
    pub kind: CompositeKind,
    /// Its strided tensors, in the order that the kind names.
    pub parts: SmallVec<[Value; 4]>,
    /// Its sizes.
    pub shape: SmallVec<[i64; 8]>,
    /// Tensor or parameter.
    pub class: TensorClass,
    /// Whether it requires a gradient.
    pub requires_grad: bool,
    /// Python attributes, as those of a [`TensorRef`].
    pub attrs: Value,
}

impl Composite {
    /// The names of its parts, in order.
    #[must_use]
    pub fn part_names(&self) -> &'static [&'static str] {
        match self.kind {
            CompositeKind::Coo(_) => &["indices", "values"],
            CompositeKind::Compressed(kind) if kind.rows() => {
                &["crow_indices", "col_indices", "values"]
            }
            CompositeKind::Compressed(_) => &["ccol_indices", "row_indices", "values"],
            CompositeKind::Nested => &["buffer", "sizes", "strides", "offsets"],
            CompositeKind::Packed => &["packed"],
        }
    }
}

impl TensorRef {
    /// A plain tensor of this layout. Shape and stride must be of one length.
    #[must_use]
    pub fn new(storage: u32, dtype: DType, shape: &[i64], stride: &[i64], offset: i64) -> Self {
        debug_assert_eq!(shape.len(), stride.len());
        let dims = shape.iter().chain(stride).copied().collect();
        let class = TensorClass::Tensor;
        Self {
            storage,
            dtype,
            class,
            requires_grad: false,
            conj: false,
            neg: false,
            offset,
            attrs: Value::None,
            quant: None,
            dims,
        }
    }

    /// Sizes.
    #[must_use]
    pub fn shape(&self) -> &[i64] {
        &self.dims[..self.dims.len() / 2]
    }

    /// Strides, in elements.
    #[must_use]
    pub fn stride(&self) -> &[i64] {
        &self.dims[self.dims.len() / 2..]
    }

    /// How many elements.
    #[must_use]
    pub fn numel(&self) -> i64 {
        if self.shape().contains(&0) {
            0
        } else {
            self.shape().iter().fold(1, |n, &s| n.saturating_mul(s))
        }
    }
}
