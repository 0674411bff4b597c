//! Sparse tensors by coordinates that get another size in place.

use super::Sparse;
use super::coo::Coo;
use crate::ops::core::op::{I, J, OpDef, becomes};
use crate::ops::core::writable;
use crate::ops::f;
use crate::{DType, Dims, Result, Tensor, bail, dims, ensure, err};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    becomes(
        "sparse_resize",
        "(Tensor self, int[] size, int sparse_dim, int dense_dim)",
        I,
        typed!(|a| resized(a.input, a.size, a.sparse_dim, a.dense_dim)),
        "A larger size, with the same entries; without entries any size.",
    )
    .samples("see tests/test_sparse_results.py")
    .no_grad(),
    becomes(
        "sparse_resize_and_clear",
        "(Tensor self, int[] size, int sparse_dim, int dense_dim)",
        I,
        typed!(|a| cleared(a.input, a.size, a.sparse_dim, a.dense_dim)),
        "Another size, without entries.",
    )
    .samples("see tests/test_sparse_results.py")
    .no_grad(),
    becomes(
        "resize_as_sparse",
        "(Tensor self, Tensor the_template)",
        I | J,
        typed!(|a| resize_as(a.input, a.the_template)),
        "The size of another sparse tensor, with the same entries.",
    )
    .samples("see tests/test_sparse_results.py")
    .no_grad(),
];

/// The size of another tensor, with the same entries.
///
/// # Errors
/// If entries would be lost, or the tensor is not one by coordinates.
pub(in crate::ops) fn resize_as(t: &Tensor, like: &Tensor) -> Result<Tensor> {
    let sparse = match Sparse::of(like) {
        Some(Sparse::Coo(c)) => c.sparse_dims(),
        Some(Sparse::Pressed(_)) => bail!(
            NotImplemented,
            "resize_as_sparse_() takes tensors by coordinates, not compressed ones"
        ),
        None => 0,
    };
    let dense = like.ndim() - sparse;
    resized(t, like.shape(), sparse as i64, dense as i64)
}

/// The entries of a target that may be written, where the named dimensions are as many as the size has.
fn entries(t: &Tensor, name: &str, size: &[i64], sparse: i64, dense: i64) -> Result<Coo> {
    writable::check_leaf(t)?;
    let Some(Sparse::Coo(c)) = Sparse::of(t) else {
        bail!(
            NotImplemented,
            "{name}() takes a sparse tensor by coordinates"
        );
    };
    ensure!(
        sparse >= 0 && dense >= 0 && size.len() as i64 == sparse + dense,
        Runtime,
        "'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {}, sparse_dim = {sparse}, dense_dim = {dense}",
        size.len()
    );
    crate::ops::create::factory::check_size(size)?;
    Ok(c)
}

fn resized(t: &Tensor, size: &[i64], sparse: i64, dense: i64) -> Result<Tensor> {
    let c = entries(t, "sparse_resize_", size, sparse, dense)?;
    if c.entries() == 0 {
        return cleared(t, size, sparse, dense);
    }
    let n = c.sparse_dims();
    let had = c.shape.len() - n;
    ensure!(
        n as i64 == sparse,
        Runtime,
        "{}",
        lost(&format!(
            "changing the number of sparse dimensions (from {n} to {sparse})"
        ))
    );
    ensure!(
        had as i64 == dense,
        Runtime,
        "{}",
        lost(&format!(
            "changing the number of dense dimensions (from {had} to {dense})"
        ))
    );
    for (what, range) in [("sparse", 0..n), ("dense", n..c.shape.len())] {
        let (from, to) = (&c.shape[range.clone()], &size[range]);
        ensure!(
            from.iter().zip(to).all(|(a, b)| a <= b),
            Runtime,
            "{}",
            lost(&format!(
                "shrinking the size of {what} dimensions (from {} to {})",
                Dims::new(from),
                Dims::new(to)
            ))
        );
    }
    let shape = Dims::new(&[c.entries()]).concat(&size[n..]);
    // The numbers stay in their order, as on a strided tensor's storage, with zeros behind them.
    let more = dims::numel(&shape)? - c.values.numel();
    let values = if more == 0 {
        f::reshape(&c.values, &shape)?
    } else {
        let zeros = f::NewZeros::new(&c.values, &[more][..]).call()?;
        let flat = f::cat(&[f::reshape(&c.values, &[-1])?, zeros][..])?;
        f::reshape(&flat, &shape)?
    };
    laid(
        t,
        Coo {
            values,
            shape: Dims::new(size),
            ..c
        },
    )
}

/// That entries would be lost.
fn lost(what: &str) -> String {
    format!(
        "{what} on a non-empty sparse tensor is not supported.\nAn empty tensor of that size is \
         `torch.sparse_coo_tensor(size)`, and one with other entries is made of indices and values."
    )
}

fn cleared(t: &Tensor, size: &[i64], sparse: i64, dense: i64) -> Result<Tensor> {
    let c = entries(t, "sparse_resize_and_clear_", size, sparse, dense)?;
    let shape = Dims::new(&[0]).concat(&size[sparse as usize..]);
    let made = Coo {
        indices: f::NewZeros::new(&c.indices, &[sparse, 0][..])
            .dtype(DType::I64)
            .call()?,
        values: f::NewZeros::new(&c.values, &shape).call()?,
        shape: Dims::new(size),
        coalesced: true,
    };
    laid(t, made)
}

/// The tensor on its own storage, with other parts.
fn laid(t: &Tensor, c: Coo) -> Result<Tensor> {
    let made = c.build()?;
    let parts = made
        .storage()
        .parts()
        .ok_or_else(|| err!(Runtime, "a sparse tensor without parts"))?;
    t.storage().set_parts(Some(parts));
    t.bump();
    Ok(t.laid_out(made.shape().clone(), dims::contiguous_strides(made.shape())))
}
