//! Rows of elements that are copied as they are, at any steps.

#![allow(
    unsafe_code,
    reason = "reads and writes rows through raw, checked pointers"
)]

use super::copy::{Row, copy_run};
use super::lines::by_size;
use super::simd::simd_fn;

/// The row function that copies elements of a size.
pub(super) fn row_copy(size: usize) -> Row {
    by_size!(size, E => same_row::<E>)
}

/// Copies such a row.
///
/// # Safety
/// There are n elements on both sides.
pub(super) unsafe fn same_row<T: Copy>(
    dst: *mut u8,
    sd: isize,
    src: *const u8,
    ss: isize,
    n: usize,
) {
    let item = size_of::<T>() as isize;
    // SAFETY: the caller gives n elements on both sides.
    unsafe {
        if sd == item && ss == item {
            copy_run(dst, src, n * size_of::<T>());
        } else if sd == item && ss == -item {
            let (dst, src) = (dst.cast::<T>(), src.cast::<T>());
            let first = src.wrapping_sub(n.saturating_sub(1));
            if are_apart((dst, n), (first, n)) {
                let to = std::slice::from_raw_parts_mut(dst, n);
                return reversed(to, std::slice::from_raw_parts(first, n));
            }
            for i in 0..n {
                dst.add(i).write_unaligned(src.sub(i).read_unaligned());
            }
        } else if sd == item
            && ss == 2 * item
            && n > 1
            && are_apart((dst.cast::<T>(), n), (src.cast::<T>(), 2 * n - 1))
        {
            let to = std::slice::from_raw_parts_mut(dst.cast::<T>(), n);
            every_other(to, std::slice::from_raw_parts(src.cast::<T>(), 2 * n - 1));
        } else if ss == 0 {
            let v = src.cast::<T>().read_unaligned();
            if sd == item {
                for i in 0..n {
                    dst.cast::<T>().add(i).write_unaligned(v);
                }
                return;
            }
            for i in 0..n as isize {
                dst.offset(i * sd).cast::<T>().write_unaligned(v);
            }
        } else {
            for i in 0..n as isize {
                dst.offset(i * sd)
                    .cast::<T>()
                    .write_unaligned(src.offset(i * ss).cast::<T>().read_unaligned());
            }
        }
    }
}

/// Whether so many elements may be written as a slice while those are read as one.
fn are_apart<T>((to, n): (*mut T, usize), (from, m): (*const T, usize)) -> bool {
    let to = to.cast_const();
    let apart = from.wrapping_add(m) <= to || to.wrapping_add(n) <= from;
    apart && to.is_aligned() && from.is_aligned()
}

simd_fn! { stream
    /// The first of each pair.
    fn every_other<T: Copy>(to: &mut [T], from: &[T]) {
        let n = to.len();
        let from = &from[..2 * n - 1];
        for i in 0..n {
            to[i] = from[2 * i];
        }
    }
}

simd_fn! { stream
    /// The elements of a slice in reverse order.
    fn reversed<T: Copy>(to: &mut [T], from: &[T]) {
        let n = to.len();
        let from = &from[..n];
        for i in 0..n {
            to[i] = from[n - 1 - i];
        }
    }
}
