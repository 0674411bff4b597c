//! Distinct elements, or slices along a dimension.

use super::groups::{self, Besides, First, Groups};
use super::index::{self, Axis, Lay};
use super::{copy, lines};
use crate::dims::contiguous_strides;
use crate::{Dims, Result, Tensor};
use smallvec::SmallVec;

/// The groups of equal elements or slices of a tensor.
pub struct Distinct {
    groups: Groups,
    /// How many elements or slices there were.
    len: usize,
    /// A row for each element or slice.
    rows: Tensor,
    /// Sizes of the distinct ones, with the dimension they lie along first.
    shape: Dims,
    /// Where the first dimension belongs.
    dim: Option<usize>,
}

impl Distinct {
    /// Groups equal elements, or slices along `dim`: all of them, or only neighbours.
    ///
    /// # Errors
    /// If the dtype has no order.
    pub fn new(t: &Tensor, dim: Option<usize>, consecutive: bool, ask: Besides) -> Result<Self> {
        let moved = match dim {
            Some(d) => t.permuted(&in_front(t.ndim(), d)),
            None => t.clone(),
        };
        let dense = super::normal(&copy::dense(&moved, t.dtype())?)?;
        let n = match dim {
            Some(_) => dense.shape()[0],
            None => dense.numel(),
        };
        let width = if n == 0 { 1 } else { dense.numel() / n };
        let shape = Dims::from([n, width]);
        let rows = dense.view_with(shape.clone(), contiguous_strides(&shape), dense.offset());
        let groups = match dim {
            Some(_) => groups::of_rows(&rows, consecutive, ask)?,
            None => groups::of_elements(&rows, consecutive, ask)?,
        };
        let count = groups.count as i64;
        let shape = match dim {
            Some(_) => dense.shape().with(0, count),
            None => Dims::from([count]),
        };
        Ok(Self {
            groups,
            len: n as usize,
            rows,
            shape,
            dim,
        })
    }

    /// Shape and strides of the distinct elements or slices.
    #[must_use]
    pub fn layout(&self) -> (Dims, Dims) {
        let strides = contiguous_strides(&self.shape);
        match self.dim {
            Some(d) => {
                let back = put_back(self.shape.len(), d);
                (self.shape.permuted(&back), strides.permuted(&back))
            }
            None => (self.shape.clone(), strides),
        }
    }

    /// How many elements or slices there were.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// How many of them are distinct.
    #[must_use]
    pub fn count(&self) -> usize {
        self.groups.count
    }

    /// Writes the distinct elements or slices.
    ///
    /// # Errors
    /// If there is no conversion.
    pub fn write(&self, out: &Tensor) -> Result<()> {
        let out = match self.dim {
            Some(d) => out.permuted(&in_front(out.ndim(), d)),
            None => out.clone(),
        };
        let first = match &self.groups.first {
            First::At(first) => Tensor::from_slice(first, &[self.count() as i64])?,
            First::Integers(list) => {
                return copy::copy(&out, &Tensor::from_slice(list, out.shape())?);
            }
            First::Changes => {
                let to = lines::results(&out, self.rows.dtype())?;
                groups::write_changes(&self.rows, &to)?;
                return lines::put(&out, &to);
            }
        };
        let to = lines::results(&out, self.rows.dtype())?;
        let sizes = Dims::from([self.count() as i64, self.rows.shape()[1]]);
        let rows = to.view_with(sizes.clone(), contiguous_strides(&sizes), to.offset());
        let item = self.rows.dtype().size();
        let axis = Axis {
            step: self.rows.strides()[0] as isize * item as isize,
            size: self.rows.shape()[0],
            wrap: false,
        };
        let chosen = Lay {
            ptr: first.data_ptr(),
            strides: Dims::from([1, 0]),
        };
        let (to_rows, from) = (Lay::of(&rows, &sizes), Lay::without(&self.rows, 0));
        let bad = index::gather(&sizes, &to_rows, &from, &chosen, item, axis);
        debug_assert!(bad.is_none());
        lines::put(&out, &to)
    }

    /// Writes the group of each element or slice.
    ///
    /// # Errors
    /// If there is no conversion.
    pub fn write_inverse(&self, out: &Tensor) -> Result<()> {
        copy::copy(out, &Tensor::from_slice(&self.groups.inverse, out.shape())?)
    }

    /// Writes how many elements or slices each group has.
    ///
    /// # Errors
    /// If there is no conversion.
    pub fn write_counts(&self, out: &Tensor) -> Result<()> {
        copy::copy(out, &Tensor::from_slice(&self.groups.counts, out.shape())?)
    }
}

/// The order of dimensions with `d` first.
fn in_front(ndim: usize, d: usize) -> SmallVec<[usize; 8]> {
    std::iter::once(d)
        .chain((0..ndim).filter(|&i| i != d))
        .collect()
}

/// The order of dimensions that moves the first one to place `d`.
fn put_back(ndim: usize, d: usize) -> SmallVec<[usize; 8]> {
    (1..=d).chain([0]).chain(d + 1..ndim).collect()
}
