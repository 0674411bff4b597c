//! What kernels take that draw numbers by other tensors: their allocations, in their order.

use super::random::dense_row;
use super::room::Room;
use crate::{DType, Result, Tensor, random};

/// What [`bernoulli_probs`](super::random::bernoulli_probs) takes.
///
/// # Errors
/// If a size overflows.
pub fn bernoulli_probs(room: &mut Room, out: &Tensor, p: &Tensor) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let wide = if p.dtype() == DType::F64 {
        DType::F64
    } else {
        DType::F32
    };
    room.converted(out, wide)?;
    if !dense_row(out) {
        room.converted(out, out.dtype())?;
    }
    Ok(())
}

/// What kernels take that read parameters in double precision, spread over their result, and write it so.
///
/// # Errors
/// If a size overflows.
pub fn by_parameters<const N: usize>(
    room: &mut Room,
    out: &Tensor,
    from: [&Tensor; N],
) -> Result<()> {
    let wide = from.map(|t| t.expand_to(out.shape()));
    let outs = std::slice::from_ref(out);
    room.operands(wide.iter().map(Some), outs, DType::F64)
}

/// What [`dirichlet`](super::random::dirichlet) takes.
///
/// # Errors
/// If a size overflows.
pub fn dirichlet(room: &mut Room, out: &Tensor, alpha: &Tensor) -> Result<()> {
    let drawn = room.empty(out.shape(), DType::F64)?;
    room.within(|room| by_parameters(room, &drawn, [alpha, alpha]))?;
    room.dense(out, DType::F64).map(drop)
}

/// What [`multinomial`](super::random::multinomial) takes.
///
/// # Errors
/// If a size overflows.
pub fn multinomial(
    room: &mut Room,
    out: &Tensor,
    weights: &Tensor,
    samples: usize,
    replacement: bool,
) -> Result<()> {
    let cols = weights.shape()[weights.ndim() - 1] as usize;
    if out.numel() == 0 || cols == 0 {
        return Ok(());
    }
    let d = weights.dtype();
    room.dense(weights, d)?;
    room.dense(out, DType::I64)?;
    if replacement && samples > 1 {
        return room.lists(1, random::sums_of(cols, d));
    }
    let drawn = room.converted(weights, d)?;
    if !drawn.is_contiguous() {
        room.empty(drawn.shape(), d)?;
        room.free(&drawn);
    }
    let rows = weights.numel() as usize / cols;
    room.lists(1, random::keys_of(rows, cols, samples))
}
