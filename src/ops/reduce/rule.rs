//! What the rules of reductions share: the dimensions they go over, the fold that carries them out, refusals.

use crate::cpu::reduce::{self, Kind, Post, bytes};
use crate::cpu::room::Room;
use crate::dims::{reduced_shape, wrap_dim};
use crate::ops::core::op::Plan;
use crate::ops::core::rules::dim_list;
use crate::{DType, Result, Scalar, Tensor, ensure, kernels};
use smallvec::{SmallVec, smallvec};

/// A tensor and the dimensions of it that a reduction goes over.
#[derive(Clone, Debug)]
pub struct Over<'a> {
    /// The tensor.
    pub input: &'a Tensor,
    /// The dimensions, from 0 on.
    pub dims: SmallVec<[usize; 6]>,
    /// Whether they stay with size 1.
    keepdim: bool,
}

impl<'a> Over<'a> {
    /// All dimensions.
    ///
    /// # Errors
    /// If there are too many.
    pub fn all(input: &'a Tensor) -> Result<Self> {
        Self::list(input, None, false)
    }

    /// A list of dimensions; none or an empty list mean all.
    ///
    /// # Errors
    /// If one is out of range or named twice.
    pub fn list<'d>(
        input: &'a Tensor,
        dims: impl Into<Option<&'d [i64]>>,
        keepdim: bool,
    ) -> Result<Self> {
        Ok(Self {
            input,
            dims: dim_list(dims.into(), input.ndim())?,
            keepdim,
        })
    }

    /// One dimension.
    ///
    /// # Errors
    /// If it is out of range.
    pub fn one(input: &'a Tensor, dim: i64, keepdim: bool) -> Result<Self> {
        Ok(Self {
            input,
            dims: smallvec![wrap_dim(dim, input.ndim())?],
            keepdim,
        })
    }

    /// One dimension, or all.
    ///
    /// # Errors
    /// If it is out of range.
    pub fn optional(input: &'a Tensor, dim: Option<i64>, keepdim: bool) -> Result<Self> {
        match dim {
            Some(dim) => Self::one(input, dim, keepdim),
            None => Self::list(input, None, keepdim),
        }
    }

    /// No dimension.
    #[must_use]
    pub fn nothing(input: &'a Tensor) -> Self {
        Self {
            input,
            dims: SmallVec::new(),
            keepdim: false,
        }
    }

    /// The shape of the result.
    #[must_use]
    pub fn shape(&self) -> crate::Dims {
        reduced_shape(self.input.shape(), &self.dims, self.keepdim)
    }

    /// A row-major result of the reduced shape.
    #[must_use]
    pub fn plan(&self, dtype: DType) -> Plan {
        Plan::contiguous(&self.shape(), dtype)
    }

    /// Two row-major results of the reduced shape.
    #[must_use]
    pub fn pair(&self, first: DType, second: DType) -> Plan {
        let shape = self.shape();
        Plan::many(&[(&shape, first), (&shape, second)])
    }

    /// How many elements come together in one.
    #[must_use]
    pub fn count(&self) -> i64 {
        let sizes = self.input.shape();
        self.dims.iter().filter_map(|&d| sizes.get(d)).product()
    }

    /// Refuses to look for an element along an empty dimension.
    ///
    /// # Errors
    /// PyTorch's `IndexError`.
    pub fn not_empty(&self, name: &str) -> Result<()> {
        for &d in &self.dims {
            ensure!(
                self.input.shape().get(d).is_none_or(|&n| n > 0),
                Index,
                "{name}(): Expected reduction dim {d} to have non-zero size."
            );
        }
        Ok(())
    }

    /// The plan of a fold to `dtype`, and the fold.
    #[must_use]
    pub fn folded(self, kind: Kind, dtype: DType) -> (Plan, Fold<'a>) {
        let from = self.input.dtype();
        // Elements are converted first, as the sum of truncated numbers is not the truncated sum.
        let as_is = from == dtype
            || from.is_integral(true) && dtype == DType::I64
            || from.is_reduced_float() && !from.is_storage_only() && dtype == DType::F32;
        let kind = match kind {
            Kind::NanSum if !from.is_float() => Kind::Sum,
            other => other,
        };
        let kind = match kind {
            Kind::Sum if dtype == DType::Bool => Kind::Max,
            Kind::Prod if dtype == DType::Bool => Kind::Min,
            other => other,
        };
        let plan = self.plan(dtype);
        let fold = Fold {
            over: self,
            read_as: (!as_is).then_some(dtype),
            kind,
            p: 0.0,
            post: Post::None,
        };
        (plan, fold)
    }
}

/// How the elements of a reduction are folded.
#[derive(Clone, Debug)]
pub struct Fold<'a> {
    /// What is folded.
    pub over: Over<'a>,
    /// The dtype that elements are converted to first, if they are.
    pub read_as: Option<DType>,
    /// The fold.
    pub kind: Kind,
    /// The exponent, if the fold has one.
    pub p: f64,
    /// What happens to the folded numbers.
    pub post: Post,
}

impl Fold<'_> {
    /// Folds `input`, which stands for the tensor of the fold, into `out`.
    ///
    /// # Errors
    /// If the dtype cannot be folded.
    pub fn run(&self, out: &Tensor, input: &Tensor) -> Result<()> {
        kernels::fold(self.kind, out, input, &self.over.dims, self.p, self.post)
    }
}

/// The kernel of folds, on the host and on a GPU.
///
/// # Errors
/// If memory cannot be had.
pub fn fold<A>(_: &A, fold: &Fold, outs: &[Tensor]) -> Result<()> {
    let out = &outs[0];
    let converted;
    let input = match fold.read_as {
        Some(d) => {
            converted = kernels::converted(fold.over.input, d)?;
            &converted
        }
        None => fold.over.input,
    };
    if out.dtype() != DType::Bool {
        return fold.run(out, input);
    }
    if input.numel() == 0 {
        return kernels::fill(out, Scalar::Bool(fold.kind == Kind::Min));
    }
    fold.run(&bytes(out), input)
}

/// What [`fold`] takes.
///
/// # Errors
/// As [`fold`].
pub fn fold_room<A>(_: &A, fold: &Fold, outs: &[Tensor], room: &mut Room) -> Result<()> {
    let converted;
    let input = match fold.read_as {
        Some(d) => {
            converted = room.converted(fold.over.input, d)?;
            &converted
        }
        None => fold.over.input,
    };
    if outs[0].dtype() == DType::Bool && input.numel() == 0 {
        return Ok(());
    }
    reduce::fold_room(room, fold.kind, input)
}

/// Refuses the dtypes that nothing is computed in.
///
/// # Errors
/// For storage-only types and complex numbers of two halves.
pub fn computable(kernel: &str, d: DType) -> Result<()> {
    d.check_kernel(!(d.is_storage_only() || d == DType::C32), kernel)
}

/// Refuses the dtypes that PyTorch has no comparing kernels for.
///
/// # Errors
/// For unsigned integers beyond 8 bits, complex and storage-only types.
pub fn comparable(kernel: &str, d: DType) -> Result<()> {
    let unsigned = matches!(d, DType::U16 | DType::U32 | DType::U64);
    d.check_kernel(!(unsigned || d.is_complex() || d.is_storage_only()), kernel)
}
