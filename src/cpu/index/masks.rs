//! Masks: filling where they hold, choosing by them, finding their true elements.

#![allow(
    unsafe_code,
    reason = "moves elements between checked layouts, where a mask says so"
)]

use super::Lay;
use crate::cpu::iter::{GRAIN, Walk};
use crate::cpu::lines::{Shared, by_size};
use crate::cpu::pool;
use crate::cpu::simd::simd_fn;
use crate::{DType, Tensor, dims};
use std::mem::MaybeUninit;
use std::ops::Range;

/// Writes one element wherever `mask` is true; `mask` is broadcast to `dst`.
pub fn fill_where(dst: &Tensor, mask: &Tensor, value: &[u64; 2]) {
    let strides = mask.strides_for(dst.shape());
    let item = dst.dtype().size();
    let row: unsafe fn(&[*mut u8; 2], &[isize; 2], usize, &[u64; 2]) =
        by_size!(item, E => fill_row::<E>);
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
    let row: unsafe fn(&[*mut u8; 4], &[isize; 4], usize) = by_size!(item, E => choose_row::<E>);
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

/// Calls `f(first element, bytes, range of their places)` for the parts of a mask that have any of the first `limit` true
/// elements, on all threads.
fn each_part(bytes: &[u8], limit: usize, f: impl Fn(usize, &[u8], Range<usize>) + Sync) {
    let count = |part: &[u8]| part.iter().map(|&b| u32::from(b != 0)).sum::<u32>() as usize;
    let mut starts = vec![0; bytes.len().div_ceil(PART) + 1];
    for (i, part) in bytes.chunks(PART).enumerate() {
        starts[i + 1] = starts[i] + count(part);
    }
    pool::parallel_items(starts.len() - 1, |i| {
        let first = i * PART;
        let part = &bytes[first..bytes.len().min(first + PART)];
        f(first, part, starts[i].min(limit)..starts[i + 1].min(limit));
    });
}

/// Writes the elements of a source in order to where a mask holds; all dense, and the source has as many.
///
/// # Panics
/// If it has not.
pub fn put_where(to: &Tensor, mask: &Tensor, source: &Tensor) {
    let (item, count) = (to.dtype().size(), count_true(mask) as usize);
    assert!(to.is_contiguous() && source.is_contiguous() && to.numel() == mask.numel());
    assert!(source.dtype() == to.dtype() && source.numel() as usize >= count);
    let (to, from) = (Shared::at(to.data_ptr()), Shared::at(source.data_ptr()));
    by_size!(item, E => each_part(crate::cpu::truths(mask), count, |first, part, places| {
        let (to, from) = (to.get().cast::<E>(), from.get().cast::<E>());
        let chosen = part.iter().zip(first..).filter(|(b, _)| **b != 0);
        for ((_, at), place) in chosen.zip(places) {
            // SAFETY: within the mask's elements and the source's, as many as were counted; parts write apart.
            unsafe { to.add(at).write_unaligned(from.add(place).read_unaligned()) };
        }
    }));
}

/// The places of the true elements of a row-major bool tensor, as row-major positions.
#[must_use]
pub fn true_places(mask: &Tensor) -> Vec<i64> {
    let count = count_true(mask) as usize;
    let mut out = vec![0i64; count];
    let to = Shared::new(&mut out);
    each_part(crate::cpu::truths(mask), count, |first, part, places| {
        // SAFETY: every part of the mask has its own places.
        let to = unsafe { to.part(places.start, places.len()) };
        let mut at = 0;
        for (k, &b) in part.iter().enumerate() {
            // Written whether it is true or not: a branch would be guessed wrong too often.
            let Some(place) = to.get_mut(at) else { break };
            *place = (first + k) as i64;
            at += usize::from(b != 0);
        }
    });
    out
}

/// Writes the places of true elements, counted from `first`, `step` elements apart; says how many.
///
/// # Safety
/// There is room for so many.
unsafe fn write_true(bytes: &[u8], first: i64, to: *mut i64, step: isize, room: usize) -> usize {
    let (mut to, end) = (to, to.wrapping_offset(room as isize * step));
    let mut count = 0;
    for (&b, at) in bytes.iter().zip(first..) {
        if to == end {
            break;
        }
        let is = usize::from(b != 0);
        // Written whether it is true or not, as above.
        // SAFETY: as the caller promises, and before the end.
        unsafe { *to = at };
        to = to.wrapping_offset(step * is as isize);
        count += is;
    }
    count
}

/// Writes the coordinates of the first true elements of a row-major bool tensor, a row of `out` each.
///
/// # Panics
/// If the sizes of `out` are not so many, and as many as the tensor has dimensions.
pub fn write_coordinates(mask: &Tensor, out: &Tensor) {
    assert!(out.dtype() == DType::I64 && out.ndim() == 2);
    assert!(out.shape()[1] as usize == mask.ndim());
    let Some((&width, outer)) = mask.shape().split_last() else {
        return;
    };
    let steps = dims::contiguous_strides(mask.shape());
    let to = Shared::at(out.data_ptr().cast::<i64>());
    let (down, right) = (out.strides()[0], out.strides()[1]);
    let column = |at: usize, d: usize| {
        let place = at as i64 * down + d as i64 * right;
        to.get().wrapping_offset(place as isize)
    };
    let limit = out.shape()[0] as usize;
    each_part(crate::cpu::truths(mask), limit, |first, part, places| {
        let (mut at, mut k) = (places.start, 0);
        while k < part.len() && at < places.end {
            let base = (first + k) as i64 / width * width;
            let begin = at;
            let line = ((base + width) as usize - first).min(part.len());
            let at_first = (first + k) as i64 - base;
            // SAFETY: rows of the part's own.
            at += unsafe {
                let to = column(at, outer.len());
                write_true(&part[k..line], at_first, to, down as isize, places.end - at)
            };
            for (d, (&size, &step)) in outer.iter().zip(steps.iter()).enumerate() {
                let coordinate = base / step % size;
                for at in begin..at {
                    // SAFETY: as above.
                    unsafe { *column(at, d) = coordinate };
                }
            }
            k = line;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn places_and_coordinates_are_those_of_true_elements() {
        let sizes = [
            &[5i64][..],
            &[0],
            &[3, 0],
            &[7, 1],
            &[1, 7],
            &[3, 5, 4],
            &[700, 300],
        ];
        for shape in sizes {
            let n = shape.iter().product::<i64>() as usize;
            let bits: Vec<bool> = (0..n).map(|i| (i * 7919) % 5 < 2).collect();
            let mask = Tensor::from_slice(&bits, shape).unwrap();
            let want: Vec<i64> = (0..n as i64).filter(|&i| bits[i as usize]).collect();
            assert_eq!(true_places(&mask), want);
            let steps = dims::contiguous_strides(shape);
            for count in [want.len(), want.len() / 2] {
                let sizes = [count as i64, shape.len() as i64];
                let rows = Tensor::empty(&sizes, DType::I64, Device::CPU).unwrap();
                let strides = crate::Dims::new(&[1, sizes[0]]);
                let columns = rows.view_with(crate::Dims::new(&sizes), strides, 0);
                for out in [rows, columns] {
                    write_coordinates(&mask, &out);
                    let got = crate::cpu::copy::dense(&out, DType::I64).unwrap();
                    let got = crate::cpu::read_slice::<i64>(&got);
                    for (row, place) in got.chunks(shape.len()).zip(&want) {
                        let at: i64 = row.iter().zip(steps.iter()).map(|(i, s)| i * s).sum();
                        assert_eq!(at, *place);
                    }
                }
            }
        }
    }
}
