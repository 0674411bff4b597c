//! What attentions take besides their results: the allocations of their kernels, in their order.

use super::attention::{Inputs, SCORES, Shapes};
use super::attention_backward::{Known, with_groups};
use super::room::Room;
use crate::{DType, Result, Tensor, dims};

/// The type that scores are computed in.
fn wide(i: &Inputs) -> DType {
    if i.query.dtype() == DType::F64 {
        DType::F64
    } else {
        DType::F32
    }
}

/// Queries of a block.
fn rows(queries: i64, keys: i64) -> i64 {
    (SCORES as i64 / keys.max(1))
        .clamp(16, 128)
        .min(queries.max(1))
}

/// As [`Shapes::flat`].
fn flat(room: &mut Room, s: &Shapes, t: &Tensor, size: [i64; 2], d: DType) -> Result<Tensor> {
    let t = if t.dtype() == d {
        t.clone()
    } else {
        room.converted(t, d)?
    };
    let t = t.expand_to(&s.batch.concat(&size));
    let to = [dims::numel(&s.batch)?, size[0], size[1]];
    match dims::view_strides(t.shape(), t.strides(), &to) {
        Some(strides) => Ok(t.view_with(to.into(), strides, t.offset())),
        None => Ok(room
            .dense(&t, d)?
            .view_with(to.into(), dims::contiguous_strides(&to), 0)),
    }
}

/// As [`super::attention::attention`].
///
/// # Errors
/// If a size overflows.
pub fn attention(
    room: &mut Room,
    out: &Tensor,
    sums: Option<&Tensor>,
    i: &Inputs,
    s: &Shapes,
) -> Result<()> {
    if s.keys == 0 || (out.numel() == 0 && sums.is_none_or(|t| t.numel() == 0)) {
        return Ok(());
    }
    let d = wide(i);
    let q = flat(room, s, i.query, [s.queries, s.width], d)?;
    flat(room, s, i.key, [s.keys, s.width], d)?;
    flat(room, s, i.value, [s.keys, s.values], d)?;
    let mask = match i.mask {
        Some(m) => {
            let d = if m.dtype() == DType::Bool {
                DType::Bool
            } else {
                d
            };
            Some(flat(room, s, m, [s.queries, s.keys], d)?)
        }
        None => None,
    };
    let to = [q.shape()[0], s.queries, s.values];
    let direct = out.dtype() == d && dims::view_strides(out.shape(), out.strides(), &to).is_some();
    if sums.is_some() {
        room.empty(&to[..2], d)?;
    }
    if !direct {
        room.empty(&to, d)?;
    }
    let rows = rows(s.queries, s.keys);
    let tasks = to[0] * ((s.queries + rows - 1) / rows);
    for _ in 0..tasks.min(room.threads() as i64) {
        room.elements((rows * s.keys) as usize, d)?;
        if let Some(m) = mask.as_ref().filter(|m| m.shape()[0] > 0) {
            let block = m.selected(0, 0).narrowed(0, 0, rows.min(s.queries));
            if i.causal {
                room.empty(block.shape(), m.dtype())?;
            } else {
                room.dense(&block, m.dtype())?;
            }
        }
    }
    Ok(())
}

/// As [`super::attention_backward::forward`].
///
/// # Errors
/// If a size overflows.
pub fn forward(room: &mut Room, outs: &[Tensor], i: &Inputs, s: Shapes) -> Result<()> {
    with_groups(outs, i, s, |out, sums, i, s| {
        attention(room, out, Some(sums), i, s)
    })
}

/// As [`super::attention_backward::backward`].
///
/// # Errors
/// If a size overflows.
pub fn backward(
    room: &mut Room,
    outs: &[Tensor],
    known: &Known,
    i: &Inputs,
    s: &Shapes,
) -> Result<()> {
    let d = wide(i);
    let widened = |room: &mut Room, t: &Tensor| {
        if t.dtype() == d {
            Ok(t.clone())
        } else {
            room.converted(t, d)
        }
    };
    for out in outs.iter().filter(|o| o.dtype() != d) {
        room.empty(out.shape(), d)?;
    }
    let mask = match i.mask {
        Some(m) => Some(widened(room, m)?.expand_to(&s.batch.concat(&[s.queries, s.keys]))),
        None => None,
    };
    let (grad, out) = (widened(room, known.grad)?, widened(room, known.out)?);
    let sums = widened(room, known.sums)?;
    for t in [i.query, i.key, i.value] {
        widened(room, t)?;
    }
    let tasks = s.batch[0] * i.key.shape()[1];
    if tasks == 0 || i.query.numel() == 0 || s.keys == 0 {
        return Ok(());
    }
    let rows = rows(s.queries, s.keys);
    let part = |t: &Tensor| t.selected(0, 0).selected(0, 0).narrowed(0, 0, rows);
    for _ in 0..tasks.min(room.threads() as i64) {
        room.elements((rows * s.keys) as usize, d)?;
        room.elements((rows * s.keys) as usize, d)?;
        match &mask {
            Some(m) if i.causal => room.empty(part(m).shape(), d).map(drop)?,
            Some(m) => room.dense(&part(m), d).map(drop)?,
            None => {}
        }
        for t in [&grad, &out, &sums] {
            room.dense(&part(t), d)?;
        }
    }
    Ok(())
}
