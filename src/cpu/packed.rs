//! Products with weights that are kept in eight or four bits: of some rows at a time real numbers are made, which the caches hold.

#![allow(unsafe_code, reason = "products by pointer over dense buffers")]

use super::gemm::{GemmElement, Mat, MatMut, gemm};
use super::lanes::Real;
use super::lines::{self, Shared};
use super::norm::{by_type, compute_type};
use super::room::{self, Room};
use super::simd::simd_fn;
use super::{copy, pool, slice, slice_mut};
use crate::{DType, Result, Tensor};

/// Numbers that are made of weights at a time.
const ROOM: usize = 64 << 10;
/// Rows of packed weights that share their bytes.
const SHARED: usize = 32;

/// What weights become.
trait Number: Real + GemmElement<Scale = Self> + From<i8> {}
impl Number for f32 {}
impl Number for f64 {}

/// `out = x w` for `n` columns of a result, some of which `make` gives at a time: those from `first` on, as a matrix in `room`.
fn by_parts<T: Number>(
    out: &Tensor,
    x: &Tensor,
    [n, each]: [usize; 2],
    make: impl Fn(usize, usize, &mut [T]) -> Mat<T> + Sync,
    finish: impl Fn(usize, &mut [T]) + Sync,
) -> Result<()> {
    let [m, k] = [0, 1].map(|d| x.shape()[d] as usize);
    let x = copy::dense(x, T::DTYPE)?;
    let made = lines::results(out, T::DTYPE)?;
    let to = Shared::new(slice_mut::<T>(&made));
    let from = slice::<T>(&x);
    let (zero, one) = (T::from(0), T::from(1));
    let _numbers = room::lists(n.div_ceil(each), each * k * size_of::<T>());
    pool::parallel_for(n.div_ceil(each), 1, |parts| {
        let mut room = vec![zero; each * k];
        for part in parts {
            let first = part * each;
            let count = each.min(n - first);
            let b = make(first, count, &mut room[..count * k]);
            // SAFETY: the columns belong to this task; `b` is a matrix in the room.
            unsafe {
                let a = Mat::new(from.as_ptr(), k as isize, 1);
                let c = MatMut::new(to.get().add(first), n as isize, 1);
                gemm(m, count, k, one, a, b, zero, c, None);
                (0..m).for_each(|i| finish(first, to.part(i * n + first, count)));
            }
        }
    });
    lines::put(out, &made)
}

simd_fn! { wide
    fn reals<T: Number>(to: &mut [T], from: &[i8]) {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = T::from(from);
        }
    }
}

simd_fn! { wide
    fn scaled<T: Number>(row: &mut [T], by: &[T]) {
        for (v, &by) in row.iter_mut().zip(by) {
            *v = *v * by;
        }
    }
}

/// The product with the transpose of a matrix of bytes, each row of which has a scale.
///
/// # Errors
/// If memory cannot be had.
pub fn of_bytes(out: &Tensor, x: &Tensor, w: &Tensor, scales: &Tensor) -> Result<()> {
    by_type!(compute_type(x.dtype()), T => bytes_by::<T>(out, x, w, scales))
}

fn bytes_by<T: Number>(out: &Tensor, x: &Tensor, w: &Tensor, scales: &Tensor) -> Result<()> {
    let [n, k] = [0, 1].map(|d| w.shape()[d] as usize);
    let (w, scales) = (copy::dense(w, DType::I8)?, copy::dense(scales, T::DTYPE)?);
    let (w, scales) = (slice::<i8>(&w), slice::<T>(&scales));
    let each = at_once(n, k);
    by_parts(
        out,
        x,
        [n, each],
        |first, count, room| {
            reals(room, &w[first * k..(first + count) * k]);
            Mat::new(room.as_ptr(), 1, k as isize)
        },
        |first, row| scaled(row, &scales[first..]),
    )
}

/// What products with packed matrices take, whose tasks turn so many columns into numbers at a time.
///
/// # Errors
/// If a size overflows.
pub fn room(
    room: &mut Room,
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    numbers: &Tensor,
    nibbles: bool,
) -> Result<()> {
    let d = compute_type(x.dtype());
    room.dense(w, w.dtype())?;
    room.all_dense([numbers, x, out].map(Some), d)?;
    let (n, k) = (w.shape()[0] as usize, x.shape()[1] as usize);
    let each = if nibbles { SHARED } else { at_once(n, k) };
    room.lists(n.div_ceil(each.max(1)), each * k * d.size())
}

/// Rows of bytes that a task turns into numbers at a time.
fn at_once(n: usize, k: usize) -> usize {
    (ROOM / k.max(1)).next_multiple_of(SHARED).min(n.max(1))
}

/// Calls `f(row, row of the pair, column, place)` for each byte of a packed matrix.
pub fn for_each_pair(rows: usize, columns: usize, mut f: impl FnMut(usize, usize, usize, usize)) {
    for start in (0..rows).step_by(SHARED) {
        let half = (rows - start).min(SHARED) / 2;
        for k in 0..columns {
            for n in 0..half {
                let place = start * columns / 2 + k * half + n;
                // Sixteen rows that are left over are pairs of neighbours.
                let (a, b) = if half == SHARED / 2 {
                    (n, n + SHARED / 2)
                } else {
                    (2 * n, 2 * n + 1)
                };
                f(start + a, start + b, k, place);
            }
        }
    }
}

/// What the numbers of some rows stand for, of a group of columns: scales, and what is added, row after row.
struct Group<'a, T> {
    scales: &'a [T],
    zeros: &'a [T],
}

simd_fn! { wide
    /// The numbers of a group of columns `[column][row]`, whose bytes have rows of the first half in their lower bits.
    fn unpacked<T: Number>(to: &mut [T], bytes: &[u8], group: &Group<T>) {
        let half = group.scales.len() / 2;
        let (scale_low, scale_high) = group.scales.split_at(half);
        let (zero_low, zero_high) = group.zeros[..2 * half].split_at(half);
        for (to, bytes) in to.chunks_exact_mut(2 * half).zip(bytes.chunks_exact(half)) {
            let (low, high) = to.split_at_mut(half);
            let real = |number: u8, scale: T, zero: T| T::from(number as i8 - 8) * scale + zero;
            for (((to, &b), &s), &z) in low.iter_mut().zip(bytes).zip(scale_low).zip(zero_low) {
                *to = real(b & 15, s, z);
            }
            for (((to, &b), &s), &z) in high.iter_mut().zip(bytes).zip(scale_high).zip(zero_high) {
                *to = real(b >> 4, s, z);
            }
        }
    }
}

/// The product with the transpose of packed numbers of four bits; of every `group` columns each row has a scale and a zero
/// `[group][row][2]`.
///
/// # Errors
/// If memory cannot be had.
pub fn of_nibbles(
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    group: usize,
    numbers: &Tensor,
) -> Result<()> {
    by_type!(compute_type(x.dtype()), T => nibbles_by::<T>(out, x, w, group, numbers))
}

fn nibbles_by<T: Number>(
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    group: usize,
    numbers: &Tensor,
) -> Result<()> {
    let (n, k) = (w.shape()[0] as usize, x.shape()[1] as usize);
    let (w, numbers) = (copy::dense(w, DType::U8)?, copy::dense(numbers, T::DTYPE)?);
    let (w, numbers) = (slice::<u8>(&w), slice::<T>(&numbers));
    by_parts(
        out,
        x,
        [n, SHARED],
        |first, count, room| {
            let bytes = &w[first * k / 2..][..count * k / 2];
            let of = |g: usize, i: usize| -> Vec<T> {
                let numbers = &numbers[(g * n + first) * 2..][..2 * count];
                numbers.iter().skip(i).step_by(2).copied().collect()
            };
            for (g, to) in room.chunks_mut(group * count).enumerate() {
                let (scales, zeros) = (of(g, 0), of(g, 1));
                let bytes = &bytes[g * group * count / 2..];
                if count == SHARED {
                    let (scales, zeros) = (&scales[..], &zeros[..]);
                    unpacked(to, bytes, &Group { scales, zeros });
                    continue;
                }
                for_each_pair(count, to.len() / count, |a, b, k, place| {
                    for (row, number) in [(a, bytes[place] & 15), (b, bytes[place] >> 4)] {
                        let steps = T::from(number as i8 - 8);
                        to[k * count + row] = steps * scales[row] + zeros[row];
                    }
                });
            }
            Mat::new(room.as_ptr(), count as isize, 1)
        },
        |_, _| {},
    )
}
