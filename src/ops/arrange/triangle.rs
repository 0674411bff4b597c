//! Triangles and diagonals.

use crate::dims::{self, wrap_dim};
use crate::ops::core::args::Args;
use crate::ops::core::op::{FM, FMIO, FMO, KernelBody, OpDef, Plan, Ret, X, kernel, old_compose};
use crate::{DType, Dims, Result, Scalar, Tensor, bail, cpu, ensure, err, run, run1};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "tril",
        "(Tensor self, int diagonal=0)",
        FMIO,
        KernelBody::new(infer_triangle, |a, o| triangle(a, o, true)).updates(),
        "The lower triangle, zeros above.",
    ),
    kernel(
        "triu",
        "(Tensor self, int diagonal=0)",
        FMIO,
        KernelBody::new(infer_triangle, |a, o| triangle(a, o, false)).updates(),
        "The upper triangle, zeros below.",
    ),
    old_compose(
        "diag",
        "(Tensor self, int diagonal=0)",
        FMO | X,
        diag,
        "A vector as a diagonal matrix, or a matrix's diagonal.",
    ),
    old_compose(
        "diagflat",
        "(Tensor self, int offset=0)",
        FM,
        diagflat,
        "All elements on the diagonal of a matrix.",
    ),
    kernel(
        "diag_embed",
        "(Tensor self, int offset=0, int dim1=-2, int dim2=-1)",
        FM,
        KernelBody::new(infer_diag_embed, diag_embed),
        "The last dimension on the diagonal of two new ones.",
    ),
];

fn infer_triangle(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "{}: input tensor must have at least 2 dimensions",
        a.name()
    );
    Ok(Plan::contiguous(t.shape(), t.dtype()))
}

fn triangle(a: &Args, outs: &[Tensor], lower: bool) -> Result<()> {
    let (t, out, k) = (a.tensor(0)?, &outs[0], a.int(1)?);
    crate::ops::index::along::start(out, t)?;
    let n = out.ndim();
    let (rows, columns) = (out.shape()[n - 2], out.shape()[n - 1]);
    if out.numel() == 0 {
        return Ok(());
    }
    let zero = Tensor::scalar(Scalar::Int(0), DType::F32)?;
    let zero = if out.dtype() == DType::F32 {
        zero
    } else {
        cpu::copy::converted(&zero, out.dtype())?
    };
    let clear = |t: Tensor| {
        if t.numel() == 0 {
            Ok(())
        } else {
            cpu::copy::copy(&t, &zero)
        }
    };
    for r in 0..rows {
        let row = out.selected(n - 2, r);
        // In the lower triangle columns up to r + k stay, in the upper one those from there.
        let edge = r.saturating_add(k);
        if lower {
            let from = edge.saturating_add(1).clamp(0, columns);
            clear(row.narrowed(n - 2, from, columns - from))?;
        } else {
            clear(row.narrowed(n - 2, 0, edge.clamp(0, columns)))?;
        }
    }
    Ok(())
}

fn diag(a: &Args) -> Result<Ret> {
    let (t, k) = (a.tensor(0)?, a.int(1)?);
    match t.ndim() {
        1 => run!("diag_embed", t, k),
        2 => {
            crate::ops::view::shape::copied(crate::ops::view::part::diagonal_of(t, k, 0, 1)?.into())
        }
        n => bail!(Runtime, "diag(): Supports 1D or 2D tensors. Got {n}D"),
    }
}

fn diagflat(a: &Args) -> Result<Ret> {
    let line = run1!("reshape", a.tensor(0)?, Dims::new(&[-1]))?;
    run!("diag_embed", &line, a.int(1)?)
}

fn embed_dims(a: &Args) -> Result<(usize, usize)> {
    let n = a.tensor(0)?.ndim() + 1;
    let range = |d: i64| wrap_dim(d, n);
    let (x, y) = (range(a.int(2)?)?, range(a.int(3)?)?);
    ensure!(
        x != y,
        Runtime,
        "diagonal dimensions cannot be identical {}, {}",
        a.int(2)?,
        a.int(3)?
    );
    Ok((x, y))
}

fn infer_diag_embed(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (x, y) = embed_dims(a)?;
    let Some(&last) = t.shape().last() else {
        bail!(
            Index,
            "Dimension specified as -1 but tensor has no dimensions"
        );
    };
    let size = a
        .int(1)?
        .checked_abs()
        .and_then(|k| k.checked_add(last))
        .ok_or_else(|| err!(Runtime, "diag_embed(): offset out of range"))?;
    let shape = Dims::new(&t.shape()[..t.ndim() - 1])
        .inserted(x.min(y), size)
        .inserted(x.max(y), size);
    dims::numel(&shape)?;
    Ok(Plan::contiguous(&shape, t.dtype()))
}

fn diag_embed(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (x, y) = embed_dims(a)?;
    cpu::fill(&outs[0], Scalar::Int(0))?;
    cpu::copy::copy(
        &crate::ops::view::part::diagonal_of(&outs[0], a.int(1)?, x as i64, y as i64)?,
        a.tensor(0)?,
    )
}
