//! Splitting into several tensors.

use crate::dims::wrap_dim;
use crate::ops::core::helpers;
use crate::ops::core::op::{FM, OpDef, compose};
use crate::ops::f;
use crate::{DType, Result, Tensor, cpu, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "tensor_split#tensor",
        "(Tensor self, Tensor tensor_indices_or_sections, int dim=0) -> Tensor[]",
        FM,
        tensor_split,
        "Pieces along a dimension, as a host tensor says.",
    )
    .samples("f32[3, 4], i64([1, 2, 3]), 1; b8[3, 4], i64([1, 2, 3])"),
    compose(
        "tensor_split",
        "(Tensor self, int sections, int dim=0) -> Tensor[]",
        FM,
        |a| sections(a.input, a.sections, a.dim),
        "Pieces of nearly the same size along a dimension.",
    )
    .samples("f32[3, 4], i64(1)"),
    compose(
        "tensor_split#indices",
        "(Tensor self, int[] indices, int dim=0) -> Tensor[]",
        FM,
        |a| at_indices(a.input, a.indices, a.dim),
        "Pieces between positions along a dimension.",
    )
    .samples("f32[3, 4], (2, 4), -1"),
    compose(
        "hsplit",
        "(Tensor self, int sections) -> Tensor[]",
        FM,
        |a| equal_pieces(a.input, a.sections, "hsplit", 1),
        "Equal pieces along the second dimension.",
    )
    .samples("f32[3, 4], 2; c64[3, 4], 2"),
    compose(
        "hsplit#indices",
        "(Tensor self, int[] indices) -> Tensor[]",
        FM,
        |a| pieces_between(a.input, a.indices, "hsplit", 1),
        "Pieces between positions along the second dimension.",
    )
    .samples("f32[3, 4], [1, 2, 3]; c64[3, 4], [1, 2, 3]"),
    compose(
        "vsplit",
        "(Tensor self, int sections) -> Tensor[]",
        FM,
        |a| equal_pieces(a.input, a.sections, "vsplit", 2),
        "Equal pieces along the first dimension.",
    )
    .samples("f32[2, 3, 4], 2; b8[2, 3, 4], 2"),
    compose(
        "vsplit#indices",
        "(Tensor self, int[] indices) -> Tensor[]",
        FM,
        |a| pieces_between(a.input, a.indices, "vsplit", 2),
        "Pieces between positions along the first dimension.",
    )
    .samples("b8[3, 4], [1, 2, 3]"),
    compose(
        "dsplit",
        "(Tensor self, int sections) -> Tensor[]",
        FM,
        |a| equal_pieces(a.input, a.sections, "dsplit", 3),
        "Equal pieces along the third dimension.",
    )
    .samples("f32[2, 3, 4], 2; c64[2, 3, 4], 2"),
    compose(
        "dsplit#indices",
        "(Tensor self, int[] indices) -> Tensor[]",
        FM,
        |a| pieces_between(a.input, a.indices, "dsplit", 3),
        "Pieces between positions along the third dimension.",
    )
    .samples("f32[2, 3, 4], [1, 2, 3]"),
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

/// Indices from `start` to `end` along a dimension.
fn piece(t: &Tensor, dim: usize, start: i64, end: Option<i64>) -> Result<Tensor> {
    f::Slice::new(t)
        .dim(dim as i64)
        .start(start)
        .end(end)
        .call()
}

fn sections(t: &Tensor, n: i64, dim: i64) -> Result<Vec<Tensor>> {
    check_split(t)?;
    let d = wrap_dim(dim, t.ndim())?;
    ensure!(
        n > 0,
        Runtime,
        "number of sections must be larger than 0, got {n}"
    );
    helpers::check_many(n)?;
    let (size, extra) = (t.shape()[d] / n, t.shape()[d] % n);
    let mut at = 0;
    (0..n)
        .map(|i| {
            let len = size + i64::from(i < extra);
            at += len;
            piece(t, d, at - len, Some(at))
        })
        .collect()
}

fn at_indices(t: &Tensor, indices: &[i64], dim: i64) -> Result<Vec<Tensor>> {
    check_split(t)?;
    let d = wrap_dim(dim, t.ndim())?;
    let mut out = Vec::with_capacity(indices.len() + 1);
    let mut start = 0;
    for &end in indices {
        out.push(piece(t, d, start, Some(end))?);
        start = end;
    }
    out.push(piece(t, d, start, None)?);
    Ok(out)
}

fn tensor_split(a: &calls::TensorSplitTensor) -> Result<Vec<Tensor>> {
    let (t, how) = (a.input, a.tensor_indices_or_sections);
    check_split(t)?;
    ensure!(
        helpers::is_host(how),
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
        return sections(t, helpers::item(how)?.to_i64(), a.dim);
    }
    let real = cpu::copy::dense(
        &helpers::readable(how, "Tensor.item() cannot be called on meta tensors")?,
        DType::I64,
    )?;
    at_indices(t, &cpu::read_slice::<i64>(&real), a.dim)
}

/// The dimension that hsplit, vsplit and dsplit divide: `least` dimensions are needed.
fn named_dim(t: &Tensor, name: &str, least: usize) -> Result<i64> {
    ensure!(
        t.ndim() >= least,
        Runtime,
        "torch.{name} requires a tensor with at least {least} dimension, but got a tensor with {} dimensions!",
        t.ndim()
    );
    Ok(match least {
        1 => i64::from(t.ndim() > 1),
        2 => 0,
        _ => 2,
    })
}

fn pieces_between(t: &Tensor, indices: &[i64], name: &str, least: usize) -> Result<Vec<Tensor>> {
    at_indices(t, indices, named_dim(t, name, least)?)
}

fn equal_pieces(t: &Tensor, n: i64, name: &str, least: usize) -> Result<Vec<Tensor>> {
    let dim = named_dim(t, name, least)?;
    let size = t.shape()[dim as usize];
    ensure!(
        n != 0 && size % n == 0,
        Runtime,
        "torch.{name} attempted to split along dimension {dim}, but the size of the dimension {size} is not divisible by the \
         split_size {n}!"
    );
    sections(t, n, dim)
}
