//! Vectors of real numbers, by the instructions of AVX2 or as arrays, and code that is written in them.

#![allow(unsafe_code, reason = "vector instructions")]

#[cfg(target_arch = "x86_64")]
use super::simd::{Level, level};
use num_traits::NumAssign;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

/// A vector of real numbers; what is done with it may need instructions that its maker has asked for.
pub trait Lanes<R>: Copy {
    /// Its numbers.
    const WIDE: usize;
    /// All the same.
    unsafe fn splat(x: R) -> Self;
    /// Those at an address.
    unsafe fn load(q: *const R) -> Self;
    /// The first `n` of them, and zeros.
    unsafe fn load_part(q: *const R, n: usize) -> Self;
    /// Writes them.
    unsafe fn store(self, q: *mut R);
    /// Writes the first `n`.
    unsafe fn store_part(self, q: *mut R, n: usize);
    /// `self + a b`.
    unsafe fn plus(self, a: Self, b: Self) -> Self;
    /// Those of each pair exchanged.
    unsafe fn swapped(self) -> Self;
    /// `b` taken from the first of each pair, and added to the second.
    unsafe fn turned(self, b: Self) -> Self;
    /// The sum of the first of all pairs, and of the second.
    unsafe fn sums(self) -> (R, R);
}

/// Real numbers that there are vectors of.
pub trait Vectors: Copy {
    /// A vector of AVX2.
    #[cfg(target_arch = "x86_64")]
    type Avx2: Lanes<Self>;
}

#[cfg(target_arch = "x86_64")]
macro_rules! avx2 {
    ($t:ty, $v:ty, $wide:literal, $($name:ident($($arg:ident: $of:ty),*) -> $to:ty { $e:expr })+) => {
        impl Vectors for $t {
            type Avx2 = $v;
        }
        impl Lanes<$t> for $v {
            const WIDE: usize = $wide;
            $(
                #[inline(always)]
                unsafe fn $name($($arg: $of),*) -> $to {
                    // SAFETY: only code compiled for AVX2 calls it, and gives addresses of so many numbers.
                    unsafe { $e }
                }
            )+
        }
    };
}
#[cfg(target_arch = "x86_64")]
avx2! { f32, __m256, 8,
    splat(x: f32) -> Self { _mm256_set1_ps(x) }
    load(q: *const f32) -> Self { _mm256_loadu_ps(q) }
    load_part(q: *const f32, n: usize) -> Self { _mm256_maskload_ps(q, first_of_eight(n)) }
    store(self: Self, q: *mut f32) -> () { _mm256_storeu_ps(q, self) }
    store_part(self: Self, q: *mut f32, n: usize) -> () { _mm256_maskstore_ps(q, first_of_eight(n), self) }
    plus(self: Self, a: Self, b: Self) -> Self { _mm256_fmadd_ps(a, b, self) }
    swapped(self: Self) -> Self { _mm256_permute_ps::<0b10_11_00_01>(self) }
    turned(self: Self, b: Self) -> Self { _mm256_addsub_ps(self, b) }
    sums(self: Self) -> (f32, f32) {{
        let half = _mm_add_ps(_mm256_castps256_ps128(self), _mm256_extractf128_ps::<1>(self));
        let pair = _mm_add_ps(half, _mm_movehl_ps(half, half));
        (_mm_cvtss_f32(pair), _mm_cvtss_f32(_mm_movehdup_ps(pair)))
    }}
}
#[cfg(target_arch = "x86_64")]
avx2! { f64, __m256d, 4,
    splat(x: f64) -> Self { _mm256_set1_pd(x) }
    load(q: *const f64) -> Self { _mm256_loadu_pd(q) }
    load_part(q: *const f64, n: usize) -> Self { _mm256_maskload_pd(q, first_of_four(n)) }
    store(self: Self, q: *mut f64) -> () { _mm256_storeu_pd(q, self) }
    store_part(self: Self, q: *mut f64, n: usize) -> () { _mm256_maskstore_pd(q, first_of_four(n), self) }
    plus(self: Self, a: Self, b: Self) -> Self { _mm256_fmadd_pd(a, b, self) }
    swapped(self: Self) -> Self { _mm256_permute_pd::<0b0101>(self) }
    turned(self: Self, b: Self) -> Self { _mm256_addsub_pd(self, b) }
    sums(self: Self) -> (f64, f64) {{
        let pair = _mm_add_pd(_mm256_castpd256_pd128(self), _mm256_extractf128_pd::<1>(self));
        (_mm_cvtsd_f64(pair), _mm_cvtsd_f64(_mm_unpackhi_pd(pair, pair)))
    }}
}
#[cfg(not(target_arch = "x86_64"))]
impl<T: Copy> Vectors for T {}

/// All bits set in the first `n` of eight lanes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn first_of_eight(n: usize) -> __m256i {
    // SAFETY: its callers are compiled for AVX2.
    unsafe {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lanes)
    }
}

/// All bits set in the first `n` of four lanes.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn first_of_four(n: usize) -> __m256i {
    // SAFETY: as above.
    unsafe { _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), _mm256_setr_epi64x(0, 1, 2, 3)) }
}

/// Lanes on machines without AVX2.
const PLAIN: usize = 4;

impl<R: NumAssign + Copy> Lanes<R> for [R; PLAIN] {
    const WIDE: usize = PLAIN;
    #[inline(always)]
    unsafe fn splat(x: R) -> Self {
        [x; PLAIN]
    }
    #[inline(always)]
    unsafe fn load(q: *const R) -> Self {
        // SAFETY: so many numbers are there.
        unsafe { q.cast::<Self>().read_unaligned() }
    }
    #[inline(always)]
    unsafe fn load_part(q: *const R, n: usize) -> Self {
        let mut all = [R::zero(); PLAIN];
        // SAFETY: so many numbers are there.
        unsafe { std::ptr::copy_nonoverlapping(q, all.as_mut_ptr(), n.min(PLAIN)) };
        all
    }
    #[inline(always)]
    unsafe fn store(self, q: *mut R) {
        // SAFETY: there is room for so many numbers.
        unsafe { q.cast::<Self>().write_unaligned(self) }
    }
    #[inline(always)]
    unsafe fn store_part(self, q: *mut R, n: usize) {
        // SAFETY: there is room for so many numbers.
        unsafe { std::ptr::copy_nonoverlapping(self.as_ptr(), q, n.min(PLAIN)) }
    }
    #[inline(always)]
    unsafe fn plus(self, a: Self, b: Self) -> Self {
        std::array::from_fn(|i| self[i] + a[i] * b[i])
    }
    #[inline(always)]
    unsafe fn swapped(self) -> Self {
        [self[1], self[0], self[3], self[2]]
    }
    #[inline(always)]
    unsafe fn turned(self, b: Self) -> Self {
        [
            self[0] - b[0],
            self[1] + b[1],
            self[2] - b[2],
            self[3] + b[3],
        ]
    }
    #[inline(always)]
    unsafe fn sums(self) -> (R, R) {
        (self[0] + self[2], self[1] + self[3])
    }
}

/// A vector from `i` on, or its first numbers.
#[inline(always)]
pub unsafe fn at<R, V: Lanes<R>>(q: *const R, i: usize, part: Option<usize>) -> V {
    // SAFETY: as the callers promise.
    unsafe {
        match part {
            None => V::load(q.add(i)),
            Some(n) => V::load_part(q.add(i), n),
        }
    }
}

/// Writes a vector from `i` on, or its first numbers.
#[inline(always)]
pub unsafe fn put<R, V: Lanes<R>>(v: V, q: *mut R, i: usize, part: Option<usize>) {
    // SAFETY: as the callers promise.
    unsafe {
        match part {
            None => v.store(q.add(i)),
            Some(n) => v.store_part(q.add(i), n),
        }
    }
}

/// Code of vectors, compiled for each set of instructions.
pub trait Task<R> {
    /// What it gives.
    type Out;
    /// # Safety
    /// Its maker promises what it needs of memory; the code is compiled for what `V` needs.
    unsafe fn run<V: Lanes<R>>(self) -> Self::Out;
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn by_avx2<R: Vectors, K: Task<R>>(task: K) -> K::Out {
    // SAFETY: as the caller promises.
    unsafe { task.run::<R::Avx2>() }
}

/// Runs a task by the best instructions there are.
///
/// # Safety
/// The task's maker promises what it needs of memory.
pub unsafe fn run<R: Vectors + NumAssign, K: Task<R>>(task: K) -> K::Out {
    // SAFETY: as the caller promises; `level` says what the machine has.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if level() >= Level::Avx2 {
            return by_avx2(task);
        }
        task.run::<[R; PLAIN]>()
    }
}
