//! The vector product of three-dimensional space.

use super::lines;
use super::room::Room;
use super::simd::simd_fn;
use super::{copy, slice, slice_mut};
use crate::{DType, Element, Result, Tensor, dims, with_dtype};

/// What a vector product needs of its elements.
trait Minor: Element + Copy {
    /// `a b - c d`.
    fn minor(a: Self, b: Self, c: Self, d: Self) -> Self;
}

macro_rules! minors {
    ([$($int:ty)+] [$($float:ty)+]) => {
        $(impl Minor for $int {
            #[inline(always)]
            fn minor(a: Self, b: Self, c: Self, d: Self) -> Self {
                a.wrapping_mul(b).wrapping_sub(c.wrapping_mul(d))
            }
        })+
        $(impl Minor for $float {
            #[inline(always)]
            fn minor(a: Self, b: Self, c: Self, d: Self) -> Self {
                a * b - c * d
            }
        })+
    };
}

minors!([u8 i8 i16 i32 i64] [f32 f64 num_complex::Complex32 num_complex::Complex64]);

/// What [`cross`] takes.
///
/// # Errors
/// If a size overflows.
pub fn room(room: &mut Room, out: &Tensor, x: &Tensor, y: &Tensor) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let [x, y] = [x, y].map(|t| t.expand_to(out.shape()));
    let outs = std::slice::from_ref(out);
    room.operands([Some(&x), Some(&y)], outs, computed_in(out.dtype()))
}

fn computed_in(d: DType) -> DType {
    if d.is_reduced_float() { DType::F32 } else { d }
}

/// The products of the vectors along a dimension of size 3; 16-bit floats are multiplied in single precision.
///
/// # Errors
/// If the dtype has no products.
pub fn cross(out: &Tensor, x: &Tensor, y: &Tensor, dim: usize) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let compute = computed_in(out.dtype());
    let (x, y) = (
        copy::dense(&x.expand_to(out.shape()), compute)?,
        copy::dense(&y.expand_to(out.shape()), compute)?,
    );
    let made = lines::results(out, compute)?;
    with_dtype!(compute, [int float complex] => T, {
        products(slice::<T>(&x), slice::<T>(&y), slice_mut::<T>(&made), out.shape(), dim);
        return lines::put(out, &made);
    }, else {});
    Err(compute.no_kernel("cross"))
}

fn products<T: Minor>(x: &[T], y: &[T], out: &mut [T], shape: &[i64], dim: usize) {
    let step = dims::contiguous_strides(shape)[dim] as usize;
    if step == 1 {
        return neighbours(out, x, y);
    }
    let parts = x.chunks_exact(3 * step).zip(y.chunks_exact(3 * step));
    for (out, (x, y)) in out.chunks_exact_mut(3 * step).zip(parts) {
        let part = |i: usize| i % 3 * step..(i % 3 + 1) * step;
        for (i, to) in out.chunks_exact_mut(step).enumerate() {
            let (j, k) = (part(i + 1), part(i + 2));
            apart(to, [&x[j.clone()], &y[k.clone()]], [&x[k], &y[j]]);
        }
    }
}

simd_fn! { wide
    fn neighbours<T: Minor>(out: &mut [T], x: &[T], y: &[T]) {
        for ((to, x), y) in out.chunks_exact_mut(3).zip(x.chunks_exact(3)).zip(y.chunks_exact(3)) {
            to[0] = T::minor(x[1], y[2], x[2], y[1]);
            to[1] = T::minor(x[2], y[0], x[0], y[2]);
            to[2] = T::minor(x[0], y[1], x[1], y[0]);
        }
    }
}

simd_fn! { wide
    fn apart<T: Minor>(out: &mut [T], ab: [&[T]; 2], cd: [&[T]; 2]) {
        for ((((to, &a), &b), &c), &d) in out.iter_mut().zip(ab[0]).zip(ab[1]).zip(cd[0]).zip(cd[1]) {
            *to = T::minor(a, b, c, d);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_turn_into_the_next() -> Result<()> {
        let x = Tensor::from_slice(&[1i64, 0, 0, 0, 1, 0], &[2, 3])?;
        let y = Tensor::from_slice(&[0i64, 1, 0, 0, 0, 1], &[2, 3])?;
        let out = Tensor::from_slice(&[7i64; 6], &[2, 3])?;
        cross(&out, &x, &y, 1)?;
        assert_eq!(slice::<i64>(&out), [0, 0, 1, 1, 0, 0]);
        Ok(())
    }

    #[test]
    fn vectors_lie_along_any_dimension() -> Result<()> {
        let x = Tensor::from_slice(&[1.0f32, 4.0, 2.0, 5.0, 3.0, 6.0], &[3, 2])?;
        let y = Tensor::from_slice(&[1.0f32, 0.0, 0.0], &[3, 1])?;
        let out = Tensor::from_slice(&[0.0f32; 6], &[3, 2])?;
        cross(&out, &x, &y, 0)?;
        assert_eq!(slice::<f32>(&out), [0.0, 0.0, 3.0, 6.0, -2.0, -5.0]);
        Ok(())
    }

    #[test]
    fn truth_values_have_no_products() -> Result<()> {
        let x = Tensor::from_slice(&[true; 3], &[3])?;
        assert!(cross(&x.clone(), &x, &x, 0).is_err());
        Ok(())
    }
}
