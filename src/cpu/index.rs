//! Reading and writing at indices: one strided loop that gathers, one that scatters, one that scatters and reduces.

#![allow(
    unsafe_code,
    reason = "moves elements between checked layouts by checked indices"
)]

mod grid;
mod masks;

pub use grid::pick_grid;
pub use masks::{choose, count_true, fill_where, true_places, write_coordinates};

use super::iter::{GRAIN, Walk};
use super::lines::by_size;
use super::simd::simd_fn;
use super::{past, pool};
use crate::{DType, Dims, Element, Result, Tensor, with_dtype};
use num_complex::{Complex32, Complex64};
use std::ops::Range;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// The dimension that indices run along.
#[derive(Clone, Copy)]
pub struct Axis {
    /// Bytes from one index to the next.
    pub step: isize,
    /// Indices must be below this.
    pub size: i64,
    /// Negative indices count from the end.
    pub wrap: bool,
}

impl Axis {
    /// Indices that are byte offsets already.
    pub const OFFSETS: Self = Self {
        step: 1,
        size: i64::MAX,
        wrap: false,
    };

    /// What is added to an index, and what the sum must lie below.
    fn bounds(&self) -> (i64, u64) {
        let low = if self.wrap { self.size } else { 0 };
        (low, self.size as u64 + low as u64)
    }

    /// The offset of an index that lies inside.
    #[inline(always)]
    fn inside(&self, index: i64) -> isize {
        let turn = self.size & (index >> 63);
        index.wrapping_add(turn) as isize * self.step
    }

    #[inline(always)]
    fn offset(&self, index: i64, bad: &AtomicI64) -> Option<isize> {
        let mut i = index;
        if i < 0 && self.wrap {
            i += self.size;
        }
        if i < 0 || i >= self.size {
            bad.store(index.max(i64::MIN + 1), Relaxed);
            return None;
        }
        Some(i as isize * self.step)
    }
}

/// Indices that are checked together.
const AT_ONCE: usize = 64;

simd_fn! { stream
    /// Whether all indices plus a number lie below another, as unsigned ones.
    fn all_inside(index: &[i64], low: i64, span: u64) -> bool {
        let mut outside = false;
        for &i in index {
            outside |= i.wrapping_add(low) as u64 >= span;
        }
        !outside
    }
}

/// One operand of a loop: where it starts and its strides in elements.
#[derive(Clone)]
pub struct Lay {
    /// The first element.
    pub ptr: *mut u8,
    /// Strides for the loop's shape.
    pub strides: Dims,
}

impl Lay {
    /// A tensor read with the loop's shape.
    #[must_use]
    pub fn of(t: &Tensor, shape: &[i64]) -> Self {
        Self {
            ptr: t.data_ptr(),
            strides: t.strides_for(shape),
        }
    }

    /// A tensor whose dimension `dim` is left to the indices.
    #[must_use]
    pub fn without(t: &Tensor, dim: usize) -> Self {
        let strides = if t.ndim() == 0 {
            Dims::filled(1, 0)
        } else {
            t.strides().with(dim, 0)
        };
        Self {
            ptr: t.data_ptr(),
            strides,
        }
    }
}

type Row = unsafe fn(&[*mut u8; 3], &[isize; 3], usize, &Axis, &AtomicI64);

const FINE: i64 = i64::MIN;

fn verdict(bad: &AtomicI64) -> Option<i64> {
    match bad.load(Relaxed) {
        FINE => None,
        index => Some(index),
    }
}

/// `out[p] = src[p, index[p]]` for every place of `shape`; the first bad index, if any.
#[must_use]
pub fn gather(
    shape: &[i64],
    out: &Lay,
    src: &Lay,
    index: &Lay,
    item: usize,
    axis: Axis,
) -> Option<i64> {
    let bad = AtomicI64::new(FINE);
    let walk = Walk::<3>::new(
        shape,
        [out.ptr, src.ptr, index.ptr],
        [&out.strides, &src.strides, &index.strides],
        [item, item, 8],
    );
    if let Some(whole) = Whole::of(&walk, item as isize) {
        let [count, n] = whole.sizes;
        pool::parallel_for(count, (GRAIN / n).max(1), |rows| {
            // SAFETY: the walk stays in the three layouts; every index is checked.
            unsafe { whole.gather(rows, item, &axis, &bad) }
        });
        return verdict(&bad);
    }
    let row: Row = by_size!(item, E => gather_row::<E>);
    // SAFETY: the walk stays in the three layouts, and the row checks every index.
    walk.run(GRAIN, |p, s, n| unsafe { row(p, s, n, &axis, &bad) });
    verdict(&bad)
}

/// Dense rows that are taken whole, one for each index.
struct Whole<'a> {
    walk: &'a Walk<3>,
    /// From a row of the result to the next, from a row's place in the source to the next, and between indices, in bytes.
    next: [isize; 3],
    /// How many rows, and the elements of one.
    sizes: [usize; 2],
}

impl<'a> Whole<'a> {
    /// Rows ahead whose start is asked for: their places are anywhere, so the machine cannot guess them.
    const AHEAD: usize = 4;

    fn of(walk: &'a Walk<3>, item: isize) -> Option<Self> {
        let ([row, next], sizes) = walk.rows()?;
        (row == [item, item, 0]).then_some(Self { walk, next, sizes })
    }

    /// Copies some of the rows.
    ///
    /// # Safety
    /// The walk's operands are a result, a source and indices.
    unsafe fn gather(&self, rows: Range<usize>, item: usize, axis: &Axis, bad: &AtomicI64) {
        let [out, src, index] = self.walk.starts();
        let bytes = self.sizes[1] * item;
        // SAFETY: rows are within the three layouts.
        let offset = |r: usize| unsafe {
            let at = *index.offset(self.next[2] * r as isize).cast::<i64>();
            axis.offset(at, bad)
                .map(|at| at + self.next[1] * r as isize)
        };
        for r in rows.clone() {
            let Some(at) = offset(r) else { return };
            if r + Self::AHEAD < rows.end
                && let Some(at) = offset(r + Self::AHEAD)
            {
                past::expect(src.wrapping_offset(at), bytes);
            }
            // SAFETY: the index is checked; both rows are dense and apart.
            unsafe {
                let to = out.offset(self.next[0] * r as isize);
                std::ptr::copy_nonoverlapping(src.offset(at), to, bytes);
            }
        }
    }
}

unsafe fn gather_row<T: Copy>(
    p: &[*mut u8; 3],
    s: &[isize; 3],
    n: usize,
    axis: &Axis,
    bad: &AtomicI64,
) {
    let item = size_of::<T>() as isize;
    // SAFETY: the caller gives n elements of each operand; offsets are checked against the axis.
    unsafe {
        if s[2] == 0 {
            let Some(at) = axis.offset(*p[2].cast::<i64>(), bad) else {
                return;
            };
            let src = p[1].offset(at);
            if s[0] == item && s[1] == item {
                std::ptr::copy_nonoverlapping(src.cast::<T>(), p[0].cast::<T>(), n);
                return;
            }
            for i in 0..n as isize {
                *p[0].offset(i * s[0]).cast::<T>() = *src.offset(i * s[1]).cast::<T>();
            }
            return;
        }
        let mut done = 0;
        if s[2] == 8 {
            let index = std::slice::from_raw_parts(p[2].cast::<i64>(), n);
            let (low, span) = axis.bounds();
            let (mut to, mut from) = (p[0], p[1]);
            for part in index.chunks(AT_ONCE).filter(|_| n >= AT_ONCE) {
                if !all_inside(part, low, span) {
                    break;
                }
                for &i in part {
                    *to.cast::<T>() = *from.offset(axis.inside(i)).cast::<T>();
                    (to, from) = (to.wrapping_offset(s[0]), from.wrapping_offset(s[1]));
                }
                done += part.len() as isize;
            }
        }
        for i in done..n as isize {
            let Some(at) = axis.offset(*p[2].offset(i * s[2]).cast::<i64>(), bad) else {
                return;
            };
            *p[0].offset(i * s[0]).cast::<T>() = *p[1].offset(i * s[1] + at).cast::<T>();
        }
    }
}

/// `dst[p, index[p]] = src[p]` for every place of `shape`, in order; the first bad index, if any.
#[must_use]
pub fn scatter(
    shape: &[i64],
    dst: &Lay,
    src: &Lay,
    index: &Lay,
    item: usize,
    axis: Axis,
) -> Option<i64> {
    let row: Row = by_size!(item, E => scatter_row::<E>);
    in_order(shape, dst, src, index, item, axis, row)
}

fn in_order(
    shape: &[i64],
    dst: &Lay,
    src: &Lay,
    index: &Lay,
    item: usize,
    axis: Axis,
    row: Row,
) -> Option<i64> {
    let bad = AtomicI64::new(FINE);
    Walk::<3>::new(
        shape,
        [dst.ptr, src.ptr, index.ptr],
        [&dst.strides, &src.strides, &index.strides],
        [item, item, 8],
    )
    // SAFETY: the walk stays in the three layouts, and the row checks every index.
    .run_serial(|p, s, n| unsafe { row(p, s, n, &axis, &bad) });
    verdict(&bad)
}

unsafe fn scatter_row<T: Copy>(
    p: &[*mut u8; 3],
    s: &[isize; 3],
    n: usize,
    axis: &Axis,
    bad: &AtomicI64,
) {
    let item = size_of::<T>() as isize;
    // SAFETY: the caller gives n elements of each operand; offsets are checked against the axis.
    unsafe {
        if s[2] == 0 && s[0] == item && (s[1] == item || s[1] == 0) {
            let Some(at) = axis.offset(*p[2].cast::<i64>(), bad) else {
                return;
            };
            let (from, to) = (p[1].cast::<T>(), p[0].offset(at).cast::<T>());
            if s[1] == 0 {
                std::slice::from_raw_parts_mut(to, n).fill(*from);
            } else {
                std::ptr::copy(from, to, n);
            }
            return;
        }
        for i in 0..n as isize {
            let Some(at) = axis.offset(*p[2].offset(i * s[2]).cast::<i64>(), bad) else {
                return;
            };
            *p[0].offset(i * s[0] + at).cast::<T>() = *p[1].offset(i * s[1]).cast::<T>();
        }
    }
}

/// How an element that is already there and a new one make the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduce {
    /// Their sum.
    Add,
    /// Their product.
    Mul,
    /// The larger one; NaN if either is.
    Max,
    /// The smaller one; NaN if either is.
    Min,
}

trait Merge: Copy {
    fn add(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    fn max_(self, o: Self) -> Self;
    fn min_(self, o: Self) -> Self;
}

macro_rules! merge {
    (int $($t:ty)+) => { $(impl Merge for $t {
        #[inline(always)] fn add(self, o: Self) -> Self { self.wrapping_add(o) }
        #[inline(always)] fn mul(self, o: Self) -> Self { self.wrapping_mul(o) }
        #[inline(always)] fn max_(self, o: Self) -> Self { self.max(o) }
        #[inline(always)] fn min_(self, o: Self) -> Self { self.min(o) }
    })+ };
    (float $($t:ty)+) => { $(impl Merge for $t {
        #[inline(always)] fn add(self, o: Self) -> Self { self + o }
        #[inline(always)] fn mul(self, o: Self) -> Self { self * o }
        #[inline(always)] fn max_(self, o: Self) -> Self { if self.is_nan() || self > o { self } else { o } }
        #[inline(always)] fn min_(self, o: Self) -> Self { if self.is_nan() || self < o { self } else { o } }
    })+ };
    (complex $($t:ty)+) => { $(impl Merge for $t {
        #[inline(always)] fn add(self, o: Self) -> Self { self + o }
        #[inline(always)] fn mul(self, o: Self) -> Self { self * o }
        #[inline(always)] fn max_(self, o: Self) -> Self { o }
        #[inline(always)] fn min_(self, o: Self) -> Self { o }
    })+ };
}
merge!(int u8 i8 i16 i32 i64 u16 u32 u64);
merge!(float f32 f64);
merge!(complex Complex32 Complex64);
impl Merge for bool {
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        self | o
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        self & o
    }
    #[inline(always)]
    fn max_(self, o: Self) -> Self {
        self | o
    }
    #[inline(always)]
    fn min_(self, o: Self) -> Self {
        self & o
    }
}

const ADD: u8 = 0;
const MUL: u8 = 1;
const MAX: u8 = 2;
const MIN: u8 = 3;

unsafe fn merge_row<T: Merge + Element, const HOW: u8>(
    p: &[*mut u8; 3],
    s: &[isize; 3],
    n: usize,
    axis: &Axis,
    bad: &AtomicI64,
) {
    let item = size_of::<T>() as isize;
    let merged = |was: T, from: T| match HOW {
        ADD => was.add(from),
        MUL => was.mul(from),
        MAX => was.max_(from),
        _ => was.min_(from),
    };
    // SAFETY: the caller gives n elements of each operand; offsets are checked against the axis.
    unsafe {
        if s[2] == 0 && s[0] == item && s[1] == item {
            let Some(at) = axis.offset(*p[2].cast::<i64>(), bad) else {
                return;
            };
            let (to, from) = (p[0].offset(at).cast::<T>(), p[1].cast::<T>());
            for i in 0..n {
                *to.add(i) = merged(T::load(to.add(i)), T::load(from.add(i)));
            }
            return;
        }
        for i in 0..n as isize {
            let Some(at) = axis.offset(*p[2].offset(i * s[2]).cast::<i64>(), bad) else {
                return;
            };
            let to = p[0].offset(i * s[0] + at).cast::<T>();
            *to = merged(T::load(to), T::load(p[1].offset(i * s[1]).cast()));
        }
    }
}

/// `dst[p, index[p]] = how(dst[p, index[p]], src[p])`, in order; the first bad index, if any. 16-bit floats have to be
/// widened by the caller.
///
/// # Errors
/// If the dtype cannot be computed with.
pub fn scatter_reduce(
    how: Reduce,
    dtype: DType,
    shape: &[i64],
    dst: &Lay,
    src: &Lay,
    index: &Lay,
    axis: Axis,
) -> Result<Option<i64>> {
    with_dtype!(dtype, [bool int uint float complex] => T, {
        let row: Row = match how {
            Reduce::Add => merge_row::<T, ADD>,
            Reduce::Mul => merge_row::<T, MUL>,
            Reduce::Max => merge_row::<T, MAX>,
            Reduce::Min => merge_row::<T, MIN>,
        };
        return Ok(in_order(shape, dst, src, index, dtype.size(), axis, row));
    }, else {
        Err(dtype.no_kernel("scatter_reduce"))
    })
}

/// Adds `index * step` to `sum` for every place of `shape`; the first bad index, if any.
#[must_use]
pub fn add_offsets(shape: &[i64], sum: &Tensor, index: &Tensor, axis: Axis) -> Option<i64> {
    let bad = AtomicI64::new(FINE);
    let strides = index.strides_for(shape);
    Walk::<2>::new(
        shape,
        [sum.data_ptr(), index.data_ptr()],
        [sum.strides(), &strides],
        [8, 8],
    )
    .run_serial(|p, s, n| {
        for i in 0..n as isize {
            // SAFETY: the walk stays in both layouts.
            unsafe {
                let Some(at) = axis.offset(*p[1].offset(i * s[1]).cast::<i64>(), &bad) else {
                    return;
                };
                *p[0].offset(i * s[0]).cast::<i64>() += at as i64;
            }
        }
    });
    verdict(&bad)
}
