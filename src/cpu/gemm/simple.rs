//! Products of integers, and of few complex numbers: tiles of sums over blocks of columns of B, and sums of products where there are few columns.

#![allow(unsafe_code, reason = "matrices are walked by pointer")]

use super::complex::Part;
use super::{Mat, MatMut, PARALLEL_FROM, Shared};
use crate::cpu::pool;
use crate::cpu::simd::simd_fn;
use num_complex::Complex;

/// Rows of a tile.
const ROWS: usize = 4;
/// Columns of a tile.
const WIDTH: usize = 256;
/// Sums of a line that are kept apart.
const LANES: usize = 64;
/// Columns of B up to which each is summed by itself: a tile would be mostly empty.
const FEW: usize = 4;

/// Numbers that are multiplied and added one by one; integers wrap.
pub(super) trait Number: Copy + Default + PartialEq + 'static {
    /// `x * y + z`.
    fn mac(x: Self, y: Self, z: Self) -> Self;
    fn add(x: Self, y: Self) -> Self;
    /// `x * y + z` of a sum or a result, which may be larger than elements are.
    #[inline(always)]
    fn scale(x: Self, y: Self, z: Self) -> Self {
        Self::mac(x, y, z)
    }
}
macro_rules! integers {
    ($($t:ty)+) => { $(
        impl Number for $t {
            #[inline(always)]
            fn mac(x: $t, y: $t, z: $t) -> $t { x.wrapping_mul(y).wrapping_add(z) }
            #[inline(always)]
            fn add(x: $t, y: $t) -> $t { x.wrapping_add(y) }
        }
    )+ };
}
integers! { u8 u16 u32 u64 }
impl<R: Part> Number for Complex<R> {
    #[inline(always)]
    fn mac(x: Self, y: Self, z: Self) -> Self {
        x * y + z
    }
    #[inline(always)]
    fn add(x: Self, y: Self) -> Self {
        x + y
    }
}

/// Sums of a tile, from the start of a cache line on: vectors that cross lines cost twice.
#[repr(align(64))]
struct Sums<T>([[T; WIDTH]; ROWS]);

simd_fn! { wide
    /// Sums of products of four lines of A with `width` columns of B, whose lines are `step` elements apart. (A loop whose
    /// length is known would be unrolled, and not become vectors.)
    fn tile<T: Number>(a: [*const T; ROWS], cs: isize, b: *const T, step: isize, k: usize, width: usize, to: &mut [[T; WIDTH]; ROWS]) {
        let mut sums = Sums([[T::default(); WIDTH]; ROWS]);
        let [s0, s1, s2, s3] = &mut sums.0;
        let n = width.min(WIDTH);
        for p in 0..k as isize {
            // SAFETY: the caller's, who has `k` elements of each line and as many lines of so many columns.
            let (y, x) = unsafe {
                let y = std::slice::from_raw_parts(b.wrapping_offset(p * step), n);
                (y, [0, 1, 2, 3].map(|r| *a[r].wrapping_offset(p * cs)))
            };
            let (s0, s1, s2, s3) = (&mut s0[..n], &mut s1[..n], &mut s2[..n], &mut s3[..n]);
            for q in 0..n {
                s0[q] = T::mac(x[0], y[q], s0[q]);
                s1[q] = T::mac(x[1], y[q], s1[q]);
                s2[q] = T::mac(x[2], y[q], s2[q]);
                s3[q] = T::mac(x[3], y[q], s3[q]);
            }
        }
        *to = sums.0;
    }
}

simd_fn! { wide
    /// The sum of products of two lines: in lanes, as complex numbers are summed in the same order everywhere.
    fn dot<T: Number>(x: &[T], y: &[T]) -> T {
        let mut sums = [T::default(); LANES];
        let n = x.len().min(y.len());
        for at in (0..n / LANES * LANES).step_by(LANES) {
            let (x, y) = (&x[at..at + LANES], &y[at..at + LANES]);
            for l in 0..LANES {
                sums[l] = T::mac(x[l], y[l], sums[l]);
            }
        }
        for at in n / LANES * LANES..n {
            sums[at % LANES] = T::mac(x[at], y[at], sums[at % LANES]);
        }
        sums.into_iter().fold(T::default(), T::add)
    }
}

/// A number of 64 bits, the elements of which are such of 32 bits: one instruction multiplies those, where three or more make a
/// product of 64 bits.
#[derive(Clone, Copy, Default, PartialEq)]
#[repr(transparent)]
struct Short(i64);

impl Number for Short {
    #[inline(always)]
    fn mac(x: Self, y: Self, z: Self) -> Self {
        let of = |v: Self| i64::from(v.0 as i32);
        Self((of(x) * of(y)).wrapping_add(z.0))
    }
    #[inline(always)]
    fn add(x: Self, y: Self) -> Self {
        Self(x.0.wrapping_add(y.0))
    }
    #[inline(always)]
    fn scale(x: Self, y: Self, z: Self) -> Self {
        Self(x.0.wrapping_mul(y.0).wrapping_add(z.0))
    }
}

/// Whether the numbers of 64 bits of a matrix are such of 32 bits.
///
/// # Safety
/// It has so many rows and columns.
unsafe fn is_short(matrix: &Mat<u64>, rows: usize, columns: usize) -> bool {
    // The walk along memory is the inner one.
    let turned = matrix.rs.abs() < matrix.cs.abs();
    let (outer, inner) = if turned {
        (columns, rows)
    } else {
        (rows, columns)
    };
    (0..outer).all(|i| {
        let mut beyond = 0;
        for j in 0..inner {
            let (row, column) = if turned { (j, i) } else { (i, j) };
            // SAFETY: as the caller promises.
            let v = unsafe { *matrix.at(row, column).ptr };
            beyond |= v.wrapping_add(1 << 31);
        }
        beyond >> 32 == 0
    })
}

impl Simple<u64> {
    /// The same, in the quickest way for the numbers that there are.
    ///
    /// # Safety
    /// As [`gemm`](super::gemm).
    pub(super) unsafe fn run_by_size(self) {
        /// Rows and columns from which it pays to look at all numbers.
        const MANY: usize = 8;
        // SAFETY: as the caller promises; the numbers are of one size.
        unsafe {
            let many = self.m.min(self.n) >= MANY;
            if !many || !is_short(&self.a, self.m, self.k) || !is_short(&self.b, self.k, self.n) {
                return self.run();
            }
            let short = |x: Mat<u64>| Mat::new(x.ptr.cast(), x.rs, x.cs);
            Simple {
                m: self.m,
                n: self.n,
                k: self.k,
                alpha: Short(self.alpha as i64),
                a: short(self.a),
                b: short(self.b),
                beta: Short(self.beta as i64),
                c: MatMut::new(self.c.ptr.cast(), self.c.rs, self.c.cs),
                bias: self.bias.map(|b| b.cast()),
            }
            .run();
        }
    }
}

/// A product, as [`gemm`](super::gemm) is asked for it.
pub(super) struct Simple<T> {
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub alpha: T,
    pub a: Mat<T>,
    pub b: Mat<T>,
    pub beta: T,
    pub c: MatMut<T>,
    pub bias: Option<*const T>,
}

impl<T: Number> Simple<T> {
    /// # Safety
    /// As [`gemm`](super::gemm).
    pub(super) unsafe fn run(self) {
        let (m, work) = (self.m, self.n.saturating_mul(self.k).max(1));
        let grain = (PARALLEL_FROM / 4).div_ceil(work).max(1);
        let each = Shared(move |rows| {
            if self.n <= FEW {
                self.dots(rows);
            } else {
                self.tiles(rows);
            }
        });
        let each = &each;
        pool::parallel_for(m, grain, |rows| each.call(rows));
    }

    /// Puts a sum in its place.
    #[inline(always)]
    fn put(&self, i: usize, j: usize, sum: T) {
        let zero = T::default();
        // SAFETY: within C and the bias; rows of different threads are different.
        unsafe {
            let at = self.c.at(i, j).ptr;
            let mut v = T::scale(self.alpha, sum, zero);
            if self.beta != zero {
                v = T::scale(self.beta, *at, v);
            }
            if let Some(bias) = self.bias {
                v = T::add(v, *bias.add(j));
            }
            *at = v;
        }
    }

    /// A line of elements side by side: where it is, or a copy in `room`.
    fn line<'a>(&self, from: Mat<T>, room: &'a mut Vec<T>) -> &'a [T] {
        // SAFETY: a line of `k` elements of an operand.
        unsafe {
            if from.cs == 1 {
                return std::slice::from_raw_parts(from.ptr, self.k);
            }
            room.clear();
            room.extend((0..self.k).map(|p| *from.at(0, p).ptr));
        }
        room
    }

    fn dots(&self, rows: std::ops::Range<usize>) {
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for j in 0..self.n {
            // SAFETY: a column of B.
            let column = self.line(unsafe { self.b.at(0, j) }.t(), &mut y);
            for i in rows.clone() {
                // SAFETY: a row of A.
                let row = self.line(unsafe { self.a.at(i, 0) }, &mut x);
                self.put(i, j, dot(row, column));
            }
        }
    }

    fn tiles(&self, rows: std::ops::Range<usize>) {
        let mut packed = Vec::new();
        let mut sums = [[T::default(); WIDTH]; ROWS];
        for j in (0..self.n).step_by(WIDTH) {
            let width = WIDTH.min(self.n - j);
            // SAFETY: within B, or just behind it.
            let mut block = unsafe { self.b.at(0, j) };
            if block.cs != 1 {
                packed.resize(self.k * width, T::default());
                for (q, p) in (0..width).flat_map(|q| (0..self.k).map(move |p| (q, p))) {
                    // SAFETY: within B.
                    packed[p * width + q] = unsafe { *block.at(p, q).ptr };
                }
                block = Mat::new(packed.as_ptr(), width as isize, 1);
            }
            for i in rows.clone().step_by(ROWS) {
                // Of fewer rows the last is summed several times.
                let row = |r: usize| (i + r).min(rows.end - 1);
                // SAFETY: rows of A.
                let lines = [0, 1, 2, 3].map(|r| unsafe { self.a.at(row(r), 0).ptr });
                tile(
                    lines, self.a.cs, block.ptr, block.rs, self.k, width, &mut sums,
                );
                for (i, sums) in (i..rows.end).zip(&sums) {
                    for (q, &sum) in sums[..width].iter().enumerate() {
                        self.put(i, j + q, sum);
                    }
                }
            }
        }
    }
}
