//! Accuracy against double precision.

use super::*;

fn check(function: Function, exact: fn(f64) -> f64, low: f32, high: f32, ulps: f64) {
    let mut x: Vec<f32> = (0..40_000)
        .map(|i| low + (high - low) * (i as f32 / 40_000.0))
        .collect();
    // Every exponent, both signs.
    x.extend(
        (0u32..=0xffff)
            .map(|i| f32::from_bits((i << 16) | ((i * 7919) & 0xffff)))
            .filter(|v| (low..=high).contains(v)),
    );
    x.extend([
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e-45,
        -1e-45,
        1.0,
        -1.0,
        f32::MAX,
        f32::MIN,
    ]);
    let mut y = vec![0f32; x.len()];
    apply(function, &mut y, &x);
    let mut worst = (0f64, 0f32);
    for (&x, &y) in x.iter().zip(&y) {
        let want = exact(f64::from(x));
        let w = want as f32;
        if w.is_nan() || w.is_infinite() || w == 0.0 {
            let same = w.is_nan() == y.is_nan() && (w.is_nan() || (w - y).abs() <= 2e-45 || w == y);
            assert!(same, "{function:?}({x:e}) = {y:e}, want {w:e}");
            if x == 0.0 && !w.is_nan() {
                assert_eq!(
                    w.is_sign_negative(),
                    y.is_sign_negative(),
                    "{function:?}({x})"
                );
            }
            continue;
        }
        let ulp = f64::from(f32::from_bits(w.abs().to_bits() + 1)) - f64::from(w.abs());
        let error = (f64::from(y) - want).abs() / ulp;
        if !(error <= worst.0) {
            worst = (error, x);
        }
    }
    println!("{function:?}: {:.3} ulp at {:e}", worst.0, worst.1);
    assert!(
        worst.0 <= ulps,
        "{function:?}: {} ulp at {:e}",
        worst.0,
        worst.1
    );
}

#[test]
fn accurate_everywhere() {
    use Function::*;
    check(Exp, f64::exp, -110.0, 90.0, 1.2);
    check(Exp2, f64::exp2, -155.0, 130.0, 1.2);
    check(Expm1, f64::exp_m1, -20.0, 90.0, 1.7);
    check(Log, f64::ln, 0.0, f32::MAX, 1.5);
    check(Log, f64::ln, 0.0, 3.0, 1.5);
    check(Log1p, f64::ln_1p, -1.0, 3.0, 2.0);
    check(Log1p, f64::ln_1p, -1.0, f32::MAX, 2.0);
    check(Log2, f64::log2, 0.0, 3.0, 2.0);
    check(Log10, f64::log10, 0.0, 3.0, 2.0);
    check(Sin, f64::sin, -20.0, 20.0, 1.5);
    check(Cos, f64::cos, -20.0, 20.0, 1.5);
    check(Sin, f64::sin, -1e5, 1e5, 1.5);
    check(Cos, f64::cos, -1e12, 1e12, 1.5);
    check(Tan, f64::tan, -40_000.0, 40_000.0, 0.51);
    check(Tan, f64::tan, -1e20, 1e20, 0.51);
    check(Asin, f64::asin, -1.01, 1.01, 0.51);
    check(Acos, f64::acos, -1.01, 1.01, 0.51);
    check(Atan, f64::atan, f32::MIN, f32::MAX, 0.51);
    check(Atan, f64::atan, -4.0, 4.0, 0.51);
    check(Sinh, f64::sinh, -100.0, 100.0, 0.51);
    check(Sinh, f64::sinh, -1.5, 1.5, 0.51);
    check(Cosh, f64::cosh, -100.0, 100.0, 0.51);
    check(Asinh, libm::asinh, f32::MIN, f32::MAX, 0.51);
    check(Asinh, libm::asinh, -2.0, 2.0, 0.51);
    check(Acosh, libm::acosh, 0.5, 3.0, 0.51);
    check(Acosh, libm::acosh, 0.5, f32::MAX, 0.51);
    check(Atanh, libm::atanh, -1.01, 1.01, 0.51);
    check(Erfinv, crate::cpu::math::erfinv, -1.01, 1.01, 0.51);
    check(Tanh, f64::tanh, -12.0, 12.0, 2.2);
    check(Sigmoid, |x| 1.0 / (1.0 + (-x).exp()), -87.0, 20.0, 2.5);
    check(Erf, libm::erf, -5.0, 5.0, 1.5);
    check(Erfc, libm::erfc, -5.0, 9.0, 5.0);
    check(
        Gelu,
        |x| 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2),
        -4.0,
        10.0,
        20.0,
    );
    check(
        Softplus,
        |x| {
            if x > 0.0 {
                x + (-x).exp().ln_1p()
            } else {
                x.exp().ln_1p()
            }
        },
        -80.0,
        80.0,
        2.5,
    );
}

#[test]
fn functions_of_two_numbers_round_once() {
    let mut numbers: Vec<f32> = (0u32..=0xffff)
        .step_by(97)
        .map(|i| f32::from_bits((i << 16) | ((i * 7919) & 0xffff)))
        .collect();
    numbers.extend([
        0.0, -0.0, 1.0, -1.0, 2.0, 3.0, -3.0, 0.5, -2.5, 1e-3, 7.0, -8.0,
    ]);
    numbers.extend([f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45]);
    for &x in &numbers {
        for &y in &numbers {
            let (a, b) = (f64::from(x), f64::from(y));
            for (name, got, want) in [
                ("atan2", widened::atan2(x, y), a.atan2(b)),
                ("hypot", widened::hypot(x, y), a.hypot(b)),
                ("pow", widened::pow(x, y), a.powf(b)),
            ] {
                let w = want as f32;
                let next = f64::from(f32::from_bits(w.abs().to_bits().wrapping_add(1)));
                let near = (f64::from(got) - want).abs() <= 0.51 * (next - f64::from(w.abs()));
                let same = got.to_bits() == w.to_bits() || (got.is_nan() && w.is_nan());
                assert!(same || near, "{name}({x:e}, {y:e}) = {got:e}, want {w:e}");
            }
        }
    }
}

#[test]
fn beyond_their_reach_circular_functions_are_nan() {
    assert!(sin(1e10).is_nan() && cos(-1e10).is_nan() && tan(1e30).is_nan());
}
