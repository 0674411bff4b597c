//! Tensors with compressed rows or columns.

use super::coo::Coo;
use super::{indices, numbers};
use crate::ops::core::helpers::has_no_values;
use crate::ops::f;
use crate::parts::{Compressed, Parts};
use crate::{DType, Dims, Result, Tensor, bail, ensure, err};

/// Where each row (or column) begins, the column (or row) of each entry, and values.
#[derive(Clone)]
pub(crate) struct Pressed {
    pub kind: Compressed,
    pub compressed: Tensor,
    pub plain: Tensor,
    pub values: Tensor,
    pub shape: Dims,
}

/// The layout of this name.
pub(crate) fn kind_of(name: &str) -> Result<Compressed> {
    Ok(match name {
        "sparse_csr" => Compressed::Csr,
        "sparse_csc" => Compressed::Csc,
        "sparse_bsr" => Compressed::Bsr,
        "sparse_bsc" => Compressed::Bsc,
        other => bail!(Runtime, "to_sparse: {other} is no compressed sparse layout"),
    })
}

/// What messages call a layout.
fn word(kind: Compressed) -> &'static str {
    match kind {
        Compressed::Csr => "CSR",
        Compressed::Csc => "CSC",
        Compressed::Bsr => "BSR",
        Compressed::Bsc => "BSC",
    }
}

impl Pressed {
    pub fn build(self) -> Result<Tensor> {
        crate::warn_once!(
            "Sparse {} tensor support is in beta state. If you miss a functionality in the sparse tensor support, please \
             submit a feature request to https://github.com/pytorch/pytorch/issues.",
            word(self.kind)
        );
        let dtype = self.values.dtype();
        Parts::Compressed {
            kind: self.kind,
            compressed: self.compressed,
            plain: self.plain,
            values: self.values,
        }
        .into_tensor(&self.shape, dtype)
        .map_err(super::refused)
    }

    /// How many dimensions stand before the matrices.
    pub fn batch(&self) -> usize {
        self.compressed.ndim() - 1
    }

    /// Whether a dimension is that of rows or columns, which are found among the indices.
    pub fn is_indexed(&self, dim: usize) -> bool {
        (self.batch()..self.batch() + 2).contains(&dim)
    }

    /// What lies at an index of a batch or dense dimension.
    pub fn at(&self, dim: usize, index: i64) -> Result<Self> {
        let part = |t: &Tensor, d: usize| f::select(t, d as i64, index);
        let mut own = Self {
            shape: self.shape.removed(dim),
            ..self.clone()
        };
        if dim < self.batch() {
            own.compressed = part(&self.compressed, dim)?;
            own.plain = part(&self.plain, dim)?;
            own.values = part(&self.values, dim)?;
        } else {
            // A row and a column are one entry, or as many dimensions of a block and one for the blocks.
            let at = dim - 1 + 2 * usize::from(self.block().is_some());
            own.values = part(&self.values, at)?;
        }
        Ok(own)
    }

    /// The sizes of a block.
    pub fn block(&self) -> Option<[i64; 2]> {
        let b = self.batch();
        self.kind
            .blocks()
            .then(|| [self.values.shape()[b + 1], self.values.shape()[b + 2]])
    }

    /// The row (or column) of each entry, for one matrix or a batch of them.
    fn major(&self) -> Result<Tensor> {
        if has_no_values(&self.plain) {
            return f::to_dtype(&f::empty_like(&self.plain)?, DType::I64);
        }
        let starts = numbers(&self.compressed)?;
        let width = self.compressed.shape()[self.batch()].max(1) as usize;
        let room = self.plain.numel() as usize;
        let mut all = Vec::with_capacity(room);
        for starts in starts.chunks_exact(width) {
            for (row, w) in starts.windows(2).enumerate() {
                let entries = w[1].saturating_sub(w[0]).max(0) as usize;
                ensure!(
                    entries <= room - all.len(),
                    Runtime,
                    "row {row} is said to have {entries} entries, but there are {room} in all"
                );
                all.extend(std::iter::repeat_n(row as i64, entries));
            }
        }
        indices(&all, self.plain.shape(), &self.plain)
    }

    /// The coordinates of blocks (or elements), rows first, and one index for each dimension of a batch before them.
    pub fn coordinates(&self) -> Result<Tensor> {
        let (major, minor) = (self.major()?, f::to_dtype(&self.plain, DType::I64)?);
        let (first, second) = if self.kind.rows() {
            (major, minor)
        } else {
            (minor, major)
        };
        let batch = self.batch();
        let mut rows = Vec::with_capacity(batch + 2);
        for d in 0..batch {
            let n = self.shape[d];
            let along = f::Arange::new(n)
                .dtype(DType::I64)
                .device(first.device())
                .call()?;
            let mut shape = vec![1i64; batch + 1];
            shape[d] = n;
            let shown = f::expand(&f::reshape(&along, &shape)?, first.shape())?;
            rows.push(f::reshape(&shown, &[-1])?);
        }
        rows.push(f::reshape(&first, &[-1])?);
        rows.push(f::reshape(&second, &[-1])?);
        f::stack(&rows[..])
    }

    /// By coordinates.
    pub fn coo(self) -> Result<Coo> {
        let (batch, block) = (self.batch(), self.block());
        let indices = self.coordinates()?;
        let values = flat(&self.values, batch)?;
        let sorted = self.kind.rows() && block.is_none();
        let Some([r, c]) = block else {
            return Ok(Coo {
                indices,
                values,
                shape: self.shape,
                coalesced: sorted,
            });
        };
        // An entry for each element of the blocks.
        let n = indices.shape()[1];
        let all = [n, r, c];
        let mut rows = Vec::with_capacity(batch + 2);
        for d in 0..batch + 2 {
            let mut row = f::reshape(&f::select(&indices, 0, d as i64)?, &[n, 1, 1])?;
            if d >= batch {
                let size = if d == batch { r } else { c };
                let within = f::Arange::new(size)
                    .dtype(DType::I64)
                    .device(row.device())
                    .call()?;
                let shape = if d == batch { [1, r, 1] } else { [1, 1, c] };
                row = f::add(&f::mul(&row, size)?, &f::reshape(&within, &shape)?)?;
            }
            rows.push(f::reshape(&f::expand(&row, &all)?, &[-1])?);
        }
        let dense = Dims::new(&values.shape()[3..]);
        Ok(Coo {
            indices: f::stack(&rows[..])?,
            values: f::reshape(&values, &Dims::new(&[n * r * c]).concat(&dense))?,
            shape: self.shape,
            coalesced: false,
        })
    }

    /// Presses a matrix by coordinates, each of whose entries may be a block.
    fn of_matrix(m: Coo, kind: Compressed, shape: Dims) -> Result<Self> {
        ensure!(
            m.sparse_dims() == 2,
            Runtime,
            "to_sparse: a compressed sparse tensor has two sparse dimensions, but this has {}",
            m.sparse_dims()
        );
        let m = if kind.rows() { m } else { m.swapped(0, 1)? }.coalesce()?;
        let lines = m.shape[0];
        let compressed = if has_no_values(&m.indices) {
            f::NewZeros::new(&m.indices, &[lines + 1][..]).call()?
        } else {
            let mut starts = vec![0i64; lines as usize + 1];
            for row in numbers(&m.row(0)?)? {
                starts[row as usize + 1] += 1;
            }
            for i in 0..lines as usize {
                starts[i + 1] += starts[i];
            }
            indices(&starts, &[lines + 1], &m.indices)?
        };
        Ok(Self {
            kind,
            compressed,
            plain: m.row(1)?.contiguous()?,
            values: m.values,
            shape,
        })
    }

    /// Presses entries by coordinates.
    pub fn of_coo(m: Coo, kind: Compressed) -> Result<Self> {
        let shape = m.shape.clone();
        Self::of_matrix(m, kind, shape)
    }

    /// Presses a strided tensor, the last `dense` dimensions of which stay dense.
    pub fn of_dense(
        t: &Tensor,
        kind: Compressed,
        block: Option<[i64; 2]>,
        dense: usize,
    ) -> Result<Self> {
        let batch = t.ndim().checked_sub(dense + 2).ok_or_else(|| {
            err!(
                Runtime,
                "to_sparse: a tensor of {} dimensions has no matrices",
                t.ndim()
            )
        })?;
        if batch > 0 {
            return Self::of_batch(t, kind, block, dense, batch);
        }
        let Some([r, c]) = block else {
            return Self::of_coo(Coo::of_dense(t, dense)?, kind);
        };
        let (rows, columns) = (t.shape()[0], t.shape()[1]);
        ensure!(
            r > 0 && c > 0 && rows % r == 0 && columns % c == 0,
            Runtime,
            "dense_to_{}: tensor sparse size ({rows},{columns}) must be divisible by given blocksize ({r},{c})",
            if kind.rows() {
                "sparse_bsr"
            } else {
                "sparse_bsc"
            }
        );
        let rest = &t.shape()[2..];
        let grid = f::reshape(t, &Dims::new(&[rows / r, r, columns / c, c]).concat(rest))?;
        let grid = f::transpose(&grid, 1, 2)?;
        Self::of_matrix(Coo::of_dense(&grid, dense + 2)?, kind, t.shape().clone())
    }

    fn of_batch(
        t: &Tensor,
        kind: Compressed,
        block: Option<[i64; 2]>,
        dense: usize,
        batch: usize,
    ) -> Result<Self> {
        let lead = Dims::new(&t.shape()[..batch]);
        let flat = flat(t, batch - 1)?;
        let mut all = Vec::new();
        for i in 0..flat.shape()[0] {
            all.push(Self::of_dense(
                &f::select(&flat, 0, i)?,
                kind,
                block,
                dense,
            )?);
        }
        let Some(first) = all.first() else {
            bail!(
                Runtime,
                "to_sparse_{}: Expected product of batch dimensions to be non-zero.",
                word(kind).to_lowercase()
            );
        };
        let entries = first.plain.numel();
        ensure!(
            all.iter().all(|p| p.plain.numel() == entries),
            Runtime,
            "Expect the same number of specified elements per batch."
        );
        let joined = |part: fn(&Self) -> &Tensor| {
            let list: Vec<Tensor> = all.iter().map(|p| part(p).clone()).collect();
            let made = f::stack(&list[..])?;
            f::reshape(&made, &lead.concat(&made.shape()[1..]))
        };
        Ok(Self {
            kind,
            compressed: joined(|p| &p.compressed)?,
            plain: joined(|p| &p.plain)?,
            values: joined(|p| &p.values)?,
            shape: t.shape().clone(),
        })
    }

    /// With indices of a dtype, as those are that it was made from.
    pub fn indexed_by(self, dtype: DType) -> Result<Self> {
        if self.plain.dtype() == dtype {
            return Ok(self);
        }
        Ok(Self {
            compressed: f::to_dtype(&self.compressed, dtype)?,
            plain: f::to_dtype(&self.plain, dtype)?,
            ..self
        })
    }

    /// As a strided tensor.
    pub fn dense(self) -> Result<Tensor> {
        self.coo()?.dense()
    }

    /// With rows and columns swapped: only the names change.
    pub fn transposed(self) -> Result<Self> {
        let b = self.batch();
        let kind = match self.kind {
            Compressed::Csr => Compressed::Csc,
            Compressed::Csc => Compressed::Csr,
            Compressed::Bsr => Compressed::Bsc,
            Compressed::Bsc => Compressed::Bsr,
        };
        let values = if kind.blocks() {
            f::transpose(&self.values, b as i64 + 1, b as i64 + 2)?
        } else {
            self.values
        };
        let mut shape = self.shape.clone();
        (shape[b], shape[b + 1]) = (self.shape[b + 1], self.shape[b]);
        Ok(Self {
            kind,
            values,
            shape,
            ..self
        })
    }
}

/// The first `dims + 1` dimensions as one.
fn flat(t: &Tensor, dims: usize) -> Result<Tensor> {
    if dims == 0 {
        return Ok(t.clone());
    }
    f::Flatten::new(t).end_dim(dims as i64).call()
}

/// How a compressed tensor is compressed.
pub(crate) struct Form {
    kind: Compressed,
    block: Option<[i64; 2]>,
    batch: usize,
    index: DType,
}

impl Form {
    /// That of a tensor.
    pub fn of(p: &Pressed) -> Self {
        Self {
            kind: p.kind,
            block: p.block(),
            batch: p.batch(),
            index: p.plain.dtype(),
        }
    }

    /// Entries in this form.
    pub fn press(self, c: Coo) -> Result<Tensor> {
        if self.block.is_none() && self.batch == 0 {
            return Pressed::of_coo(c, self.kind)?
                .indexed_by(self.index)?
                .build();
        }
        let t = c.dense()?;
        let made = Pressed::of_dense(&t, self.kind, self.block, t.ndim() - self.batch - 2)?;
        made.indexed_by(self.index)?.build()
    }
}
