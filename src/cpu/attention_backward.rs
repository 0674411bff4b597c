//! Attention over heads, and its backward: the weights of a block of queries are made again from their logarithmic sums, so that the whole
//! matrix of scores never exists.

use super::attention::{Inputs, Real, SCORES, Shapes, add_mask, attention, grain, share_heads};
use super::room::{Rooms, dense_in};
use super::{copy, matrix, slice, slice_mut};
use crate::cpu::simd::simd_fn;
use crate::{DType, Device, Dims, Result, Scalar, Tensor, dims};

/// What the backward pass reads besides the inputs. Everything has the dimensions batch, head, row and column; heads of
/// keys and values serve several heads of queries each.
pub struct Known<'a> {
    /// The gradient of the result.
    pub grad: &'a Tensor,
    /// The result.
    pub out: &'a Tensor,
    /// The logarithm of the sum of exponentials, for each query.
    pub sums: &'a Tensor,
}

simd_fn! { wide
    /// Scores become weights, and the weights' gradients those of the scores.
    fn weigh<T: Real>(scores: &mut [T], grads: &mut [T], sum: T, mean: T, scale: T) {
        for (s, g) in scores.iter_mut().zip(grads) {
            let weight = (*s - sum).exp();
            *g = weight * (*g - mean) * scale;
            *s = weight;
        }
    }
}

/// A tensor with its heads in groups of `each`.
fn grouped(t: &Tensor, each: i64) -> Tensor {
    let (s, st) = (t.shape(), t.strides());
    let shape = Dims::from([s[0], s[1] / each, each]).concat(&s[2..]);
    let strides = Dims::from([st[0], st[1] * each, st[1]]).concat(&st[2..]);
    t.view_with(shape, strides, t.offset())
}

/// The attention and its logarithmic sums into `outs`; queries that share a head of keys are a dimension of their own.
///
/// # Errors
/// If memory cannot be had.
pub fn forward(outs: &[Tensor], i: &Inputs, s: Shapes) -> Result<()> {
    with_groups(&outs[0], Some(&outs[1]), i, s, attention)
}

/// The attention alone into `out`.
///
/// # Errors
/// If memory cannot be had.
pub fn alone(out: &Tensor, i: &Inputs, s: &Shapes) -> Result<()> {
    if share_heads(i.query, i.key, i.value) {
        return with_groups(out, None, i, s.clone(), attention);
    }
    attention(out, None, i, s)
}

/// Runs `f` on the results, the inputs and their shapes with heads of queries in groups that share a head of keys.
pub(super) fn with_groups(
    out: &Tensor,
    sums: Option<&Tensor>,
    i: &Inputs,
    s: Shapes,
    f: impl FnOnce(&Tensor, Option<&Tensor>, &Inputs, &Shapes) -> Result<()>,
) -> Result<()> {
    let (heads, keys) = (i.query.shape()[1], i.key.shape()[1]);
    let each = heads.checked_div(keys).unwrap_or(1).max(1);
    let scores = s.batch.concat(&[s.queries, s.keys]);
    let mask = i.mask.map(|m| grouped(&m.expand_to(&scores), each));
    let mut query = grouped(i.query, each);
    let (mut out, mut sums) = (grouped(out, each), sums.map(|t| grouped(t, each)));
    let mut queries = s.queries;
    if mask.is_none() && !i.causal {
        // Where every query sees every key, those of all heads of a group are rows of one product.
        let kept = sums.as_ref().map(as_one_head);
        let kept = kept.map_or(Some(None), |t| t.map(Some));
        if let (Some(q), Some(o), Some(k)) = (as_one_head(&query), as_one_head(&out), kept) {
            (query, out, sums, queries) = (q, o, k, queries * each);
        }
    }
    let shapes = Shapes {
        batch: Dims::new(&query.shape()[..3]),
        queries,
        ..s
    };
    let inputs = Inputs {
        query: &query,
        key: &grouped(i.key, 1),
        value: &grouped(i.value, 1),
        mask: mask.as_ref(),
        ..*i
    };
    f(&out, sums.as_ref(), &inputs, &shapes)
}

/// A tensor whose dimensions 2 and 3, heads of a group and their rows, are the rows of one head, if they can be that.
fn as_one_head(t: &Tensor) -> Option<Tensor> {
    let s = t.shape();
    let to = Dims::from([s[0], s[1], 1, s[2] * s[3]]).concat(&s[4..]);
    let strides = dims::view_strides(s, t.strides(), &to)?;
    Some(t.view_with(to, strides, t.offset()))
}

/// The gradients of query, key and value into `outs`.
///
/// # Errors
/// If memory cannot be had.
pub fn backward(outs: &[Tensor], known: &Known, i: &Inputs, s: &Shapes) -> Result<()> {
    let wide = if i.query.dtype() == DType::F64 {
        DType::F64
    } else {
        DType::F32
    };
    let widened = |t: &Tensor| {
        if t.dtype() == wide {
            Ok(t.clone())
        } else {
            copy::converted(t, wide)
        }
    };
    let sums = outs.iter().map(|o| {
        let sum = if o.dtype() == wide {
            o.clone()
        } else {
            let (shape, strides) = (o.shape().clone(), o.strides().clone());
            Tensor::empty_strided(shape, strides, wide, Device::CPU)?
        };
        super::fill(&sum, Scalar::Int(0))?;
        Ok(sum)
    });
    let grads: Vec<Tensor> = sums.collect::<Result<_>>()?;
    let mask = match i.mask {
        Some(m) => Some(widened(m)?.expand_to(&s.batch.concat(&[s.queries, s.keys]))),
        None => None,
    };
    let work = Work {
        grads: &grads,
        grad: widened(known.grad)?,
        out: widened(known.out)?,
        sums: widened(known.sums)?,
        query: widened(i.query)?,
        key: widened(i.key)?,
        value: widened(i.value)?,
        mask,
        causal: i.causal,
        scale: i.scale,
    };
    let heads = i.key.shape()[1] as usize;
    let tasks = s.batch[0] as usize * heads;
    let tasks = if i.query.numel() * s.keys == 0 {
        0
    } else {
        tasks
    };
    let rooms = Rooms::new(tasks, || work.buffers())?;
    let products = (i.query.numel() + known.grad.numel()) * s.keys / tasks.max(1) as i64;
    rooms.run(tasks, grain(products as usize), |task, buffers| {
        let (batch, head) = ((task / heads) as i64, (task % heads) as i64);
        if wide == DType::F32 {
            work.head::<f32>(batch, head, buffers)
        } else {
            work.head::<f64>(batch, head, buffers)
        }
    })?;
    for (out, sum) in outs.iter().zip(&grads) {
        if !out.shares_storage(sum) {
            copy::copy(out, sum)?;
        }
    }
    Ok(())
}

/// The operands in the precision of the sums.
struct Work<'a> {
    grads: &'a [Tensor],
    grad: Tensor,
    out: Tensor,
    sums: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Option<Tensor>,
    causal: bool,
    scale: f64,
}

/// The matrix of one head.
fn matrix_of(t: &Tensor, batch: i64, head: i64) -> Tensor {
    t.selected(0, batch).selected(0, head)
}

/// What a task works in: scores, their gradients, and copies of what does not lie row-major: the mask, the gradient, the result
/// and the sums of a block.
struct Buffers {
    scores: [Tensor; 2],
    copies: [Option<Tensor>; 4],
}

impl Work<'_> {
    /// Queries of a block.
    fn rows(&self) -> usize {
        let (queries, keys) = (self.query.shape()[2] as usize, self.key.shape()[2] as usize);
        (SCORES / keys.max(1)).clamp(16, 128).min(queries)
    }

    fn buffers(&self) -> Result<Buffers> {
        let (rows, keys) = (self.rows() as i64, self.key.shape()[2]);
        let room = |n: i64| Tensor::empty(&[n], self.query.dtype(), Device::CPU);
        let copy = |t: Option<&Tensor>, always: bool| -> Result<Option<Tensor>> {
            let part = t.map(|t| matrix_of(t, 0, 0).narrowed(0, 0, rows));
            let part = part.filter(|p| always || !p.is_contiguous());
            part.map(|p| room(p.numel())).transpose()
        };
        Ok(Buffers {
            scores: [room(rows * keys)?, room(rows * keys)?],
            copies: [
                // Where queries see only the keys before them, blocks are narrower than the mask.
                copy(self.mask.as_ref(), self.causal)?,
                copy(Some(&self.grad), false)?,
                copy(Some(&self.out), false)?,
                copy(Some(&self.sums), false)?,
            ],
        })
    }

    /// All queries that look at one head of keys.
    fn head<T: Real>(&self, batch: i64, head: i64, buffers: &Buffers) -> Result<()> {
        let (queries, keys) = (self.query.shape()[2] as usize, self.key.shape()[2] as usize);
        let each = self.query.shape()[1] / self.key.shape()[1];
        let rows = self.rows();
        for q in head * each..(head + 1) * each {
            for first in (0..queries).step_by(rows) {
                let len = rows.min(queries - first);
                let width = if self.causal {
                    keys.min(first + len)
                } else {
                    keys
                };
                let block = Block {
                    batch,
                    head: q,
                    keys: head,
                    first: first as i64,
                    len: len as i64,
                    width: width as i64,
                };
                self.block::<T>(&block, buffers)?;
            }
        }
        Ok(())
    }

    fn block<T: Real>(&self, b: &Block, buffers: &Buffers) -> Result<()> {
        let [scores, grads] = buffers.scores.each_ref().map(|t| {
            let shape = Dims::from([b.len, b.width]);
            t.view_with(shape, Dims::from([b.width, 1]), 0)
        });
        let part = |t: &Tensor| matrix_of(t, b.batch, b.head).narrowed(0, b.first, b.len);
        let seen = |t: &Tensor| matrix_of(t, b.batch, b.keys).narrowed(0, 0, b.width);
        let (query, grad) = (part(&self.query), part(&self.grad));
        let (key, value) = (seen(&self.key), seen(&self.value));
        let (one, none) = (Scalar::Int(1), Scalar::Int(0));
        let scale = Scalar::Float(self.scale);
        matrix::product(&scores, &query, &key.swapped(0, 1), scale, none, None)?;
        matrix::product(&grads, &grad, &value.swapped(0, 1), one, none, None)?;
        if let Some(mask) = &self.mask {
            let mask = part(mask).narrowed(1, 0, b.width);
            add_mask(
                slice_mut::<T>(&scores),
                &dense_in(&mask, buffers.copies[0].as_ref())?,
                0,
            );
        }
        self.weigh::<T>(b, [&scores, &grads, &grad], buffers)?;
        let [to_query, to_key, to_value] = [
            part(&self.grads[0]),
            seen(&self.grads[1]),
            seen(&self.grads[2]),
        ];
        matrix::product(&to_query, &grads, &key, one, none, None)?;
        matrix::product(&to_key, &grads.swapped(0, 1), &query, one, one, None)?;
        matrix::product(&to_value, &scores.swapped(0, 1), &grad, one, one, None)
    }

    /// Makes the weights of a block, and the gradients of its scores.
    fn weigh<T: Real>(
        &self,
        b: &Block,
        [scores, grads, grad]: [&Tensor; 3],
        buffers: &Buffers,
    ) -> Result<()> {
        let [_, for_grad, for_out, for_sums] = buffers.copies.each_ref().map(Option::as_ref);
        let out = matrix_of(&self.out, b.batch, b.head).narrowed(0, b.first, b.len);
        let (grad, out) = (dense_in(grad, for_grad)?, dense_in(&out, for_out)?);
        let sums = self
            .sums
            .selected(0, b.batch)
            .selected(0, b.head)
            .narrowed(0, b.first, b.len);
        let sums = dense_in(&sums, for_sums)?;
        let (width, columns) = (b.width as usize, grad.shape()[1] as usize);
        let (weights, changes) = (slice_mut::<T>(scores), slice_mut::<T>(grads));
        let (grads, results) = (slice::<T>(&grad), slice::<T>(&out));
        let rows = weights
            .chunks_exact_mut(width)
            .zip(changes.chunks_exact_mut(width));
        let scale = T::of(self.scale);
        for (i, (row, change)) in rows.enumerate() {
            let columns = i * columns..(i + 1) * columns;
            let mean = dot(&grads[columns.clone()], &results[columns]);
            let visible = if self.causal {
                (b.first as usize + i + 1).min(width)
            } else {
                width
            };
            weigh::<T>(
                &mut row[..visible],
                &mut change[..visible],
                slice::<T>(&sums)[i],
                mean,
                scale,
            );
            row[visible..].fill(T::default());
            change[visible..].fill(T::default());
        }
        Ok(())
    }
}

/// Some queries of one head and the keys that they look at.
struct Block {
    batch: i64,
    head: i64,
    keys: i64,
    first: i64,
    len: i64,
    width: i64,
}

/// The product of two rows.
fn dot<T: Real>(a: &[T], b: &[T]) -> T {
    let products = a.iter().zip(b).map(|(&a, &b)| (a * b).wide());
    T::of(products.sum())
}
