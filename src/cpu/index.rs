//! Reading and writing at indices: one strided loop that gathers, one that scatters, one that scatters and reduces.

#![allow(
    unsafe_code,
    reason = "moves elements between checked layouts by checked indices"
)]

mod grid;
mod masks;
mod merge;

pub use grid::pick_grid;
pub use masks::{choose, count_true, fill_where, put_where, true_places, write_coordinates};
pub use merge::{Reduce, add_halves, adds_by_rows, scatter_reduce};

use super::iter::{GRAIN, Walk};
use super::lines::by_size;
use super::simd::simd_fn;
use super::{past, planes, pool};
use crate::{Dims, Tensor};
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

    /// Looks at indices.
    #[inline(always)]
    fn check(&self, index: &[i64]) -> Known {
        if all_inside(index, 0, self.size - 1) {
            Known::Plain
        } else if self.wrap && all_inside(index, self.size, 2 * self.size - 1) {
            Known::Inside
        } else {
            Known::Nothing
        }
    }
}

/// Short rows that are taken together.
const ROWS: usize = 256;
/// Indices that are checked together.
const AT_ONCE: usize = 64;

/// What is known of indices that are checked together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    /// All lie inside and count from the start.
    Plain,
    /// All lie inside.
    Inside,
    /// Some lie outside.
    Nothing,
}

simd_fn! { stream
    /// Whether all indices plus `low` lie between 0 and `last`: the signs of all differences at once.
    fn all_inside(index: &[i64], low: i64, last: i64) -> bool {
        let mut signs = 0;
        for &i in index {
            let i = i.wrapping_add(low);
            signs |= i | last.wrapping_sub(i);
        }
        signs >= 0
    }
}

/// Takes elements at indices that lie inside and count from the start. Steps that addresses scale by themselves cost nothing.
///
/// # Safety
/// There are as many elements at `to`, and such at the indices, `step` bytes apart, from `from` on.
#[inline(always)]
unsafe fn pick<T: Copy>(to: *mut T, from: *const u8, index: &[i64; AT_ONCE], step: isize) {
    // SAFETY: as the caller promises.
    unsafe {
        if step == size_of::<T>() as isize {
            for (k, &i) in index.iter().enumerate() {
                *to.add(k) = *from.cast::<T>().offset(i as isize);
            }
        } else {
            for (k, &i) in index.iter().enumerate() {
                *to.add(k) = *from.offset(i as isize * step).cast::<T>();
            }
        }
    }
}

/// Calls `f(element, offset along the axis)` for the elements of the first whole chunks of indices that lie inside, one after the other;
/// how many there were.
///
/// # Safety
/// There are `n` indices, `step` bytes apart.
#[inline(always)]
unsafe fn each_inside(
    index: *const u8,
    step: isize,
    n: usize,
    axis: &Axis,
    mut f: impl FnMut(isize, isize),
) -> isize {
    let mut done = 0;
    if step != 8 || n < AT_ONCE {
        return done;
    }
    // SAFETY: as the caller promises.
    let index = unsafe { std::slice::from_raw_parts(index.cast::<i64>(), n) };
    for part in index.chunks(AT_ONCE) {
        match axis.check(part) {
            Known::Plain => {
                for &i in part {
                    f(done, i as isize * axis.step);
                    done += 1;
                }
            }
            Known::Inside => {
                for &i in part {
                    f(done, axis.inside(i));
                    done += 1;
                }
            }
            Known::Nothing => break,
        }
    }
    done
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

/// A walk over elements written, elements read and indices.
fn walk(shape: &[i64], to: &Lay, from: &Lay, index: &Lay, item: usize) -> Walk<3> {
    Walk::new(
        shape,
        [to.ptr, from.ptr, index.ptr],
        [&to.strides, &from.strides, &index.strides],
        [item, item, 8],
    )
}

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
    let walk = walk(shape, out, src, index, item);
    if let Some(whole) = Whole::of(&walk, item as isize) {
        let [count, n] = whole.sizes;
        pool::parallel_for(count, (GRAIN / n).max(1), |rows| {
            // SAFETY: the walk stays in the three layouts; every index is checked.
            unsafe { whole.gather(rows, item, &axis, &bad) }
        });
        return verdict(&bad);
    }
    let row: Row = by_size!(item, E => gather_row::<E>);
    if let Some(([along, next], [n, _])) = walk.inner()
        && next[2] == 0
        && n <= planes::SHORT
    {
        // Short rows with the same indices: down their columns, which have one index each.
        walk.run_groups(
            1,
            ROWS,
            || (),
            |(), p, rows| {
                for i in 0..n as isize {
                    let p = std::array::from_fn(|k| p[k].wrapping_offset(i * along[k]));
                    // SAFETY: the walk stays in the three layouts, and the row checks its index.
                    unsafe { row(&p, &next, rows, &axis, &bad) };
                }
            },
        );
        return verdict(&bad);
    }
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

    /// The same of one row.
    fn single(walk: &'a Walk<3>, item: isize) -> Option<Self> {
        let (row, n) = walk.only()?;
        let (next, sizes) = ([0; 3], [1, n]);
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
        let mut start = 0;
        if s == &[item, 0, 8] {
            let index = std::slice::from_raw_parts(p[2].cast::<i64>(), n);
            for part in index.as_chunks::<AT_ONCE>().0 {
                if axis.check(part) != Known::Plain {
                    break;
                }
                pick(p[0].cast::<T>().offset(start), p[1], part, axis.step);
                start += AT_ONCE as isize;
            }
        }
        let done = start
            + each_inside(
                p[2].offset(start * s[2]),
                s[2],
                n - start as usize,
                axis,
                |k, at| {
                    let k = start + k;
                    *p[0].offset(k * s[0]).cast::<T>() = *p[1].offset(k * s[1] + at).cast::<T>();
                },
            );
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
    let walk = walk(shape, dst, src, index, item);
    // SAFETY: the walk stays in the three layouts, and the row checks every index.
    walk.run_serial(|p, s, n| unsafe { row(p, s, n, &axis, &bad) });
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
        let done = each_inside(p[2], s[2], n, axis, |i, at| {
            *p[0].offset(i * s[0] + at).cast::<T>() = *p[1].offset(i * s[1]).cast::<T>();
        });
        for i in done..n as isize {
            let Some(at) = axis.offset(*p[2].offset(i * s[2]).cast::<i64>(), bad) else {
                return;
            };
            *p[0].offset(i * s[0] + at).cast::<T>() = *p[1].offset(i * s[1]).cast::<T>();
        }
    }
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
