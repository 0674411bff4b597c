//! Triangles and diagonals of matrices.

use super::copy;
use crate::{DType, Dims, Result, Scalar, Tensor};

/// Clears all columns of `out`'s matrices but those of a triangle that ends at a diagonal: up to it in the lower one, from
/// it on in the upper one.
///
/// # Errors
/// If the dtype has no zero.
pub fn keep(out: &Tensor, diagonal: i64, lower: bool) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let zero = zero(out.dtype())?;
    let n = out.ndim();
    let (rows, columns) = (out.shape()[n - 2], out.shape()[n - 1]);
    for r in 0..rows {
        let edge = r.saturating_add(diagonal);
        let (start, end) = if lower {
            (edge.saturating_add(1).clamp(0, columns), columns)
        } else {
            (0, edge.clamp(0, columns))
        };
        if start < end {
            let row = out.selected(n - 2, r);
            copy::copy(&row.narrowed(n - 2, start, end - start), &zero)?;
        }
    }
    Ok(())
}

fn zero(dtype: DType) -> Result<Tensor> {
    let zero = Tensor::scalar(Scalar::Int(0), DType::F32)?;
    if dtype == DType::F32 {
        return Ok(zero);
    }
    copy::converted(&zero, dtype)
}

/// Writes zeros to `out`, and the lines of `t` to the diagonal of its dimensions `x` and `y`.
///
/// # Errors
/// If the dtype has no zero.
pub fn embed(out: &Tensor, t: &Tensor, diagonal: i64, (x, y): (usize, usize)) -> Result<()> {
    super::fill(out, Scalar::Int(0))?;
    if t.numel() == 0 {
        return Ok(());
    }
    let (down, right) = (out.strides()[x], out.strides()[y]);
    let start = if diagonal >= 0 {
        diagonal * right
    } else {
        -diagonal * down
    };
    let rest = (0..out.ndim()).filter(|&d| d != x && d != y);
    let strides: Dims = rest
        .map(|d| out.strides()[d])
        .chain([down + right])
        .collect();
    let line = out.view_with(t.shape().clone(), strides, out.offset() + start);
    copy::copy(&line, t)
}
