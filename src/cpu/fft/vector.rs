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
    /// The place of each line in the vectors of [`Vector::load_lines`].
    const PLACES: &'static [usize];
    /// The parts of `K` neighbouring numbers of each of `W` lines that are `apart`: `K` vectors each, a line in each place.
    ///
    /// # Safety
    /// The numbers are there, and room for the vectors.
    unsafe fn load_lines(from: *const Complex<Self::T>, apart: usize, re: *mut Self, im: *mut Self);
    /// Writes what [`Vector::load_lines`] reads, times a factor.
    ///
    /// # Safety
    /// The vectors are there, and room for the numbers.
    unsafe fn store_lines(
        re: *const Self,
        im: *const Self,
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

/// The transpose of four vectors of four 64-bit values.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn transposed(v: [__m256d; 4]) -> [__m256d; 4] {
    // SAFETY: the vectors are there, and so the machine.
    unsafe {
        let (a, b) = (
            _mm256_unpacklo_pd(v[0], v[1]),
            _mm256_unpackhi_pd(v[0], v[1]),
        );
        let (c, d) = (
            _mm256_unpacklo_pd(v[2], v[3]),
            _mm256_unpackhi_pd(v[2], v[3]),
        );
        [
            _mm256_permute2f128_pd::<0x20>(a, c),
            _mm256_permute2f128_pd::<0x20>(b, d),
            _mm256_permute2f128_pd::<0x31>(a, c),
            _mm256_permute2f128_pd::<0x31>(b, d),
        ]
    }
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
    const K: usize = 4;
    const PLACES: &'static [usize] = &[0, 1, 4, 5, 2, 3, 6, 7];
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
            let (mut a, mut b) = ([_mm256_setzero_pd(); 4], [_mm256_setzero_pd(); 4]);
            for l in 0..4 {
                a[l] = _mm256_loadu_pd(from.add(l * apart).cast());
                b[l] = _mm256_loadu_pd(from.add((l + 4) * apart).cast());
            }
            let (a, b) = (transposed(a), transposed(b));
            for k in 0..4 {
                let (a, b) = (_mm256_castpd_ps(a[k]), _mm256_castpd_ps(b[k]));
                re.add(k).write(_mm256_shuffle_ps::<0x88>(a, b));
                im.add(k).write(_mm256_shuffle_ps::<0xDD>(a, b));
            }
        }
    }
    #[inline(always)]
    unsafe fn store_lines(
        re: *const Self,
        im: *const Self,
        factor: Self,
        to: *mut Complex<f32>,
        apart: usize,
    ) {
        unsafe {
            let (mut a, mut b) = ([_mm256_setzero_pd(); 4], [_mm256_setzero_pd(); 4]);
            for k in 0..4 {
                let (re, im) = ((*re.add(k)).times(factor), (*im.add(k)).times(factor));
                a[k] = _mm256_castps_pd(_mm256_unpacklo_ps(re, im));
                b[k] = _mm256_castps_pd(_mm256_unpackhi_ps(re, im));
            }
            let (a, b) = (transposed(a), transposed(b));
            for l in 0..4 {
                _mm256_storeu_pd(to.add(l * apart).cast(), a[l]);
                _mm256_storeu_pd(to.add((l + 4) * apart).cast(), b[l]);
            }
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
    const K: usize = 2;
    const PLACES: &'static [usize] = &[0, 2, 1, 3];
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
            let a = _mm256_loadu_pd(from.cast());
            let b = _mm256_loadu_pd(from.add(apart).cast());
            let c = _mm256_loadu_pd(from.add(2 * apart).cast());
            let d = _mm256_loadu_pd(from.add(3 * apart).cast());
            let first = (
                _mm256_permute2f128_pd::<0x20>(a, b),
                _mm256_permute2f128_pd::<0x20>(c, d),
            );
            let second = (
                _mm256_permute2f128_pd::<0x31>(a, b),
                _mm256_permute2f128_pd::<0x31>(c, d),
            );
            re.write(_mm256_unpacklo_pd(first.0, first.1));
            im.write(_mm256_unpackhi_pd(first.0, first.1));
            re.add(1).write(_mm256_unpacklo_pd(second.0, second.1));
            im.add(1).write(_mm256_unpackhi_pd(second.0, second.1));
        }
    }
    #[inline(always)]
    unsafe fn store_lines(
        re: *const Self,
        im: *const Self,
        factor: Self,
        to: *mut Complex<f64>,
        apart: usize,
    ) {
        unsafe {
            let (re0, im0) = ((*re).times(factor), (*im).times(factor));
            let (re1, im1) = ((*re.add(1)).times(factor), (*im.add(1)).times(factor));
            let (a, c) = (_mm256_unpacklo_pd(re0, im0), _mm256_unpackhi_pd(re0, im0));
            let (b, d) = (_mm256_unpacklo_pd(re1, im1), _mm256_unpackhi_pd(re1, im1));
            _mm256_storeu_pd(to.cast(), _mm256_permute2f128_pd::<0x20>(a, b));
            _mm256_storeu_pd(to.add(apart).cast(), _mm256_permute2f128_pd::<0x31>(a, b));
            _mm256_storeu_pd(
                to.add(2 * apart).cast(),
                _mm256_permute2f128_pd::<0x20>(c, d),
            );
            _mm256_storeu_pd(
                to.add(3 * apart).cast(),
                _mm256_permute2f128_pd::<0x31>(c, d),
            );
        }
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
                const PLACES: &'static [usize] = &[0];
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
                    re: *const Self,
                    im: *const Self,
                    factor: Self,
                    to: *mut Complex<$t>,
                    _: usize,
                ) {
                    unsafe { Self::store(*re * factor, *im * factor, to) }
                }
            }
        };
    }
    single!(f32);
    single!(f64);
}
