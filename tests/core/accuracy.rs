//! Vector functions of single precision against double precision, through the operators that people call.

use half::bf16;
use rayon::prelude::*;
use torchlike::{Result, Tensor, f};

/// An operator, the same in double precision, and how many units in the last place they may lie apart.
struct Case {
    name: &'static str,
    run: fn(&Tensor) -> Result<Tensor>,
    exact: fn(f64) -> f64,
    ulps: fn(f32) -> f64,
}

/// What a sample may leave out.
const SPECIAL: [f32; 12] = [
    0.0,
    -0.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    1e-45,
    -1e-45,
    f32::MIN_POSITIVE,
    1.0,
    -1.0,
    f32::MAX,
    f32::MIN,
];

macro_rules! cases {
    ($($name:ident, $exact:expr, $ulps:expr;)+) => {
        [$(Case { name: stringify!($name), run: |x| f::$name(x), exact: $exact, ulps: |_| $ulps }),+]
    };
}

fn cases() -> Vec<Case> {
    let mut all = Vec::from(cases! {
        exp, f64::exp, 1.2;
        exp2, f64::exp2, 1.2;
        expm1, f64::exp_m1, 1.7;
        log, f64::ln, 1.5;
        log1p, f64::ln_1p, 1.5;
        log2, f64::log2, 2.0;
        log10, f64::log10, 2.0;
        sin, f64::sin, 1.6;
        cos, f64::cos, 1.6;
        tan, f64::tan, 2.4;
        asin, f64::asin, 2.0;
        acos, f64::acos, 1.2;
        atan, f64::atan, 1.5;
        sinh, f64::sinh, 0.51;
        cosh, f64::cosh, 0.51;
        tanh, f64::tanh, 1.5;
        asinh, libm::asinh, 0.51;
        acosh, |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) }, 0.51;
        atanh, libm::atanh, 0.51;
        sigmoid, sigmoid, 2.0;
        erf, libm::erf, 1.5;
        erfc, libm::erfc, 0.51;
        erfinv, erfinv, 2.0;
        sqrt, f64::sqrt, 0.5;
        rsqrt, |x| 1.0 / x.sqrt(), 2.0;
        _nn_softplus, |x| x.max(0.0) + (-x.abs()).exp().ln_1p(), 2.0;
    });
    all.push(Case {
        name: "gelu",
        run: |x| f::_nn_gelu(x),
        exact: |x| 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        // The square under the exponential is rounded.
        ulps: |x| if x < -4.0 { 72.0 } else { 20.0 },
    });
    all
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

/// Winitzki's approximation ("A handy approximation for the error function and its inverse", 2008), mended by Newton's steps on
/// the complement, which keeps its digits near 1.
fn erfinv(x: f64) -> f64 {
    let a = x.abs();
    if a >= 1.0 || a == 0.0 {
        return if a > 1.0 { f64::NAN } else { x / (1.0 - a) };
    }
    let l = (1.0 - a * a).ln();
    let t = 2.0 / (std::f64::consts::PI * 0.147) + l / 2.0;
    let mut y = ((t * t - l / 0.147).sqrt() - t).sqrt();
    for _ in 0..6 {
        let wrong = if a < 0.5 {
            libm::erf(y) - a
        } else {
            (1.0 - a) - libm::erfc(y)
        };
        y -= wrong * (y * y).exp() / std::f64::consts::FRAC_2_SQRT_PI;
    }
    y.copysign(x)
}

/// How far a result lies from the true value, in units in its last place; infinitely far where one is no number and the other is,
/// or where an exact zero has another sign.
fn distance(got: f32, want: f64) -> f64 {
    if got.is_nan() || want.is_nan() {
        return if got.is_nan() == want.is_nan() {
            0.0
        } else {
            f64::INFINITY
        };
    }
    // What rounds to infinity is as good as it.
    if want == 0.0 || want.is_infinite() || (got.is_infinite() && (want as f32).is_infinite()) {
        let same = got.to_bits() == (want as f32).to_bits();
        return if same { 0.0 } else { f64::INFINITY };
    }
    let nearest = (want.abs() as f32).min(f32::MAX);
    let ulp = match nearest.to_bits() {
        bits if nearest == f32::MAX => f64::from(nearest) - f64::from(f32::from_bits(bits - 1)),
        bits => f64::from(f32::from_bits(bits + 1)) - f64::from(nearest),
    };
    let got = if got.is_infinite() {
        2f64.powi(128).copysign(f64::from(got))
    } else {
        f64::from(got)
    };
    (got - want).abs() / ulp
}

/// The element of a case that is worst beside its bound, over every `step`-th number of single precision, as
/// `(distance, number, result)`.
fn worst(case: &Case, step: u64) -> Result<(f64, f32, f32)> {
    const BLOCK: u64 = 1 << 20;
    let mut worst = (0.0, 0.0, 0.0);
    let total = (1u64 << 32).div_ceil(step);
    for block in (0..total).step_by(BLOCK as usize) {
        let mut x: Vec<f32> = (block..total.min(block + BLOCK))
            .map(|i| f32::from_bits((i * step) as u32))
            .collect();
        if block == 0 {
            x.extend(SPECIAL);
        }
        let made = (case.run)(&Tensor::from_slice(&x, &[x.len() as i64])?)?.to_vec::<f32>()?;
        for (&x, &y) in x.iter().zip(&made) {
            let d = distance(y, (case.exact)(f64::from(x)));
            if d * (case.ulps)(worst.1) > worst.0 * (case.ulps)(x) {
                worst = (d, x, y);
            }
        }
    }
    Ok(worst)
}

/// Holds all cases to their bounds.
fn check(step: u64) {
    let failed: Vec<String> = cases()
        .par_iter()
        .filter_map(|case| {
            let (d, x, y) = worst(case, step).expect("operators of one operand");
            let bound = (case.ulps)(x);
            let line = format!(
                "{}: {d:.3} ulp (bound {bound}) at {x:e}, which gives {y:e}",
                case.name
            );
            println!("{line}");
            (d > bound).then_some(line)
        })
        .collect();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// A sample: a step that is prime meets all exponents, each with other mantissas.
#[test]
fn accurate_at_a_sample_of_all_numbers() {
    check(4099);
}

#[test]
fn gelu_of_bf16_is_the_nearest_number() -> Result<()> {
    let numbers: Vec<bf16> = (0..=u16::MAX).map(bf16::from_bits).collect();
    let made = f::_nn_gelu(&Tensor::from_slice(&numbers, &[numbers.len() as i64])?)?;
    for (x, got) in numbers.into_iter().zip(made.to_vec::<bf16>()?) {
        let v = x.to_f64();
        let want = 0.5 * v * libm::erfc(-v * std::f64::consts::FRAC_1_SQRT_2);
        let same = got.to_bits() == bf16::from_f64(want).to_bits();
        assert!(
            same || got.is_nan() && want.is_nan(),
            "{x:e}: {got:e}, want {want:e}"
        );
    }
    Ok(())
}

/// Half an hour on two cores: part of `make nightly`.
#[test]
#[ignore = "takes half an hour"]
fn accurate_at_every_number() {
    check(1);
}

#[test]
fn angles_of_known_points_are_those_of_pi() -> Result<()> {
    use std::f32::consts::{FRAC_PI_2, FRAC_PI_4, PI};
    let t = Tensor::from_slice(&[1.0f32, -1.0, 0.0], &[3])?;
    for (got, want) in [
        (f::atan(&t)?, [FRAC_PI_4, -FRAC_PI_4, 0.0]),
        (f::asin(&t)?, [FRAC_PI_2, -FRAC_PI_2, 0.0]),
        (f::acos(&t)?, [0.0, PI, FRAC_PI_2]),
    ] {
        assert_eq!(got.to_vec::<f32>()?, want);
    }
    Ok(())
}

#[test]
fn functions_of_two_numbers_round_once() -> Result<()> {
    let mut numbers: Vec<f32> = (0u32..=0xffff)
        .step_by(97)
        .map(|i| f32::from_bits((i << 16) | ((i * 7919) & 0xffff)))
        .collect();
    numbers.extend([
        0.0, -0.0, 1.0, -1.0, 2.0, 3.0, -3.0, 0.5, -2.5, 1e-3, 7.0, -8.0,
    ]);
    numbers.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45]);
    let n = numbers.len() as i64;
    let (x, y) = (
        Tensor::from_slice(&numbers, &[n, 1])?,
        Tensor::from_slice(&numbers, &[1, n])?,
    );
    type Exact = fn(f64, f64) -> f64;
    for (name, made, exact) in [
        ("atan2", f::atan2(&x, &y)?, f64::atan2 as Exact),
        ("hypot", f::hypot(&x, &y)?, f64::hypot as Exact),
        ("pow", f::pow(&x, &y)?, f64::powf as Exact),
    ] {
        let made = made.to_vec::<f32>()?;
        for (i, &a) in numbers.iter().enumerate() {
            for (j, &b) in numbers.iter().enumerate() {
                let (got, want) = (
                    made[i * numbers.len() + j],
                    exact(f64::from(a), f64::from(b)),
                );
                assert!(
                    distance(got, want) <= 0.51,
                    "{name}({a:e}, {b:e}) = {got:e}, want {want:e}"
                );
            }
        }
    }
    Ok(())
}
