//! Masks: filling where they hold, choosing by them, finding their true elements.

#![allow(
    unsafe_code,
    reason = "moves elements between checked layouts, where a mask says so"
)]

use super::Lay;
use crate::cpu::iter::{GRAIN, Walk};
use crate::cpu::lines::Shared;
use crate::cpu::pool;
use crate::cpu::simd::simd_fn;
use crate::{DType, Tensor, dims};
use std::mem::MaybeUninit;

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

/// Bits to choose among. Of `if c { x } else { y }` the compiler makes a jump or a load for each element.
trait Word: Copy {
    fn pick(first: bool, x: Self, y: Self) -> Self;
}
macro_rules! word {
    ($($t:ty)+) => { $(impl Word for $t {
        #[inline(always)]
        fn pick(first: bool, x: Self, y: Self) -> Self {
            y ^ ((x ^ y) & <$t>::from(first).wrapping_neg())
        }
    })+ };
}
word!(u8 u16 u32 u64);
impl Word for [u64; 2] {
    #[inline(always)]
    fn pick(first: bool, x: Self, y: Self) -> Self {
        [u64::pick(first, x[0], y[0]), u64::pick(first, x[1], y[1])]
    }
}

unsafe fn choose_row<T: Word>(p: &[*mut u8; 4], s: &[isize; 4], n: usize) {
    simd_fn! { stream
        fn dense<T: Word>(out: &mut [MaybeUninit<T>], c: &[u8], a: &[T], b: &[T]) {
            let n = out.len();
            let (c, a, b) = (&c[..n], &a[..n], &b[..n]);
            for i in 0..n {
                out[i].write(T::pick(c[i] != 0, a[i], b[i]));
            }
        }
    }
    let item = size_of::<T>() as isize;
    // SAFETY: the caller gives n elements of each operand; those that the result lies apart from are as good as slices.
    unsafe {
        if *s == [item, 1, item, item] && (1..4).all(|k| apart(p[0], p[k], n * item as usize)) {
            let out = std::slice::from_raw_parts_mut(p[0].cast(), n);
            let of = |k: usize| std::slice::from_raw_parts(p[k].cast::<T>(), n);
            return dense(out, std::slice::from_raw_parts(p[1], n), of(2), of(3));
        }
        for i in 0..n as isize {
            let (x, y) = (
                *p[2].offset(i * s[2]).cast::<T>(),
                *p[3].offset(i * s[3]).cast::<T>(),
            );
            *p[0].offset(i * s[0]).cast::<T>() = T::pick(*p[1].offset(i * s[1]) != 0, x, y);
        }
    }
}

/// Whether two runs of so many bytes share none.
fn apart(a: *const u8, b: *const u8, n: usize) -> bool {
    a.addr() + n <= b.addr() || b.addr() + n <= a.addr()
}

/// Elements of a mask that a task takes at a time.
const PART: usize = 1 << 16;

/// The places of the true elements of a row-major bool tensor, as row-major positions, up to `limit` of them.
#[must_use]
pub fn true_places(mask: &Tensor, limit: usize) -> Vec<i64> {
    let bytes = crate::cpu::truths(mask);
    let count = |part: &[u8]| part.iter().map(|&b| u32::from(b != 0)).sum::<u32>() as usize;
    // Where the places of each part go.
    let mut starts = vec![0; bytes.len().div_ceil(PART) + 1];
    for (i, part) in bytes.chunks(PART).enumerate() {
        starts[i + 1] = starts[i] + count(part);
    }
    let mut out = vec![0i64; limit.min(starts[starts.len() - 1])];
    let to = Shared::new(&mut out);
    pool::parallel_items(starts.len() - 1, |i| {
        let (start, end) = (starts[i].min(limit), starts[i + 1].min(limit));
        // SAFETY: every part of the mask has its own places.
        let to = unsafe { to.part(start, end - start) };
        let (part, mut at) = (&bytes[i * PART..bytes.len().min((i + 1) * PART)], 0);
        for (k, &b) in part.iter().enumerate() {
            // Written whether it is true or not: a branch would be guessed wrong too often.
            let Some(place) = to.get_mut(at) else { break };
            *place = (i * PART + k) as i64;
            at += usize::from(b != 0);
        }
    });
    out
}

/// Writes row-major positions within `shape` as coordinates, a row of `out` each.
///
/// # Panics
/// If `out` does not have these sizes.
pub fn write_coordinates(places: &[i64], shape: &[i64], out: &Tensor) {
    let sizes = [places.len() as i64, shape.len() as i64];
    assert!(out.dtype() == DType::I64 && out.shape()[..] == sizes);
    let steps = dims::contiguous_strides(shape);
    let to = Shared::at(out.data_ptr().cast::<i64>());
    let (down, right) = (out.strides()[0], out.strides()[1]);
    let Some((&width, outer)) = shape.split_last() else {
        return;
    };
    pool::parallel_for(places.len(), GRAIN, |range| {
        let (mut i, mut base) = (range.start, 0);
        let coordinate = |i: usize, d: usize, at: i64| {
            let place = i as i64 * down + d as i64 * right;
            // SAFETY: within the sizes that were asserted.
            unsafe { *to.get().offset(place as isize) = at };
        };
        // Neighbours mostly lie in one line, whose other coordinates are computed once.
        while i < range.end {
            base += (places[i] - base) / width * width;
            let first = i;
            while i < range.end && places[i] < base + width {
                coordinate(i, outer.len(), places[i] - base);
                i += 1;
            }
            for (d, (&size, &step)) in outer.iter().zip(steps.iter()).enumerate() {
                let at = base / step % size;
                (first..i).for_each(|i| coordinate(i, d, at));
            }
        }
    });
}

/// How many elements of a row-major bool tensor are true.
#[must_use]
pub fn count_true(mask: &Tensor) -> i64 {
    // Bytes are summed in blocks that cannot overflow 32 bits, so that the loop vectorises.
    crate::cpu::truths(mask)
        .chunks(1 << 20)
        .map(|c| i64::from(c.iter().map(|&b| u32::from(b != 0)).sum::<u32>()))
        .sum()
}
