//! Transforms side by side against the definition.

use super::How;
use super::blocks::{self, Places};
use num_complex::Complex;
use std::f64::consts::TAU;

fn numbers(count: usize) -> Vec<Complex<f64>> {
    let number = |i: usize| Complex::new((i as f64 * 0.37).sin(), (i as f64 * 0.91).cos());
    (0..count).map(number).collect()
}

/// The transform of a line by its definition.
fn transformed(line: &[Complex<f64>], sign: f64) -> Vec<Complex<f64>> {
    let n = line.len();
    let root = |k: usize| Complex::from_polar(1.0, sign * TAU * k as f64 / n as f64);
    (0..n)
        .map(|k| (0..n).map(|j| line[j] * root(j * k % n)).sum())
        .collect()
}

fn assert_close(ours: &[Complex<f64>], truth: &[Complex<f64>], tolerance: f64) {
    for (a, b) in ours.iter().zip(truth) {
        assert!((a - b).norm() < tolerance, "{a} {b}");
    }
}

/// Lengths with every factor that has a butterfly, and some that have none.
const LENGTHS: [usize; 14] = [2, 3, 4, 5, 6, 7, 8, 11, 13, 17, 30, 42, 64, 360];

#[test]
fn lines_side_by_side_are_those_of_the_definition() {
    for n in LENGTHS {
        for count in [1, 3, 4, 9] {
            for forward in [true, false] {
                let data = numbers(n * count);
                let how = How {
                    forward,
                    scale: 0.5,
                };
                let sign = if forward { -1.0 } else { 1.0 };
                let mut ours = data.clone();
                blocks::complex(None, &mut ours, &Places::dense(count, n), how);
                for (ours, line) in ours.chunks(n).zip(data.chunks(n)) {
                    let truth: Vec<_> = transformed(line, sign).iter().map(|x| x * 0.5).collect();
                    assert_close(ours, &truth, 1e-11);
                }
                let narrow = |x: &Complex<f64>| Complex::new(x.re as f32, x.im as f32);
                let mut single: Vec<_> = data.iter().map(narrow).collect();
                blocks::complex(
                    Some(&single.clone()),
                    &mut single,
                    &Places::dense(count, n),
                    how,
                );
                let wide = |x: &Complex<f32>| Complex::new(f64::from(x.re), f64::from(x.im));
                assert_close(
                    &single.iter().map(wide).collect::<Vec<_>>(),
                    &ours,
                    2e-5 * n as f64,
                );
            }
        }
    }
}

#[test]
fn real_lines_side_by_side_go_there_and_back() {
    for n in LENGTHS {
        let (count, half) = (9, n / 2 + 1);
        let real: Vec<f64> = numbers(n * count).iter().map(|x| x.re).collect();
        let mut spectra = vec![Complex::new(0.0, 0.0); half * count];
        if !blocks::from_real(&real, n, &mut spectra, half, 1.0) {
            assert!(n % 2 == 1 || n == 2, "{n}");
            continue;
        }
        for (ours, line) in spectra.chunks(half).zip(real.chunks(n)) {
            let line: Vec<_> = line.iter().map(|&x| Complex::new(x, 0.0)).collect();
            assert_close(ours, &transformed(&line, -1.0), 1e-11);
        }
        let mut back = vec![0.0; n * count];
        assert!(blocks::to_real(&spectra, &mut back, n, 1.0 / n as f64));
        let off = |(a, b): (&f64, &f64)| (a - b).abs();
        assert!(back.iter().zip(&real).map(off).all(|d| d < 1e-12));
    }
}
