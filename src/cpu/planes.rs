//! Planes of short rows, element by element: a row at a time, what comes before it would cost more than itself.

#![allow(unsafe_code, reason = "copies between checked layouts")]

use super::copy::Row;
use super::iter::Walk;
use super::lines::by_size;
use std::mem::MaybeUninit;

/// Rows of at most so many elements are copied down their columns.
pub const SHORT: usize = 16;
/// Bytes up to which a row of neighbours is copied here: of longer ones the library's call is a small part.
const LONG: usize = 512;
/// Bytes that are copied at a time.
const BLOCK: usize = 32;

/// Whether copying planes of rows of `n` elements pays off, whose elements lie `steps` apart on both sides.
#[must_use]
pub fn takes(steps: [isize; 2], n: usize, size: usize) -> bool {
    n <= SHORT || are_dense(steps, size) && n * size <= LONG
}

fn are_dense(steps: [isize; 2], size: usize) -> bool {
    steps == [size as isize; 2]
}

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

/// Converts short rows, `steps` within them and from one to the next, to a run, of elements of these sizes: brought together
/// first, as a row alone costs less than the call that converts it. Both sides of the walk lie apart.
pub(super) fn convert(
    walk: &Walk<2>,
    row: Row,
    [item, to]: [usize; 2],
    n: usize,
    steps: [isize; 2],
) {
    const ROOM: usize = 512;
    let plane = copier(item);
    walk.run_groups(
        1,
        ROOM / n,
        || [const { MaybeUninit::<[u64; 2]>::uninit() }; ROOM],
        |room, p, rows| {
            let (room, step) = (room.as_mut_ptr().cast::<u8>(), item as isize);
            // SAFETY: the walk stays within both layouts, and the room holds as many elements of any size.
            unsafe {
                plane(room, [step, step * n as isize], p[1], steps, [n, rows]);
                row(p[0], to as isize, room, step, n * rows);
            }
        },
    );
}

/// Rows farther apart, in bytes, are copied one by one: a column of them would touch a cache line for each element.
const FAR: usize = 256;

/// Rows of neighbours by blocks; others down the columns, whose loops are long, or row by row.
unsafe fn copy<T: Copy>(
    to: *mut u8,
    to_steps: [isize; 2],
    from: *const u8,
    from_steps: [isize; 2],
    sizes: [usize; 2],
) {
    let far = |[_, next]: [isize; 2]| next.unsigned_abs() >= FAR;
    let turn = |[a, b]: [isize; 2]| [b, a];
    let (item, bytes) = (size_of::<T>(), size_of::<T>() * sizes[0]);
    // SAFETY: as the caller promises.
    unsafe {
        if are_dense([to_steps[0], from_steps[0]], item) && bytes >= BLOCK {
            runs(to, to_steps[1], from, from_steps[1], bytes, sizes[1]);
        } else if far(to_steps) || far(from_steps) {
            let [n, rows] = sizes;
            lines::<T>(to, turn(to_steps), from, turn(from_steps), [rows, n]);
        } else {
            lines::<T>(to, to_steps, from, from_steps, sizes);
        }
    }
}

/// Rows of at least a block of bytes, the last block as far back as it has to be.
unsafe fn runs(
    to: *mut u8,
    to_next: isize,
    from: *const u8,
    from_next: isize,
    bytes: usize,
    rows: usize,
) {
    let last = bytes - BLOCK;
    for r in 0..rows as isize {
        let (to, from) = (
            to.wrapping_offset(r * to_next),
            from.wrapping_offset(r * from_next),
        );
        // SAFETY: the caller gives rows of so many bytes on both sides.
        let block = |at: usize| unsafe {
            let v = from.add(at).cast::<[u8; BLOCK]>().read();
            to.add(at).cast::<[u8; BLOCK]>().write(v);
        };
        (0..last).step_by(BLOCK).for_each(block);
        block(last);
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
