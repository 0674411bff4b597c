//! Planes of short rows, element by element: a row at a time, what comes before it would cost more than itself.

#![allow(unsafe_code, reason = "copies between checked layouts")]

use super::lines::by_size;

/// Rows of at most so many elements are copied down their columns.
pub const SHORT: usize = 16;

/// Whether rows of `n` elements share no memory with those after them. Of others each has to see what those before it wrote.
#[must_use]
pub fn are_apart(step: isize, next: isize, n: usize) -> bool {
    step != 0 && next.unsigned_abs() >= n * step.unsigned_abs()
}

/// Copies a plane: destination, source, their steps within rows and between them in bytes, elements of a row, rows.
pub type Plane = unsafe fn(*mut u8, [isize; 2], *const u8, [isize; 2], [usize; 2]);

/// What copies planes of elements of a size.
#[must_use]
pub fn copier(size: usize) -> Plane {
    by_size!(size, E => copy::<E>)
}

/// Rows farther apart, in bytes, are copied one by one: a column of them would touch a cache line for each element.
const FAR: usize = 256;

/// Down the columns, whose loops are long, or row by row.
unsafe fn copy<T: Copy>(
    to: *mut u8,
    to_steps: [isize; 2],
    from: *const u8,
    from_steps: [isize; 2],
    sizes: [usize; 2],
) {
    let far = |[_, next]: [isize; 2]| next.unsigned_abs() >= FAR;
    let turn = |[a, b]: [isize; 2]| [b, a];
    // SAFETY: as the caller promises.
    unsafe {
        if far(to_steps) || far(from_steps) {
            let [n, rows] = sizes;
            lines::<T>(to, turn(to_steps), from, turn(from_steps), [rows, n]);
        } else {
            lines::<T>(to, to_steps, from, from_steps, sizes);
        }
    }
}

/// Along the second dimension, for each place of the first.
#[inline(always)]
unsafe fn lines<T: Copy>(
    to: *mut u8,
    [to_step, to_next]: [isize; 2],
    from: *const u8,
    [from_step, from_next]: [isize; 2],
    [count, length]: [usize; 2],
) {
    for i in 0..count as isize {
        let (mut to, mut from) = (
            to.wrapping_offset(i * to_step),
            from.wrapping_offset(i * from_step),
        );
        for _ in 0..length {
            // SAFETY: the caller gives such planes on both sides.
            unsafe {
                to.cast::<T>()
                    .write_unaligned(from.cast::<T>().read_unaligned())
            };
            to = to.wrapping_offset(to_next);
            from = from.wrapping_offset(from_next);
        }
    }
}
