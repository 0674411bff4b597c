//! Splitting into several tensors.

use crate::dims::wrap_dim;
use crate::ops::core::args::Args;
use crate::ops::core::helpers;
use crate::ops::core::op::{FM, OpDef, Ret, old_view};
use crate::{DType, Result, Tensor, cpu, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    old_view(
        "tensor_split",
        "(Tensor self, int sections, int dim=0) -> Tensor[]",
        FM,
        |a| sections(a.tensor(0)?, a.int(1)?, a.int(2)?),
        "Pieces of nearly the same size along a dimension.",
    ),
    old_view(
        "tensor_split#indices",
        "(Tensor self, int[] indices, int dim=0) -> Tensor[]",
        FM,
        |a| at_indices(a.tensor(0)?, a.ints(1)?, a.int(2)?),
        "Pieces between positions along a dimension.",
    ),
    old_view(
        "tensor_split#tensor",
        "(Tensor self, Tensor tensor_indices_or_sections, int dim=0) -> Tensor[]",
        FM,
        tensor_split,
        "Pieces along a dimension, as a host tensor says.",
    ),
    old_view(
        "hsplit",
        "(Tensor self, int sections) -> Tensor[]",
        FM,
        |a| split_named(a, 1),
        "Equal pieces along the second dimension.",
    ),
    old_view(
        "hsplit#indices",
        "(Tensor self, int[] indices) -> Tensor[]",
        FM,
        |a| split_named(a, 1),
        "Pieces between positions along the second dimension.",
    ),
    old_view(
        "vsplit",
        "(Tensor self, int sections) -> Tensor[]",
        FM,
        |a| split_named(a, 2),
        "Equal pieces along the first dimension.",
    ),
    old_view(
        "vsplit#indices",
        "(Tensor self, int[] indices) -> Tensor[]",
        FM,
        |a| split_named(a, 2),
        "Pieces between positions along the first dimension.",
    ),
    old_view(
        "dsplit",
        "(Tensor self, int sections) -> Tensor[]",
        FM,
        |a| split_named(a, 3),
        "Equal pieces along the third dimension.",
    ),
    old_view(
        "dsplit#indices",
        "(Tensor self, int[] indices) -> Tensor[]",
        FM,
        |a| split_named(a, 3),
        "Pieces between positions along the third dimension.",
    ),
];

fn check_split(t: &Tensor) -> Result<()> {
    ensure!(
        t.ndim() > 0,
        Runtime,
        "tensor_split expected at least a 1-dimensional tensor, but got a tensor with {} dims",
        t.ndim()
    );
    Ok(())
}

fn sections(t: &Tensor, n: i64, dim: i64) -> Result<Ret> {
    check_split(t)?;
    let d = wrap_dim(dim, t.ndim())?;
    ensure!(
        n > 0,
        Runtime,
        "number of sections must be larger than 0, got {n}"
    );
    let (size, extra) = (t.shape()[d] / n, t.shape()[d] % n);
    let mut at = 0;
    Ok(Ret::List(
        (0..n)
            .map(|i| {
                let len = size + i64::from(i < extra);
                at += len;
                t.narrowed(d, at - len, len)
            })
            .collect(),
    ))
}

fn at_indices(t: &Tensor, indices: &[i64], dim: i64) -> Result<Ret> {
    check_split(t)?;
    let d = wrap_dim(dim, t.ndim())?;
    let mut out = Vec::with_capacity(indices.len() + 1);
    let mut start = 0;
    for &end in indices {
        out.push(crate::ops::view::part::slice(t, d as i64, Some(start), Some(end), 1)?.one()?);
        start = end;
    }
    out.push(crate::ops::view::part::slice(t, d as i64, Some(start), None, 1)?.one()?);
    Ok(Ret::List(out))
}

fn tensor_split(a: &Args) -> Result<Ret> {
    let (t, how) = (a.tensor(0)?, a.tensor(1)?);
    check_split(t)?;
    ensure!(
        how.device().is_cpu() || how.storage().is_sourced(),
        Runtime,
        "tensor_split expected tensor_indices_or_sections to be on cpu, but it's on {}",
        how.device()
    );
    ensure!(
        how.dtype() == DType::I64,
        Runtime,
        "tensor_split expected tensor_indices_or_sections to have dtype of long, but got {}",
        how.dtype().scalar_type()
    );
    ensure!(
        how.ndim() <= 1,
        Runtime,
        "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or one-dimensional tensor, but got a tensor with {} dims",
        how.ndim()
    );
    if how.ndim() == 0 {
        return sections(t, helpers::item(how)?.to_i64(), a.int(2)?);
    }
    let real = cpu::copy::dense(
        &helpers::readable(how, "Tensor.item() cannot be called on meta tensors")?,
        DType::I64,
    )?;
    at_indices(t, &cpu::read_slice::<i64>(&real), a.int(2)?)
}

/// hsplit, vsplit and dsplit: `least` dimensions are needed.
fn split_named(a: &Args, least: usize) -> Result<Ret> {
    let (t, name) = (a.tensor(0)?, a.name());
    ensure!(
        t.ndim() >= least,
        Runtime,
        "torch.{name} requires a tensor with at least {least} dimension, but got a tensor with {} dimensions!",
        t.ndim()
    );
    let dim = match least {
        1 => i64::from(t.ndim() > 1),
        2 => 0,
        _ => 2,
    };
    match a.opt_ints(1) {
        Some(list) => at_indices(t, list, dim),
        None => {
            let (n, size) = (a.int(1)?, t.shape()[dim as usize]);
            ensure!(
                n != 0 && size % n == 0,
                Runtime,
                "torch.{name} attempted to split along dimension {dim}, but the size of the dimension {size} is not divisible by the \
                 split_size {n}!"
            );
            sections(t, n, dim)
        }
    }
}
