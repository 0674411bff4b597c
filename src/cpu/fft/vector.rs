//! Vectors of numbers, one of each of several lines. Whoever has one has the machine for it: more are made from it.

#![allow(unsafe_code, reason = "vector instructions")]

use crate::cpu::simd;
use num_complex::Complex;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// As many numbers as are computed with at a time.
pub(super) trait Vector: Copy + Send {
    /// One of them.
    type T: Copy;
    /// How many.
    const W: usize;
    /// Zeros.
    ///
    /// # Safety
    /// The machine has what the vector needs: see [`available`].
    unsafe fn zero() -> Self;
    /// The same number in all places.
    fn splat(self, x: Self::T) -> Self;
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// `self + a b`, rounded once.
    fn plus_product(self, a: Self, b: Self) -> Self;
    /// `self - a b`, rounded once.
    fn minus_product(self, a: Self, b: Self) -> Self;
    /// Elements of lines that are moved at a time.
    const K: usize;
    /// The parts of `W` neighbouring complex numbers, in an order of their own.
    ///
    /// # Safety
    /// The numbers are there, and the machine is one for the vector, as for all below.
    unsafe fn load(from: *const Complex<Self::T>) -> (Self, Self);
    /// Writes what [`Vector::load`] reads.
    ///
    /// # Safety
    /// There is room for `W` complex numbers.
    unsafe fn store(re: Self, im: Self, to: *mut Complex<Self::T>);
    /// The parts of `K` neighbouring numbers of each of `W` lines that are `apart`: `K` vectors each, a line in each place.
    ///
    /// # Safety
    /// The numbers are there, and room for the vectors.
    unsafe fn load_lines(from: *const Complex<Self::T>, apart: usize, re: *mut Self, im: *mut Self);
    /// Writes what [`Vector::load_lines`] reads, times a factor; the vectors lie at `K` places.
    ///
    /// # Safety
    /// The vectors are there, and room for the numbers.
    unsafe fn store_lines(
        parts: [*const Self; 2],
        places: &[usize],
        factor: Self,
        to: *mut Complex<Self::T>,
        apart: usize,
    );
}

/// The numbers of vectors, those of one vector side by side.
#[inline(always)]
pub(super) fn numbers<V: Vector>(vectors: &mut [V]) -> &mut [V::T] {
    let count = vectors.len() * V::W;
    // SAFETY: a vector is `W` numbers and nothing else.
    unsafe { std::slice::from_raw_parts_mut(vectors.as_mut_ptr().cast(), count) }
}

/// Whether the machine has the instructions of the vectors here.
pub(super) fn available() -> bool {
    simd::level() >= simd::Level::Avx2
}

/// Code that is compiled for the instructions of vectors: `run` has to be always inlined.
pub(super) trait Task {
    fn run(self);
}

/// Runs a task with the instructions of vectors.
///
/// # Safety
/// They are [`available`].
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
pub(super) unsafe fn with<K: Task>(task: K) {
    task.run();
}

/// What vectors of a machine have in common; each is one instruction of the machine that made the vector it is given.
#[cfg(target_arch = "x86_64")]
macro_rules! arithmetic {
    ($t:ty, $w:literal, $zero:ident, $splat:ident, $add:ident, $sub:ident, $mul:ident, $fma:ident, $fnma:ident) => {
        type T = $t;
        const W: usize = $w;
        #[inline(always)]
        unsafe fn zero() -> Self {
            unsafe { $zero() }
        }
        #[inline(always)]
        fn splat(self, x: $t) -> Self {
            unsafe { $splat(x) }
        }
        #[inline(always)]
        fn plus(self, other: Self) -> Self {
            unsafe { $add(self, other) }
        }
        #[inline(always)]
        fn minus(self, other: Self) -> Self {
            unsafe { $sub(self, other) }
        }
        #[inline(always)]
        fn times(self, other: Self) -> Self {
            unsafe { $mul(self, other) }
        }
        #[inline(always)]
        fn plus_product(self, a: Self, b: Self) -> Self {
            unsafe { $fma(a, b, self) }
        }
        #[inline(always)]
        fn minus_product(self, a: Self, b: Self) -> Self {
            unsafe { $fnma(a, b, self) }
        }
    };
}

#[cfg(target_arch = "x86_64")]
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "instructions of the machine that made the vectors; the rest as the trait says"
)]
impl Vector for __m256 {
    arithmetic!(
        f32,
        8,
        _mm256_setzero_ps,
        _mm256_set1_ps,
        _mm256_add_ps,
        _mm256_sub_ps,
        _mm256_mul_ps,
        _mm256_fmadd_ps,
        _mm256_fnmadd_ps
    );
    const K: usize = 2;
    #[inline(always)]
    unsafe fn load(from: *const Complex<f32>) -> (Self, Self) {
        unsafe {
            let (a, b) = (
                _mm256_loadu_ps(from.cast()),
                _mm256_loadu_ps(from.add(4).cast()),
            );
            (
                _mm256_shuffle_ps::<0x88>(a, b),
                _mm256_shuffle_ps::<0xDD>(a, b),
            )
        }
    }
    #[inline(always)]
    unsafe fn store(re: Self, im: Self, to: *mut Complex<f32>) {
        unsafe {
            _mm256_storeu_ps(to.cast(), _mm256_unpacklo_ps(re, im));
            _mm256_storeu_ps(to.add(4).cast(), _mm256_unpackhi_ps(re, im));
        }
    }
    #[inline(always)]
    unsafe fn load_lines(from: *const Complex<f32>, apart: usize, re: *mut Self, im: *mut Self) {
        unsafe {
            let x = [
                halves(from, 4 * apart),
                halves(from.add(apart), 4 * apart),
                halves(from.add(2 * apart), 4 * apart),
                halves(from.add(3 * apart), 4 * apart),
            ];
            let (a, b) = (low(x[0], x[1]), low(x[2], x[3]));
            let (c, d) = (high(x[0], x[1]), high(x[2], x[3]));
            re.write(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)));
            im.write(_mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
            re.add(1).write(_mm256_castpd_ps(_mm256_unpacklo_pd(c, d)));
            im.add(1).write(_mm256_castpd_ps(_mm256_unpackhi_pd(c, d)));
        }
    }
    #[inline(always)]
    unsafe fn store_lines(
        [re, im]: [*const Self; 2],
        places: &[usize],
        factor: Self,
        to: *mut Complex<f32>,
        apart: usize,
    ) {
        unsafe {
            let (first, second) = (places[0], places[1]);
            let (x, y) = (
                (*re.add(first)).times(factor),
                (*im.add(first)).times(factor),
            );
            let (z, w) = (
                (*re.add(second)).times(factor),
                (*im.add(second)).times(factor),
            );
            let (x, y, z, w) = (
                _mm256_castps_pd(x),
                _mm256_castps_pd(y),
                _mm256_castps_pd(z),
                _mm256_castps_pd(w),
            );
            let (a, b) = (low(x, y), high(x, y));
            let (c, d) = (low(z, w), high(z, w));
            put(_mm256_unpacklo_pd(a, c), to, 4 * apart);
            put(_mm256_unpackhi_pd(a, c), to.add(apart), 4 * apart);
            put(_mm256_unpacklo_pd(b, d), to.add(2 * apart), 4 * apart);
            put(_mm256_unpackhi_pd(b, d), to.add(3 * apart), 4 * apart);
        }
    }
}
#[cfg(target_arch = "x86_64")]
#[allow(
    clippy::undocumented_unsafe_blocks,
    reason = "instructions of the machine that made the vectors; the rest as the trait says"
)]
impl Vector for __m256d {
    arithmetic!(
        f64,
        4,
        _mm256_setzero_pd,
        _mm256_set1_pd,
        _mm256_add_pd,
        _mm256_sub_pd,
        _mm256_mul_pd,
        _mm256_fmadd_pd,
        _mm256_fnmadd_pd
    );
    const K: usize = 1;
    #[inline(always)]
    unsafe fn load(from: *const Complex<f64>) -> (Self, Self) {
        unsafe {
            let (a, b) = (
                _mm256_loadu_pd(from.cast()),
                _mm256_loadu_pd(from.add(2).cast()),
            );
            (_mm256_unpacklo_pd(a, b), _mm256_unpackhi_pd(a, b))
        }
    }
    #[inline(always)]
    unsafe fn store(re: Self, im: Self, to: *mut Complex<f64>) {
        unsafe {
            _mm256_storeu_pd(to.cast(), _mm256_unpacklo_pd(re, im));
            _mm256_storeu_pd(to.add(2).cast(), _mm256_unpackhi_pd(re, im));
        }
    }
    #[inline(always)]
    unsafe fn load_lines(from: *const Complex<f64>, apart: usize, re: *mut Self, im: *mut Self) {
        unsafe {
            let (a, b) = (halves(from, 2 * apart), halves(from.add(apart), 2 * apart));
            re.write(_mm256_unpacklo_pd(a, b));
            im.write(_mm256_unpackhi_pd(a, b));
        }
    }
    #[inline(always)]
    unsafe fn store_lines(
        [re, im]: [*const Self; 2],
        places: &[usize],
        factor: Self,
        to: *mut Complex<f64>,
        apart: usize,
    ) {
        unsafe {
            let (re, im) = (*re.add(places[0]), *im.add(places[0]));
            let (re, im) = (re.times(factor), im.times(factor));
            put(_mm256_unpacklo_pd(re, im), to, 2 * apart);
            put(_mm256_unpackhi_pd(re, im), to.add(apart), 2 * apart);
        }
    }
}

/// Single numbers of two vectors by turns: those of the first halves of lanes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn low(a: __m256d, b: __m256d) -> __m256d {
    // SAFETY: the vectors are there, and so the machine.
    unsafe { _mm256_castps_pd(_mm256_unpacklo_ps(_mm256_castpd_ps(a), _mm256_castpd_ps(b))) }
}

/// Those of the second halves.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn high(a: __m256d, b: __m256d) -> __m256d {
    // SAFETY: as above.
    unsafe { _mm256_castps_pd(_mm256_unpackhi_ps(_mm256_castpd_ps(a), _mm256_castpd_ps(b))) }
}

/// 128 bits of each of two lines, so far apart.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn halves<T>(from: *const Complex<T>, apart: usize) -> __m256d {
    // SAFETY: the caller's promise, and the machine that it has.
    unsafe {
        let first = _mm256_castpd128_pd256(_mm_loadu_pd(from.cast()));
        _mm256_insertf128_pd::<1>(first, _mm_loadu_pd(from.add(apart).cast()))
    }
}

/// Writes what [`halves`] reads.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn put<T>(x: __m256d, to: *mut Complex<T>, apart: usize) {
    // SAFETY: as above.
    unsafe {
        _mm_storeu_pd(to.cast(), _mm256_castpd256_pd128(x));
        _mm_storeu_pd(to.add(apart).cast(), _mm256_extractf128_pd::<1>(x));
    }
}

/// The vectors of a real type.
pub(super) trait Vectors {
    type V: Vector<T = Self>;
}
#[cfg(target_arch = "x86_64")]
impl Vectors for f32 {
    type V = __m256;
}
#[cfg(target_arch = "x86_64")]
impl Vectors for f64 {
    type V = __m256d;
}

/// One number at a time, where there are no vectors: [`available`] says that they are not used.
#[cfg(not(target_arch = "x86_64"))]
mod single {
    use super::{Vector, Vectors};
    macro_rules! single {
        ($t:ty) => {
            impl Vectors for $t {
                type V = $t;
            }
            impl Vector for $t {
                type T = $t;
                const W: usize = 1;
                unsafe fn zero() -> Self {
                    0.0
                }
                fn splat(self, x: $t) -> Self {
                    x
                }
                fn plus(self, other: Self) -> Self {
                    self + other
                }
                fn minus(self, other: Self) -> Self {
                    self - other
                }
                fn times(self, other: Self) -> Self {
                    self * other
                }
                fn plus_product(self, a: Self, b: Self) -> Self {
                    a.mul_add(b, self)
                }
                fn minus_product(self, a: Self, b: Self) -> Self {
                    (-a).mul_add(b, self)
                }
                const K: usize = 1;
                unsafe fn load(from: *const Complex<$t>) -> (Self, Self) {
                    // SAFETY: the caller's promise, as below.
                    unsafe { ((*from).re, (*from).im) }
                }
                unsafe fn store(re: Self, im: Self, to: *mut Complex<$t>) {
                    unsafe { to.write(Complex::new(re, im)) }
                }
                unsafe fn load_lines(
                    from: *const Complex<$t>,
                    _: usize,
                    re: *mut Self,
                    im: *mut Self,
                ) {
                    unsafe { (*re, *im) = Self::load(from) }
                }
                unsafe fn store_lines(
                    [re, im]: [*const Self; 2],
                    places: &[usize],
                    factor: Self,
                    to: *mut Complex<$t>,
                    _: usize,
                ) {
                    let place = places[0];
                    unsafe { Self::store(*re.add(place) * factor, *im.add(place) * factor, to) }
                }
            }
        };
    }
    single!(f32);
    single!(f64);
}
