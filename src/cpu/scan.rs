//! Running sums and products.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::lines;
use super::room::Room;
use crate::{DType, Dims, Element, Result, Tensor};
use num_complex::{Complex32, Complex64};

/// What runs along a line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Sums.
    Sum,
    /// Products.
    Prod,
    /// Logarithms of sums of exponentials.
    LogSumExp,
}

impl Kind {
    /// Refuses types of results that have no kernel, as PyTorch does on the host alone.
    fn check(self, d: DType) -> Result<()> {
        use DType::{I8, I16, I32, I64, U8};
        let kernel = match self {
            Self::Sum => "cumsum_out_cpu",
            Self::Prod => "cumprod_out_cpu",
            Self::LogSumExp => "logcumsumexp_out_cpu",
        };
        let float = matches!(d, DType::F16 | DType::BF16 | DType::F32 | DType::F64);
        let complex = matches!(d, DType::C64 | DType::C128);
        let int = matches!(d, U8 | I8 | I16 | I32 | I64);
        let has = float || complex || int && self != Self::LogSumExp;
        d.check_kernel(has, kernel)
    }
}

/// Elements up to which lines that lie apart cost less than their copies.
const FEW: i64 = 4096;

/// The type that results are computed in.
fn summed_in(out: DType) -> DType {
    match out {
        d if d.is_integral(true) => DType::I64,
        DType::F16 | DType::BF16 => DType::F32,
        d => d,
    }
}

/// How many lines lie side by side.
fn inner(input: &Tensor, dim: usize) -> usize {
    let behind = input.shape().iter().skip(dim + 1);
    behind.map(|&n| n as usize).product()
}

/// Whether neighbouring lines of a dense tensor run side by side; others are laid out one after the other.
fn run_beside(out: &Tensor, input: &Tensor, dim: usize) -> bool {
    let dense = |t: &Tensor| t.is_contiguous() && !t.is_lazy();
    let inner = inner(input, dim);
    let few = inner > 1 && input.numel() <= FEW;
    (inner >= 8 || few) && dense(input) && dense(out)
}

/// What [`scan`] takes besides its result.
///
/// # Errors
/// If a size overflows.
pub fn scan_room(room: &mut Room, out: &Tensor, input: &Tensor, dim: usize) -> Result<()> {
    let d = summed_in(out.dtype());
    let first;
    let input = if out.dtype() != input.dtype() && d != out.dtype() {
        first = room.converted(input, out.dtype())?;
        &first
    } else {
        input
    };
    if run_beside(out, input, dim) {
        return room.all_dense([Some(out), Some(input)], d);
    }
    let lines = |t: &Tensor| t.permuted(&lines::order(t.ndim(), &[dim]));
    room.all_dense([Some(&lines(out)), Some(&lines(input))], d)
}

/// Results so far along `dim`; elements are converted to the result's type first.
///
/// # Errors
/// If the type of the result has no kernel, or memory cannot be had.
pub fn scan(out: &Tensor, input: &Tensor, dim: usize, kind: Kind) -> Result<()> {
    kind.check(out.dtype())?;
    let d = summed_in(out.dtype());
    let first;
    let input = if out.dtype() != input.dtype() && d != out.dtype() {
        first = super::copy::converted(input, out.dtype())?;
        &first
    } else {
        input
    };
    let inner = inner(input, dim);
    let beside = run_beside(out, input, dim);
    let written;
    let (from, to) = if beside {
        written = lines::results(out, d)?;
        let n = input.shape()[dim];
        let flat = [input.numel() / (n * inner as i64).max(1), n, inner as i64];
        let strides = Dims::from([n * inner as i64, inner as i64, 1]);
        let view = |t: &Tensor| t.view_with(flat.into(), strides.clone(), t.offset());
        (view(&super::copy::dense(input, d)?), view(&written))
    } else {
        written = lines::target(out, dim, d)?;
        (lines::read(input, &[dim], d)?, written.clone())
    };
    match (d, kind) {
        (DType::I64, Kind::Sum) => run::<i64, i64>(&from, &to, 0, |a, x| a.wrapping_add(x), |a| a),
        (DType::I64, _) => run::<i64, i64>(&from, &to, 1, |a, x| a.wrapping_mul(x), |a| a),
        (DType::F32, Kind::Sum) if !beside => sums(&from, &to),
        (DType::F32, Kind::Sum) => {
            run::<f32, f64>(&from, &to, 0.0, |a, x| a + f64::from(x), |a| a as f32)
        }
        (DType::F32, Kind::Prod) => {
            run::<f32, f64>(&from, &to, 1.0, |a, x| a * f64::from(x), |a| a as f32)
        }
        (DType::F32, Kind::LogSumExp) => run::<f32, f64>(
            &from,
            &to,
            f64::NEG_INFINITY,
            |a, x| log_add(a, f64::from(x)),
            |a| a as f32,
        ),
        (DType::F64, Kind::Sum) => run::<f64, f64>(&from, &to, 0.0, |a, x| a + x, |a| a),
        (DType::F64, Kind::Prod) => run::<f64, f64>(&from, &to, 1.0, |a, x| a * x, |a| a),
        (DType::F64, Kind::LogSumExp) => {
            run::<f64, f64>(&from, &to, f64::NEG_INFINITY, log_add, |a| a)
        }
        (DType::C64, _) => {
            let narrow = |a: Complex64| Complex32::new(a.re as f32, a.im as f32);
            let wide = |x: Complex32| Complex64::new(f64::from(x.re), f64::from(x.im));
            complex::<Complex32>(kind, &from, &to, wide, narrow);
        }
        _ => complex::<Complex64>(kind, &from, &to, |x| x, |a| a),
    }
    if beside {
        return lines::put(out, &written);
    }
    lines::finish(out, dim, &written)
}

fn complex<T: Element>(
    kind: Kind,
    from: &Tensor,
    to: &Tensor,
    wide: impl Fn(T) -> Complex64 + Sync,
    narrow: impl Fn(Complex64) -> T + Sync,
) {
    let start = |re| Complex64::new(re, 0.0);
    match kind {
        Kind::Sum => run(from, to, start(0.0), |a, x| a + wide(x), narrow),
        Kind::Prod => run(from, to, start(1.0), |a, x| a * wide(x), narrow),
        Kind::LogSumExp => {
            let step = |a, x| log_add_complex(a, wide(x));
            run(from, to, start(f64::NEG_INFINITY), step, narrow);
        }
    }
}

fn run<T: Element, A: Copy + Sync>(
    from: &Tensor,
    to: &Tensor,
    start: A,
    step: impl Fn(A, T) -> A + Sync,
    out: impl Fn(A) -> T + Sync,
) {
    let n = from.shape()[1] as usize;
    if n == 0 || from.numel() == 0 {
        return;
    }
    if let Some(&inner) = from.shape().get(2) {
        let (x, to) = (super::slice::<T>(from), super::slice_mut::<T>(to));
        return columns(x, to, n, inner as usize, start, step, out);
    }
    // Several lines at once: steps of one wait for each other.
    const ABREAST: usize = 4;
    let (x, to) = (super::slice::<T>(from), super::slice_mut::<T>(to));
    let (x, left) = x.split_at(x.len() - x.len() % (ABREAST * n));
    let (to, rest) = to.split_at_mut(x.len());
    lines::for_each(x, ABREAST * n, to, ABREAST * n, |_, x, to| {
        let mut acc = [start; ABREAST];
        let x: [&[T]; ABREAST] = std::array::from_fn(|k| &x[k * n..][..n]);
        let (first, second) = to.split_at_mut(2 * n);
        let ((a, b), (c, d)) = (first.split_at_mut(n), second.split_at_mut(n));
        let to = [a, b, c, d].map(|line| &mut line[..n]);
        for i in 0..n {
            for k in 0..ABREAST {
                acc[k] = step(acc[k], x[k][i]);
                to[k][i] = out(acc[k]);
            }
        }
    });
    lines::for_each(left, n, rest, n, |_, line, to| {
        let mut acc = start;
        for (o, &x) in to.iter_mut().zip(line) {
            acc = step(acc, x);
            *o = out(acc);
        }
    });
}

/// Running sums of the lines of f32: eight elements are summed by themselves first, so that lines advance by eight
/// elements with one dependent addition.
fn sums(from: &Tensor, to: &Tensor) {
    const GROUP: usize = 8;
    let n = from.shape()[1] as usize;
    if from.numel() == 0 {
        return;
    }
    let (x, to) = (super::slice::<f32>(from), super::slice_mut::<f32>(to));
    lines::for_each(x, n, to, n, |_, line, to| {
        let mut acc = 0f64;
        let (mut x, mut o) = (line.chunks_exact(GROUP), to.chunks_exact_mut(GROUP));
        for (x, o) in (&mut x).zip(&mut o) {
            let mut part = [0f64; GROUP];
            part[0] = f64::from(x[0]);
            for i in 1..GROUP {
                part[i] = part[i - 1] + f64::from(x[i]);
            }
            for i in 0..GROUP {
                o[i] = (acc + part[i]) as f32;
            }
            acc += part[GROUP - 1];
        }
        for (&x, o) in x.remainder().iter().zip(o.into_remainder()) {
            acc += f64::from(x);
            *o = acc as f32;
        }
    });
}

/// Runs down the columns of `[n, inner]` blocks.
fn columns<T: Element, A: Copy + Sync>(
    x: &[T],
    to: &mut [T],
    n: usize,
    inner: usize,
    start: A,
    step: impl Fn(A, T) -> A + Sync,
    out: impl Fn(A) -> T + Sync,
) {
    const WIDTH: usize = 256;
    let chunks = inner.div_ceil(WIDTH);
    let blocks = x.len() / (n * inner);
    let shared = super::lines::Shared::new(to);
    let grain = (super::iter::GRAIN / (n * inner.min(WIDTH))).max(1);
    super::pool::parallel_for(blocks * chunks, grain, |range| {
        for k in range {
            let j = k % chunks * WIDTH;
            let w = WIDTH.min(inner - j);
            let mut acc = [start; WIDTH];
            for r in 0..n {
                let at = (k / chunks * n + r) * inner + j;
                // SAFETY: every task has its own columns.
                let (row, o) = (&x[at..at + w], unsafe { shared.part(at, w) });
                for ((a, &x), o) in acc[..w].iter_mut().zip(row).zip(o) {
                    *a = step(*a, x);
                    *o = out(*a);
                }
            }
        }
    });
}

fn log_add(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    let (lo, hi) = (a.min(b), a.max(b));
    if lo != hi || lo.is_finite() {
        (lo - hi).exp().ln_1p() + hi
    } else {
        a
    }
}

fn log_add_complex(a: Complex64, b: Complex64) -> Complex64 {
    if a.is_nan() || b.is_nan() {
        return Complex64::new(f64::NAN, f64::NAN);
    }
    let (lo, hi) = if a.re < b.re { (a, b) } else { (b, a) };
    if lo.re == f64::NEG_INFINITY {
        return hi;
    }
    if !lo.re.is_finite() && lo.re == hi.re {
        return (lo.exp() + hi.exp()).ln();
    }
    (Complex64::new(1.0, 0.0) + (lo - hi).exp()).ln() + hi
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_run_along_every_dimension() {
        let (a, b, c) = (3usize, 37usize, 11usize);
        let v: Vec<f32> = (0..a * b * c)
            .map(|i| ((i * 31) % 17) as f32 - 8.0)
            .collect();
        let shape = [a as i64, b as i64, c as i64];
        let t = Tensor::from_slice(&v, &shape).unwrap();
        for (dim, step) in [(0, b * c), (1, c), (2, 1)] {
            let out = Tensor::empty(&shape, DType::F32, crate::Device::CPU).unwrap();
            scan(&out, &t, dim, Kind::Sum).unwrap();
            let got = out.to_vec::<f32>().unwrap();
            for i in 0..v.len() {
                let at_start = i / step % shape[dim] as usize == 0;
                let before = if at_start { 0.0 } else { got[i - step] };
                assert_eq!(got[i], before + v[i], "{dim} {i}");
            }
        }
    }
}
