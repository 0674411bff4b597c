//! Copies between layouts that run along different dimensions, tile by tile.

#![allow(unsafe_code, reason = "moves elements between checked layouts")]

use super::lines::by_size;
use super::{iter::Walk, pool};
use crate::{Dims, Tensor};

/// Bytes of a tile's runs, on either side: whole lines of the cache.
const RUN: usize = 128;

/// Rows and columns of a tile.
const fn tile_of<T>() -> usize {
    RUN / size_of::<T>()
}

/// One plane: `rows` runs of `cols` source neighbours become columns of the target. Steps in elements.
struct Plane<T> {
    to: *mut T,
    /// From one target run to the next.
    to_step: isize,
    from: *const T,
    /// From one source run to the next.
    from_step: isize,
}

/// The dimensions along which neighbours lie in two tensors of one shape, if neighbours in one are far apart in the other. What repeats
/// an element is read as it lies.
#[must_use]
pub fn turned(dst: &Tensor, src: &Tensor) -> Option<(usize, usize)> {
    let along = |t: &Tensor| (0..t.ndim()).find(|&d| t.strides()[d] == 1 && t.shape()[d] > 1);
    let (a, b) = (along(dst)?, along(src)?);
    let long = || dst.shape()[a] >= 8 && dst.shape()[b] >= 8;
    let fits = a != b && dst.shape() == src.shape() && src.strides()[a] != 0;
    (fits && long()).then_some((a, b))
}

/// Copies `src` to `dst` of the same type if they are [`turned`]; false if not.
#[must_use]
pub fn copy(dst: &Tensor, src: &Tensor) -> bool {
    let Some((a, b)) = turned(dst, src) else {
        return false;
    };
    by_size!(dst.dtype().size(), E => planes::<E>(dst, src, a, b));
    true
}

/// Target neighbours along `a`, source neighbours along `b`.
fn planes<T: Element>(dst: &Tensor, src: &Tensor, a: usize, b: usize) {
    let (rows, cols) = (dst.shape()[a] as usize, dst.shape()[b] as usize);
    let rest = |v: &Dims| -> Dims {
        let kept: Vec<i64> = (0..v.len())
            .filter(|&d| d != a && d != b)
            .map(|d| v[d])
            .collect();
        Dims::new(&kept)
    };
    let walk = Walk::<2>::new(
        &rest(dst.shape()),
        [dst.data_ptr(), src.data_ptr()],
        [&rest(dst.strides()), &rest(src.strides())],
        [size_of::<T>(); 2],
    );
    struct Job<T>(Plane<T>);
    // SAFETY: different tiles are different parts of the target.
    unsafe impl<T> Sync for Job<T> {}
    let mut jobs = Vec::new();
    walk.run_serial(|p, s, n| {
        for i in 0..n as isize {
            jobs.push(Job(Plane {
                to: p[0].wrapping_offset(s[0] * i).cast::<T>(),
                to_step: dst.strides()[b] as isize,
                from: p[1].wrapping_offset(s[1] * i).cast::<T>().cast_const(),
                from_step: src.strides()[a] as isize,
            }));
        }
    });
    let tile = const { tile_of::<T>() };
    let bands = cols.div_ceil(tile);
    let grain = (super::iter::GRAIN / (rows * tile.min(cols))).max(1);
    pool::parallel_for(jobs.len() * bands, grain, |range| {
        for k in range {
            let (p, c) = (&jobs[k / bands].0, k % bands * tile);
            let w = tile.min(cols - c);
            for r in (0..rows).step_by(tile) {
                // SAFETY: the tile lies within both layouts.
                unsafe { turn(p, [r, tile.min(rows - r)], [c, w]) };
            }
        }
    });
}

/// Transposes `rows` runs of `cols` elements of `size` bytes; steps between runs in elements.
///
/// # Safety
/// Both sides have them, and share none.
pub unsafe fn plane(
    size: usize,
    (to, to_step): (*mut u8, usize),
    (from, from_step): (*const u8, usize),
    [rows, cols]: [usize; 2],
) {
    unsafe fn of<T: Element>(p: &Plane<T>, [rows, cols]: [usize; 2]) {
        let tile = const { tile_of::<T>() };
        for c in (0..cols).step_by(tile) {
            for r in (0..rows).step_by(tile) {
                // SAFETY: as the caller of `plane` promises.
                unsafe { turn(p, [r, tile.min(rows - r)], [c, tile.min(cols - c)]) };
            }
        }
    }
    by_size!(size, E => {
        let plane = Plane::<E> {
            to: to.cast(),
            to_step: to_step as isize,
            from: from.cast(),
            from_step: from_step as isize,
        };
        // SAFETY: as the caller promises.
        unsafe { of(&plane, [rows, cols]) }
    });
}

/// The tile of `h` source runs from `r` and `w` neighbours from `c`.
#[inline(always)]
unsafe fn turn<T: Element>(p: &Plane<T>, [r, h]: [usize; 2], [c, w]: [usize; 2]) {
    // SAFETY: the caller gives a tile within the plane.
    unsafe {
        let from = |i: usize, j: usize| p.from.offset((r + i) as isize * p.from_step).add(c + j);
        let to = |i: usize, j: usize| p.to.offset((c + j) as isize * p.to_step).add(r + i);
        let (whole_h, whole_w) = (h / T::SIDE * T::SIDE, w / T::SIDE * T::SIDE);
        // Down the source first: its runs are far apart, and their misses come together.
        for j in (0..whole_w).step_by(T::SIDE) {
            for i in (0..whole_h).step_by(T::SIDE) {
                T::turn(from(i, j), p.from_step, to(i, j), p.to_step);
            }
        }
        for j in 0..w {
            for i in if j < whole_w { whole_h } else { 0 }..h {
                *to(i, j) = *from(i, j);
            }
        }
    }
}

/// Elements by their size.
trait Element: Copy + Send + Sync {
    /// Rows and columns of what is turned in registers.
    const SIDE: usize = 4;

    /// Transposes a square of `SIDE`.
    ///
    /// # Safety
    /// Both sides have it.
    #[inline(always)]
    unsafe fn turn(from: *const Self, from_step: isize, to: *mut Self, to_step: isize) {
        for j in 0..Self::SIDE as isize {
            for i in 0..Self::SIDE as isize {
                // SAFETY: as the caller promises.
                unsafe { *to.offset(j * to_step + i) = *from.offset(i * from_step + j) };
            }
        }
    }
}
impl Element for u8 {}
#[cfg(not(target_arch = "x86_64"))]
impl Element for u64 {}
#[cfg(target_arch = "x86_64")]
impl Element for u64 {
    #[inline(always)]
    unsafe fn turn(from: *const Self, from_step: isize, to: *mut Self, to_step: isize) {
        use std::arch::x86_64::*;
        for j in (0..4).step_by(2) {
            for i in (0..4).step_by(2) {
                // SAFETY: as the caller promises; SSE2 belongs to the target.
                unsafe {
                    let (from, to) = (from.offset(i * from_step + j), to.offset(j * to_step + i));
                    let (a, b) = (
                        _mm_loadu_si128(from.cast()),
                        _mm_loadu_si128(from.offset(from_step).cast()),
                    );
                    _mm_storeu_si128(to.cast(), _mm_unpacklo_epi64(a, b));
                    _mm_storeu_si128(to.offset(to_step).cast(), _mm_unpackhi_epi64(a, b));
                }
            }
        }
    }
}
impl Element for [u64; 2] {}
#[cfg(not(target_arch = "x86_64"))]
impl Element for u16 {}
#[cfg(target_arch = "x86_64")]
impl Element for u16 {
    const SIDE: usize = 8;

    #[inline(always)]
    unsafe fn turn(from: *const Self, from_step: isize, to: *mut Self, to_step: isize) {
        use std::arch::x86_64::*;
        // SAFETY: as the caller promises; SSE2 belongs to the target.
        unsafe {
            let row = |i: isize| _mm_loadu_si128(from.offset(i * from_step).cast());
            // Rows shuffled into each other as cards are: after three times, every line is a column.
            let riffle = |v: [__m128i; 8]| {
                let [a, b, c, d, e, f, g, h] = v;
                [
                    _mm_unpacklo_epi16(a, e),
                    _mm_unpackhi_epi16(a, e),
                    _mm_unpacklo_epi16(b, f),
                    _mm_unpackhi_epi16(b, f),
                    _mm_unpacklo_epi16(c, g),
                    _mm_unpackhi_epi16(c, g),
                    _mm_unpacklo_epi16(d, h),
                    _mm_unpackhi_epi16(d, h),
                ]
            };
            let rows = [
                row(0),
                row(1),
                row(2),
                row(3),
                row(4),
                row(5),
                row(6),
                row(7),
            ];
            let [a, b, c, d, e, f, g, h] = riffle(riffle(riffle(rows)));
            let put = |j: isize, v| _mm_storeu_si128(to.offset(j * to_step).cast(), v);
            put(0, a);
            put(1, b);
            put(2, c);
            put(3, d);
            put(4, e);
            put(5, f);
            put(6, g);
            put(7, h);
        }
    }
}
impl Element for u32 {
    #[inline(always)]
    unsafe fn turn(from: *const Self, from_step: isize, to: *mut Self, to_step: isize) {
        // SAFETY: as the caller promises.
        unsafe { four_words(from.cast(), from_step * 4, to, to_step) }
    }
}

/// Transposes four by four 4-byte elements, whose runs lie `from_step` bytes and `to_step` elements apart.
///
/// # Safety
/// Both sides have them.
#[inline(always)]
pub unsafe fn four_words(from: *const u8, from_step: isize, to: *mut u32, to_step: isize) {
    // SAFETY: as the caller promises; SSE2 belongs to the target.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::*;
            let row = |i: isize| _mm_loadu_ps(from.offset(i * from_step).cast());
            let (a, b, c, d) = (row(0), row(1), row(2), row(3));
            let (ab_lo, ab_hi) = (_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b));
            let (cd_lo, cd_hi) = (_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
            let put = |j: isize, v| _mm_storeu_ps(to.offset(j * to_step).cast(), v);
            put(0, _mm_movelh_ps(ab_lo, cd_lo));
            put(1, _mm_movehl_ps(cd_lo, ab_lo));
            put(2, _mm_movelh_ps(ab_hi, cd_hi));
            put(3, _mm_movehl_ps(cd_hi, ab_hi));
        }
        #[cfg(not(target_arch = "x86_64"))]
        for i in 0..4 {
            let run = from.offset(i * from_step).cast::<u32>();
            for j in 0..4 {
                *to.offset(j * to_step + i) = run.offset(j).read_unaligned();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::{DType, Device, Tensor};

    #[test]
    fn planes_of_any_size_are_turned() {
        for (shape, perm) in [
            ([1, 8, 8], [0, 2, 1]),
            ([3, 37, 70], [0, 2, 1]),
            ([33, 9, 12], [2, 0, 1]),
            ([41, 10, 11], [2, 1, 0]),
        ] {
            let n: i64 = shape.iter().product();
            let values: Vec<f64> = (0..n).map(|i| i as f64).collect();
            let wide = Tensor::from_slice(&values, &shape).unwrap();
            for dtype in [DType::C128, DType::F64, DType::F32, DType::I16, DType::U8] {
                let t = super::super::copy::converted(&wide, dtype).unwrap();
                let turned = t.permuted(&perm);
                let out = Tensor::empty(turned.shape(), dtype, Device::CPU).unwrap();
                assert!(super::copy(&out, &turned));
                let back: [usize; 3] =
                    std::array::from_fn(|d| perm.iter().position(|&p| p == d).unwrap());
                let same = Tensor::empty(&shape, dtype, Device::CPU).unwrap();
                assert!(super::copy(&same, &out.permuted(&back)));
                for i in 0..n {
                    let want = super::super::read_scalar(&t, i).unwrap();
                    assert_eq!(super::super::read_scalar(&same, i).unwrap(), want);
                }
            }
        }
    }
}
