//! Sums, norms and shares of entries.

use super::Sparse;
use super::coo::{Coo, gathered, places};
use crate::ops::core::helpers::has_no_values;
use crate::ops::core::op::{F, OpDef, compose};
use crate::ops::core::rules::dim_list;
use crate::ops::f;
use crate::{Dims, Result, Tensor, bail, dims};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_sparse_sum",
        "(Tensor self, int[]? dim=None, *, dtype? dtype=None)",
        F,
        |a| {
            let Some(s) = Sparse::of(a.input) else {
                bail!(Runtime, "coalesce expected sparse coordinate tensor layout but got Strided");
            };
            let c = s.coo()?;
            let c = match a.dtype {
                Some(d) => Coo { values: f::to_dtype(&c.values, d)?, ..c },
                None => c,
            };
            match a.dim {
                Some(dim) if !dim.is_empty() => sum(c, dim),
                _ => f::sum(&c.values),
            }
        },
        "The sum of a sparse tensor, or along dimensions.",
    )
    .samples("see tests/test_sparse.py")
    .grad("SparseSumBackward0 | self: _grad.sparse_sum(grad, self, dim)"),
    compose(
        "_sparse_softmax",
        "(Tensor self, int dim, bool log)",
        F,
        |a| match Sparse::of(a.input) {
            Some(s) => softmax(s.coo()?.coalesce()?, a.dim, a.log)?.build(),
            None => bail!(Runtime, "sparse.softmax(): expected a sparse tensor, but got a strided one"),
        },
        "Shares of the entries along a dimension, or their logarithms; what has no entry counts as minus infinity.",
    )
    .samples("see tests/test_sparse.py")
    .grad("Sparse{log true=Log false=}SoftmaxBackward0 | self: _grad.sparse_softmax(grad, result, dim, log)"),
];

/// Along dimensions: strided where no sparse one is left.
///
/// # Errors
/// If one is out of range.
pub(crate) fn sum(c: Coo, dim: &[i64]) -> Result<Tensor> {
    let all = dim_list(Some(dim), c.shape.len())?;
    let n = c.sparse_dims();
    let over: Vec<i64> = all
        .iter()
        .filter(|&&d| d >= n)
        .map(|&d| (d - n + 1) as i64)
        .collect();
    let values = if over.is_empty() {
        c.values.clone()
    } else {
        f::sum_dim(&c.values, &over[..])?
    };
    let kept: Vec<i64> = (0..n as i64)
        .filter(|&d| !all.contains(&(d as usize)))
        .collect();
    if kept.is_empty() {
        return f::sum_dim(&values, &[0i64][..]);
    }
    let shape: Dims = (0..c.shape.len())
        .filter(|d| !all.contains(d))
        .map(|d| c.shape[d])
        .collect();
    let made = Coo {
        indices: c.rows_of_indices(&kept)?,
        values,
        shape,
        coalesced: c.coalesced && kept.len() == n,
    };
    if has_no_values(&made.indices) {
        made.build()
    } else {
        made.coalesce()?.build()
    }
}

/// Shares of the entries that agree in all coordinates but one.
pub(crate) fn softmax(c: Coo, dim: i64, log: bool) -> Result<Coo> {
    let dim = dims::wrap_dim(dim, c.shape.len())?;
    let n = c.sparse_dims();
    if dim >= n {
        let along = (dim - n + 1) as i64;
        let values = if log {
            f::log_softmax(&c.values, along)?
        } else {
            f::softmax(&c.values, along)?
        };
        return Ok(Coo { values, ..c });
    }
    let (group, count) = groups(&c, dim)?;
    let most = f::NewFull::new(
        &c.values,
        &Dims::new(&[count]).concat(&c.values.shape()[1..]),
        f64::NEG_INFINITY,
    )
    .call()?;
    let mut lead = Dims::filled(c.values.ndim(), 1);
    lead[0] = group.numel();
    let each = f::expand(&f::view(&group, &lead)?, c.values.shape())?;
    let most = f::scatter_reduce(&most, 0, &each, &c.values, "amax")?;
    let from_top = f::sub(&c.values, &f::index_select(&most, 0, &group)?)?;
    let exponentials = f::exp(&from_top)?;
    let sums = f::index_select(&gathered(&exponentials, &group, count)?, 0, &group)?;
    let values = if log {
        f::sub(&from_top, &f::log(&sums)?)?
    } else {
        f::div(&exponentials, &sums)?
    };
    Ok(Coo { values, ..c })
}

/// For each entry, the number of those that differ from it in one coordinate alone; and how many numbers there are.
pub(crate) fn groups(c: &Coo, dim: usize) -> Result<(Tensor, i64)> {
    let others: Vec<i64> = (0..c.sparse_dims() as i64)
        .filter(|&d| d != dim as i64)
        .collect();
    let sizes: Vec<i64> = others.iter().map(|&d| c.shape[d as usize]).collect();
    let place = places(&c.rows_of_indices(&others)?, &sizes)?;
    Ok((place, dims::numel(&sizes)?))
}
