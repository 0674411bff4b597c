//! Attention: a block of queries at a time against all keys, scores kept in the cache.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::gemm::GemmElement;
use super::lanes::across;
use super::lines::Shared;
use super::matrix::{Part, product_of_parts};
use super::room::{Rooms, dense_in};
use super::{attention_tiles, copy, slice, slice_mut, view, vmath, vmath64};
use crate::cpu::simd::simd_fn;
use crate::{DType, Device, Dims, Element, Result, Scalar, Tensor, dims};
use std::ops::{Add, Div, Mul, Sub};

/// How many tasks of so many products are done by the time others could begin to help.
pub(super) fn grain(products: usize) -> usize {
    32 * 1024 / products.max(1)
}

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
reals! { f32, vmath::exp; f64, vmath64::exp; }

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

/// Whether heads of queries share those of keys and values: fewer, in batches of four dimensions.
#[must_use]
pub fn share_heads(query: &Tensor, key: &Tensor, value: &Tensor) -> bool {
    let four = [query, key, value].iter().all(|t| t.ndim() == 4);
    let heads = |t: &Tensor| t.shape()[1];
    four && key.shape()[..2] == value.shape()[..2]
        && query.shape()[0] == key.shape()[0]
        && (1..heads(query)).contains(&heads(key))
        && heads(query) % heads(key) == 0
}

/// The sizes of an attention.
#[derive(Clone)]
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
    /// `t` expanded as `[batch..., rows, columns]`, in a type.
    fn spread(&self, t: &Tensor, rows: i64, columns: i64, d: DType) -> Result<Tensor> {
        let whole = self.batch.concat(&[rows, columns]);
        if t.dtype() == d {
            return Ok(t.expand_to(&whole));
        }
        Ok(copy::converted(t, d)?.expand_to(&whole))
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
    let on_tiles = attention_tiles::suits(i, s);
    let operands = if on_tiles {
        None
    } else {
        Some([
            s.spread(i.query, s.queries, s.width, wide)?,
            s.spread(i.key, s.keys, s.width, wide)?,
            s.spread(i.value, s.keys, s.values, wide)?,
        ])
    };
    let mask = match i.mask {
        Some(m) if m.dtype() == DType::Bool => Some(s.spread(m, s.queries, s.keys, DType::Bool)?),
        Some(m) => Some(s.spread(m, s.queries, s.keys, wide)?),
        None => None,
    };
    let kept = match sums {
        Some(t) => Some(Tensor::empty(t.shape(), wide, Device::CPU)?),
        None => None,
    };
    let fill = |out: &Tensor| {
        let (mask, kept) = (mask.as_ref(), kept.as_ref());
        match &operands {
            None => attention_tiles::attention(out, kept, i, s, mask)?,
            Some(all) if wide == DType::F64 => {
                batches::<f64>(out, kept, all.each_ref(), mask, i.causal, i.scale)?;
            }
            Some(all) => batches::<f32>(out, kept, all.each_ref(), mask, i.causal, i.scale)?,
        }
        match (sums, kept) {
            (Some(sums), Some(kept)) => copy::copy(sums, kept),
            _ => Ok(()),
        }
    };
    if on_tiles || out.dtype() == wide {
        return fill(out);
    }
    let sum = Tensor::empty(out.shape(), wide, Device::CPU)?;
    fill(&sum)?;
    copy::copy(out, &sum)
}

/// Attention for `q`, `k`, `v` and a mask that have the same leading dimensions.
fn batches<T: Real + GemmElement<Scale = T>>(
    out: &Tensor,
    sums: Option<&Tensor>,
    [q, k, v]: [&Tensor; 3],
    mask: Option<&Tensor>,
    causal: bool,
    scale: f64,
) -> Result<()> {
    let (lead, sizes) = q.shape().split_at(q.ndim() - 2);
    let (queries, columns) = (sizes[0] as usize, sizes[1] as usize);
    let [keys, values] = [0, 1].map(|d| v.shape()[v.ndim() - 2 + d] as usize);
    let batch = dims::numel(lead)? as usize;
    let rows = (SCORES / keys.max(1)).clamp(16, 128).min(queries.max(1));
    let blocks = queries.div_ceil(rows);
    let part =
        mask.and_then(|m| (batch > 0).then(|| view::matrix(m, 0).narrowed(0, 0, rows as i64)));
    // Where queries see only the keys before them, blocks are narrower than the mask.
    let part = part.filter(|p| causal || !p.is_contiguous());
    let rooms = Rooms::new(batch * blocks, || {
        let scores = Tensor::empty(&[(rows * keys) as i64], T::DTYPE, Device::CPU)?;
        let mask = part
            .as_ref()
            .map(|p| Tensor::empty(p.shape(), p.dtype(), Device::CPU));
        Ok((scores, mask.transpose()?))
    })?;
    let sums = sums.map(|t| Shared::new(slice_mut::<T>(t)));
    let run = |task: usize, (buffer, mask_room): &(Tensor, Option<Tensor>)| -> Result<()> {
        let (b, first) = (task / blocks, task % blocks * rows);
        let len = rows.min(queries - first);
        // Keys behind the last query of a causal block are never looked at.
        let width = if causal { keys.min(first + len) } else { keys };
        let scores = Part::first(buffer, len, width);
        let some = first..first + len;
        let (x, y) = (
            Part::of(q, b, some.clone(), columns),
            Part::of(k, b, 0..width, columns),
        );
        product_of_parts::<T>(scores, x, y.turned(), T::of(scale));
        let weights = &mut slice_mut::<T>(buffer)[..len * width];
        if let Some(m) = mask {
            let part = view::matrix(m, b);
            let part = part.narrowed(0, first as i64, len as i64);
            let part = part.narrowed(1, 0, width as i64);
            add_mask(weights, &dense_in(&part, mask_room.as_ref())?, 0);
        }
        // SAFETY: every task has its own rows.
        let kept = sums.map(|s| unsafe { s.part(b * queries + first, len) });
        weigh(weights, width, causal, first, kept);
        let (to, v) = (
            Part::of(out, b, some, values),
            Part::of(v, b, 0..width, values),
        );
        product_of_parts::<T>(to, scores, v, T::of(1.0));
        Ok(())
    };
    let products = rows * keys * (columns + values);
    rooms.run(batch * blocks, grain(products), run)
}

simd_fn! { wide
    /// The largest element; several vectors of parts, as comparisons wait for each other.
    fn largest<T: Real>(row: &[T]) -> T {
        let mut lanes = [T::LEAST; 64];
        let chunks = row.chunks_exact(64);
        let rest = chunks.remainder();
        for c in chunks {
            for i in 0..64 {
                lanes[i] = if c[i] > lanes[i] { c[i] } else { lanes[i] };
            }
        }
        let top = across(lanes, |a, b| if b > a { b } else { a });
        rest.iter().fold(top, |a, &b| if b > a { b } else { a })
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
        let mut sum = across(lanes, |a, b| a + b);
        for v in chunks.into_remainder() {
            *v = (*v - top).exp();
            sum = sum + *v;
        }
        sum
    }
}

simd_fn! { wide
    /// `row = by row`.
    pub(super) fn scale_by<T: Real>(row: &mut [T], by: T) {
        for v in row {
            *v = *v * by;
        }
    }
}

/// Adds numbers of a mask, from element `from` on, to scores, or hides them where a mask of truth values is false; the mask is
/// dense.
pub fn add_mask<T: Real>(scores: &mut [T], mask: &Tensor, from: usize) {
    if mask.dtype() == DType::Bool {
        let keep = scores.iter_mut().zip(&super::truths(mask)[from..]);
        keep.for_each(|(v, &keep)| *v = if keep != 0 { *v } else { T::LEAST });
    } else {
        let both = scores.iter_mut().zip(&slice::<T>(mask)[from..]);
        both.for_each(|(v, &add)| *v = *v + add);
    }
}

/// Softmax over rows of so many scores, of queries from `first` on; a row without any finite score becomes zeros. `sums` takes
/// the logarithms of the sums of exponentials, 0 for such rows.
fn weigh<T: Real>(
    scores: &mut [T],
    width: usize,
    causal: bool,
    first: usize,
    mut sums: Option<&mut [T]>,
) {
    if width == 0 {
        return;
    }
    for (i, row) in scores.chunks_exact_mut(width).enumerate() {
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
