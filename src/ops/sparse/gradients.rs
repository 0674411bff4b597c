//! Gradients of what makes sparse tensors and takes them apart.

use super::convert::layout_name;
use super::coo::Coo;
use super::pressed::{Pressed, kind_of};
use super::sums::groups;
use super::{Sparse, is_sparse};
use crate::ops::core::op::{OpDef, Ret, compose};
use crate::ops::core::rules::dim_list;
use crate::ops::f;
use crate::parts::Layout;
use crate::{Dims, Result, Tensor, bail, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.sparse_values",
        "(Tensor grad, Tensor indices)",
        0,
        |a| {
            let (grad, shape) = (strided(a.grad)?, a.grad.shape());
            let sparse = a.indices.size(0)?;
            ensure!(
                sparse <= shape.len() as i64,
                Runtime,
                "indices of {sparse} dimensions for a gradient of {}",
                shape.len()
            );
            let made = Coo {
                indices: a.indices.clone(),
                values: grad.clone(),
                shape: shape.clone(),
                coalesced: false,
            };
            Ok(made.filled_from(&grad)?.values)
        },
        "The gradient of the values of a sparse tensor.",
    )
    .samples("f64[2, 3], i64([[0, 1], [2, 0]])"),
    compose(
        "_grad.compressed_values",
        "(Tensor grad, Tensor compressed, Tensor plain, Tensor values, int[] size, str layout)",
        0,
        |a| {
            let made = Pressed {
                kind: kind_of(a.layout)?,
                compressed: a.compressed.clone(),
                plain: a.plain.clone(),
                values: a.values.clone(),
                shape: Dims::new(a.size),
            };
            let picked = made.coo()?.filled_from(&strided(a.grad)?)?.values;
            f::reshape(&picked, a.values.shape())
        },
        "The gradient of the values of a compressed sparse tensor.",
    )
    .samples("f64[2, 3], i64([0, 1, 2]), i64([2, 0]), f64[2], [2, 3], 'sparse_csr'"),
    compose(
        "_grad.with_values",
        "(Tensor grad, Tensor self)",
        0,
        |a| match Sparse::of(a.input) {
            Some(s) => s.with_values(a.grad.clone()),
            None => bail!(Runtime, "the gradient of values of a strided tensor"),
        },
        "The gradient of a sparse tensor of which the values were taken.",
    )
    .samples("see tests/test_sparse.py"),
    compose(
        "_grad.strided",
        "(Tensor grad, Tensor like)",
        0,
        |a| {
            if is_sparse(a.grad) && !is_sparse(a.like) {
                return strided(a.grad).map(Ret::One);
            }
            if is_sparse(a.grad) && layout_name(a.grad) != layout_name(a.like) {
                return pressed_as(a.grad, a.like).map(Ret::One);
            }
            Ok(Ret::Same(0))
        },
        "A gradient that is strided where its tensor is, and sparse in its layout.",
    )
    .samples("f64[2, 3], f64[2, 3]"),
    compose(
        "_grad.masked_by",
        "(Tensor grad, Tensor self)",
        0,
        |a| {
            if is_sparse(a.input) {
                return f::sparse_mask(a.grad, a.input).map(Ret::One);
            }
            Ok(Ret::Same(0))
        },
        "A gradient at the places that a sparse tensor has.",
    )
    .samples("f64[2, 3], f64[2, 3]"),
    compose(
        "_grad.sparse_mm",
        "(Tensor grad, Tensor dense, Tensor sparse)",
        0,
        |a| {
            let made = f::mm(&strided(a.grad)?, &f::mH(&strided(a.dense)?)?)?;
            if is_sparse(a.sparse) {
                f::sparse_mask(&made, a.sparse)
            } else {
                Ok(made)
            }
        },
        "The gradient of a sparse factor.",
    )
    .samples("f64[2, 4], f64[3, 4], f64[2, 3]"),
    compose(
        "_grad.sparse_sum",
        "(Tensor grad, Tensor self, int[]? dim)",
        0,
        |a| {
            let mut grad = strided(a.grad)?;
            if let Some(dim) = a.dim.filter(|d| !d.is_empty()) {
                let mut all = dim_list(Some(dim), a.input.ndim())?;
                all.sort_unstable();
                for d in all {
                    grad = f::unsqueeze(&grad, d as i64)?;
                }
            }
            let wide = f::expand(&grad, a.input.shape())?;
            if is_sparse(a.input) {
                f::sparse_mask(&wide, a.input)
            } else {
                Ok(wide)
            }
        },
        "The gradient of a sum of a sparse tensor.",
    )
    .samples("f64[2], f64[2, 3], [1]; f64[()], f64[2, 3], None"),
    compose(
        "_grad.sparse_softmax",
        "(Tensor grad, Tensor result, int dim, bool log)",
        0,
        softmax,
        "The gradient of shares of the entries of a sparse tensor.",
    )
    .samples("see tests/test_sparse.py"),
];

/// The strided form of any tensor.
fn strided(t: &Tensor) -> Result<Tensor> {
    match Sparse::of(t) {
        Some(s) => s.coo()?.dense(),
        None => Ok(t.clone()),
    }
}

fn softmax(a: &calls::_GradSparseSoftmax) -> Result<Tensor> {
    let Some(Sparse::Coo(result)) = Sparse::of(a.result) else {
        bail!(Runtime, "sparse softmax: the result is not sparse");
    };
    let grad = result.filled_from(&strided(a.grad)?)?.values;
    let y = &result.values;
    let dim = dims::wrap_dim(a.dim, result.shape.len())?;
    let sum = |t: &Tensor| {
        if dim >= result.sparse_dims() {
            let along = [(dim - result.sparse_dims() + 1) as i64];
            return f::SumDim::new(t, &along[..]).keepdim(true).call();
        }
        let (group, count) = groups(&result, dim)?;
        f::index_select(&super::coo::gathered(t, &group, count)?, 0, &group)
    };
    let values = if a.log {
        f::sub(&grad, &f::mul(&f::exp(y)?, &sum(&grad)?)?)?
    } else {
        f::mul(y, &f::sub(&grad, &sum(&f::mul(&grad, y)?)?)?)?
    };
    Coo { values, ..result }.build()
}

/// A sparse tensor in the layout of another one.
fn pressed_as(t: &Tensor, like: &Tensor) -> Result<Tensor> {
    match Sparse::of(like) {
        Some(Sparse::Pressed(p)) => {
            let name = Layout::Compressed(p.kind).name();
            let block = p.block();
            f::_ToSparse::new(t, name)
                .blocksize(block.as_ref().map(|b| &b[..]))
                .dense_dim((t.ndim() - p.batch() - 2) as i64)
                .call()
        }
        _ => f::_to_sparse(t, "sparse_coo"),
    }
}
