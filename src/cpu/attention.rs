//! Attention: a block of queries at a time against all keys, scores kept in the cache.

use super::{copy, matrix, pool, vmath};
use crate::cpu::simd::simd_fn;
use crate::{DType, Device, Dims, Result, Scalar, Tensor, dims};

/// Scores held at a time.
const SCORES: usize = 96 * 1024;

/// What an attention is computed from.
pub struct Inputs<'a> {
    /// What looks for keys.
    pub query: &'a Tensor,
    /// What is looked for.
    pub key: &'a Tensor,
    /// What the keys stand for.
    pub value: &'a Tensor,
    /// Truth values, or numbers to add.
    pub mask: Option<&'a Tensor>,
    /// Queries see only the keys before them.
    pub causal: bool,
    /// A factor of the scores.
    pub scale: f64,
}

/// The sizes of an attention.
pub struct Shapes {
    /// The leading dimensions, broadcast.
    pub batch: Dims,
    /// Rows of the query.
    pub queries: i64,
    /// Rows of key and value.
    pub keys: i64,
    /// Columns of query and key.
    pub width: i64,
    /// Columns of the value.
    pub values: i64,
}

impl Shapes {
    /// `t` expanded as `[batch, rows, columns]`: a view where the strides allow it.
    fn flat(&self, t: &Tensor, rows: i64, columns: i64, d: DType) -> Result<Tensor> {
        let t = if t.dtype() == d {
            t.clone()
        } else {
            copy::converted(t, d)?
        };
        let t = t.expand_to(&self.batch.concat(&[rows, columns]));
        let to = [dims::numel(&self.batch)?, rows, columns];
        match dims::view_strides(t.shape(), t.strides(), &to) {
            Some(strides) => Ok(t.view_with(to.into(), strides, t.offset())),
            None => Ok(copy::dense(&t, d)?.view_with(to.into(), dims::contiguous_strides(&to), 0)),
        }
    }
}

/// `softmax(scale q k' + mask) v` into `out`, which has the shape `[batch..., queries, values]`.
///
/// # Errors
/// If memory cannot be had.
pub fn attention(out: &Tensor, i: &Inputs, s: &Shapes) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    if s.keys == 0 {
        return super::fill(out, Scalar::Int(0));
    }
    let wide = if i.query.dtype() == DType::F64 {
        DType::F64
    } else {
        DType::F32
    };
    let q = s.flat(i.query, s.queries, s.width, wide)?;
    let k = s.flat(i.key, s.keys, s.width, wide)?;
    let v = s.flat(i.value, s.keys, s.values, wide)?;
    let mask = match i.mask {
        Some(m) if m.dtype() == DType::Bool => Some(s.flat(m, s.queries, s.keys, DType::Bool)?),
        Some(m) => Some(s.flat(m, s.queries, s.keys, wide)?),
        None => None,
    };
    let to = [q.shape()[0], s.queries, s.values];
    let direct = if out.dtype() == wide {
        dims::view_strides(out.shape(), out.strides(), &to)
    } else {
        None
    };
    let fill = |out: &Tensor| batches(out, &q, &k, &v, mask.as_ref(), i.causal, i.scale);
    if let Some(strides) = direct {
        return fill(&out.view_with(to.into(), strides, out.offset()));
    }
    let sum = Tensor::empty(&to, wide, Device::CPU)?;
    fill(&sum)?;
    let strides = dims::contiguous_strides(out.shape());
    copy::copy(out, &sum.view_with(out.shape().clone(), strides, 0))
}

/// Attention for three-dimensional `q`, `k`, `v` (f32 or f64; batches in the first dimension). `mask` has been expanded to
/// `[batch, queries, keys]`.
fn batches(
    out: &Tensor,
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    mask: Option<&Tensor>,
    causal: bool,
    scale: f64,
) -> Result<()> {
    let (batch, queries, keys) = (
        q.shape()[0] as usize,
        q.shape()[1] as usize,
        k.shape()[1] as usize,
    );
    let rows = (SCORES / keys.max(1)).clamp(16, 128).min(queries.max(1));
    let blocks = queries.div_ceil(rows);
    let d = q.dtype();
    let failed = std::sync::Mutex::new(None);
    let run = |range: std::ops::Range<usize>| -> Result<()> {
        let buffer = Tensor::empty(&[(rows * keys) as i64], d, Device::CPU)?;
        for task in range {
            let (b, first) = (task / blocks, task % blocks * rows);
            let len = rows.min(queries - first);
            // Keys behind the last query of a causal block are never looked at.
            let width = if causal { keys.min(first + len) } else { keys };
            let scores = buffer.view_with(
                Dims::from([len as i64, width as i64]),
                Dims::from([width as i64, 1]),
                0,
            );
            let (x, y) = (
                q.selected(0, b as i64)
                    .narrowed(0, first as i64, len as i64),
                k.selected(0, b as i64).narrowed(0, 0, width as i64),
            );
            matrix::product(
                &scores,
                &x,
                &y.swapped(0, 1),
                Scalar::Float(scale),
                Scalar::Int(0),
                None,
            )?;
            let mask = match mask {
                Some(m) => Some(copy::dense(
                    &m.selected(0, b as i64)
                        .narrowed(0, first as i64, len as i64)
                        .narrowed(1, 0, width as i64),
                    if m.dtype() == DType::Bool {
                        DType::Bool
                    } else {
                        d
                    },
                )?),
                None => None,
            };
            if d == DType::F32 {
                weigh32(&scores, mask.as_ref(), causal, first);
            } else {
                weigh64(&scores, mask.as_ref(), causal, first);
            }
            let to = out
                .selected(0, b as i64)
                .narrowed(0, first as i64, len as i64);
            matrix::product(
                &to,
                &scores,
                &v.selected(0, b as i64).narrowed(0, 0, width as i64),
                Scalar::Int(1),
                Scalar::Int(0),
                None,
            )?;
        }
        Ok(())
    };
    pool::parallel_for(batch * blocks, 1, |r| {
        if let (Err(e), Ok(mut slot)) = (run(r), failed.lock()) {
            *slot = Some(e);
        }
    });
    failed.into_inner().ok().flatten().map_or(Ok(()), Err)
}

simd_fn! { wide
    /// The largest element of each of 16 interleaved parts.
    fn largest(row: &[f32]) -> f32 {
        let mut lanes = [f32::NEG_INFINITY; 16];
        let chunks = row.chunks_exact(16);
        let rest = chunks.remainder();
        for c in chunks {
            for (l, &v) in lanes.iter_mut().zip(c) {
                *l = if v > *l { v } else { *l };
            }
        }
        lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |a, &b| if b > a { b } else { a })
    }
}

simd_fn! { wide
    /// `row = exp(row - top)`; the sum.
    fn exponentials(row: &mut [f32], top: f32) -> f32 {
        let mut lanes = [0f32; 16];
        let mut chunks = row.chunks_exact_mut(16);
        for c in &mut chunks {
            for (l, v) in lanes.iter_mut().zip(c) {
                *v = vmath::exp(*v - top);
                *l += *v;
            }
        }
        let mut sum: f32 = lanes.iter().sum();
        for v in chunks.into_remainder() {
            *v = vmath::exp(*v - top);
            sum += *v;
        }
        sum
    }
}

simd_fn! { wide
    fn scale_by(row: &mut [f32], by: f32) {
        for v in row {
            *v *= by;
        }
    }
}

/// Masked softmax over rows; a row without any finite score becomes zeros.
fn weigh32(scores: &Tensor, mask: Option<&Tensor>, causal: bool, first: usize) {
    let width = scores.shape()[1] as usize;
    if width == 0 {
        return;
    }
    for (i, row) in super::slice_mut::<f32>(scores)
        .chunks_exact_mut(width)
        .enumerate()
    {
        if causal {
            row[(first + i + 1).min(width)..].fill(f32::NEG_INFINITY);
        }
        if let Some(m) = mask {
            if m.dtype() == DType::Bool {
                let m = &super::truths(m)[i * width..(i + 1) * width];
                row.iter_mut()
                    .zip(m)
                    .for_each(|(v, &keep)| *v = if keep != 0 { *v } else { f32::NEG_INFINITY });
            } else {
                let m = &super::slice::<f32>(m)[i * width..(i + 1) * width];
                row.iter_mut().zip(m).for_each(|(v, &add)| *v += add);
            }
        }
        let top = largest(row);
        if top == f32::NEG_INFINITY && !row.iter().any(|v| v.is_nan()) {
            row.fill(0.0);
            continue;
        }
        let sum = exponentials(row, top);
        scale_by(row, 1.0 / sum);
    }
}

/// As [`weigh32`], in double precision.
fn weigh64(scores: &Tensor, mask: Option<&Tensor>, causal: bool, first: usize) {
    let width = scores.shape()[1] as usize;
    if width == 0 {
        return;
    }
    for (i, row) in super::slice_mut::<f64>(scores)
        .chunks_exact_mut(width)
        .enumerate()
    {
        if causal {
            row[(first + i + 1).min(width)..].fill(f64::NEG_INFINITY);
        }
        if let Some(m) = mask {
            if m.dtype() == DType::Bool {
                let m = &super::truths(m)[i * width..(i + 1) * width];
                row.iter_mut()
                    .zip(m)
                    .for_each(|(v, &keep)| *v = if keep != 0 { *v } else { f64::NEG_INFINITY });
            } else {
                let m = &super::slice::<f64>(m)[i * width..(i + 1) * width];
                row.iter_mut().zip(m).for_each(|(v, &add)| *v += add);
            }
        }
        let top = row
            .iter()
            .fold(f64::NEG_INFINITY, |a, &b| if b > a { b } else { a });
        if top == f64::NEG_INFINITY && !row.iter().any(|v| v.is_nan()) {
            row.fill(0.0);
            continue;
        }
        let mut sum = 0.0;
        for v in row.iter_mut() {
            *v = (*v - top).exp();
            sum += *v;
        }
        row.iter_mut().for_each(|v| *v /= sum);
    }
}
