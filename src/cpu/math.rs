//! Elementary functions by element type: the f32 versions are ours (branch-free, so that loops vectorise), the complex
//! ones are in [`complex`], the others come from libm.

use super::complex::{self, narrowed, wide};
use super::vmath::widened;
use super::{vmath, vmath64};
use num_complex::{Complex32, Complex64};

macro_rules! real_fns {
    ($($name:ident: $v32:expr, $f64:expr, |$c:ident| $complex:expr;)+) => {
        /// Functions that real and complex elements have.
        pub trait Elementary: Copy {
            $(#[doc = concat!("`", stringify!($name), "` of the element.")]
            fn $name(self) -> Self;)+
        }
        impl Elementary for f32 { $(#[inline(always)] fn $name(self) -> Self { $v32(self) })+ }
        impl Elementary for f64 { $(#[inline(always)] fn $name(self) -> Self { $f64(self) })+ }
        impl Elementary for Complex32 { $(fn $name(self) -> Self {
            let $c = wide(self);
            narrowed($complex)
        })+ }
        impl Elementary for Complex64 { $(fn $name(self) -> Self { let $c = self; $complex })+ }
    };
}

real_fns! {
    exp_: vmath::exp, vmath64::exp, |z| complex::exp(z);
    exp2_: vmath::exp2, vmath64::exp2, |z| complex::exp(z * std::f64::consts::LN_2);
    expm1_: vmath::expm1, vmath64::expm1, |z| complex::expm1(z);
    log_: vmath::log, vmath64::log, |z| complex::ln(z);
    log2_: vmath::log2, vmath64::log2, |z| complex::ln(z) / std::f64::consts::LN_2;
    log10_: vmath::log10, vmath64::log10, |z| complex::ln(z) / std::f64::consts::LN_10;
    log1p_: vmath::log1p, vmath64::log1p, |z| complex::ln_1p(z);
    sin_: vmath::sin, vmath64::sin, |z| complex::sin(z);
    cos_: vmath::cos, vmath64::cos, |z| complex::cos(z);
    tan_: vmath::tan, vmath64::tan, |z| complex::tan(z);
    asin_: vmath::asin, vmath64::asin, |z| complex::asin(z);
    acos_: vmath::acos, vmath64::acos, |z| complex::acos(z);
    atan_: vmath::atan, vmath64::atan, |z| complex::atan(z);
    sinh_: widened::sinh, vmath64::sinh, |z| complex::sinh(z);
    cosh_: widened::cosh, vmath64::cosh, |z| complex::cosh(z);
    tanh_: vmath::tanh, vmath64::tanh, |z| complex::tanh(z);
    asinh_: widened::asinh, vmath64::asinh, |z| complex::asinh(z);
    acosh_: widened::acosh, vmath64::acosh, |z| complex::acosh(z);
    atanh_: widened::atanh, vmath64::atanh, |z| complex::atanh(z);
    sqrt_: f32::sqrt, f64::sqrt, |z| complex::sqrt(z);
    sigmoid_: vmath::sigmoid, |x: f64| 1.0 / (1.0 + vmath64::exp(-x)), |z| complex::sigmoid(z);
}

/// Functions that only complex elements have.
pub trait ComplexFns: Copy {
    /// The power.
    fn powc_(self, y: Self) -> Self;
    /// The logarithm of the sum of the exponentials.
    fn logaddexp_(self, y: Self) -> Self;
}

impl ComplexFns for Complex32 {
    fn powc_(self, y: Self) -> Self {
        complex::powc_single(self, y)
    }
    fn logaddexp_(self, y: Self) -> Self {
        narrowed(complex::logaddexp(wide(self), wide(y)))
    }
}

impl ComplexFns for Complex64 {
    fn powc_(self, y: Self) -> Self {
        complex::powc(self, y)
    }
    fn logaddexp_(self, y: Self) -> Self {
        complex::logaddexp(self, y)
    }
}

/// Functions that only real elements have.
pub trait RealFns: Elementary + PartialOrd {
    /// The error function.
    fn erf_(self) -> Self;
    /// One minus the error function.
    fn erfc_(self) -> Self;
    /// The inverse of the error function, or NaN where another form of it is needed.
    fn erfinv_(self) -> Self;
    /// The angle of the point `(x, self)`.
    fn atan2_(self, x: Self) -> Self;
    /// The length of the vector `(self, y)`.
    fn hypot_(self, y: Self) -> Self;
    /// The power.
    fn pow_(self, y: Self) -> Self;
    /// The remainder with the sign of the dividend, exactly, or NaN where no whole quotient of this precision is exact.
    fn rem_(self, y: Self) -> Self;
    /// The normal distribution function.
    fn ndtr_(self) -> Self;
    /// From a double.
    fn of(v: f64) -> Self;
    /// To a double.
    fn f64_(self) -> f64;
}

macro_rules! real_impl {
    ($t:ty, $erf:expr, $erfc:expr, $erfinv:expr, $atan2:expr, $hypot:expr, $pow:expr, $ndtr:expr, $most:expr) => {
        impl RealFns for $t {
            #[inline(always)]
            fn erf_(self) -> Self {
                $erf(self)
            }
            #[inline(always)]
            fn erfc_(self) -> Self {
                $erfc(self)
            }
            #[inline(always)]
            fn erfinv_(self) -> Self {
                $erfinv(self)
            }
            #[inline(always)]
            fn atan2_(self, x: Self) -> Self {
                $atan2(self, x)
            }
            #[inline(always)]
            fn hypot_(self, y: Self) -> Self {
                $hypot(self, y)
            }
            #[inline(always)]
            fn pow_(self, y: Self) -> Self {
                $pow(self, y)
            }
            #[inline(always)]
            fn rem_(self, y: Self) -> Self {
                let (a, b) = (self.abs(), y.abs());
                let q = (a / b).trunc();
                // A quotient that was rounded up leaves less than nothing.
                let r = (-q).mul_add(b, a);
                let r = if r < 0.0 { r + b } else { r };
                (if q <= $most { r } else { <$t>::NAN }).copysign(self)
            }
            #[inline(always)]
            fn ndtr_(self) -> Self {
                $ndtr(self)
            }
            #[inline(always)]
            fn of(v: f64) -> Self {
                v as $t
            }
            #[inline(always)]
            fn f64_(self) -> f64 {
                f64::from(self)
            }
        }
    };
}
real_impl!(
    f32,
    vmath::erf,
    widened::erfc,
    widened::erfinv,
    widened::atan2,
    widened::hypot,
    widened::pow,
    widened::ndtr,
    4_194_304.0
);
real_impl!(
    f64,
    vmath64::erf,
    vmath64::erfc,
    vmath64::erfinv_near,
    vmath64::atan2,
    vmath64::hypot,
    vmath64::pow,
    vmath64::ndtr,
    1e15
);

/// An integer power that wraps around; negative exponents give 0, but for bases of 1 and -1.
#[must_use]
pub fn int_pow(base: i64, exp: i64) -> i64 {
    match (base, exp) {
        (1, _) => 1,
        (-1, e) => {
            if e % 2 == 0 {
                1
            } else {
                -1
            }
        }
        (_, e) if e < 0 => 0,
        (b, mut e) => {
            let (mut b, mut r) = (b, 1i64);
            while e > 0 {
                if e & 1 == 1 {
                    r = r.wrapping_mul(b);
                }
                b = b.wrapping_mul(b);
                e >>= 1;
            }
            r
        }
    }
}

/// The greatest common divisor.
#[must_use]
pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.unsigned_abs(), b.unsigned_abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a as i64
}
