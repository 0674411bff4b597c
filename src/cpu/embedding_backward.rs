//! Gradients of rows that were chosen by index: those of the same row are added.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::lines::Shared;
use super::math::RealFns;
use super::norm::{by_type, compute_type};
use super::room::Room;
use super::stored::Stored;
use super::{copy, past, pool, slice, slice_mut};
use crate::cpu::lanes::{Real, sum2_by};
use crate::{DType, Element, Result, Scalar, Tensor, err, with_dtype};
use std::collections::HashMap;

/// A row of the gradient that is added to a row of the result.
#[derive(Clone, Copy)]
struct Entry {
    row: usize,
    from: usize,
    factor: f64,
}

/// What the indices say.
pub struct Chosen<'a> {
    /// Row numbers; those that are none are passed over.
    pub indices: &'a Tensor,
    /// Rows are divided by how often they are chosen.
    pub by_frequency: bool,
    /// A row that gets nothing.
    pub padding: i64,
}

impl Chosen<'_> {
    /// The rows chosen of `rows`, without padding, each with its position among the indices and its share.
    fn entries(&self, rows: usize) -> Result<Vec<Entry>> {
        let indices = copy::dense(self.indices, DType::I64)?;
        let indices = slice::<i64>(&indices);
        let inside = |&i: &i64| usize::try_from(i).ok().filter(|&i| i < rows);
        let mut counts = HashMap::new();
        if self.by_frequency {
            indices
                .iter()
                .filter_map(inside)
                .for_each(|i| *counts.entry(i).or_insert(0u32) += 1);
        }
        let entry = |(from, i)| {
            let row = inside(i).filter(|_| *i != self.padding)?;
            let factor = counts.get(&row).map_or(1.0, |&n| 1.0 / f64::from(n));
            Some(Entry { row, from, factor })
        };
        Ok(indices.iter().enumerate().filter_map(entry).collect())
    }
}

/// The gradient of the rows of a matrix that were chosen: `g` has a row for each index.
///
/// # Errors
/// If memory cannot be had.
pub fn rows(out: &Tensor, g: &Tensor, chosen: &Chosen) -> Result<()> {
    let entries = chosen.entries(out.shape()[0] as usize)?;
    add(out, g, entries)
}

/// The entries of each row together, in their order.
fn grouped(mut entries: Vec<Entry>, rows: usize) -> Vec<Entry> {
    if rows > 4 * entries.len() {
        entries.sort_by_key(|e| e.row);
        return entries;
    }
    let mut places = vec![0usize; rows + 1];
    entries.iter().for_each(|e| places[e.row + 1] += 1);
    for row in 0..rows {
        places[row + 1] += places[row];
    }
    let mut out = entries.clone();
    for e in entries {
        out[places[e.row]] = e;
        places[e.row] += 1;
    }
    out
}

/// Adds rows of `g` to the rows of a fresh result.
fn add(out: &Tensor, g: &Tensor, entries: Vec<Entry>) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let (rows, width) = (out.shape()[0] as usize, out.shape()[1] as usize);
    let dense = super::lines::results(out, out.dtype())?;
    // Large results are cleared past the caches, others row by row.
    let cleared = past::suits(rows * width * out.dtype().size());
    if cleared {
        super::fill(&dense, Scalar::Int(0))?;
    }
    let entries = grouped(entries, rows);
    let g = copy::dense(g, compute_type(out.dtype()))?;
    with_dtype!(out.dtype(), [half float] => E, {
        let g = slice::<<E as Stored>::Wide>(&g);
        let zero = E::from_scalar(Scalar::Int(0));
        let to = Shared::new(slice_mut::<E>(&dense));
        pool::parallel_for(rows, (8192 / width).max(1), |range| {
            let mut next = entries.partition_point(|e| e.row < range.start);
            let mut room = Vec::new();
            for row in range {
                let first = next;
                next += entries[first..].iter().take_while(|e| e.row == row).count();
                if first == next && cleared {
                    continue;
                }
                // SAFETY: every row is written by one task.
                let to = unsafe { to.part(row * width, width) };
                if first == next {
                    to.fill(zero);
                    continue;
                }
                E::fill(to, &mut room, &mut |sum| {
                    sum.fill(RealFns::of(0.0));
                    for e in &entries[first..next] {
                        let row = &g[e.from * width..][..width];
                        add_row(row, RealFns::of(e.factor), sum);
                    }
                });
            }
        });
    }, else {});
    super::lines::put(out, &dense)
}

crate::cpu::simd::simd_fn! { wide
    fn add_row<T: Real>(g: &[T], factor: T, sum: &mut [T]) {
        for (s, &v) in sum.iter_mut().zip(g) {
            *s += v * factor;
        }
    }
}

/// What the forward pass of embedding_bag says of its bags.
pub struct Bags<'a> {
    /// The bag of each index.
    pub bag_of: Vec<usize>,
    /// How many rows each bag has joined.
    pub sizes: &'a Tensor,
    /// The rows that maxima come from.
    pub maxima: &'a Tensor,
    /// 0: sum, 1: mean, 2: maximum.
    pub mode: i64,
    /// A factor for each index.
    pub factors: Option<&'a Tensor>,
}

/// The bag of each of `n` indices: as it is, or from where each bag starts.
///
/// # Errors
/// If memory cannot be had.
pub fn bags_of(known: &Tensor, offsets: Option<&Tensor>, n: usize) -> Result<Vec<usize>> {
    if known.numel() as usize == n {
        let known = copy::dense(known, DType::I64)?;
        return Ok(slice::<i64>(&known)
            .iter()
            .map(|&b| b.max(0) as usize)
            .collect());
    }
    let mut bags = Vec::new();
    bags.try_reserve_exact(n)
        .map_err(|_| err!(Runtime, "not enough memory for the bags of {n} indices"))?;
    bags.resize(n, 0);
    if let Some(offsets) = offsets {
        let offsets = copy::dense(offsets, DType::I64)?;
        let offsets = slice::<i64>(&offsets);
        let place = |bag: usize| offsets.get(bag).map_or(n, |&o| (o.max(0) as usize).min(n));
        for bag in 0..offsets.len() {
            bags[place(bag)..place(bag + 1).max(place(bag))].fill(bag);
        }
    }
    Ok(bags)
}

/// What the gradient of chosen rows takes.
///
/// # Errors
/// If a size overflows.
pub fn rows_room(room: &mut Room, out: &Tensor, g: &Tensor, indices: &Tensor) -> Result<()> {
    room.within(|room| room.dense(indices, DType::I64).map(drop))?;
    if out.numel() == 0 {
        return Ok(());
    }
    room.dense(out, out.dtype())?;
    room.dense(g, compute_type(out.dtype())).map(drop)
}

/// What [`bags_of`] takes.
///
/// # Errors
/// If a size overflows.
pub fn bags_of_room(
    room: &mut Room,
    known: &Tensor,
    offsets: Option<&Tensor>,
    n: i64,
) -> Result<()> {
    let read = match known.numel() == n {
        true => Some(known),
        false => offsets,
    };
    room.within(|room| room.all_dense([read], DType::I64))
}

/// What [`bags`] takes.
///
/// # Errors
/// If a size overflows.
pub fn bags_room(
    room: &mut Room,
    out: &Tensor,
    g: &Tensor,
    indices: &Tensor,
    b: [&Tensor; 2],
    mode: i64,
    factors: Option<&Tensor>,
) -> Result<()> {
    let [sizes, maxima] = b;
    room.dense(sizes, DType::I64)?;
    if mode == 2 {
        let c = compute_type(out.dtype());
        room.dense(g, c)?;
        room.dense(maxima, DType::I64)?;
        return room.dense(out, c).map(drop);
    }
    room.all_dense([factors], DType::F64)?;
    rows_room(room, out, g, indices)
}

/// What [`factors`] takes.
///
/// # Errors
/// If a size overflows.
pub fn factors_room(
    room: &mut Room,
    out: &Tensor,
    [g, weight]: [&Tensor; 2],
    indices: &Tensor,
) -> Result<()> {
    let c = compute_type(out.dtype());
    room.all_dense([Some(g), Some(weight)], c)?;
    room.within(|room| room.dense(indices, DType::I64).map(drop))?;
    room.dense(out, c).map(drop)
}

/// The gradient of the rows that bags have joined; `g` has a row for each bag.
///
/// # Errors
/// If memory cannot be had.
pub fn bags(out: &Tensor, g: &Tensor, chosen: &Chosen, b: &Bags) -> Result<()> {
    let sizes = copy::dense(b.sizes, DType::I64)?;
    let sizes = slice::<i64>(&sizes);
    if b.mode == 2 {
        return maxima(out, g, b.maxima, sizes);
    }
    let factors = b.factors.map(|f| copy::dense(f, DType::F64)).transpose()?;
    let factors = factors.as_ref().map(slice::<f64>);
    let mut entries = chosen.entries(out.shape()[0] as usize)?;
    let bags = g.shape()[0] as usize;
    entries.retain(|e| b.bag_of[e.from] < bags);
    for e in &mut entries {
        let bag = b.bag_of[e.from];
        e.factor *= factors.map_or(1.0, |f| f[e.from]);
        if b.mode == 1
            && let Some(&n) = sizes.get(bag)
            && n != 0
        {
            e.factor /= n as f64;
        }
        e.from = bag;
    }
    add(out, g, entries)
}

/// The gradient of maxima: each goes to the element that it comes from.
fn maxima(out: &Tensor, g: &Tensor, from: &Tensor, sizes: &[i64]) -> Result<()> {
    let (rows, width) = (out.shape()[0], out.shape()[1] as usize);
    let c = compute_type(out.dtype());
    let (g, from) = (copy::dense(g, c)?, copy::dense(from, DType::I64)?);
    let result = super::lines::results(out, c)?;
    super::fill(&result, Scalar::Int(0))?;
    by_type!(c, T => {
        let (g, to) = (slice::<T>(&g), slice_mut::<T>(&result));
        for (i, (&row, &v)) in slice::<i64>(&from).iter().zip(g).enumerate() {
            let joined = sizes.get(i / width).is_some_and(|&n| n != 0);
            if joined && (0..rows).contains(&row) {
                to[row as usize * width + i % width] += v;
            }
        }
    });
    super::lines::put(out, &result)
}

/// The gradient of the factors: products of each index's row with the gradient of its bag.
///
/// # Errors
/// If memory cannot be had.
pub fn factors(
    out: &Tensor,
    g: &Tensor,
    weight: &Tensor,
    chosen: &Chosen,
    bag_of: &[usize],
) -> Result<()> {
    let c = compute_type(out.dtype());
    let width = weight.shape()[1] as usize;
    let bags = g.shape()[0] as usize;
    let (g, w) = (copy::dense(g, c)?, copy::dense(weight, c)?);
    let mut entries = chosen.entries(weight.shape()[0] as usize)?;
    entries.retain(|e| bag_of[e.from] < bags);
    let result = super::lines::results(out, c)?;
    super::fill(&result, Scalar::Int(0))?;
    by_type!(c, T => {
        let (g, w) = (slice::<T>(&g), slice::<T>(&w));
        let to = Shared::new(slice_mut::<T>(&result));
        pool::parallel_for(entries.len(), (8192 / width.max(1)).max(1), |range| {
            for e in &entries[range] {
                // SAFETY: every index has its own place.
                let to = unsafe { to.part(e.from, 1) };
                to[0] = product(&w[e.row * width..][..width], &g[bag_of[e.from] * width..][..width]);
            }
        });
    });
    super::lines::put(out, &result)
}

crate::cpu::simd::simd_fn! { wide
    fn product<T: Real>(x: &[T], y: &[T]) -> T {
        sum2_by(x, y, |x, y| x * y)
    }
}
