//! The places of a matrix's triangle, as `tril_indices` and `triu_indices` give them.

use super::factory::device_or_default;
use crate::ops::core::op::Plan;
use crate::{DType, Device, Result, Tensor, cpu, ensure, err};
use std::ops::Range;

/// The places of a triangle of a matrix.
pub struct Triangle {
    rows: i64,
    columns: i64,
    offset: i64,
    lower: bool,
}

impl Triangle {
    /// Of a matrix of this size, up to or from the diagonal at an offset.
    ///
    /// # Errors
    /// If a size is negative.
    pub fn new(rows: i64, columns: i64, offset: i64, lower: bool) -> Result<Self> {
        ensure!(rows >= 0, Runtime, "row must be non-negative, got{rows}");
        ensure!(
            columns >= 0,
            Runtime,
            "col must be non-negative, got{columns}"
        );
        Ok(Self {
            rows,
            columns,
            offset,
            lower,
        })
    }

    /// The columns that belong to it in a row.
    fn columns_in(&self, row: i64) -> Range<i64> {
        let edge = row.saturating_add(self.offset);
        if self.lower {
            0..edge.saturating_add(1).clamp(0, self.columns)
        } else {
            edge.clamp(0, self.columns)..self.columns
        }
    }

    /// The plan of the places: their rows, then their columns.
    ///
    /// # Errors
    /// For other types than int32 and int64, and more places than 2^63.
    pub fn rule(self, dtype: Option<DType>, device: Option<Device>) -> Result<(Plan, Self)> {
        let dtype = dtype.unwrap_or(DType::I64);
        let name = if self.lower {
            "tril_indices"
        } else {
            "triu_indices"
        };
        dtype.check_kernel(matches!(dtype, DType::I32 | DType::I64), name)?;
        let n = i64::try_from(self.count())
            .map_err(|_| err!(Runtime, "the number of indices overflows"))?;
        let plan = Plan::contiguous(&[2, n], dtype).on(device_or_default(device)?);
        Ok((plan, self))
    }

    /// How many places belong to it: whole rows, and rows that have one more than those before.
    fn count(&self) -> i128 {
        let [rows, columns, offset] = [self.rows, self.columns, self.offset].map(i128::from);
        // Row `r` has `r + offset + 1` columns up to the diagonal, if there are so many.
        let first = (-offset).clamp(0, rows);
        let full = (columns - offset - 1).clamp(first, rows);
        let growing = (first + full + 1 + 2 * offset) * (full - first) / 2;
        let lower = growing + (rows - full) * columns;
        if self.lower {
            return lower;
        }
        // The diagonal itself belongs to both.
        let shared = (columns - offset).clamp(0, rows) - first;
        rows * columns - lower + shared.max(0)
    }

    /// Writes the places.
    ///
    /// # Errors
    /// If memory cannot be had.
    pub fn fill(&self, out: &Tensor) -> Result<()> {
        let whole = cpu::lines::results(out, DType::I64)?;
        let pairs = cpu::slice_mut::<i64>(&whole);
        let (mut rows, mut columns) = pairs.split_at_mut(pairs.len() / 2);
        for r in 0..self.rows {
            let range = self.columns_in(r);
            let n = (range.end - range.start) as usize;
            let (row, column);
            (row, rows) = std::mem::take(&mut rows).split_at_mut(n);
            (column, columns) = std::mem::take(&mut columns).split_at_mut(n);
            row.fill(r);
            column.iter_mut().zip(range).for_each(|(to, c)| *to = c);
        }
        cpu::lines::put(out, &whole)
    }
}
