//! Numbers at equal distances, block by block.

#![allow(unsafe_code, reason = "blocks go to checked memory of any type")]

use super::copy::{self, Cast as _};
use super::halves::{self, Half};
use super::iter::GRAIN;
use super::lines::Shared;
use super::simd::simd_fn;
use super::{pool, steps};
use crate::{Device, Element, Result, Tensor};
use num_complex::Complex;

/// Numbers made at a time.
pub const BLOCK: usize = 1024;

/// Fills a tensor in row-major order with what `f(place of the first, block)` makes, converted to the tensor's type.
///
/// # Errors
/// If there is no conversion.
pub fn fill<T: Element + Default>(out: &Tensor, f: impl Fn(usize, &mut [T]) + Sync) -> Result<()> {
    if out.ndim() != 1 && !out.is_contiguous() {
        // A result that was given may have its own shape.
        let dense = Tensor::empty(out.shape(), out.dtype(), Device::CPU)?;
        fill(&dense, f)?;
        return copy::copy(out, &dense);
    }
    let row = if out.dtype() == T::DTYPE {
        steps::row_copy(size_of::<T>())
    } else {
        copy::converter(T::DTYPE, out.dtype())?
    };
    let n = out.numel() as usize;
    let item = out.dtype().size() as isize;
    let step = match out.strides()[..] {
        [step] => step as isize * item,
        _ => item,
    };
    let to = Shared::at(out.data_ptr());
    let straight = out.dtype() == T::DTYPE && out.is_contiguous();
    pool::parallel_for(n.div_ceil(BLOCK), GRAIN / BLOCK, |blocks| {
        let pieces = blocks.map(|b| (b * BLOCK, BLOCK.min(n - b * BLOCK)));
        let place = |start: usize| to.get().wrapping_offset(start as isize * step);
        if straight {
            for (start, m) in pieces {
                // SAFETY: m elements of the tensor, which no other task has.
                f(start, unsafe {
                    std::slice::from_raw_parts_mut(place(start).cast(), m)
                });
            }
            return;
        }
        let mut room = [T::default(); BLOCK];
        for (start, m) in pieces {
            f(start, &mut room[..m]);
            // SAFETY: as above.
            unsafe {
                row(
                    place(start),
                    step,
                    room.as_ptr().cast(),
                    size_of::<T>() as isize,
                    m,
                )
            };
        }
    });
    Ok(())
}

simd_fn! { wide
    /// `start + step * i` for the places from `first` on.
    pub fn steps(to: &mut [f64], first: usize, start: f64, step: f64) {
        for (o, i) in to.iter_mut().zip(first as i64..) {
            *o = start + step * i as f64;
        }
    }
}

simd_fn! { wide
    /// The same rounded to single precision.
    pub fn single_steps(to: &mut [f32], first: usize, start: f64, step: f64) {
        for (o, i) in to.iter_mut().zip(first as i64..) {
            *o = (start + step * i as f64) as f32;
        }
    }
}

simd_fn! { stream
    /// The same for integers, which wrap around.
    pub fn whole_steps(to: &mut [i64], first: usize, start: i64, step: i64) {
        for (o, i) in to.iter_mut().zip(first as i64..) {
            *o = start.wrapping_add(step.wrapping_mul(i));
        }
    }
}

/// `n` numbers between two ends, counted from the nearer one.
#[derive(Clone, Copy)]
pub struct Between<T> {
    /// How many there are.
    pub n: usize,
    /// The first and the last.
    pub ends: [T; 2],
    /// From one to the next.
    pub step: T,
}

impl<T: Copy + std::ops::Neg<Output = T>> Between<T> {
    /// For place `i`: an end, what is added to it how many times.
    #[inline(always)]
    fn terms(&self, i: usize) -> (T, T, i64) {
        if i < self.n / 2 {
            (self.ends[0], self.step, i as i64)
        } else {
            (self.ends[1], -self.step, (self.n - 1 - i) as i64)
        }
    }
}

simd_fn! { wide
    /// Some of the numbers in double precision, each rounded once.
    pub fn doubles(to: &mut [f64], first: usize, all: Between<f64>) {
        for (o, i) in to.iter_mut().zip(first..) {
            let (end, step, k) = all.terms(i);
            *o = step.mul_add(k as f64, end);
        }
    }
}

simd_fn! { wide
    /// The same cut to integers.
    pub fn integers(to: &mut [i64], first: usize, all: Between<f64>) {
        for (o, i) in to.iter_mut().zip(first..) {
            let (end, step, k) = all.terms(i);
            let x = step.mul_add(k as f64, end);
            // Instructions make the lowest number of what is too large.
            let cut: i64 = x.cast();
            *o = if x >= -(i64::MIN as f64) { i64::MAX } else { cut };
        }
    }
}

/// What numbers in double precision are rounded to.
pub trait Narrow: Copy {
    /// The number of this type.
    fn of(x: f64) -> Self;
}
impl Narrow for f32 {
    #[inline(always)]
    fn of(x: f64) -> Self {
        x as Self
    }
}
impl Narrow for f64 {
    #[inline(always)]
    fn of(x: f64) -> Self {
        x
    }
}

simd_fn! { wide
    /// The same for complex numbers, rounded after every step, each half by a loop that does not ask which end is nearer.
    pub fn complex<T: Narrow>(to: &mut [Complex<T>], first: usize, re: Between<f64>, im: Between<f64>) {
        let near = (re.n / 2).saturating_sub(first).min(to.len());
        let (near, far) = to.split_at_mut(near);
        let last = re.n as i64 - 1 - (first + near.len()) as i64;
        for (o, k) in near.iter_mut().zip(first as i64..) {
            let k = k as f64;
            *o = Complex::new(T::of(re.ends[0] + re.step * k), T::of(im.ends[0] + im.step * k));
        }
        for (o, k) in far.iter_mut().zip(0..) {
            let k = (last - k) as f64;
            *o = Complex::new(T::of(re.ends[1] - re.step * k), T::of(im.ends[1] - im.step * k));
        }
    }
}

simd_fn! { wide
    /// Some of the numbers in single precision, each rounded once.
    pub fn singles(to: &mut [f32], first: usize, all: Between<f32>) {
        for (o, i) in to.iter_mut().zip(first..) {
            let (end, step, k) = all.terms(i);
            *o = step.mul_add(k as f32, end);
        }
    }
}

/// Some of the numbers of a 16-bit type, every step of which is rounded to it.
pub fn rounded<H: Half + Element>(to: &mut [f32], first: usize, all: Between<f32>) {
    let mut room = [H::from_scalar(crate::Scalar::Int(0)); BLOCK];
    let half = &mut room[..to.len()];
    let mut round = |to: &mut [f32]| {
        halves::narrowed(to, half);
        halves::widened(half, to);
    };
    for (o, i) in to.iter_mut().zip(first..) {
        *o = all.terms(i).2 as f32;
    }
    round(to);
    to.iter_mut().for_each(|o| *o *= all.step);
    round(to);
    for (o, i) in to.iter_mut().zip(first..) {
        *o = if i < all.n / 2 {
            all.ends[0] + *o
        } else {
            all.ends[1] - *o
        };
    }
    round(to);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn blocks_join_in_every_type_and_layout() {
        for n in [0, 1, 2, BLOCK - 1, BLOCK, 3 * BLOCK + 5, 2 * GRAIN + 1] {
            for d in [DType::I32, DType::I64, DType::F32] {
                let all = Tensor::empty(&[2 * n as i64], d, Device::CPU).unwrap();
                super::super::fill(&all, crate::Scalar::Int(7)).unwrap();
                for stride in [1, 2] {
                    let shape = crate::Dims::new(&[n as i64]);
                    let out = all.view_with(shape, crate::Dims::new(&[stride]), 0);
                    fill(&out, |at, to| whole_steps(to, at, 5, -3)).unwrap();
                    let wide = copy::dense(&out, DType::I64).unwrap();
                    let want: Vec<i64> = (0..n as i64).map(|i| 5 - 3 * i).collect();
                    let want: Vec<i64> = match d {
                        DType::F32 => want.iter().map(|&x| x as f32 as i64).collect(),
                        _ => want,
                    };
                    assert_eq!(super::super::slice::<i64>(&wide), want, "{n} {d} {stride}");
                }
                let turned = all.view_with([n as i64, 2].into(), [1, n.max(1) as i64].into(), 0);
                fill(&turned, |at, to| whole_steps(to, at, 0, 1)).unwrap();
                let wide = copy::dense(&turned, DType::I64).unwrap();
                let counted = super::super::slice::<i64>(&wide).iter().zip(0..);
                assert!(counted.clone().count() == 2 * n && counted.clone().all(|(x, i)| *x == i));
            }
        }
    }
}
