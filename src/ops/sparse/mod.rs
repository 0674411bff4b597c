//! Sparse tensors: made, converted, and computed with by their parts, which are plain tensors.
//!
//! Rows of this folder know the parts. Calls of all other rows with a sparse tensor among their arguments come here from the
//! layer of parts ([`answer`]), which refuses what is not answered.

pub mod convert;
mod coo;
mod elements;
pub mod gradients;
mod index;
mod pressed;
pub mod products;
pub mod sums;

use crate::ops::core::args::Args;
use crate::ops::core::op::Ret;
use crate::parts::Parts;
use crate::{Result, Tensor};
use coo::Coo;
use pressed::Pressed;

/// A sparse tensor taken apart.
enum Sparse {
    Coo(Coo),
    Pressed(Pressed),
}

impl Sparse {
    /// The parts of a tensor, if it is sparse.
    fn of(t: &Tensor) -> Option<Self> {
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
    fn coo(self) -> Result<Coo> {
        match self {
            Self::Coo(c) => Ok(c),
            Self::Pressed(p) => p.coo(),
        }
    }

    fn values(&self) -> &Tensor {
        match self {
            Self::Coo(c) => &c.values,
            Self::Pressed(p) => &p.values,
        }
    }

    fn with_values(self, values: Tensor) -> Result<Tensor> {
        match self {
            Self::Coo(c) => Coo { values, ..c }.build(),
            Self::Pressed(p) => Pressed { values, ..p }.build(),
        }
    }
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
    [convert::OPS, products::OPS, sums::OPS, gradients::OPS]
        .into_iter()
        .flatten()
        .any(|row| row.name == name)
}

/// The result of a call with a sparse tensor among its arguments; nothing if it is not known here.
///
/// # Errors
/// What the calls on its parts report.
pub fn answer(args: &Args) -> Result<Option<Ret>> {
    for try_it in [
        elements::answer,
        index::answer,
        products::answer,
        sums::answer,
    ] {
        if let Some(made) = try_it(args)? {
            return Ok(Some(made));
        }
    }
    Ok(None)
}
