//! Padding.

use super::adjoint::Adjoint;
use super::room::Room;
use super::{copy, index, lines};
use crate::{DType, Dims, Result, Scalar, Tensor, dims};
use smallvec::SmallVec;

/// Copies `t`, cut where pads are negative, into the middle of `out`, and `value` around it. Pads come in pairs from the
/// last dimension.
///
/// # Errors
/// If there is no conversion.
pub fn constant(out: &Tensor, t: &Tensor, pad: &[i64], value: Scalar) -> Result<()> {
    if pad.iter().any(|&p| p > 0) {
        super::fill(out, value)?;
    }
    let inverse: Dims = pad.iter().map(|p| -p).collect();
    let (inner, rest) = (cut(out, &inverse), cut(t, pad));
    if inner.numel() == 0 {
        return Ok(());
    }
    copy::copy(&inner, &rest)
}

/// What negative pads leave.
fn cut(t: &Tensor, pad: &[i64]) -> Tensor {
    let mut out = t.clone();
    for (k, pair) in pad.chunks(2).enumerate() {
        let d = t.ndim() - 1 - k;
        let (left, right) = (-pair[0].min(0), -pair[1].min(0));
        out = out.narrowed(d, left, out.shape()[d] - left - right);
    }
    out
}

/// The order of dimensions in which a tensor lies, the outermost first.
fn order(t: &Tensor) -> SmallVec<[usize; 8]> {
    let mut order: SmallVec<[usize; 8]> = (0..t.ndim()).collect();
    order.sort_by_key(|&d| std::cmp::Reverse(t.strides()[d]));
    order
}

/// Where the places of a padded dimension come from: those of a run, the longest part of most, from neighbours.
#[derive(Debug)]
pub struct Table {
    /// Of the places before the run.
    pub before: Vec<usize>,
    /// Of the run's first place.
    pub first: usize,
    /// How long it is.
    pub run: usize,
    /// Of the places behind it.
    pub after: Vec<usize>,
}

impl Table {
    /// Of a dimension whose size becomes another, padded on the left and on the right by a mode.
    #[must_use]
    pub fn of(mode: &str, [size, out]: [i64; 2], [left, right]: [i64; 2]) -> Self {
        // Only what negative pads leave goes round.
        let ring = (out - left.max(0) - right.max(0)).max(1);
        let of = |j: i64| {
            let x = j - left;
            let x = match mode {
                "reflect" if x < 0 => -x,
                "reflect" if x >= size => 2 * (size - 1) - x,
                "circular" => (-left).max(0) + (j - left.max(0)).rem_euclid(ring),
                _ => x,
            };
            x.clamp(0, (size - 1).max(0)) as usize
        };
        let start = left.clamp(0, out);
        let end = (out - right.max(0)).clamp(start, out);
        Self {
            before: (0..start).map(of).collect(),
            first: (start - left).max(0) as usize,
            run: (end - start) as usize,
            after: (end..out).map(of).collect(),
        }
    }

    /// Of one place.
    #[must_use]
    pub fn at(&self, i: usize) -> usize {
        match i.checked_sub(self.before.len()) {
            None => self.before[i],
            Some(i) if i < self.run => self.first + i,
            Some(i) => self.after[i - self.run],
        }
    }

    /// Of each.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let run = self.first..self.first + self.run;
        let ends = [&self.before, &self.after].map(|part| part.iter().copied());
        let [before, after] = ends;
        before.chain(run).chain(after)
    }
}

/// Tables in another order of dimensions.
fn ordered<'a>(tables: &'a [Option<Table>], order: &[usize]) -> SmallVec<[Option<&'a Table>; 8]> {
    order.iter().map(|&d| tables[d].as_ref()).collect()
}

/// Fills `out` from `t`: along each dimension with a table, element `i` comes from `table[i]`.
///
/// # Errors
/// If memory cannot be had.
pub fn from_tables(out: &Tensor, t: &Tensor, tables: &[Option<Table>]) -> Result<()> {
    let order = order(out);
    let (moved, tables) = (out.permuted(&order), ordered(tables, &order));
    let src = copy::dense(&t.permuted(&order), t.dtype())?;
    let dst = lines::results(&moved, out.dtype())?;
    index::pick_grid(&dst, &src, &tables);
    lines::put(&moved, &dst)
}

/// The gradient of [`from_tables`]: each element of `out` is the sum of those of `grad` that it went to.
///
/// # Errors
/// If memory cannot be had.
pub fn back_from_tables(out: &Tensor, grad: &Tensor, tables: &[Option<Table>]) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let dtype = summed_in(out.dtype());
    let order = order(out);
    let out = out.permuted(&order);
    let mut sum = lines::reals(&copy::dense(&grad.permuted(&order), dtype)?);
    for (d, table) in ordered(tables, &order).iter().enumerate() {
        if let Some(table) = table {
            let size = out.shape()[d] as usize;
            let places: Vec<usize> = table.iter().collect();
            sum = Adjoint::of_places(&places, size).along(&sum, d)?;
        }
    }
    let (shape, strides) = (out.shape().clone(), dims::contiguous_strides(out.shape()));
    let offset = sum.offset() / if dtype.is_complex() { 2 } else { 1 };
    copy::copy(&out, &sum.reinterpret(dtype, shape, strides, offset))
}

/// The type that gradients are summed in.
fn summed_in(d: DType) -> DType {
    match d {
        d if d.is_complex() && d != DType::C32 => d,
        DType::C32 => DType::C64,
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

/// What [`from_tables`] takes.
///
/// # Errors
/// If a size overflows.
pub fn room(room: &mut Room, out: &Tensor, t: &Tensor) -> Result<()> {
    let order = order(out);
    room.dense(&t.permuted(&order), t.dtype())?;
    room.dense(&out.permuted(&order), out.dtype()).map(drop)
}

/// What [`back_from_tables`] takes.
///
/// # Errors
/// If a size overflows.
pub fn back_room(
    room: &mut Room,
    out: &Tensor,
    grad: &Tensor,
    tables: &[Option<Table>],
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let order = order(out);
    let out = out.permuted(&order);
    let moved = room.dense(&grad.permuted(&order), summed_in(out.dtype()))?;
    let mut sum = lines::reals(&moved);
    for (d, table) in ordered(tables, &order).iter().enumerate() {
        if let Some(table) = table {
            let places: Vec<usize> = table.iter().collect();
            let adjoint = Adjoint::of_places(&places, out.shape()[d] as usize);
            sum = adjoint.along_room(room, sum, d)?;
        }
    }
    Ok(())
}
