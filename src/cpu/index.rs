//! Reading and writing at indices: one strided loop that gathers, one that scatters, one that scatters and reduces.

#![allow(
    unsafe_code,
    reason = "moves elements between checked layouts by checked indices"
)]

mod grid;

pub use grid::pick_grid;

use super::iter::{GRAIN, Walk};
use crate::{DType, Dims, Element, Result, Tensor, with_dtype};
use num_complex::{Complex32, Complex64};
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
    let row: Row = match item {
        1 => gather_row::<u8>,
        2 => gather_row::<u16>,
        4 => gather_row::<u32>,
        8 => gather_row::<u64>,
        _ => gather_row::<[u64; 2]>,
    };
    Walk::<3>::new(
        shape,
        [out.ptr, src.ptr, index.ptr],
        [&out.strides, &src.strides, &index.strides],
        [item, item, 8],
    )
    // SAFETY: the walk stays in the three layouts, and the row checks every index.
    .run(GRAIN, |p, s, n| unsafe { row(p, s, n, &axis, &bad) });
    verdict(&bad)
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
        for i in 0..n as isize {
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
    let row: Row = match item {
        1 => scatter_row::<u8>,
        2 => scatter_row::<u16>,
        4 => scatter_row::<u32>,
        8 => scatter_row::<u64>,
        _ => scatter_row::<[u64; 2]>,
    };
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
        if s[2] == 0 && s[0] == item && s[1] == item {
            let Some(at) = axis.offset(*p[2].cast::<i64>(), bad) else {
                return;
            };
            std::ptr::copy(p[1].cast::<T>(), p[0].offset(at).cast::<T>(), n);
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
    fn add(self, o: Self) -> Self {
        self | o
    }
    fn mul(self, o: Self) -> Self {
        self & o
    }
    fn max_(self, o: Self) -> Self {
        self | o
    }
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
    // SAFETY: the caller gives n elements of each operand; offsets are checked against the axis.
    unsafe {
        for i in 0..n as isize {
            let Some(at) = axis.offset(*p[2].offset(i * s[2]).cast::<i64>(), bad) else {
                return;
            };
            let (to, from) = (
                p[0].offset(i * s[0] + at).cast::<T>(),
                T::load(p[1].offset(i * s[1]).cast()),
            );
            let was = T::load(to);
            *to = match HOW {
                ADD => was.add(from),
                MUL => was.mul(from),
                MAX => was.max_(from),
                _ => was.min_(from),
            };
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

/// Writes one element wherever `mask` is true; `mask` is broadcast to `dst`.
pub fn fill_where(dst: &Tensor, mask: &Tensor, value: &[u64; 2]) {
    let strides = mask.strides_for(dst.shape());
    let item = dst.dtype().size();
    let row: unsafe fn(&[*mut u8; 2], &[isize; 2], usize, &[u64; 2]) = match item {
        1 => fill_row::<u8>,
        2 => fill_row::<u16>,
        4 => fill_row::<u32>,
        8 => fill_row::<u64>,
        _ => fill_row::<[u64; 2]>,
    };
    Walk::<2>::new(
        dst.shape(),
        [dst.data_ptr(), mask.data_ptr()],
        [dst.strides(), &strides],
        [item, 1],
    )
    // SAFETY: the walk stays in both layouts.
    .run(GRAIN, |p, s, n| unsafe { row(p, s, n, value) });
}

unsafe fn fill_row<T: Copy>(p: &[*mut u8; 2], s: &[isize; 2], n: usize, value: &[u64; 2]) {
    // SAFETY: the caller gives n elements; the value holds the largest element.
    unsafe {
        let v = value.as_ptr().cast::<T>().read();
        if s[0] == size_of::<T>() as isize && s[1] == 1 {
            let (dst, mask) = (p[0].cast::<T>(), p[1]);
            for i in 0..n {
                let old = *dst.add(i);
                *dst.add(i) = if *mask.add(i) != 0 { v } else { old };
            }
            return;
        }
        for i in 0..n as isize {
            if *p[1].offset(i * s[1]) != 0 {
                *p[0].offset(i * s[0]).cast::<T>() = v;
            }
        }
    }
}

/// `out = cond ? a : b`, all given with strides for the shape of `out`.
pub fn choose(out: &Tensor, cond: &Lay, a: &Lay, b: &Lay) {
    let item = out.dtype().size();
    let row: unsafe fn(&[*mut u8; 4], &[isize; 4], usize) = match item {
        1 => choose_row::<u8>,
        2 => choose_row::<u16>,
        4 => choose_row::<u32>,
        8 => choose_row::<u64>,
        _ => choose_row::<[u64; 2]>,
    };
    Walk::<4>::new(
        out.shape(),
        [out.data_ptr(), cond.ptr, a.ptr, b.ptr],
        [out.strides(), &cond.strides, &a.strides, &b.strides],
        [item, 1, item, item],
    )
    // SAFETY: the walk stays in the four layouts.
    .run(GRAIN, |p, s, n| unsafe { row(p, s, n) });
}

unsafe fn choose_row<T: Copy>(p: &[*mut u8; 4], s: &[isize; 4], n: usize) {
    let item = size_of::<T>() as isize;
    // SAFETY: the caller gives n elements of each operand.
    unsafe {
        if s[0] == item && s[1] == 1 && s[2] == item && s[3] == item {
            let (out, c, a, b) = (p[0].cast::<T>(), p[1], p[2].cast::<T>(), p[3].cast::<T>());
            for i in 0..n {
                let (x, y) = (*a.add(i), *b.add(i));
                *out.add(i) = if *c.add(i) != 0 { x } else { y };
            }
            return;
        }
        for i in 0..n as isize {
            let (x, y) = (
                *p[2].offset(i * s[2]).cast::<T>(),
                *p[3].offset(i * s[3]).cast::<T>(),
            );
            *p[0].offset(i * s[0]).cast::<T>() = if *p[1].offset(i * s[1]) != 0 { x } else { y };
        }
    }
}

/// The places of the true elements of a row-major bool tensor, as row-major positions, up to `limit` of them.
#[must_use]
pub fn true_places(mask: &Tensor, limit: usize) -> Vec<i64> {
    let bytes = super::truths(mask);
    let mut out = Vec::with_capacity(limit.min(bytes.len()));
    for (i, &b) in bytes.iter().enumerate() {
        if b != 0 {
            if out.len() == limit {
                break;
            }
            out.push(i as i64);
        }
    }
    out
}

/// How many elements of a row-major bool tensor are true.
#[must_use]
pub fn count_true(mask: &Tensor) -> i64 {
    // Bytes are summed in blocks that cannot overflow 32 bits, so that the loop vectorises.
    super::truths(mask)
        .chunks(1 << 20)
        .map(|c| i64::from(c.iter().map(|&b| u32::from(b != 0)).sum::<u32>()))
        .sum()
}
