//! Products of complex numbers as products of real ones: a row of `A` in memory is `re im re im ...`, which meets `B` as
//! rows `(re im)` and `(-im re)`, so that one real product of twice the sizes along n and k gives rows of `C` as they lie.

#![allow(unsafe_code, reason = "matrices are walked by pointer")]

use super::simple::Simple;
use super::{GemmElement, Mat, MatMut};
use num_complex::Complex;
use num_traits::{Float, NumAssign};

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
    let (mut left, mut right) = (Vec::new(), Vec::new());
    let mut p = 0;
    loop {
        let deep = DEEP.min(k - p);
        // SAFETY: the caller's; the block lies within A.
        let rows = unsafe { rows_of((m, deep), (a.0.at(0, p), a.1), &mut left) };
        for j in (0..n).step_by(WIDE) {
            let wide = WIDE.min(n - j);
            // SAFETY: the caller's; the block lies within B.
            unsafe { pairs_of((deep, wide), alpha, (b.0.at(p, j), b.1), &mut right) };
            let real = Mat::new(right.as_ptr(), 2 * wide as isize, 1);
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
            return;
        }
    }
}

/// A block of A as rows of real numbers: in place if it lies so.
unsafe fn rows_of<R: Part>(
    (m, k): (usize, usize),
    (a, conj): Factor<R>,
    space: &mut Vec<R>,
) -> Mat<R> {
    if a.cs == 1 && !conj {
        return Mat::new(a.ptr.cast(), 2 * a.rs, 1);
    }
    space.clear();
    space.resize(2 * m * k, R::zero());
    let sign = if conj { -R::one() } else { R::one() };
    // A few rows at a time, so that columns are read in runs.
    for i0 in (0..m).step_by(8) {
        for p in 0..k {
            for i in i0..(i0 + 8).min(m) {
                // SAFETY: within A.
                let v = unsafe { *a.at(i, p).ptr };
                space[2 * (i * k + p)] = v.re;
                space[2 * (i * k + p) + 1] = sign * v.im;
            }
        }
    }
    Mat::new(space.as_ptr(), 2 * k as isize, 1)
}

/// A block of B, times `alpha`, as two rows of real numbers each.
unsafe fn pairs_of<R: Part>(
    (k, n): (usize, usize),
    alpha: Complex<R>,
    (b, conj): Factor<R>,
    space: &mut Vec<R>,
) {
    space.resize(4 * k * n, R::zero());
    let plain = alpha.re.is_one() && alpha.im.is_zero();
    let sign = if conj { -R::one() } else { R::one() };
    for p0 in (0..k).step_by(4) {
        for j0 in (0..n).step_by(8) {
            for p in p0..(p0 + 4).min(k) {
                let (first, second) = space[4 * p * n..4 * (p + 1) * n].split_at_mut(2 * n);
                for j in j0..(j0 + 8).min(n) {
                    // SAFETY: within B.
                    let v = unsafe { *b.at(p, j).ptr };
                    let v = Complex::new(v.re, sign * v.im);
                    let v = if plain { v } else { v * alpha };
                    (first[2 * j], first[2 * j + 1]) = (v.re, v.im);
                    (second[2 * j], second[2 * j + 1]) = (-v.im, v.re);
                }
            }
        }
    }
}
