//! The error function and what is made of it, in single precision.

use super::{EXP2, ROUND, ROUND_EXPONENT, exp_core, exp_reduce, poly, pow2, raised};

/// The error function: a polynomial below 0.91, and above 1 - 2^p for a polynomial p, the logarithm of what is left to 1.
#[inline(always)]
#[must_use]
pub fn erf(x: f32) -> f32 {
    let a = x.abs();
    let p = poly(
        a * a,
        [
            -6.040_227e-4,
            5.002_611_3e-3,
            -2.677_286e-2,
            1.128_198_3e-1,
            -3.761_251e-1,
            1.283_791_5e-1,
        ],
    );
    let inner = a.mul_add(p, a);
    // From here on it is 1.
    let b = if a > 4.0 { 4.0 } else { a };
    let p = poly(
        b,
        [
            2.859_206_6e-4,
            -4.422_107e-3,
            3.219_232_3e-2,
            -1.502_009_3e-1,
            -9.189_658e-1,
            -1.627_065_5,
            -2.405_847_6e-4,
        ],
    );
    let t = p + ROUND_EXPONENT;
    let r = p - (t - ROUND_EXPONENT);
    let outer = 1.0 - pow2(t) * r.mul_add(poly(r, EXP2), 1.0);
    (if a < 0.91 { inner } else { outer }).copysign(x)
}

/// e^x for x <= 0, with 0 for what is subnormal.
#[inline(always)]
fn exp_negative(x: f32) -> f32 {
    let (r, t) = exp_reduce(if x < -88.3 { -88.3 } else { x });
    exp_core(r) * pow2(t)
}

/// The normal distribution function of -a for a >= 0, which is exp(-a^2 / 2) times a polynomial in 1 / (1 + 0.3 a); and that
/// exponential.
#[inline(always)]
fn normal_tail(a: f32) -> (f32, f32) {
    let t = 1.0 / 0.3f32.mul_add(a, 1.0);
    let g = poly(
        t,
        [
            3.833_440_7e-2,
            -1.689_526e-1,
            2.282_185_9e-1,
            -7.600_097e-2,
            1.421_859_4e-1,
            9.483_263e-2,
            1.218_821_4e-1,
            1.194_930_5e-1,
            6.853_478e-6,
        ],
    );
    let e = exp_negative(-0.5 * a * a);
    (g * e, e)
}

/// x times the normal distribution function, from `tail`: polynomials for those of -|x|, which is exp(-x^2 / 2) times the one in
/// 1 / (1 + `step` |x|), and for (2^r - 1) / r.
#[inline(always)]
fn times_normal<const N: usize, const M: usize>(
    x: f32,
    step: f32,
    tail: [f32; N],
    exp2: [f32; M],
) -> f32 {
    // What is left beyond here is too small for any number.
    const FAR: f32 = 14.7;
    const HALF_LOG2_E: f32 = 0.721_347_5;
    // Adds the exponent that `far` has taken from the polynomial: no power on the way is subnormal.
    const ROUND_FAR: f32 = ROUND + 64.0;
    let a = x.abs();
    let a = if a > FAR { FAR } else { a };
    let g = poly(1.0 / step.mul_add(a, 1.0), tail);
    let z = a * a;
    let t = z.mul_add(-HALF_LOG2_E, ROUND_FAR);
    let r = z.mul_add(-HALF_LOG2_E, ROUND_FAR - t);
    let p = r.mul_add(poly(r, exp2), 1.0);
    let below = g * raised(p, t);
    x * if x < 0.0 { below } else { 1.0 - below }
}

/// Coefficients times 2^-64.
const fn far<const N: usize>(mut c: [f32; N]) -> [f32; N] {
    let mut i = 0;
    while i < N {
        c[i] *= 1.0 / 18_446_744_073_709_551_616.0;
        i += 1;
    }
    c
}

/// x times the normal distribution function.
#[inline(always)]
#[must_use]
pub fn gelu(x: f32) -> f32 {
    const TAIL: [f32; 9] = far([
        3.758_398_5e-2,
        -1.653_086_5e-1,
        2.207_053_8e-1,
        -6.743_53e-2,
        1.362_983_9e-1,
        9.732_291e-2,
        1.212_509_8e-1,
        1.195_805_8e-1,
        1.742_919_7e-6,
    ]);
    times_normal(x, 0.3, TAIL, EXP2)
}

/// The same with fewer terms, for numbers in bf16: in that type the results are the nearest ones. The coefficients are a
/// solution of the inequalities that this makes, one for each number.
#[inline(always)]
#[must_use]
pub fn gelu_of_bf16(x: f32) -> f32 {
    const TAIL: [f32; 6] = far([
        -9.346_685e-2,
        2.400_457_4e-1,
        5.015_856_2e-2,
        1.615_545_8e-1,
        1.416_295e-1,
        7.844_2e-5,
    ]);
    const EXP2: [f32; 4] = [9.582_85e-3, 5.590_643e-2, 2.402_41e-1, 6.931_241_8e-1];
    times_normal(x, 0.36, TAIL, EXP2)
}

/// The derivative of [`gelu`].
#[inline(always)]
#[must_use]
pub fn gelu_slope(x: f32) -> f32 {
    const INV_SQRT_TAU: f32 = 0.398_942_3;
    let (tail, e) = normal_tail(x.abs());
    let below = if x < 0.0 { tail } else { 1.0 - tail };
    (x * INV_SQRT_TAU).mul_add(e, below)
}
