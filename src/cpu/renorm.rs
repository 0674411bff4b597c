//! Slices of a tensor scaled down to a norm.

use super::lanes::Real;
use super::reduce::{self, Kind, Post};
use super::simd::simd_fn;
use super::{copy, lines, slice, slice_mut};
use crate::{DType, Device, Element, Result, Tensor};

/// Slices along `dim` scaled so that their p-norm is at most `max`.
///
/// # Errors
/// If memory cannot be had.
pub fn renorm(out: &Tensor, input: &Tensor, p: f64, dim: usize, max: f64) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let wide = computed_in(input.dtype());
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

/// The type that slices are scaled in.
pub(super) fn computed_in(d: DType) -> DType {
    match d {
        DType::F64 | DType::C64 | DType::C128 => d,
        DType::C32 => DType::C64,
        _ => DType::F32,
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
        reduce::magnitudes(x)?
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
