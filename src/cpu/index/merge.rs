//! Writing at indices where what is there and what is new make the result.

#![allow(
    unsafe_code,
    reason = "moves elements between checked layouts by checked indices"
)]

use super::{Axis, Lay, Row, each_inside, in_order};
use crate::{DType, Element, Result, with_dtype};
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
