//! Products of tensors: hands strides and pointers to [`gemm`](super::gemm).

#![allow(unsafe_code, reason = "passes checked layouts to the matrix kernels")]

use super::dense::{number::Number, vector};
use super::gemm::tiled::Kind;
use super::gemm::{GemmElement, Mat, MatMut, bytes, gemm, gemm_batch};
use super::lines::Shared;
use super::products::dot_as_product;
use super::room::Room;
use super::view;
use super::{copy, pool, slice};
use crate::{DType, Element, Result, Scalar, Tensor, with_dtype};
use smallvec::SmallVec;
use std::ops::Range;

/// Steps of a product summed in one go where one row meets one column: longer sums are cut, for threads and accuracy.
const DOT_SHARE: usize = 32 * 1024;

/// True for the dtypes that products are computed in.
#[must_use]
pub fn has_product(d: DType) -> bool {
    use DType::*;
    matches!(
        d,
        U8 | I8 | I16 | I32 | I64 | F16 | BF16 | F32 | F64 | C64 | C128
    )
}

/// `c = alpha a b + beta c + bias`: matrices, or batches of them (3 dimensions), of one dtype and any strides.
/// `bias` is one contiguous row.
///
/// # Errors
/// If the dtype has no products.
pub fn product(
    c: &Tensor,
    a: &Tensor,
    b: &Tensor,
    alpha: Scalar,
    beta: Scalar,
    bias: Option<&Tensor>,
) -> Result<()> {
    with_dtype!(c.dtype(), [int half float complex] => T, {
        typed::<T>(c, a, b, alpha, beta, bias);
        return Ok(());
    }, else {});
    Err(c.dtype().no_kernel("addmm_impl_cpu_"))
}

fn typed<T: GemmElement + Element>(
    c: &Tensor,
    a: &Tensor,
    b: &Tensor,
    alpha: Scalar,
    beta: Scalar,
    bias: Option<&Tensor>,
) where
    T::Scale: Element,
{
    if c.numel() == 0 {
        return;
    }
    let last = |t: &Tensor| {
        let n = t.ndim();
        (
            t.shape()[n - 2] as usize,
            t.shape()[n - 1] as usize,
            t.strides()[n - 2] as isize,
            t.strides()[n - 1] as isize,
        )
    };
    let (m, n, crs, ccs) = last(c);
    let (_, k, ars, acs) = last(a);
    let (_, _, brs, bcs) = last(b);
    let ma = Mat::new(a.data_ptr().cast::<T>().cast_const(), ars, acs);
    let mb = Mat::new(b.data_ptr().cast::<T>().cast_const(), brs, bcs);
    let mc = MatMut::new(c.data_ptr().cast::<T>(), crs, ccs);
    let (alpha, beta) = (T::Scale::from_scalar(alpha), T::Scale::from_scalar(beta));
    let bias = bias.map(|t| t.data_ptr().cast::<T>().cast_const());
    // SAFETY: the layouts lie within their storages, rules made the sizes agree, and results overlap no operand.
    unsafe {
        if c.ndim() == 3 && c.shape()[0] != 1 {
            let step = |t: &Tensor| t.strides()[0] as isize;
            gemm_batch(
                c.shape()[0] as usize,
                m,
                n,
                k,
                alpha,
                (ma, step(a)),
                (mb, step(b)),
                beta,
                (mc, step(c)),
            );
        } else {
            gemm(m, n, k, alpha, ma, mb, beta, mc, bias);
        }
    }
}

/// A part of a matrix: where it begins in its tensor, its sizes and its strides, in elements.
#[derive(Clone, Copy)]
pub struct Part<'a> {
    of: &'a Tensor,
    start: i64,
    size: [usize; 2],
    strides: [i64; 2],
}

impl<'a> Part<'a> {
    /// Some rows of matrix `i` of those that the last two dimensions are, and so many of their first columns.
    ///
    /// # Panics
    /// If the tensor does not have them.
    #[must_use]
    pub fn of(t: &'a Tensor, i: usize, rows: Range<usize>, columns: usize) -> Self {
        let (start, [height, width], [down, right]) = view::place_of_matrix(t, i);
        assert!(rows.start <= rows.end && rows.end <= height && columns <= width);
        Self {
            of: t,
            start: start + rows.start as i64 * down,
            size: [rows.len(), columns],
            strides: [down, right],
        }
    }

    /// The first elements of a dense tensor as a row-major matrix.
    ///
    /// # Panics
    /// If it has fewer, or is not dense.
    #[must_use]
    pub fn first(t: &'a Tensor, rows: usize, columns: usize) -> Self {
        assert!(t.is_contiguous() && rows * columns <= t.numel() as usize);
        Self {
            of: t,
            start: 0,
            size: [rows, columns],
            strides: [columns as i64, 1],
        }
    }

    /// With rows for columns.
    #[must_use]
    pub fn turned(self) -> Self {
        let ([rows, columns], [down, right]) = (self.size, self.strides);
        Self {
            size: [columns, rows],
            strides: [right, down],
            ..self
        }
    }
}

/// `c = a b` of bytes, `b` with a sign, in 32 bits.
///
/// # Panics
/// If sizes or types do not fit.
#[allow(clippy::unnecessary_wraps, reason = "as the other products")]
pub fn product_of_bytes(c: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    let size = |t: &Tensor| [0, 1].map(|d| t.shape()[d] as usize);
    let ([m, k], [_, n]) = (size(a), size(b));
    assert!(size(b)[0] == k && size(c) == [m, n]);
    assert!(a.dtype().size() == 1 && b.dtype() == DType::I8 && c.dtype() == DType::I32);
    let steps = |t: &Tensor| [0, 1].map(|d| t.strides()[d] as isize);
    let mat = |t: &Tensor| Mat::new(t.data_ptr().cast_const(), steps(t)[0], steps(t)[1]);
    let product = bytes::Product {
        m,
        n,
        k,
        kind: if a.dtype() == DType::I8 {
            Kind::Bytes
        } else {
            Kind::Unsigned
        },
        a: mat(a),
        b: mat(b),
        c: MatMut::new(c.data_ptr().cast(), steps(c)[0], steps(c)[1]),
    };
    // SAFETY: strides describe elements of the tensors, and results overlap no operand.
    unsafe { product.run() };
    Ok(())
}

/// `c = alpha a b` of parts of tensors of type `T`.
///
/// # Panics
/// If sizes or types do not fit.
pub fn product_of_parts<T: GemmElement + Element>(c: Part, a: Part, b: Part, alpha: T::Scale)
where
    T::Scale: Element,
{
    let ([m, k], [_, n]) = (a.size, b.size);
    assert!(b.size[0] == k && c.size == [m, n]);
    assert!([a, b, c].iter().all(|p| p.of.dtype() == T::DTYPE));
    let at = |p: Part| {
        p.of.data_ptr()
            .cast::<T>()
            .wrapping_offset(p.start as isize)
    };
    let mat = |p: Part| {
        Mat::new(
            at(p).cast_const(),
            p.strides[0] as isize,
            p.strides[1] as isize,
        )
    };
    let to = MatMut::new(at(c), c.strides[0] as isize, c.strides[1] as isize);
    let zero = T::Scale::from_scalar(Scalar::Int(0));
    // SAFETY: parts lie within their tensors, their sizes agree, and results overlap no operand.
    unsafe { gemm(m, n, k, alpha, mat(a), mat(b), zero, to, None) }
}

/// The inner product of two vectors of one dtype, into a tensor with one element.
///
/// # Errors
/// If the dtype has no products.
pub fn dot(out: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    match out.dtype() {
        DType::F64 => dot_of::<f64>(out, a, b),
        d if d.is_float() => dot_of::<f32>(out, a, b),
        _ => dot_as_product(product, out, a, b),
    }
}

/// The same of real numbers: shares are summed in lanes, and then in double precision.
fn dot_of<T: Number>(out: &Tensor, a: &Tensor, b: &Tensor) -> Result<()>
where
    T::Real: Into<f64>,
{
    let (a, b) = (copy::dense(a, T::DTYPE)?, copy::dense(b, T::DTYPE)?);
    let (x, y) = (slice::<T>(&a), slice::<T>(&b));
    let mut sums: SmallVec<[f64; 4]> = SmallVec::from_elem(0.0, x.len().div_ceil(DOT_SHARE));
    let (count, to) = (sums.len(), Shared::new(&mut sums));
    pool::parallel_for(count, 2, |r| {
        for i in r {
            let share = i * DOT_SHARE..x.len().min((i + 1) * DOT_SHARE);
            let sum = vector::dot(&x[share.clone()], &y[share]).re();
            // SAFETY: every share has its own sum.
            unsafe { to.part(i, 1)[0] = sum.into() };
        }
    });
    super::fill(out, Scalar::Float(sums.iter().fold(0.0, |all, s| all + s)))
}

/// What [`dot`] takes: 16-bit floats are summed as single precision, and vectors lie densely.
///
/// # Errors
/// If a size overflows.
pub fn dot_room(room: &mut Room, out: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    match out.dtype() {
        DType::F64 => room.all_dense([Some(a), Some(b)], DType::F64),
        d if d.is_float() => room.all_dense([Some(a), Some(b)], DType::F32),
        _ => Ok(()),
    }
}

/// What the same with the first vector conjugated takes.
///
/// # Errors
/// If a size overflows.
pub fn vdot_room(room: &mut Room, out: &Tensor, a: &Tensor, b: &Tensor) -> Result<()> {
    if a.dtype().is_complex() {
        room.dense(&a.clone().with_conj(true), a.dtype())?;
    }
    dot_room(room, out, a, b)
}
