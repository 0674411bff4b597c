//! Square brackets: positions, slices, ellipsis and new axes.

use crate::{Result, Tensor, bail};

/// One entry between square brackets.
#[derive(Clone, Debug)]
pub enum Index {
    /// A position.
    Int(i64),
    /// A range.
    Slice {
        /// First position.
        start: Option<i64>,
        /// Position after the last.
        stop: Option<i64>,
        /// Step.
        step: Option<i64>,
    },
    /// All dimensions not named.
    Ellipsis,
    /// A new dimension of size 1.
    NewAxis,
    /// A truth value, as a 0-dimensional mask.
    Bool(bool),
    /// Positions or a mask.
    Tensor(Tensor),
}

/// `x[indices]`.
///
/// # Errors
/// If an index is out of range.
pub fn get_item(t: &Tensor, indices: &[Index]) -> Result<Tensor> {
    let named = indices.iter().filter(|i| !matches!(i, Index::Ellipsis | Index::NewAxis | Index::Bool(_))).count();
    if named > t.ndim() {
        bail!(Index, "too many indices for tensor of dimension {}", t.ndim());
    }
    let mut out = t.detach();
    let mut dim = 0usize;
    for i in indices {
        match i {
            Index::Int(i) => out = super::view::select_dim(&out, dim as i64, *i).map_err(|_| crate::err!(Index, "index {i} is out of bounds for dimension {dim} with size {}", out.shape()[dim]))?,
            Index::Slice { start, stop, step } => {
                out = super::view::slice(&out, dim as i64, *start, *stop, step.unwrap_or(1))?.one()?;
                dim += 1;
            }
            Index::Ellipsis => dim += t.ndim() - named,
            Index::NewAxis => {
                out = crate::run1!("unsqueeze", &out, dim as i64)?;
                dim += 1;
            }
            _ => bail!(NotImplemented, "indexing with tensors"),
        }
    }
    Ok(out)
}

/// `x[indices] = value`.
///
/// # Errors
/// If an index is out of range or the value does not fit.
pub fn set_item(t: &Tensor, indices: &[Index], value: &Tensor) -> Result<()> {
    super::call::copy_(&get_item(t, indices)?, value)
}
