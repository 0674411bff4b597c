//! Vector functions of double precision against twice the digits, through the operators that people call.

use crate::sums::{self, Sum};
use std::f64::consts::FRAC_2_SQRT_PI;
use torchlike::{Result, Tensor, f};

/// Numbers of every magnitude between two powers of 2, or evenly spread ones.
#[derive(Clone, Copy)]
enum Spread {
    /// With either sign.
    Powers(f64, f64),
    Positive(f64, f64),
    Even(f64, f64),
    /// This far below 1.
    Below1(f64, f64),
}
use Spread::{Below1, Even, Positive, Powers};

const SAMPLES: u64 = 3000;

/// Numbers as a generator of Lehmer's kind draws them.
fn draw(spread: Spread) -> Vec<f64> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / 2f64.powi(53)
    };
    let mut power = |low: f64, high: f64| {
        let (e, m) = (next() * (high - low) + low, 1.0 + next());
        m * (e.floor() - 1.0).exp2()
    };
    (0..SAMPLES)
        .map(|k| match spread {
            Powers(low, high) => power(low, high) * if k % 2 == 0 { 1.0 } else { -1.0 },
            Positive(low, high) => power(low, high),
            Below1(low, high) => 1.0 - power(low, high),
            Even(low, high) => low + (high - low) * (power(0.0, 0.5) * 2.0 - 1.0),
        })
        .collect()
}

/// How far a result lies from the true value, in units in its last place.
pub fn distance(got: f64, want: Sum) -> f64 {
    let a = want.0.abs();
    let ulp = f64::from_bits(a.to_bits() + 1) - a;
    ((Sum::from(got) - want).0 / ulp).abs()
}

struct Case {
    name: &'static str,
    run: fn(&Tensor) -> Result<Tensor>,
    exact: fn(Sum) -> Sum,
    ulps: f64,
    over: &'static [Spread],
}

macro_rules! cases {
    ($($name:ident, $ulps:literal, [$($over:expr),+];)+) => {
        [$(Case { name: stringify!($name), run: |x| f::$name(x), exact: sums::$name, ulps: $ulps, over: &[$($over),+] }),+]
    };
}

#[test]
fn functions_of_double_precision_are_accurate() -> Result<()> {
    let cases = cases! {
        exp, 1.0, [Even(-700.0, 709.0), Powers(-60.0, 9.0)];
        exp2, 1.0, [Even(-1000.0, 1023.0), Powers(-60.0, 9.0)];
        expm1, 1.0, [Even(-50.0, 709.0), Even(-2.0, 2.0), Powers(-900.0, 5.0)];
        log, 0.9, [Positive(-1020.0, 1020.0), Even(0.5, 2.0), Even(0.999, 1.001)];
        log2, 0.9, [Positive(-1020.0, 1020.0), Even(0.5, 2.0), Even(0.999, 1.001)];
        log10, 0.9, [Positive(-1020.0, 1020.0), Even(0.5, 2.0), Even(0.999, 1.001)];
        log1p, 0.9, [Positive(-900.0, 1020.0), Even(-0.999, 3.0), Powers(-60.0, 0.0)];
        sinh, 1.7, [Even(-700.0, 700.0), Even(-2.0, 2.0), Powers(-400.0, 9.0)];
        cosh, 1.5, [Even(-700.0, 700.0), Even(-2.0, 2.0)];
        tanh, 1.7, [Even(-25.0, 25.0), Even(-2.0, 2.0), Powers(-400.0, 5.0)];
        asinh, 1.3, [Powers(-400.0, 500.0), Even(-3.0, 3.0)];
        acosh, 1.0, [Positive(1.0, 500.0), Even(1.0, 3.0), Even(1.0, 1.001)];
        atanh, 0.8, [Even(-1.0, 1.0), Powers(-400.0, 0.0), Below1(-50.0, -1.0)];
        sin, 0.9, [Even(-10.0, 10.0), Even(-1e6, 1e6), Powers(-400.0, 19.0)];
        cos, 0.9, [Even(-10.0, 10.0), Even(-1e6, 1e6), Powers(-50.0, 19.0)];
        tan, 0.9, [Even(-10.0, 10.0), Even(-1e6, 1e6), Powers(-400.0, 19.0)];
        asin, 0.8, [Even(-1.0, 1.0), Powers(-400.0, 0.0), Below1(-53.0, -1.0)];
        acos, 0.8, [Even(-1.0, 1.0), Powers(-50.0, 0.0), Below1(-53.0, -1.0)];
        atan, 0.8, [Even(-5.0, 5.0), Powers(-400.0, 400.0)];
        erf, 1.3, [Even(-6.0, 6.0), Even(-1.0, 1.0), Powers(-400.0, 2.0)];
        erfc, 1.5, [Even(-6.0, 26.0), Even(-1.0, 1.0)];
    };
    let mut failed = String::new();
    for case in cases {
        let mut worst = (0.0, 0.0, 0.0);
        for &spread in case.over {
            let x = draw(spread);
            let made = (case.run)(&Tensor::from_slice(&x, &[x.len() as i64])?)?.to_vec::<f64>()?;
            for (&x, &y) in x.iter().zip(&made) {
                let d = distance(y, (case.exact)(x.into()));
                // NaN is worse than all.
                if !(d <= worst.0) {
                    worst = (d, x, y);
                }
            }
        }
        let (d, x, y) = worst;
        println!("{}: {d:.3} ulp at {x:e}, which gives {y:e}", case.name);
        if !(d <= case.ulps) {
            failed += &format!("{}: {d:.3} ulp at {x:e}, which gives {y:e}\n", case.name);
        }
    }
    assert!(failed.is_empty(), "{failed}");
    Ok(())
}

#[test]
fn functions_of_two_doubles_are_accurate() -> Result<()> {
    type Run = fn(&Tensor, &Tensor) -> Result<Tensor>;
    type Exact = fn(Sum, Sum) -> Sum;
    let close: Vec<f64> = draw(Even(0.7, 1.4));
    let wide = draw(Positive(-30.0, 30.0));
    // Exponents that bring the power near the ends of the range.
    let exponents = |x: &[f64]| -> Vec<f64> {
        let to = draw(Even(-690.0, 700.0));
        x.iter().zip(to).map(|(x, to)| to / x.ln()).collect()
    };
    let apart = (draw(Powers(-300.0, 300.0)), draw(Even(-20.0, 20.0)));
    let apart = (
        apart.0.clone(),
        apart
            .0
            .iter()
            .zip(apart.1)
            .map(|(x, e)| x * e.exp2())
            .collect(),
    );
    for (name, run, exact, ulps, (x, y)) in [
        (
            "pow",
            (|x, y| f::pow(x, y)) as Run,
            sums::pow as Exact,
            1.0,
            (close.clone(), exponents(&close)),
        ),
        (
            "pow",
            |x, y| f::pow(x, y),
            sums::pow,
            1.0,
            (wide.clone(), exponents(&wide)),
        ),
        ("hypot", f::hypot, sums::hypot, 1.3, apart.clone()),
        ("atan2", f::atan2, sums::atan2, 0.8, apart),
    ] {
        let at = |v: &[f64]| Tensor::from_slice(v, &[v.len() as i64]);
        let made = run(&at(&x)?, &at(&y)?)?.to_vec::<f64>()?;
        for ((&x, &y), &got) in x.iter().zip(&y).zip(&made) {
            let d = distance(got, exact(x.into(), y.into()));
            assert!(d <= ulps, "{name}({x:e}, {y:e}) = {got:e}: {d:.3} ulp");
        }
    }
    Ok(())
}

#[test]
fn the_inverse_error_function_inverts_it() -> Result<()> {
    for spread in [Even(-1.0, 1.0), Powers(-400.0, 0.0), Below1(-53.0, -2.0)] {
        let x = draw(spread);
        let made = f::erfinv(&Tensor::from_slice(&x, &[x.len() as i64])?)?.to_vec::<f64>()?;
        for (&x, &y) in x.iter().zip(&made) {
            let (a, b) = (x.abs(), y.abs());
            // What the complement says keeps its digits near 1.
            let wrong = if a < 0.5 {
                sums::erf(b.into()) - a.into()
            } else {
                Sum::from(1.0) - a.into() - sums::erfc(b.into())
            };
            let want = Sum::from(b) - Sum::from(wrong.0 * (b * b).exp() / FRAC_2_SQRT_PI);
            let d = distance(b, want);
            assert!(d <= 2.0, "erfinv({x:e}) = {y:e}: {d:.3} ulp");
        }
    }
    Ok(())
}

/// Where a function has no rounding to do: the same bits as its scalar ones have.
#[test]
fn ends_of_doubles_are_exact() -> Result<()> {
    const NAN: f64 = f64::NAN;
    const INF: f64 = f64::INFINITY;
    const LEAST: f64 = 5e-324;
    const ENDS: [f64; 9] = [0.0, -0.0, INF, -INF, NAN, LEAST, -LEAST, f64::MAX, f64::MIN];
    type Run = fn(&Tensor) -> Result<Tensor>;
    let half = std::f64::consts::FRAC_PI_2;
    let cases: [(&str, Run, [f64; 9]); 14] = [
        (
            "exp",
            |x| f::exp(x),
            [1.0, 1.0, INF, 0.0, NAN, 1.0, 1.0, INF, 0.0],
        ),
        (
            "exp2",
            |x| f::exp2(x),
            [1.0, 1.0, INF, 0.0, NAN, 1.0, 1.0, INF, 0.0],
        ),
        (
            "expm1",
            |x| f::expm1(x),
            [0.0, -0.0, INF, -1.0, NAN, LEAST, -LEAST, INF, -1.0],
        ),
        (
            "log",
            |x| f::log(x),
            [
                -INF,
                -INF,
                INF,
                NAN,
                NAN,
                LEAST.ln(),
                NAN,
                f64::MAX.ln(),
                NAN,
            ],
        ),
        (
            "log2",
            |x| f::log2(x),
            [-INF, -INF, INF, NAN, NAN, -1074.0, NAN, 1024.0, NAN],
        ),
        (
            "log1p",
            |x| f::log1p(x),
            [0.0, -0.0, INF, NAN, NAN, LEAST, -LEAST, f64::MAX.ln(), NAN],
        ),
        (
            "sinh",
            |x| f::sinh(x),
            [0.0, -0.0, INF, -INF, NAN, LEAST, -LEAST, INF, -INF],
        ),
        (
            "cosh",
            |x| f::cosh(x),
            [1.0, 1.0, INF, INF, NAN, 1.0, 1.0, INF, INF],
        ),
        (
            "tanh",
            |x| f::tanh(x),
            [0.0, -0.0, 1.0, -1.0, NAN, LEAST, -LEAST, 1.0, -1.0],
        ),
        (
            "asinh",
            |x| f::asinh(x),
            [
                0.0,
                -0.0,
                INF,
                -INF,
                NAN,
                LEAST,
                -LEAST,
                710.475_860_073_943_9,
                -710.475_860_073_943_9,
            ],
        ),
        (
            "atanh",
            |x| f::atanh(x),
            [0.0, -0.0, NAN, NAN, NAN, LEAST, -LEAST, NAN, NAN],
        ),
        (
            "sin",
            |x| f::sin(x),
            [
                0.0,
                -0.0,
                NAN,
                NAN,
                NAN,
                LEAST,
                -LEAST,
                f64::MAX.sin(),
                f64::MIN.sin(),
            ],
        ),
        (
            "asin",
            |x| f::asin(x),
            [0.0, -0.0, NAN, NAN, NAN, LEAST, -LEAST, NAN, NAN],
        ),
        (
            "atan",
            |x| f::atan(x),
            [0.0, -0.0, half, -half, NAN, LEAST, -LEAST, half, -half],
        ),
    ];
    let ends = Tensor::from_slice(&ENDS, &[9])?;
    for (name, run, want) in cases {
        for ((x, got), want) in ENDS.iter().zip(run(&ends)?.to_vec::<f64>()?).zip(want) {
            let same = got.to_bits() == want.to_bits() || got.is_nan() && want.is_nan();
            let close = want.is_finite() && want.abs() > 1.0 && (got / want - 1.0).abs() < 4e-16;
            assert!(same || close, "{name}({x:e}) = {got:e}, not {want:e}");
        }
    }
    for (name, run, at, want) in [
        ("acos", (|x| f::acos(x)) as Run, 1.0, 0.0),
        ("acosh", |x| f::acosh(x), 1.0, 0.0),
        ("acosh", |x| f::acosh(x), 0.999, NAN),
        ("atanh", |x| f::atanh(x), -1.0, -INF),
        ("log1p", |x| f::log1p(x), -1.0, -INF),
        ("erfinv", |x| f::erfinv(x), 1.0, INF),
        ("erfinv", |x| f::erfinv(x), -1.1, NAN),
        (
            "exp",
            |x| f::exp(x),
            709.782_712_893_384,
            1.797_693_134_862_273_2e308,
        ),
        ("sinh", |x| f::sinh(x), 711.0, INF),
        (
            "cosh",
            |x| f::cosh(x),
            -710.475_860_073_943_9,
            1.797_693_134_862_174_4e308,
        ),
    ] {
        let got = run(&Tensor::from_slice(&[at], &[1])?)?.to_vec::<f64>()?[0];
        let close = want.is_finite() && (got - want).abs() <= want.abs() * 4e-16;
        let same = got == want || got.is_nan() && want.is_nan();
        assert!(same || close, "{name}({at:e}) = {got:e}, not {want:e}");
    }
    Ok(())
}

#[test]
fn ends_of_pairs_of_doubles_are_those_of_the_library() -> Result<()> {
    let mut ends = vec![
        0.0, -0.0, 1.0, -1.0, 2.0, 3.0, -3.0, 0.5, -2.5, 7.0, 1e300, -1e300, 1e-300,
    ];
    ends.extend([
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        5e-324,
        -5e-324,
        f64::MAX,
        f64::MIN,
    ]);
    let n = ends.len() as i64;
    let (x, y) = (
        Tensor::from_slice(&ends, &[n, 1])?,
        Tensor::from_slice(&ends, &[1, n])?,
    );
    type Exact = fn(f64, f64) -> f64;
    for (name, made, exact) in [
        ("atan2", f::atan2(&x, &y)?, f64::atan2 as Exact),
        ("hypot", f::hypot(&x, &y)?, f64::hypot as Exact),
        ("pow", f::pow(&x, &y)?, f64::powf as Exact),
    ] {
        let made = made.to_vec::<f64>()?;
        for (i, &a) in ends.iter().enumerate() {
            for (j, &b) in ends.iter().enumerate() {
                let (got, want) = (made[i * ends.len() + j], exact(a, b));
                let same = got == want && got.is_sign_negative() == want.is_sign_negative();
                let close = want.is_finite() && (got - want).abs() <= want.abs() * 4e-16;
                assert!(
                    same || got.is_nan() && want.is_nan() || close && want != 0.0,
                    "{name}({a:e}, {b:e}) = {got:e}, want {want:e}"
                );
            }
        }
    }
    Ok(())
}
