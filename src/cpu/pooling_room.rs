//! What pooling and its gradient take besides their results: the allocations of their kernels, in their order.

use super::pooling::{Rule, working};
use super::room::Room;
use crate::{DType, MemoryFormat, Result, Tensor, dims};

/// Follows what [`super::pooling::Job::run`] takes.
///
/// # Errors
/// If a size overflows.
pub fn forward(
    room: &mut Room,
    (format, rule): (MemoryFormat, Rule),
    x: &Tensor,
    outs: &[Tensor],
) -> Result<()> {
    let out = &outs[0];
    if out.numel() == 0 {
        return Ok(());
    }
    let input = if format == MemoryFormat::Contiguous {
        room.dense(x, x.dtype())?
    } else {
        let order: Vec<usize> = std::iter::once(0).chain(2..x.ndim()).chain([1]).collect();
        room.dense(&x.permuted(&order), x.dtype())?
    };
    let strides = dims::format_strides(out.shape(), format)?;
    for t in outs.iter().filter(|t| *t.strides() != strides) {
        room.empty(t.shape(), t.dtype())?;
    }
    let d = working(x.dtype(), rule);
    if input.dtype() != d {
        room.converted(&input, d)?;
    }
    if out.dtype() != d {
        room.empty(out.shape(), d)?;
    }
    Ok(())
}

/// Follows what [`super::pooling_backward::Spread::run`] takes; `places` are of maxima.
///
/// # Errors
/// If a size overflows.
pub fn backward(
    room: &mut Room,
    format: MemoryFormat,
    out: &Tensor,
    grad: &Tensor,
    places: Option<&Tensor>,
) -> Result<()> {
    let wide = if out.dtype() == DType::F64 {
        DType::F64
    } else {
        DType::F32
    };
    if out.dtype() != wide || *out.strides() != dims::format_strides(out.shape(), format)? {
        room.empty(out.shape(), wide)?;
    }
    if grad.numel() == 0 || out.numel() == 0 {
        return Ok(());
    }
    for (t, dtype) in [(Some(grad), wide), (places, DType::I64)] {
        let Some(t) = t else { continue };
        if format == MemoryFormat::Contiguous {
            room.dense(t, dtype)?;
        } else {
            let order: Vec<usize> = std::iter::once(0).chain(2..t.ndim()).chain([1]).collect();
            room.dense(&t.permuted(&order), dtype)?;
        }
    }
    Ok(())
}
