//! Writing at indices where what is there and what is new make the result.

#![allow(
    unsafe_code,
    reason = "moves elements between checked layouts by checked indices"
)]

use super::{Axis, FINE, Lay, Row, Whole, each_inside, in_order, verdict, walk};
use crate::cpu::halves::{self, Half};
use crate::{DType, Element, Result, with_dtype};
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};
use std::sync::atomic::AtomicI64;

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
        let join = |i: isize, at: isize| {
            let to = p[0].offset(i * s[0] + at).cast::<T>();
            *to = merged(T::load(to), T::load(p[1].offset(i * s[1]).cast()));
        };
        let done = each_inside(p[2], s[2], n, axis, join);
        for i in done..n as isize {
            let Some(at) = axis.offset(*p[2].offset(i * s[2]).cast::<i64>(), bad) else {
                return;
            };
            join(i, at);
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

/// Whether [`add_halves`] does it, by the layouts alone.
#[must_use]
pub fn adds_by_rows(dtype: DType, shape: &[i64], [dst, src, index]: [&Lay; 3]) -> bool {
    let walk = walk(shape, dst, src, index, 2);
    dtype.is_reduced_float() && (Whole::of(&walk, 2).or_else(|| Whole::single(&walk, 2))).is_some()
}

/// [`scatter_reduce`] of sums of 16-bit floats where rows of neighbours have one index each: what goes to a row is added in
/// single precision and rounded once, as by way of a widened copy of everything. None: they lie otherwise.
#[must_use]
pub fn add_halves(
    dtype: DType,
    shape: &[i64],
    [dst, src, index]: [&Lay; 3],
    axis: Axis,
) -> Option<Option<i64>> {
    let add = match dtype {
        DType::BF16 => add_group::<bf16>,
        DType::F16 => add_group::<f16>,
        _ => return None,
    };
    let walk = walk(shape, dst, src, index, 2);
    let Whole { next, sizes, .. } = Whole::of(&walk, 2).or_else(|| Whole::single(&walk, 2))?;
    let [to, from, at] = walk.starts();
    let bad = AtomicI64::new(FINE);
    let mut places = Vec::with_capacity(sizes[0]);
    for r in 0..sizes[0] as isize {
        // SAFETY: the row has an index.
        let place = unsafe { axis.offset(*at.offset(next[2] * r).cast::<i64>(), &bad) };
        let Some(place) = place else {
            return Some(verdict(&bad));
        };
        places.push((place + next[0] * r, next[1] * r));
    }
    // By place; the order of those that have one stays.
    places.sort_by_key(|&(place, _)| place);
    for group in places.chunk_by(|a, b| a.0 == b.0) {
        // SAFETY: the places are checked, and the rows within both layouts.
        unsafe { add(to.offset(group[0].0), from, sizes[1], group) };
    }
    Some(None)
}

unsafe fn add_group<H: Half>(to: *mut u8, from: *const u8, n: usize, group: &[(isize, isize)]) {
    let offsets = group.iter().map(|&(_, offset)| offset);
    // SAFETY: as the caller promises.
    unsafe { halves::add_rows(to.cast::<H>(), from, n, offsets) }
}
