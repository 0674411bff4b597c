//! Helpers of row kernels: copies per instruction set, and sums and maxima in independent lanes, which the compiler
//! turns into vectors.

#![allow(
    unsafe_code,
    reason = "the compiled copies are called where the machine has their instructions"
)]

use super::math::RealFns;

/// A function compiled for each instruction set and chosen at run time.
#[doc(hidden)]
#[macro_export]
macro_rules! wide_fn {
    ($(#[$m:meta])* $vis:vis fn $name:ident $(<$T:ident: $b:path>)? ($($a:ident: $t:ty),* $(,)?) $body:block) => {
        $(#[$m])*
        $vis fn $name $(<$T: $b>)? ($($a: $t),*) {
            #[inline(always)]
            fn body $(<$T: $b>)? ($($a: $t),*) $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c")]
                fn avx2 $(<$T: $b>)? ($($a: $t),*) { body $(::<$T>)? ($($a),*) }
                #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl,avx512cd")]
                fn avx512 $(<$T: $b>)? ($($a: $t),*) { body $(::<$T>)? ($($a),*) }
                match $crate::cpu::simd::level() {
                    // SAFETY: the machine has just been found to have these features.
                    $crate::cpu::simd::Level::Avx512 => return unsafe { avx512 $(::<$T>)? ($($a),*) },
                    // SAFETY: as above.
                    $crate::cpu::simd::Level::Avx2 => return unsafe { avx2 $(::<$T>)? ($($a),*) },
                    _ => {}
                }
            }
            body $(::<$T>)? ($($a),*)
        }
    };
}

/// Numbers that row kernels compute with.
pub trait Real:
    RealFns
    + crate::Element
    + std::ops::Add<Output = Self>
    + std::ops::Sub<Output = Self>
    + std::ops::Mul<Output = Self>
    + std::ops::Div<Output = Self>
    + std::ops::Neg<Output = Self>
    + std::ops::AddAssign
{
    /// The smallest value.
    const LOWEST: Self;
    /// self * b + c, rounded once where that is fast.
    fn fma(self, b: Self, c: Self) -> Self;
}
impl Real for f32 {
    const LOWEST: Self = f32::NEG_INFINITY;
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        self * b + c
    }
}
impl Real for f64 {
    const LOWEST: Self = f64::NEG_INFINITY;
    #[inline(always)]
    fn fma(self, b: Self, c: Self) -> Self {
        self * b + c
    }
}

const LANES: usize = 64;

/// The sum of `f` over a row, in lanes; long rows are summed in blocks, which keeps f32 sums exact enough.
#[inline(always)]
pub fn sum_by<T: Real>(x: &[T], f: impl Fn(T) -> T) -> T {
    let mut total = T::of(0.0);
    for block in x.chunks(4096) {
        let mut acc = [T::of(0.0); LANES];
        let mut chunks = block.chunks_exact(LANES);
        for c in &mut chunks {
            for l in 0..LANES {
                acc[l] += f(c[l]);
            }
        }
        for (l, &v) in chunks.remainder().iter().enumerate() {
            acc[l] += f(v);
        }
        let mut width = LANES / 2;
        while width > 0 {
            for l in 0..width {
                acc[l] += acc[l + width];
            }
            width /= 2;
        }
        total += acc[0];
    }
    total
}

/// The sum of `f` over two rows.
#[inline(always)]
pub fn sum2_by<T: Real>(x: &[T], y: &[T], f: impl Fn(T, T) -> T) -> T {
    let mut acc = [T::of(0.0); LANES];
    let n = x.len().min(y.len());
    let (x, y) = (&x[..n], &y[..n]);
    let (mut xs, mut ys) = (x.chunks_exact(LANES), y.chunks_exact(LANES));
    for (a, b) in (&mut xs).zip(&mut ys) {
        for l in 0..LANES {
            acc[l] += f(a[l], b[l]);
        }
    }
    for (l, (&a, &b)) in xs.remainder().iter().zip(ys.remainder()).enumerate() {
        acc[l] += f(a, b);
    }
    acc.iter().fold(T::of(0.0), |s, &v| s + v)
}

/// The largest value of a row; NaN are passed over.
#[inline(always)]
pub fn max_of<T: Real>(x: &[T]) -> T {
    let mut acc = [T::LOWEST; LANES];
    let mut chunks = x.chunks_exact(LANES);
    for c in &mut chunks {
        for l in 0..LANES {
            acc[l] = if c[l] > acc[l] { c[l] } else { acc[l] };
        }
    }
    for (l, &v) in chunks.remainder().iter().enumerate() {
        acc[l] = if v > acc[l] { v } else { acc[l] };
    }
    acc.iter()
        .fold(T::LOWEST, |m, &v| if v > m { v } else { m })
}
