//! Slices of a tensor scaled down to a norm.

use super::lanes::Real;
use super::reduce::{self, Kind, Post};
use super::simd::simd_fn;
use super::{copy, lines, magnitudes, slice, slice_mut};
use crate::cpu::halves::{self, Half};
use crate::{DType, Device, Element, Result, Tensor};
use half::{bf16, f16};

/// Elements that are widened at a time.
const BLOCK: usize = 1024;

/// Slices along `dim` scaled so that their p-norm is at most `max`.
///
/// # Errors
/// If memory cannot be had.
pub fn renorm(out: &Tensor, input: &Tensor, p: f64, dim: usize, max: f64) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let wide = match input.dtype() {
        DType::F16 => return of_halves::<f16>(out, input, p, dim, max),
        DType::BF16 => return of_halves::<bf16>(out, input, p, dim, max),
        d => computed_in(d),
    };
    let x = copy::dense(input, wide)?;
    let factors = factors(&x, p, dim, max)?;
    let written = lines::results(out, wide)?;
    let inner: i64 = x.shape()[dim + 1..].iter().product();
    let (from, to) = (lines::reals(&x), lines::reals(&written));
    let n = inner as usize * if wide.is_complex() { 2 } else { 1 };
    if from.dtype() == DType::F64 {
        scaled::<f64>(&to, &from, n, &factors);
    } else {
        let factors: Vec<f32> = factors.iter().map(|&f| f as f32).collect();
        scaled::<f32>(&to, &from, n, &factors);
    }
    lines::put(out, &written)
}

/// The type that slices are scaled in, or lie in where blocks of them are widened.
pub(super) fn computed_in(d: DType) -> DType {
    match d {
        DType::F64 | DType::C64 | DType::C128 | DType::F16 | DType::BF16 => d,
        DType::C32 => DType::C64,
        _ => DType::F32,
    }
}

/// The same of 16-bit floats, of which a block at a time is widened and rounded.
fn of_halves<H: Half + Element>(
    out: &Tensor,
    input: &Tensor,
    p: f64,
    dim: usize,
    max: f64,
) -> Result<()> {
    let x = copy::dense(input, H::DTYPE)?;
    let factors = factors(&x, p, dim, max)?;
    let factors: Vec<f32> = factors.iter().map(|&f| f as f32).collect();
    let written = lines::results(out, H::DTYPE)?;
    let n = x.shape()[dim + 1..].iter().product::<i64>() as usize;
    let (from, to, all) = (slice::<H>(&x), slice_mut::<H>(&written), n * factors.len());
    lines::for_each(from, all, to, all, |_, x, to| {
        let mut room = [0f32; BLOCK];
        let blocks = x.chunks(BLOCK).zip(to.chunks_mut(BLOCK));
        for ((x, to), start) in blocks.zip((0..).step_by(BLOCK)) {
            let room = &mut room[..x.len()];
            halves::widened(x, room);
            times(room, start, n, &factors);
            halves::narrowed(room, to);
        }
    });
    lines::put(out, &written)
}

/// Multiplies elements from place `start` of a line on, by a factor for each `n` of it.
fn times(mut x: &mut [f32], mut start: usize, n: usize, factors: &[f32]) {
    if n == 1 {
        let pairs = x.iter_mut().zip(&factors[start..]);
        return pairs.for_each(|(x, f)| *x *= f);
    }
    while !x.is_empty() {
        let (slice, some) = (start / n, x.len().min(n - start % n));
        let (part, rest) = x.split_at_mut(some);
        part.iter_mut().for_each(|x| *x *= factors[slice]);
        (x, start) = (rest, start + some);
    }
}

/// The factor of each slice of a dense tensor.
fn factors(x: &Tensor, p: f64, dim: usize, max: f64) -> Result<Vec<f64>> {
    let mut dims: Vec<usize> = (0..x.ndim()).filter(|&d| d != dim).collect();
    let (kind, post) = match p {
        2.0 => (Kind::SqSum, Post::Sqrt),
        1.0 => (Kind::AbsSum, Post::None),
        f64::INFINITY => (Kind::AbsMax, Post::None),
        _ => (Kind::PowSum, Post::Pow(1.0 / p)),
    };
    let real = if !x.dtype().is_complex() {
        x.clone()
    } else if kind == Kind::SqSum {
        // The squares of both parts are summed alike.
        dims.push(x.ndim());
        lines::reals(x)
    } else {
        magnitudes::of(x)?
    };
    let norms = Tensor::empty(&[x.shape()[dim]], DType::F64, Device::CPU)?;
    reduce::run_kind(kind, &norms, &real, &dims, p, post)?;
    let factor = |&n: &f64| if n > max { max / (n + 1e-7) } else { 1.0 };
    Ok(slice::<f64>(&norms).iter().map(factor).collect())
}

/// Dense elements times a factor for each `n` of them, again and again.
fn scaled<T: Real + Element>(to: &Tensor, from: &Tensor, n: usize, factors: &[T]) {
    let (from, to, all) = (slice::<T>(from), slice_mut::<T>(to), n * factors.len());
    lines::for_each(from, all, to, all, |_, x, to| {
        if n == 1 {
            return by_each(to, x, factors);
        }
        for ((to, x), &f) in to.chunks_exact_mut(n).zip(x.chunks_exact(n)).zip(factors) {
            by_one(to, x, f);
        }
    });
}

simd_fn! { stream
    fn by_each<T: Real>(to: &mut [T], x: &[T], factors: &[T]) {
        for ((to, &x), &f) in to.iter_mut().zip(x).zip(factors) {
            *to = x * f;
        }
    }
}

simd_fn! { stream
    fn by_one<T: Real>(to: &mut [T], x: &[T], f: T) {
        for (to, &x) in to.iter_mut().zip(x) {
            *to = x * f;
        }
    }
}
