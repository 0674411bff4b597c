//! The vector product of three-dimensional space.

use super::{copy, slice};
use crate::{DType, Element, Result, Tensor, dims, with_dtype};

/// What a vector product needs of its elements.
trait Minor: Element + Copy {
    /// `a b - c d`.
    fn minor(a: Self, b: Self, c: Self, d: Self) -> Self;
}

macro_rules! minors {
    ([$($int:ty)+] [$($float:ty)+]) => {
        $(impl Minor for $int {
            fn minor(a: Self, b: Self, c: Self, d: Self) -> Self {
                a.wrapping_mul(b).wrapping_sub(c.wrapping_mul(d))
            }
        })+
        $(impl Minor for $float {
            fn minor(a: Self, b: Self, c: Self, d: Self) -> Self {
                a * b - c * d
            }
        })+
    };
}

minors!([u8 i8 i16 i32 i64] [f32 f64 num_complex::Complex32 num_complex::Complex64]);

/// The products of the vectors along a dimension of size 3; 16-bit floats are multiplied in single precision.
///
/// # Errors
/// If the dtype has no products.
pub fn cross(out: &Tensor, x: &Tensor, y: &Tensor, dim: usize) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let compute = if out.dtype().is_reduced_float() {
        DType::F32
    } else {
        out.dtype()
    };
    let (x, y) = (
        copy::dense(&x.expand_to(out.shape()), compute)?,
        copy::dense(&y.expand_to(out.shape()), compute)?,
    );
    with_dtype!(compute, [int float complex] => T, {
        let made = lines(slice::<T>(&x), slice::<T>(&y), out.shape(), dim);
        return copy::copy(out, &Tensor::from_slice(&made, out.shape())?);
    }, else {});
    Err(compute.no_kernel("cross"))
}

fn lines<T: Minor>(x: &[T], y: &[T], shape: &[i64], dim: usize) -> Vec<T> {
    let step = dims::contiguous_strides(shape)[dim] as usize;
    (0..x.len())
        .map(|at| {
            let i = at / step % 3;
            let first = at - i * step;
            let (j, k) = (first + (i + 1) % 3 * step, first + (i + 2) % 3 * step);
            T::minor(x[j], y[k], x[k], y[j])
        })
        .collect()
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
