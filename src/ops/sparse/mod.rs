//! Sparse tensors: made, converted, and computed with by their parts, which are plain tensors.
//!
//! Rows of this folder know the parts. Calls of all other rows with a sparse tensor among their arguments are answered by the
//! layer of parts, by way of what is here, or refused.

pub mod convert;
pub(crate) mod coo;
pub mod gradients;
pub(crate) mod pressed;
pub mod products;
pub mod resize;
pub mod sums;

use crate::ops::core::helpers;
use crate::ops::f;
use crate::parts::Parts;
use crate::{DType, Error, ErrorKind, Result, Tensor};
use coo::Coo;
use pressed::Pressed;

/// Parts that do not fit, as the call of an operator says it.
fn refused(e: Error) -> Error {
    match e.kind() {
        ErrorKind::Checkpoint => Error::new(ErrorKind::Runtime, e.message()),
        _ => e,
    }
}

/// A sparse tensor taken apart.
pub(crate) enum Sparse {
    Coo(Coo),
    Pressed(Pressed),
}

impl Sparse {
    /// The parts of a tensor, if it is sparse.
    pub fn of(t: &Tensor) -> Option<Self> {
        Some(match (*t.storage().parts()?).clone() {
            Parts::Coo {
                indices,
                values,
                coalesced,
            } => Self::Coo(Coo {
                indices,
                values,
                shape: t.shape().clone(),
                coalesced,
            }),
            Parts::Compressed {
                kind,
                compressed,
                plain,
                values,
            } => Self::Pressed(Pressed {
                kind,
                compressed,
                plain,
                values,
                shape: t.shape().clone(),
            }),
            _ => return None,
        })
    }

    /// By coordinates.
    pub fn coo(self) -> Result<Coo> {
        match self {
            Self::Coo(c) => Ok(c),
            Self::Pressed(p) => p.coo(),
        }
    }

    /// The values of all entries.
    pub fn values(&self) -> &Tensor {
        match self {
            Self::Coo(c) => &c.values,
            Self::Pressed(p) => &p.values,
        }
    }

    /// The same places with other values.
    pub fn with_values(self, values: Tensor) -> Result<Tensor> {
        match self {
            Self::Coo(c) => Coo { values, ..c }.build(),
            Self::Pressed(p) => Pressed { values, ..p }.build(),
        }
    }
}

/// The numbers of an index tensor; recorded ones are replayed aside.
///
/// # Errors
/// If nobody knows them.
pub(crate) fn numbers(t: &Tensor) -> Result<Vec<i64>> {
    let here = helpers::readable(t, "the indices of a sparse tensor on meta are not known")?;
    f::to_dtype(&here, DType::I64)?.to_vec::<i64>()
}

/// An index tensor of these numbers, to go with `like`.
///
/// # Errors
/// If memory cannot be had.
pub(crate) fn indices(numbers: &[i64], shape: &[i64], like: &Tensor) -> Result<Tensor> {
    let made = Tensor::from_slice(numbers, shape)?;
    let made = match helpers::beside(like) {
        Some(device) => made.to_device(device)?,
        None => made,
    };
    helpers::made_for(made, like)
}

/// True for sparse tensors of any layout.
#[must_use]
pub fn is_sparse(t: &Tensor) -> bool {
    matches!(
        t.storage().parts().as_deref(),
        Some(Parts::Coo { .. } | Parts::Compressed { .. })
    )
}

/// True for rows that take sparse tensors apart themselves.
#[must_use]
pub fn knows(name: &str) -> bool {
    [
        convert::OPS,
        products::OPS,
        sums::OPS,
        gradients::OPS,
        resize::OPS,
    ]
    .into_iter()
    .flatten()
    .any(|row| row.name == name)
}
