//! What attentions take besides their results: the allocations of their kernels, in their order.

use super::attention::{Inputs, SCORES, Shapes, share_heads};
use super::attention_backward::{Known, with_groups};
use super::attention_tiles::{self, Layout};
use super::room::Room;
use super::view;
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

/// What is converted, if it has another type.
fn converted(room: &mut Room, t: &Tensor, d: DType) -> Result<Tensor> {
    if t.dtype() == d {
        Ok(t.clone())
    } else {
        room.converted(t, d)
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
    let tiles = attention_tiles::suits(i, s).then(|| Layout::new(s));
    if tiles.is_none() {
        for t in [i.query, i.key, i.value] {
            converted(room, t, d)?;
        }
    }
    let mask = match i.mask {
        Some(m) => {
            let d = if m.dtype() == DType::Bool {
                DType::Bool
            } else {
                d
            };
            let whole = s.batch.concat(&[s.queries, s.keys]);
            Some(converted(room, m, d)?.expand_to(&whole))
        }
        None => None,
    };
    if let Some(sums) = sums {
        room.empty(sums.shape(), d)?;
    }
    if tiles.is_none() && out.dtype() != d {
        room.empty(out.shape(), d)?;
    }
    if let Some(l) = &tiles {
        for (t, [rows, columns]) in [i.key, i.value].into_iter().zip(l.pairs()) {
            let lead = dims::numel(&t.shape()[..t.ndim() - 2])? as usize;
            room.elements(lead * rows * columns, DType::BF16)?;
        }
    }
    let rows = tiles
        .as_ref()
        .map_or(rows(s.queries, s.keys), |l| l.rows as i64);
    let batch = dims::numel(&s.batch)?;
    let tasks = batch * ((s.queries + rows - 1) / rows);
    for _ in 0..tasks.min(room.threads() as i64) {
        match &tiles {
            Some(l) => {
                let [single, halves] = l.room();
                room.elements(single, DType::F32)?;
                room.elements(halves, DType::BF16)?;
            }
            None => room.elements((rows * s.keys) as usize, d)?,
        }
        if let Some(m) = mask.as_ref().filter(|_| batch > 0) {
            let block = view::matrix(m, 0).narrowed(0, 0, rows.min(s.queries));
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
    with_groups(&outs[0], Some(&outs[1]), i, s, |out, sums, i, s| {
        attention(room, out, sums, i, s)
    })
}

/// As [`super::attention_backward::alone`].
///
/// # Errors
/// If a size overflows.
pub fn alone(room: &mut Room, out: &Tensor, i: &Inputs, s: &Shapes) -> Result<()> {
    if share_heads(i.query, i.key, i.value) {
        return with_groups(out, None, i, s.clone(), |out, sums, i, s| {
            attention(room, out, sums, i, s)
        });
    }
    attention(room, out, None, i, s)
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
    for out in outs.iter().filter(|o| o.dtype() != d) {
        room.empty(out.shape(), d)?;
    }
    let mask = match i.mask {
        Some(m) => Some(converted(room, m, d)?.expand_to(&s.batch.concat(&[s.queries, s.keys]))),
        None => None,
    };
    let (grad, out) = (
        converted(room, known.grad, d)?,
        converted(room, known.out, d)?,
    );
    let sums = converted(room, known.sums, d)?;
    for t in [i.query, i.key, i.value] {
        converted(room, t, d)?;
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
