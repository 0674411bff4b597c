//! Attention: a block of queries at a time against all keys, scores kept in the cache.

use super::room::{Rooms, dense_in};
use super::{copy, matrix, pool, slice, slice_mut, vmath};
use crate::cpu::simd::simd_fn;
use crate::{DType, Device, Dims, Element, Result, Scalar, Tensor, dims};
use std::ops::{Add, Div, Mul, Sub};

/// Scores held at a time.
pub const SCORES: usize = 96 * 1024;

/// Real numbers with exponentials and logarithms.
pub trait Real:
    Element
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
{
    /// Below all numbers.
    const LEAST: Self;
    /// The nearest number of the type.
    fn of(v: f64) -> Self;
    /// In double precision.
    fn wide(self) -> f64;
    /// The exponential.
    fn exp(self) -> Self;
    /// The logarithm.
    fn ln(self) -> Self;
    /// True for no number.
    fn is_nan(self) -> bool;
}

macro_rules! reals {
    ($($t:ident, $exp:path;)+) => {$(
        impl Real for $t {
            const LEAST: Self = $t::NEG_INFINITY;
            #[inline(always)]
            fn of(v: f64) -> Self {
                v as $t
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn exp(self) -> Self {
                $exp(self)
            }
            #[inline(always)]
            fn ln(self) -> Self {
                self.ln()
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                self.is_nan()
            }
        }
    )+};
}
reals! { f32, vmath::exp; f64, f64::exp; }

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

/// `softmax(scale q k' + mask) v` into `out`, which has the shape `[batch..., queries, values]`. `sums` `[batch..., queries]`
/// takes the logarithms of the sums of exponentials.
///
/// # Errors
/// If memory cannot be had.
pub fn attention(out: &Tensor, sums: Option<&Tensor>, i: &Inputs, s: &Shapes) -> Result<()> {
    if s.keys == 0 {
        sums.map_or(Ok(()), |t| super::fill(t, Scalar::Int(0)))?;
        return super::fill(out, Scalar::Int(0));
    }
    if out.numel() == 0 && sums.is_none_or(|t| t.numel() == 0) {
        return Ok(());
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
    let flat_sums = match sums {
        Some(_) => Some(Tensor::empty(&to[..2], wide, Device::CPU)?),
        None => None,
    };
    let fill = |out: &Tensor| {
        let (mask, kept) = (mask.as_ref(), flat_sums.as_ref());
        batches(out, kept, [&q, &k, &v], mask, i.causal, i.scale)?;
        match (sums, kept) {
            (Some(sums), Some(kept)) => {
                let strides = dims::contiguous_strides(sums.shape());
                copy::copy(sums, &kept.view_with(sums.shape().clone(), strides, 0))
            }
            _ => Ok(()),
        }
    };
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
    sums: Option<&Tensor>,
    [q, k, v]: [&Tensor; 3],
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
    let part =
        mask.and_then(|m| (m.shape()[0] > 0).then(|| m.selected(0, 0).narrowed(0, 0, rows as i64)));
    // Where queries see only the keys before them, blocks are narrower than the mask.
    let part = part.filter(|p| causal || !p.is_contiguous());
    let rooms = Rooms::new(batch * blocks, || {
        let scores = Tensor::empty(&[(rows * keys) as i64], d, Device::CPU)?;
        let mask = part
            .as_ref()
            .map(|p| Tensor::empty(p.shape(), p.dtype(), Device::CPU));
        Ok((scores, mask.transpose()?))
    })?;
    let run = |range: std::ops::Range<usize>,
               (buffer, mask_room): &(Tensor, Option<Tensor>)|
     -> Result<()> {
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
                Some(m) => {
                    let part = m.selected(0, b as i64);
                    let part = part.narrowed(0, first as i64, len as i64);
                    Some(dense_in(
                        &part.narrowed(1, 0, width as i64),
                        mask_room.as_ref(),
                    )?)
                }
                None => None,
            };
            let kept = sums.map(|t| {
                t.selected(0, b as i64)
                    .narrowed(0, first as i64, len as i64)
            });
            if d == DType::F32 {
                let kept = kept.as_ref().map(slice_mut::<f32>);
                weigh::<f32>(&scores, mask.as_ref(), causal, first, kept);
            } else {
                let kept = kept.as_ref().map(slice_mut::<f64>);
                weigh::<f64>(&scores, mask.as_ref(), causal, first, kept);
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
        if let (Err(e), Ok(mut slot)) = (rooms.with(|room| run(r, room)), failed.lock()) {
            *slot = Some(e);
        }
    });
    failed.into_inner().ok().flatten().map_or(Ok(()), Err)
}

simd_fn! { wide
    /// The largest element of each of 16 interleaved parts.
    fn largest<T: Real>(row: &[T]) -> T {
        let mut lanes = [T::LEAST; 16];
        let chunks = row.chunks_exact(16);
        let rest = chunks.remainder();
        for c in chunks {
            for i in 0..16 {
                lanes[i] = if c[i] > lanes[i] { c[i] } else { lanes[i] };
            }
        }
        lanes.iter().chain(rest).fold(T::LEAST, |a, &b| if b > a { b } else { a })
    }
}

simd_fn! { wide
    /// `row = exp(row - top)`; the sum.
    fn exponentials<T: Real>(row: &mut [T], top: T) -> T {
        let mut lanes = [T::default(); 16];
        let mut chunks = row.chunks_exact_mut(16);
        for c in &mut chunks {
            for i in 0..16 {
                c[i] = (c[i] - top).exp();
                lanes[i] = lanes[i] + c[i];
            }
        }
        let mut sum = lanes.iter().fold(T::default(), |a, &b| a + b);
        for v in chunks.into_remainder() {
            *v = (*v - top).exp();
            sum = sum + *v;
        }
        sum
    }
}

simd_fn! { wide
    fn scale_by<T: Real>(row: &mut [T], by: T) {
        for v in row {
            *v = *v * by;
        }
    }
}

/// Adds a mask of numbers to scores, or hides them where a mask of truth values is false; both are dense.
pub fn add_mask<T: Real>(scores: &Tensor, mask: &Tensor) {
    let scores = slice_mut::<T>(scores);
    if mask.dtype() == DType::Bool {
        let keep = scores.iter_mut().zip(super::truths(mask));
        keep.for_each(|(v, &keep)| *v = if keep != 0 { *v } else { T::LEAST });
    } else {
        let both = scores.iter_mut().zip(slice::<T>(mask));
        both.for_each(|(v, &add)| *v = *v + add);
    }
}

/// Masked softmax over rows, of queries from `first` on; a row without any finite score becomes zeros. `sums` takes the
/// logarithms of the sums of exponentials, 0 for such rows.
fn weigh<T: Real>(
    scores: &Tensor,
    mask: Option<&Tensor>,
    causal: bool,
    first: usize,
    mut sums: Option<&mut [T]>,
) {
    let width = scores.shape()[1] as usize;
    if width == 0 {
        return;
    }
    if let Some(mask) = mask {
        add_mask::<T>(scores, mask);
    }
    for (i, row) in slice_mut::<T>(scores).chunks_exact_mut(width).enumerate() {
        if causal {
            row[(first + i + 1).min(width)..].fill(T::LEAST);
        }
        let top = largest::<T>(row);
        let hidden = top == T::LEAST && !row.iter().any(|v| v.is_nan());
        let sum = if hidden {
            row.fill(T::default());
            T::default()
        } else {
            let sum = exponentials::<T>(row, top);
            scale_by::<T>(row, T::of(1.0) / sum);
            top + sum.ln()
        };
        if let Some(sums) = &mut sums {
            sums[i] = sum;
        }
    }
}
