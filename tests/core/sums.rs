//! Arithmetic and elementary functions in twice the digits of double precision: numbers are sums of two.

use std::f64::consts::{FRAC_2_PI, PI};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A number and what is left of it.
#[derive(Clone, Copy, Debug)]
pub struct Sum(pub f64, pub f64);

const LN_2: Sum = Sum(std::f64::consts::LN_2, 2.319_046_813_846_299_6e-17);
const HALF_PI: [f64; 3] = [
    1.570_796_326_794_896_6,
    6.123_233_995_736_766e-17,
    -1.497_384_904_859_169_8e-33,
];

impl From<f64> for Sum {
    fn from(x: f64) -> Self {
        Self(x, 0.0)
    }
}

/// The sum of two numbers.
pub fn sum(a: f64, b: f64) -> Sum {
    let s = a + b;
    let back = s - a;
    Sum(s, (a - (s - back)) + (b - back))
}

/// The product of two numbers.
pub fn product(a: f64, b: f64) -> Sum {
    let p = a * b;
    Sum(p, a.mul_add(b, -p))
}

impl Add for Sum {
    type Output = Self;
    fn add(self, y: Self) -> Self {
        let (s, t) = (sum(self.0, y.0), sum(self.1, y.1));
        let s = sum(s.0, s.1 + t.0);
        sum(s.0, s.1 + t.1)
    }
}

impl Neg for Sum {
    type Output = Self;
    fn neg(self) -> Self {
        Self(-self.0, -self.1)
    }
}

impl Sub for Sum {
    type Output = Self;
    fn sub(self, y: Self) -> Self {
        self + -y
    }
}

impl Mul for Sum {
    type Output = Self;
    fn mul(self, y: Self) -> Self {
        let p = product(self.0, y.0);
        sum(p.0, p.1 + (self.0 * y.1 + self.1 * y.0))
    }
}

impl Div for Sum {
    type Output = Self;
    fn div(self, y: Self) -> Self {
        let q = self.0 / y.0;
        let rest = self - y * q.into();
        let more = rest.0 / y.0;
        let rest = rest - y * more.into();
        sum(q, more) + (rest.0 / y.0).into()
    }
}

impl Sum {
    /// The same magnitude, positive.
    fn abs(self) -> Self {
        if self.0 < 0.0 { -self } else { self }
    }

    fn sqrt(self) -> Self {
        let r = self.0.sqrt();
        if r == 0.0 {
            return self;
        }
        sum(r, (self - product(r, r)).0 / (r + r))
    }

    /// Times a power of two.
    fn scaled(self, n: i32) -> Self {
        let (half, rest) = (2f64.powi(n / 2), 2f64.powi(n - n / 2));
        Self(self.0 * half * rest, self.1 * half * rest)
    }
}

/// The sum of terms, each the one before times `next(k)`, until they are too small.
fn series(first: Sum, next: impl Fn(f64) -> Sum) -> Sum {
    let (mut term, mut total, mut k) = (first, first, 1.0);
    while term.0.abs() > 1e-34 * total.0.abs() && k < 400.0 {
        term = term * next(k);
        total = total + term;
        k += 1.0;
    }
    total
}

fn num(x: f64) -> Sum {
    x.into()
}

pub fn expm1(x: Sum) -> Sum {
    if x.0.abs() > 0.4 {
        return exp(x) - num(1.0);
    }
    series(x, |k| x / num(k + 1.0))
}

pub fn exp(x: Sum) -> Sum {
    let n = (x.0 / LN_2.0).round();
    let r = x - LN_2 * num(n);
    (series(r, |k| r / num(k + 1.0)) + num(1.0)).scaled(n as i32)
}

pub fn exp2(x: Sum) -> Sum {
    let n = x.0.round();
    exp((x - num(n)) * LN_2).scaled(n as i32)
}

/// The inverse hyperbolic tangent of at most 0.2.
fn atanh_series(x: Sum) -> Sum {
    let z = x * x;
    let (mut power, mut total) = (x, x);
    for k in 1..40 {
        power = power * z;
        total = total + power / num(f64::from(2 * k + 1));
    }
    total
}

pub fn log(x: Sum) -> Sum {
    let n = (x.0.log2()).round();
    let m = x.scaled(-n as i32);
    num(n) * LN_2 + num(2.0) * atanh_series((m - num(1.0)) / (m + num(1.0)))
}

pub fn log2(x: Sum) -> Sum {
    log(x) / LN_2
}

pub fn log10(x: Sum) -> Sum {
    log(x) / log(num(10.0))
}

pub fn log1p(x: Sum) -> Sum {
    if x.0.abs() < 0.3 {
        return num(2.0) * atanh_series(x / (x + num(2.0)));
    }
    log(x + num(1.0))
}

pub fn sinh(x: Sum) -> Sum {
    if x.0.abs() < 1.0 {
        let z = x * x;
        return series(x, |k| z / num((2.0 * k + 1.0) * (2.0 * k)));
    }
    let half = exp(x - LN_2);
    half - num(0.25) / half
}

pub fn cosh(x: Sum) -> Sum {
    let half = exp(x.abs() - LN_2);
    half + num(0.25) / half
}

pub fn tanh(x: Sum) -> Sum {
    sinh(x) / cosh(x)
}

pub fn atanh(x: Sum) -> Sum {
    if x.0.abs() < 0.2 {
        return atanh_series(x);
    }
    log((num(1.0) + x) / (num(1.0) - x)) * num(0.5)
}

pub fn asinh(x: Sum) -> Sum {
    let a = x.abs();
    let root = (a * a + num(1.0)).sqrt();
    let y = if a.0 < 0.3 {
        atanh(a / root)
    } else {
        log(a + root)
    };
    if x.0 < 0.0 { -y } else { y }
}

pub fn acosh(x: Sum) -> Sum {
    let root = ((x - num(1.0)) * (x + num(1.0))).sqrt();
    if x.0 < 1.01 {
        return atanh(root / x);
    }
    log(x + root)
}

/// `(sin x, cos x)`, of numbers up to a million.
fn sin_cos(x: Sum) -> (Sum, Sum) {
    let n = (x.0 * FRAC_2_PI).round();
    let r = HALF_PI.iter().fold(x, |r, &p| r - product(n, p));
    let z = -(r * r);
    let s = series(r, |k| z / num((2.0 * k + 1.0) * (2.0 * k)));
    let c = series(num(1.0), |k| z / num((2.0 * k - 1.0) * (2.0 * k)));
    match (n as i64).rem_euclid(4) {
        0 => (s, c),
        1 => (c, -s),
        2 => (-s, -c),
        _ => (-c, s),
    }
}

pub fn sin(x: Sum) -> Sum {
    sin_cos(x).0
}

pub fn cos(x: Sum) -> Sum {
    sin_cos(x).1
}

pub fn tan(x: Sum) -> Sum {
    let (s, c) = sin_cos(x);
    s / c
}

/// A number of quarter turns.
fn turns(n: f64) -> Sum {
    Sum(HALF_PI[0], HALF_PI[1]) * num(n)
}

pub fn asin(x: Sum) -> Sum {
    if x.0.abs() > 0.6 {
        let half = asin(((num(1.0) - x.abs()) * num(0.5)).sqrt());
        let y = turns(1.0) - num(2.0) * half;
        return if x.0 < 0.0 { -y } else { y };
    }
    let near = x.0.asin();
    let (s, c) = sin_cos(num(near));
    num(near) + (x - s) / c
}

pub fn acos(x: Sum) -> Sum {
    if x.0 > 0.6 {
        return num(2.0) * asin(((num(1.0) - x) * num(0.5)).sqrt());
    }
    turns(1.0) - asin(x)
}

pub fn atan(x: Sum) -> Sum {
    if x.0.abs() > 1.0 {
        return turns(1f64.copysign(x.0)) - atan(num(1.0) / x);
    }
    let near = x.0.atan();
    let t = tan(num(near));
    num(near) + (x - t) / (num(1.0) + x * t)
}

pub fn atan2(y: Sum, x: Sum) -> Sum {
    let q = atan(y / x);
    match (x.0 < 0.0, y.0 < 0.0) {
        (false, _) => q,
        (true, false) => q + turns(2.0),
        (true, true) => q - turns(2.0),
    }
}

pub fn hypot(x: Sum, y: Sum) -> Sum {
    (x * x + y * y).sqrt()
}

pub fn pow(x: Sum, y: Sum) -> Sum {
    exp(y * log(x))
}

fn root_of_pi() -> Sum {
    debug_assert_eq!(turns(2.0).0, PI);
    turns(2.0).sqrt()
}

pub fn erf(x: Sum) -> Sum {
    if x.0.abs() > 2.0 {
        let y = num(1.0) - erfc(x.abs());
        return if x.0 < 0.0 { -y } else { y };
    }
    let z = num(2.0) * x * x;
    num(2.0) * exp(-(x * x)) / root_of_pi() * series(x, |k| z / num(2.0 * k + 1.0))
}

pub fn erfc(x: Sum) -> Sum {
    if x.0 < 2.0 {
        return num(1.0) - erf(x);
    }
    let below = (1..400)
        .rev()
        .fold(x, |d, k| x + num(0.5 * f64::from(k)) / d);
    exp(-(x * x)) / (root_of_pi() * below)
}
