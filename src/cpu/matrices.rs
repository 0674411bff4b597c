//! Batches of matrices, read from tensors in double precision and written back in the tensors' types.

use super::dense::Matrix;
use super::{copy, slice};
use crate::{DType, Dims, Element, Result, Tensor};
use num_complex::Complex64 as C;

/// The matrices of a batch, repeated to `batch`.
///
/// # Errors
/// If memory cannot be had.
pub fn read(t: &Tensor, batch: &[i64]) -> Result<Vec<Matrix>> {
    let n = t.ndim();
    let (r, c) = (t.shape()[n - 2], t.shape()[n - 1]);
    let t = copy::dense(&t.expand_to(&Dims::new(batch).concat(&[r, c])), DType::C128)?;
    let (rows, columns) = (r as usize, c as usize);
    let count = batch.iter().product::<i64>() as usize;
    let all = slice::<C>(&t);
    Ok((0..count)
        .map(|i| Matrix {
            rows,
            columns,
            data: all[i * rows * columns..(i + 1) * rows * columns].to_vec(),
        })
        .collect())
}

/// The vectors of a batch as matrices of one column, repeated to `batch`.
///
/// # Errors
/// If memory cannot be had.
pub fn read_columns(t: &Tensor, batch: &[i64]) -> Result<Vec<Matrix>> {
    let (shape, strides) = (t.shape().concat(&[1]), t.strides().concat(&[1]));
    read(&t.view_with(shape, strides, t.offset()), batch)
}

/// One number for each matrix of a batch.
///
/// # Errors
/// If memory cannot be had.
pub fn read_numbers(t: &Tensor, batch: &[i64]) -> Result<Vec<f64>> {
    let t = copy::dense(&t.expand_to(batch), DType::F64)?;
    Ok(slice::<f64>(&t).to_vec())
}

/// Writes a batch of matrices.
///
/// # Errors
/// If there is no conversion.
pub fn write(out: &Tensor, all: &[Matrix]) -> Result<()> {
    let data: Vec<C> = all.iter().flat_map(|m| m.data.iter().copied()).collect();
    write_numbers(out, &data)
}

/// Writes all elements of a tensor in order.
///
/// # Errors
/// If there is no conversion.
pub fn write_numbers<T: Element>(out: &Tensor, data: &[T]) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    copy::copy(out, &Tensor::from_slice(data, out.shape())?)
}

/// Writes a batch of square matrices that are given column after column.
///
/// # Errors
/// If there is no conversion.
pub fn write_columns<T: Element>(out: &Tensor, data: &[T]) -> Result<()> {
    let last = out.ndim() - 1;
    copy::copy(
        out,
        &Tensor::from_slice(data, out.shape())?.swapped(last - 1, last),
    )
}
