//! What [`Stack`](super::matrices::Stack) takes, for rows that compute with batches of matrices.

use super::matrices::as_columns;
use super::room::Room;
use crate::{DType, Dims, Result, Tensor};

impl Room {
    /// What a copy of a tensor's matrices takes, or of their adjoints, repeated to `batch`.
    ///
    /// # Errors
    /// If a size overflows.
    pub fn matrices(&mut self, t: &Tensor, batch: &[i64]) -> Result<()> {
        let shape = Dims::new(batch).concat(&t.shape()[t.ndim() - 2..]);
        self.empty(&shape, t.dtype()).map(drop)
    }

    /// What a copy of a tensor's vectors takes.
    ///
    /// # Errors
    /// If a size overflows.
    pub fn vectors(&mut self, t: &Tensor, batch: &[i64]) -> Result<()> {
        self.matrices(&as_columns(t), batch)
    }

    /// What matrices for `out` take, which lie in its own memory if no operand does.
    ///
    /// # Errors
    /// If a size overflows.
    pub fn matrices_for(&mut self, out: &Tensor, operands: &[&Tensor]) -> Result<()> {
        let turned = super::matrices::transposed(out);
        if operands.iter().any(|t| t.shares_storage(out)) {
            return self.empty(turned.shape(), out.dtype()).map(drop);
        }
        self.dense(&turned, out.dtype()).map(drop)
    }

    /// What whole numbers take that are read for each matrix of a batch, a row each.
    ///
    /// # Errors
    /// If a size overflows.
    pub fn rows_of(&mut self, t: &Tensor, batch: &[i64]) -> Result<()> {
        let shape = Dims::new(batch).concat(&t.shape()[t.ndim() - 1..]);
        self.within(|room| room.dense(&t.expand_to(&shape), DType::I64).map(drop))
    }

    /// What numbers take that are written in order.
    ///
    /// # Errors
    /// If a size overflows.
    pub fn numbers(&mut self, out: &Tensor, dtype: DType) -> Result<()> {
        self.within(|room| room.dense(out, dtype).map(drop))
    }
}
