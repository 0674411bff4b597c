//! Triangles and diagonals.

use crate::dims::{self, wrap_dim};
use crate::ops::core::op::{Batch, FM, FMIO, FMO, I, OpDef, Plan, X, compose, kernel};
use crate::ops::f;
use crate::{Dims, Result, Tensor, bail, ensure, err, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "tril",
        "(Tensor self, int diagonal=0)",
        FMIO | X,
        body!(|a| matrices(a.input, "tril"), anywhere: |a, _, outs| {
            kernels::arrange::triangle(&outs[0], a.input, a.diagonal, true)
        })
        .updates(),
        "The lower triangle, zeros above.",
    )
    .samples("f32[3, 4]; c64[3, 4]")
    .grad("self: grad.tril(diagonal); jvp: linear")
    .batch(Batch::Lead),
    kernel(
        "triu",
        "(Tensor self, int diagonal=0)",
        FMIO | X,
        body!(|a| matrices(a.input, "triu"), anywhere: |a, _, outs| {
            kernels::arrange::triangle(&outs[0], a.input, a.diagonal, false)
        })
        .updates(),
        "The upper triangle, zeros below.",
    )
    .samples("f32[3, 4]; b8[3, 4]; f32[3, 4], -1")
    .grad("self: grad.triu(diagonal); jvp: linear")
    .batch(Batch::Lead),
    compose(
        "diag",
        "(Tensor self, int diagonal=0)",
        FMO | X,
        diag,
        "A vector as a diagonal matrix, or a matrix's diagonal.",
    )
    .samples("f32[3, 4]; c64[3, 4]; f32[3, 4], 2"),
    compose(
        "diagflat",
        "(Tensor self, int offset=0)",
        FM,
        |a| {
            let line = f::reshape(a.input, &[-1])?;
            f::DiagEmbed::new(&line).offset(a.offset).call()
        },
        "All elements on the diagonal of a matrix.",
    )
    .samples("f32[3, 4], offset=1; c64[3, 4]"),
    kernel(
        "diag_embed",
        "(Tensor self, int offset=0, int dim1=-2, int dim2=-1)",
        FM,
        body!(embedded, anywhere: |a, dims, outs| {
            kernels::arrange::embed(&outs[0], a.input, a.offset, *dims)
        }),
        "The last dimension on the diagonal of two new ones.",
    )
    .samples("f32[3, 4]; c64[3, 4]; f32[3, 4], offset=2, dim1=0, dim2=1")
    .grad("self: grad.diagonal(offset, dim1, dim2)")
    .batch(Batch::Inserting),
    compose(
        "fill_diagonal",
        "(Tensor self, Scalar fill_value, bool wrap=False)",
        I,
        fill_diagonal,
        "A number on the main diagonal; `wrap` begins it again below a matrix that is taller than wide.",
    )
    .samples("f32[3, 4], 2.5; f32[7, 2], 1, True; i64[3, 3, 3], 4")
    .grad("self: grad.fill_diagonal(0, wrap)"),
];

fn fill_diagonal(a: &calls::FillDiagonal) -> Result<Tensor> {
    let shape = a.input.shape();
    ensure!(shape.len() >= 2, Runtime, "dimensions must larger than 1");
    ensure!(
        shape.len() == 2 || shape.iter().all(|&d| d == shape[0]),
        Runtime,
        "all dimensions of input must be of equal length"
    );
    let made = f::Clone::new(a.input)
        .memory_format(dims::MemoryFormat::Contiguous)
        .call()?;
    let step: i64 = made.strides().iter().sum();
    let length = shape.iter().copied().min().unwrap_or(0);
    let fill = |from: i64, length: i64| {
        let line = f::AsStrided::new(&made, &[length], &[step])
            .storage_offset(from)
            .call()?;
        f::Fill::new(&line, a.fill_value).call_()
    };
    fill(0, length)?;
    let (height, width) = (shape[0], shape[1]);
    if a.wrap && shape.len() == 2 && height > width + 1 {
        let all = (made.numel() + width) / (width + 1);
        fill((width + 1) * width, all - length)?;
    }
    Ok(made)
}

/// Rule of both triangles.
fn matrices(t: &Tensor, name: &str) -> Result<Plan> {
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "{name}: input tensor must have at least 2 dimensions"
    );
    Ok(Plan::contiguous(t.shape(), t.dtype()))
}

fn diag(a: &calls::Diag) -> Result<Tensor> {
    match a.input.ndim() {
        1 => f::DiagEmbed::new(a.input).offset(a.diagonal).call(),
        2 => f::DiagonalCopy::new(a.input).offset(a.diagonal).call(),
        n => bail!(Runtime, "diag(): Supports 1D or 2D tensors. Got {n}D"),
    }
}

/// Rule of `diag_embed`: finds the dimensions of the matrices.
fn embedded(a: &calls::DiagEmbed) -> Result<(Plan, (usize, usize))> {
    let t = a.input;
    let (x, y) = (
        wrap_dim(a.dim1, t.ndim() + 1)?,
        wrap_dim(a.dim2, t.ndim() + 1)?,
    );
    ensure!(
        x != y,
        Runtime,
        "diagonal dimensions cannot be identical {}, {}",
        a.dim1,
        a.dim2
    );
    let Some((&last, rest)) = t.shape().split_last() else {
        bail!(
            Index,
            "Dimension specified as -1 but tensor has no dimensions"
        );
    };
    let size = a
        .offset
        .checked_abs()
        .and_then(|k| k.checked_add(last))
        .ok_or_else(|| err!(Runtime, "diag_embed(): offset out of range"))?;
    let shape = Dims::new(rest)
        .inserted(x.min(y), size)
        .inserted(x.max(y), size);
    dims::numel(&shape)?;
    Ok((Plan::contiguous(&shape, t.dtype()), (x, y)))
}
