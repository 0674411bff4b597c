//! Tensors by coordinates.

use super::{indices, numbers};
use crate::ops::core::dispatch::unknown_shape;
use crate::ops::core::helpers::has_no_values;
use crate::ops::f;
use crate::parts::Parts;
use crate::{DType, Dims, Result, Tensor, dims};

/// Coordinates `[sparse dimensions, entries]` and values `[entries, dense dimensions...]`.
#[derive(Clone)]
pub(crate) struct Coo {
    pub indices: Tensor,
    pub values: Tensor,
    pub shape: Dims,
    pub coalesced: bool,
}

impl Coo {
    /// How many dimensions the coordinates name.
    pub fn sparse_dims(&self) -> usize {
        self.indices.shape()[0] as usize
    }

    /// How many entries there are.
    pub fn entries(&self) -> i64 {
        self.indices.shape()[1]
    }

    /// The tensor.
    pub fn build(self) -> Result<Tensor> {
        let dtype = self.values.dtype();
        Parts::Coo {
            indices: self.indices,
            values: self.values,
            coalesced: self.coalesced,
        }
        .into_tensor(&self.shape, dtype)
        .map_err(super::refused)
    }

    /// The place of each entry, counted along the sparse dimensions.
    pub fn places(&self) -> Result<Tensor> {
        places(&self.indices, &self.shape)
    }

    /// The sizes of the sparse dimensions as one, and those of the dense ones.
    pub fn rows(&self) -> Result<Dims> {
        let n = self.sparse_dims();
        let count = dims::numel(&self.shape[..n])?;
        Ok(Dims::new(&[count]).concat(&self.shape[n..]))
    }

    /// Sorted, each place once.
    pub fn coalesce(self) -> Result<Self> {
        let n = self.entries() as usize;
        if self.coalesced || n < 2 {
            return Ok(Self {
                coalesced: true,
                ..self
            });
        }
        if has_no_values(&self.indices) {
            return Err(unknown_shape("coalesce"));
        }
        let keys = numbers(&self.places()?)?;
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by_key(|&i| keys[i]);
        let (mut firsts, mut group) = (Vec::new(), vec![0i64; n]);
        let mut last = None;
        for &i in &order {
            if last != Some(keys[i]) {
                firsts.push(i as i64);
                last = Some(keys[i]);
            }
            group[i] = firsts.len() as i64 - 1;
        }
        let count = firsts.len() as i64;
        let at = indices(&firsts, &[count], &self.indices)?;
        let values = if count as usize == n {
            f::index_select(&self.values, 0, &at)?
        } else {
            let group = indices(&group, &[n as i64], &self.indices)?;
            gathered(&self.values, &group, count)?
        };
        Ok(Self {
            indices: f::index_select(&self.indices, 1, &at)?,
            values,
            shape: self.shape,
            coalesced: true,
        })
    }

    /// As a strided tensor.
    pub fn dense(&self) -> Result<Tensor> {
        let rows = self.rows()?;
        f::reshape(
            &gathered(&self.values, &self.places()?, rows[0])?,
            &self.shape,
        )
    }

    /// The entries of a strided tensor that are not zero, the last `dense` dimensions as a whole.
    pub fn of_dense(t: &Tensor, dense: usize) -> Result<Self> {
        let n = t.ndim() - dense;
        let mut there = f::ne(t, 0i64)?;
        if dense > 0 {
            let kept = t.shape()[..n].to_vec();
            let whole: i64 = t.shape()[n..].iter().product();
            there = if whole == 0 {
                f::NewZeros::new(&there, &kept[..]).call()?
            } else {
                f::any_dim(&f::reshape(&there, &[&kept[..], &[whole]].concat())?, -1)?
            };
        }
        let found = f::nonzero(&there)?;
        let indices = f::contiguous(&f::t(&found)?)?;
        let made = Self {
            values: t.clone(),
            indices,
            shape: t.shape().clone(),
            coalesced: true,
        };
        made.filled_from(t)
    }

    /// The same places with the elements of a strided tensor.
    pub fn filled_from(&self, t: &Tensor) -> Result<Self> {
        let flat = f::reshape(t, &self.rows()?)?;
        Ok(Self {
            values: f::index_select(&flat, 0, &self.places()?)?,
            ..self.clone()
        })
    }

    /// Repeated along dimensions of size 1 and new ones in front, in this shape.
    pub fn broadcast_to(&self, shape: &Dims) -> Result<Self> {
        let (n, extra) = (self.sparse_dims(), shape.len() - self.shape.len());
        let repeats = |d: usize| d < extra || self.shape[d - extra] != shape[d];
        // The coordinates of the copies of an entry, a list a sparse dimension that has several.
        let (mut copies, mut grid) = (1i64, vec![Vec::new(); n + extra]);
        for d in (0..n + extra).filter(|&d| repeats(d)) {
            let old = copies;
            copies *= shape[d];
            for line in &mut grid[..d] {
                let wider: Vec<i64> = line
                    .iter()
                    .flat_map(|&i| vec![i; shape[d] as usize])
                    .collect();
                *line = wider;
            }
            grid[d] = (0..old).flat_map(|_| 0..shape[d]).collect();
        }
        let count = self.entries();
        let each: Vec<i64> = (0..count).flat_map(|i| vec![i; copies as usize]).collect();
        let each = indices(&each, &[count * copies], &self.indices)?;
        let mut rows = Vec::with_capacity(n + extra);
        for (d, line) in grid.iter().enumerate() {
            rows.push(if repeats(d) {
                let line = indices(line, &[1, copies], &self.indices)?;
                f::reshape(&f::expand(&line, &[count, copies])?, &[count * copies])?
            } else {
                f::index_select(&self.row(d - extra)?, 0, &each)?
            });
        }
        let values = Dims::new(&[count]).concat(&shape[n + extra..]);
        Ok(Self {
            indices: match rows.is_empty() {
                true => self.indices.clone(),
                false => f::stack(&rows[..])?,
            },
            values: f::index_select(&f::expand(&self.values, &values)?, 0, &each)?,
            shape: shape.clone(),
            coalesced: false,
        })
    }

    /// With two sparse dimensions swapped.
    pub fn swapped(&self, a: usize, b: usize) -> Result<Self> {
        if a == b {
            return Ok(self.clone());
        }
        let mut order: Vec<i64> = (0..self.sparse_dims() as i64).collect();
        order.swap(a, b);
        let mut shape = self.shape.clone();
        (shape[a], shape[b]) = (self.shape[b], self.shape[a]);
        Ok(Self {
            indices: self.rows_of_indices(&order)?,
            values: self.values.clone(),
            shape,
            coalesced: self.coalesced && self.entries() < 2,
        })
    }

    /// These rows of the coordinates.
    pub fn rows_of_indices(&self, which: &[i64]) -> Result<Tensor> {
        let rows = which
            .iter()
            .map(|&d| f::select(&self.indices, 0, d))
            .collect::<Result<Vec<_>>>()?;
        if rows.is_empty() {
            return f::NewEmpty::new(&self.indices, &[0, self.entries()][..]).call();
        }
        f::stack(&rows[..])
    }

    /// One row of the coordinates.
    pub fn row(&self, d: usize) -> Result<Tensor> {
        f::select(&self.indices, 0, d as i64)
    }
}

/// Places counted along the dimensions that coordinates name.
pub(crate) fn places(indices: &Tensor, shape: &[i64]) -> Result<Tensor> {
    let n = indices.shape()[0];
    let mut made = f::NewZeros::new(indices, &[indices.shape()[1]][..]).call()?;
    for d in 0..n {
        let row = f::select(indices, 0, d)?;
        made = f::add(&f::mul(&made, shape[d as usize])?, &row)?;
    }
    Ok(made)
}

/// Sums of the values that go to each of `count` places.
pub(crate) fn gathered(values: &Tensor, places: &Tensor, count: i64) -> Result<Tensor> {
    if values.dtype() == DType::Bool {
        let numbers = gathered(&f::to_dtype(values, DType::U8)?, places, count)?;
        return f::ne(&numbers, 0i64);
    }
    let shape = Dims::new(&[count]).concat(&values.shape()[1..]);
    let zeros = f::NewZeros::new(values, &shape).call()?;
    f::index_add(&zeros, 0, places, values)
}
