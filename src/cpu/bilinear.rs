//! Bilinear forms as products: of blocks of rows with all matrices side by side.

#![allow(
    unsafe_code,
    reason = "products by pointer, tasks that write disjoint parts of a result"
)]

use super::gemm::{GemmElement, Mat, MatMut, gemm};
use super::lanes::{Cell, Real, sum2_by};
use super::lines::Shared;
use super::norm::{by_type, finish, wide, working};
use super::room::Room;
use super::simd::simd_fn;
use super::{copy, fill, pool, slice, slice_mut};
use crate::{DType, Device, Element, Result, Scalar, Tensor};
use num_complex::Complex64;

/// Elements of a block's products.
const BLOCK: usize = 1 << 17;

/// Numbers that forms are computed in.
trait Number: GemmElement<Scale = Self> + Cell<T = Self> + Real + Element {}
impl Number for f32 {}
impl Number for f64 {}

/// What a dtype is computed in: whole numbers exactly, as far as double precision is.
fn compute(dtype: DType) -> DType {
    if dtype.is_reduced_float() || dtype == DType::F32 {
        DType::F32
    } else if dtype.is_complex() {
        DType::C128
    } else {
        DType::F64
    }
}

/// Rows of a block.
fn block(rows: usize, each: usize) -> usize {
    (BLOCK / each.max(1)).clamp(1, rows.max(1))
}

/// What the two functions below take besides their results: `each` products for each of so many rows.
///
/// # Errors
/// As [`Room::empty`].
pub fn room<'t>(
    room: &mut Room,
    out: &Tensor,
    operands: impl IntoIterator<Item = Option<&'t Tensor>>,
    rows: i64,
    each: i64,
) -> Result<()> {
    let dtype = compute(out.dtype());
    room.all_dense(operands, dtype)?;
    room.dense(out, dtype)?;
    let rows = block(rows as usize, each as usize) as i64;
    room.empty(&[rows, each], dtype).map(drop)
}

/// x A y + b for each pair of rows and each matrix A of `weight`.
///
/// # Errors
/// If memory cannot be had.
pub fn bilinear(
    out: &Tensor,
    x: &Tensor,
    y: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
) -> Result<()> {
    let d = compute(out.dtype());
    let dense = |t: &Tensor| copy::dense(t, d);
    let (x, y, w, bias) = (dense(x)?, dense(y)?, dense(weight)?, wide(bias, d)?);
    let result = working(out, d)?;
    if d.is_complex() {
        complex_forms(&result, [&x, &y, &w], bias.as_ref());
        return finish(out, &result);
    }
    by_type!(d, T => forms::<T>(&result, &x, &y, &w, bias.as_ref()))?;
    finish(out, &result)
}

/// The forms of complex rows, which are rare: one after the other.
fn complex_forms(out: &Tensor, [x, y, w]: [&Tensor; 3], bias: Option<&Tensor>) {
    let [o, i, j] = [0, 1, 2].map(|d| w.shape()[d] as usize);
    let all = |t: &Tensor| slice::<Complex64>(t).to_vec();
    let (x, y, w, bias) = (all(x), all(y), all(w), bias.map(all));
    for (n, to) in slice_mut::<Complex64>(out).iter_mut().enumerate() {
        let (row, k) = (n / o, n % o);
        let right = &y[row * j..][..j];
        *to = bias.as_ref().map_or(Complex64::ZERO, |b| b[k]);
        for (p, left) in x[row * i..][..i].iter().enumerate() {
            let line = &w[(k * i + p) * j..][..j];
            let sum: Complex64 = line.iter().zip(right).map(|(a, b)| a * b).sum();
            *to += left * sum;
        }
    }
}

simd_fn! { wide
    /// The products of a row with as many lines as there are results, added to these.
    fn dots<T: Number>(row: &[T], lines: &[T], to: &mut [T]) {
        for (k, to) in to.iter_mut().enumerate() {
            *to += sum2_by(row, &lines[k * row.len()..][..row.len()], |p, q| p * q);
        }
    }
}

fn forms<T: Number>(
    out: &Tensor,
    x: &Tensor,
    y: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
) -> Result<()> {
    let [o, i, j] = [0, 1, 2].map(|d| w.shape()[d] as usize);
    let rows = (out.numel() as usize).checked_div(o).unwrap_or(0);
    let step = block(rows, o * i);
    let times = Tensor::empty(&[step as i64, (o * i) as i64], x.dtype(), Device::CPU)?;
    let (x, to) = (slice::<T>(x), Shared::new(slice_mut::<T>(out)));
    let (y, w) = (slice::<T>(y), slice::<T>(w));
    for first in (0..rows).step_by(step) {
        let n = step.min(rows - first);
        let lines = slice_mut::<T>(&times);
        // SAFETY: rows of `y`, all matrices below each other, and a block as large as their products.
        unsafe {
            gemm(
                n,
                o * i,
                j,
                T::of(1.0),
                Mat::new(y.as_ptr().add(first * j), j as isize, 1),
                Mat::new(w.as_ptr(), 1, j as isize),
                T::of(0.0),
                MatMut::new(lines.as_mut_ptr(), (o * i) as isize, 1),
                None,
            );
        }
        let lines = &*lines;
        pool::parallel_for(n, (16384 / (o * i).max(1)).max(1), |range| {
            for r in range {
                // SAFETY: every row has its own results.
                let to = unsafe { to.part((first + r) * o, o) };
                match bias {
                    Some(b) => to.copy_from_slice(&slice::<T>(b)[..o]),
                    None => to.fill(T::of(0.0)),
                }
                dots(&x[(first + r) * i..][..i], &lines[r * o * i..], to);
            }
        });
    }
    Ok(())
}

/// The gradient of [`bilinear`] by its weights: the sum over rows of `g[o] x[i] y[j]`, into `out` `[o, i, j]`.
///
/// # Errors
/// If memory cannot be had.
pub fn weight_gradient(out: &Tensor, g: &Tensor, x: &Tensor, y: &Tensor) -> Result<()> {
    let d = compute(out.dtype());
    let dense = |t: &Tensor| copy::dense(t, d);
    let (g, x, y) = (dense(g)?, dense(x)?, dense(y)?);
    let result = working(out, d)?;
    fill(&result, Scalar::Int(0))?;
    by_type!(d, T => gradients::<T>(&result, &g, &x, &y))?;
    finish(out, &result)
}

fn gradients<T: Number>(out: &Tensor, g: &Tensor, x: &Tensor, y: &Tensor) -> Result<()> {
    let rows = g.shape()[0] as usize;
    let [o, i, j] = [g, x, y].map(|t| t.shape()[1] as usize);
    let step = block(rows, o * i);
    let times = Tensor::empty(&[step as i64, (o * i) as i64], x.dtype(), Device::CPU)?;
    let (g, x, y) = (slice::<T>(g), slice::<T>(x), slice::<T>(y));
    for first in (0..rows).step_by(step) {
        let n = step.min(rows - first);
        let lines = Shared::new(slice_mut::<T>(&times));
        pool::parallel_for(n, (16384 / (o * i).max(1)).max(1), |range| {
            for r in range {
                // SAFETY: every row has its own products.
                let to = unsafe { lines.part(r * o * i, o * i) };
                let (g, x) = (&g[(first + r) * o..][..o], &x[(first + r) * i..][..i]);
                for (to, &g) in to.chunks_mut(i.max(1)).zip(g) {
                    for (to, &x) in to.iter_mut().zip(x) {
                        *to = g * x;
                    }
                }
            }
        });
        // SAFETY: the block's products, rows of `y`, and a result of their size.
        unsafe {
            gemm(
                o * i,
                j,
                n,
                T::of(1.0),
                Mat::new(slice::<T>(&times).as_ptr(), 1, (o * i) as isize),
                Mat::new(y.as_ptr().add(first * j), j as isize, 1),
                T::of(1.0),
                MatMut::new(slice_mut::<T>(out).as_mut_ptr(), j as isize, 1),
                None,
            );
        }
    }
    Ok(())
}
