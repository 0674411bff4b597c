//! Products of complex numbers as products of real ones: a row of `A` in memory is `re im re im ...`, which meets `B` as
//! rows `(re im)` and `(-im re)`, so that one real product of twice the sizes along n and k gives rows of `C` as they lie.

#![allow(unsafe_code, reason = "matrices are walked by pointer")]

use super::kernel::room;
use super::simple::Simple;
use super::{GemmElement, Mat, MatMut};
use crate::cpu::simd::simd_fn;
use crate::cpu::transpose;
use num_complex::Complex;
use num_traits::{Float, NumAssign};
use std::cell::RefCell;

thread_local! {
    /// Room for a block of B as real numbers, kept between calls: of small products it would cost as much as the sums.
    static PAIRS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Steps of the sum, and columns, that are brought to real numbers at a time.
const DEEP: usize = 192;
const WIDE: usize = 384;

/// A factor: the matrix, and whether its elements are to be conjugated.
pub type Factor<R> = (Mat<Complex<R>>, bool);

/// Real numbers that complex products are made of.
pub trait Part: GemmElement<Scale = Self> + Float + NumAssign + Default + PartialEq {}
impl Part for f32 {}
impl Part for f64 {}

/// As [`gemm`](super::gemm).
///
/// # Safety
/// As [`gemm`](super::gemm).
pub(super) unsafe fn run<R: Part>(
    (m, n, k): (usize, usize, usize),
    alpha: Complex<R>,
    a: Mat<Complex<R>>,
    b: Mat<Complex<R>>,
    beta: Complex<R>,
    c: MatMut<Complex<R>>,
    bias: Option<*const Complex<R>>,
) {
    let lies = (c.cs == 1 || n == 1) || (c.rs == 1 && bias.is_none());
    if m.min(n) < 4 || k < 4 || !lies {
        // SAFETY: the caller's.
        return unsafe {
            Simple {
                m,
                n,
                k,
                alpha,
                a,
                b,
                beta,
                c,
                bias,
            }
            .run()
        };
    }
    // SAFETY: the caller's.
    unsafe { product((m, n, k), alpha, (a, false), (b, false), beta, c) };
    let Some(bias) = bias else { return };
    for i in 0..m {
        for j in 0..n {
            // SAFETY: within C and the bias.
            unsafe { *c.at(i, j).ptr += *bias.add(j) }
        }
    }
}

/// `C = alpha op(A) op(B) + beta C`, where an operand may be conjugated; rows or columns of `C` are contiguous.
///
/// # Safety
/// As [`gemm`](super::gemm).
pub unsafe fn product<R: Part>(
    (m, n, k): (usize, usize, usize),
    alpha: Complex<R>,
    a: Factor<R>,
    b: Factor<R>,
    beta: Complex<R>,
    c: MatMut<Complex<R>>,
) {
    if m == 0 || n == 0 {
        return;
    }
    if c.cs != 1 && n > 1 {
        let turned = |(m, conj): Factor<R>| (m.t(), conj);
        // SAFETY: the caller's.
        return unsafe { product((n, m, k), alpha, turned(b), turned(a), beta, c.t()) };
    }
    let ((a, conj), (b, b_conj)) = (a, b);
    let mut scale = beta.re;
    if !beta.im.is_zero() {
        for i in 0..m {
            for j in 0..n {
                // SAFETY: within C.
                unsafe { *c.at(i, j).ptr *= beta }
            }
        }
        scale = R::one();
    }
    let (mut left, mut conjugates, mut right) = (Vec::new(), Vec::new(), Vec::new());
    let mut kept = PAIRS.take();
    let most = 4 * DEEP.min(k) * WIDE.min(n);
    let pairs: *mut R = room(&mut kept, most);
    let mut p = 0;
    loop {
        let deep = DEEP.min(k - p);
        // SAFETY: the caller's; the block lies within A.
        let rows = unsafe {
            let a = by_rows((m, deep), a.at(0, p), &mut left);
            if conj {
                conjugates_of((m, deep), a, &mut conjugates)
            } else {
                Mat::new(a.ptr.cast(), 2 * a.rs, 1)
            }
        };
        for j in (0..n).step_by(WIDE) {
            let wide = WIDE.min(n - j);
            // SAFETY: the caller's; the block lies within B, and there is room for so many numbers, all of them written before.
            unsafe {
                let to = std::slice::from_raw_parts_mut(pairs, 4 * deep * wide);
                let b = by_rows((deep, wide), b.at(p, j), &mut right);
                pairs_of(wide, alpha, (b, b_conj), to);
            }
            let real = Mat::new(pairs.cast_const(), 2 * wide as isize, 1);
            // SAFETY: the block lies within C, whose rows are twice as many contiguous real numbers.
            unsafe {
                let to = c.at(0, j);
                let to = MatMut::new(to.ptr.cast::<R>(), 2 * to.rs, 1);
                R::gemm(m, 2 * wide, 2 * deep, R::one(), rows, real, scale, to, None);
            }
        }
        p += deep;
        scale = R::one();
        if p >= k {
            break;
        }
    }
    PAIRS.set(kept);
}

/// A block with contiguous rows: in place if they lie so, else in `space`.
unsafe fn by_rows<R: Part>(
    (rows, columns): (usize, usize),
    from: Mat<Complex<R>>,
    space: &mut Vec<Complex<R>>,
) -> Mat<Complex<R>> {
    if from.cs == 1 || columns == 1 {
        return from;
    }
    space.resize(rows * columns, Complex::default());
    let to = Mat::new(space.as_ptr(), columns as isize, 1);
    if from.rs == 1 && from.cs > 0 {
        let (source, step) = (from.ptr.cast(), from.cs as usize);
        let room = (space.as_mut_ptr().cast(), columns);
        // SAFETY: the caller's block; as many elements of `space`.
        unsafe {
            transpose::plane(
                size_of::<Complex<R>>(),
                room,
                (source, step),
                [columns, rows],
            );
        }
        return to;
    }
    for (i, row) in space.chunks_exact_mut(columns).enumerate() {
        for (j, v) in row.iter_mut().enumerate() {
            // SAFETY: within the caller's block.
            *v = unsafe { *from.at(i, j).ptr };
        }
    }
    to
}

/// A row of a block as real numbers.
unsafe fn row<'a, R: Part>(m: Mat<Complex<R>>, i: usize, columns: usize) -> &'a [R] {
    // SAFETY: the caller's row, whose elements are pairs of real numbers.
    unsafe { std::slice::from_raw_parts(m.at(i, 0).ptr.cast(), 2 * columns) }
}

simd_fn! { stream
    /// Conjugates numbers.
    fn conjugate<R: Part>(from: &[R], to: &mut [R]) {
        for (v, to) in from.chunks_exact(2).zip(to.chunks_exact_mut(2)) {
            (to[0], to[1]) = (v[0], -v[1]);
        }
    }
}

simd_fn! { stream
    /// Numbers times a real one, conjugated by a `sign` of -1: `re im re im ...` and `-im re -im re ...`.
    fn pairs<R: Part>(from: &[R], by: R, sign: R, first: &mut [R], second: &mut [R]) {
        let to = first.chunks_exact_mut(2).zip(second.chunks_exact_mut(2));
        for (v, (first, second)) in from.chunks_exact(2).zip(to) {
            let (re, im) = (v[0] * by, v[1] * (sign * by));
            (first[0], first[1]) = (re, im);
            (second[0], second[1]) = (-im, re);
        }
    }
}

/// The conjugates of a block with contiguous rows, as rows of real numbers.
unsafe fn conjugates_of<R: Part>(
    (m, k): (usize, usize),
    a: Mat<Complex<R>>,
    space: &mut Vec<R>,
) -> Mat<R> {
    space.resize(2 * m * k, R::zero());
    for (i, to) in space.chunks_exact_mut(2 * k).enumerate() {
        // SAFETY: the caller's block.
        conjugate(unsafe { row(a, i, k) }, to);
    }
    Mat::new(space.as_ptr(), 2 * k as isize, 1)
}

/// A block of B with contiguous rows, times `alpha`, as two rows of real numbers each.
unsafe fn pairs_of<R: Part>(n: usize, alpha: Complex<R>, (b, conj): Factor<R>, to: &mut [R]) {
    let sign = if conj { -R::one() } else { R::one() };
    let mut turned = Vec::new();
    for (p, to) in to.chunks_exact_mut(4 * n).enumerate() {
        let (first, second) = to.split_at_mut(2 * n);
        // SAFETY: the caller's block.
        let from = unsafe { row(b, p, n) };
        if alpha.im.is_zero() {
            pairs(from, alpha.re, sign, first, second);
            continue;
        }
        turned.clear();
        for v in from.chunks_exact(2) {
            let v = Complex::new(v[0], sign * v[1]) * alpha;
            turned.extend([v.re, v.im]);
        }
        pairs(&turned, R::one(), R::one(), first, second);
    }
}
