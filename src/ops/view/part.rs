//! Views of a part of a tensor: select, slice, split, diagonals, windows.

use crate::dims::wrap_dim;
use crate::ops::core::args::Args;
use crate::ops::core::op::{FM, I, M, OpDef, Ret, old_view};
use crate::ops::core::rules;
use crate::{Dims, Result, Tensor, bail, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    old_view(
        "select",
        "(Tensor self, int dim, int index)",
        FM,
        select,
        "One index along a dimension.",
    ),
    old_view(
        "slice",
        "(Tensor self, int dim=0, int? start=None, int? end=None, int step=1)",
        0,
        |a| {
            slice(
                a.tensor(0)?,
                a.int(1)?,
                a.opt_int(2),
                a.opt_int(3),
                a.int(4)?,
            )
        },
        "A range of indices along a dimension.",
    ),
    old_view(
        "narrow",
        "(Tensor self, int dim, int start, int length)",
        FM,
        |a| narrow(a.tensor(0)?, a.int(1)?, a.int(2)?, a.int(3)?),
        "`length` indices from `start` along a dimension.",
    ),
    old_view(
        "narrow#tensor",
        "(Tensor self, int dim, Tensor start, int length)",
        FM,
        narrow_tensor,
        "`length` indices from a tensor's value along a dimension.",
    ),
    old_view(
        "diagonal",
        "(Tensor self, int offset=0, int dim1=0, int dim2=1)",
        FM,
        diagonal,
        "A diagonal of two dimensions, as the last dimension.",
    ),
    old_view(
        "as_strided",
        "(Tensor self, int[] size, int[] stride, int? storage_offset=None)",
        FM | I,
        as_strided,
        "Any layout of the tensor's storage.",
    ),
    old_view(
        "unfold",
        "(Tensor self, int dimension, int size, int step)",
        M,
        unfold,
        "Sliding windows along a dimension, as a new last dimension.",
    ),
    old_view(
        "split",
        "(Tensor self, int split_size, int dim=0) -> Tensor[]",
        FM,
        |a| split(a.tensor(0)?, a.int(1)?, a.int(2)?),
        "Pieces of one size along a dimension.",
    ),
    old_view(
        "split#sizes",
        "(Tensor self, int[] split_size, int dim=0) -> Tensor[]",
        FM,
        |a| split_sizes(a.tensor(0)?, a.ints(1)?, a.int(2)?),
        "Pieces of given sizes along a dimension.",
    ),
    old_view(
        "split_with_sizes",
        "(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]",
        FM,
        |a| split_sizes(a.tensor(0)?, a.ints(1)?, a.int(2)?),
        "Pieces of given sizes along a dimension.",
    ),
    old_view(
        "chunk",
        "(Tensor self, int chunks, int dim=0) -> Tensor[]",
        FM,
        chunk,
        "At most `chunks` pieces along a dimension.",
    ),
    old_view(
        "unbind",
        "(Tensor self, int dim=0) -> Tensor[]",
        FM,
        unbind,
        "One tensor for each index along a dimension.",
    ),
];

fn select(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    select_dim(t, a.int(1)?, a.int(2)?).map(Ret::from)
}

/// `Tensor.select`.
///
/// # Errors
/// If the dimension or index is out of range.
pub fn select_dim(t: &Tensor, dim: i64, index: i64) -> Result<Tensor> {
    ensure!(
        t.ndim() > 0,
        Index,
        "select() cannot be applied to a 0-dim tensor."
    );
    let d = wrap_dim(dim, t.ndim())?;
    let size = t.shape()[d];
    if index < -size || index >= size {
        bail!(
            Index,
            "select(): index {index} out of range for tensor of size {} at dimension {dim}",
            t.shape()
        );
    }
    Ok(t.selected(d, if index < 0 { index + size } else { index }))
}

/// Python's slice along a dimension; steps are positive.
///
/// # Errors
/// If the dimension is out of range or the step not positive.
pub fn slice(t: &Tensor, dim: i64, start: Option<i64>, end: Option<i64>, step: i64) -> Result<Ret> {
    ensure!(
        t.ndim() > 0,
        Runtime,
        "slice() cannot be applied to a 0-dim tensor."
    );
    let d = wrap_dim(dim, t.ndim())?;
    ensure!(step > 0, Runtime, "slice step must be positive");
    let size = t.shape()[d];
    let clamp = |v: i64| {
        if v < 0 {
            (v + size).max(0)
        } else {
            v.min(size)
        }
    };
    let (start, end) = (clamp(start.unwrap_or(0)), clamp(end.unwrap_or(i64::MAX)));
    let len = if end > start {
        (end - start - 1) / step + 1
    } else {
        0
    };
    let strides = t.strides().with(d, t.strides()[d].wrapping_mul(step));
    Ok(t.view_with(
        t.shape().with(d, len),
        strides,
        t.offset() + start * t.strides()[d],
    )
    .into())
}

fn narrow(t: &Tensor, dim: i64, start: i64, length: i64) -> Result<Ret> {
    ensure!(
        t.ndim() > 0,
        Runtime,
        "narrow() cannot be applied to a 0-dim tensor."
    );
    ensure!(
        length >= 0,
        Runtime,
        "narrow(): length must be non-negative."
    );
    let d = wrap_dim(dim, t.ndim())?;
    let size = t.shape()[d];
    ensure!(
        start >= -size && start <= size,
        Index,
        "start out of range (expected to be in range of [{}, {size}], but got {start})",
        -size
    );
    let start = if start < 0 { start + size } else { start };
    ensure!(
        start <= size - length,
        Runtime,
        "start ({start}) + length ({length}) exceeds dimension size ({size})."
    );
    Ok(t.narrowed(d, start, length).into())
}

fn narrow_tensor(a: &Args) -> Result<Ret> {
    let start = a.tensor(2)?;
    ensure!(
        start.ndim() == 0 && start.dtype().is_integral(false),
        Runtime,
        "start must be an 0-dim integral Tensor."
    );
    narrow(a.tensor(0)?, a.int(1)?, start.item()?.to_i64(), a.int(3)?)
}

fn diagonal(a: &Args) -> Result<Ret> {
    diagonal_of(a.tensor(0)?, a.int(1)?, a.int(2)?, a.int(3)?).map(Ret::from)
}

/// `torch.diagonal`.
///
/// # Errors
/// If the dimensions are the same or out of range.
pub fn diagonal_of(t: &Tensor, offset: i64, dim1: i64, dim2: i64) -> Result<Tensor> {
    let (d1, d2) = (wrap_dim(dim1, t.ndim())?, wrap_dim(dim2, t.ndim())?);
    ensure!(
        d1 != d2,
        Runtime,
        "diagonal dimensions cannot be identical {dim1}, {dim2}"
    );
    let (s1, s2) = (t.shape()[d1], t.shape()[d2]);
    let (len, shift) = if offset >= 0 {
        (
            s1.min(s2.saturating_sub(offset)).max(0),
            offset.saturating_mul(t.strides()[d2]),
        )
    } else {
        (
            s1.saturating_add(offset).min(s2).max(0),
            offset.saturating_neg().saturating_mul(t.strides()[d1]),
        )
    };
    let keep = |v: &Dims, last: i64| {
        v.iter()
            .enumerate()
            .filter(|(i, _)| *i != d1 && *i != d2)
            .map(|(_, &x)| x)
            .chain([last])
            .collect::<Dims>()
    };
    let at = if len == 0 {
        t.offset()
    } else {
        t.offset() + shift
    };
    Ok(t.view_with(
        keep(t.shape(), len),
        keep(t.strides(), t.strides()[d1] + t.strides()[d2]),
        at,
    ))
}

fn as_strided(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    let offset = a.opt_int(3).unwrap_or(t.offset());
    Tensor::checked(
        t.storage().clone(),
        a.ints(1)?.clone(),
        a.ints(2)?.clone(),
        offset,
        t.dtype(),
    )?;
    Ok(t.view_with(a.ints(1)?.clone(), a.ints(2)?.clone(), offset)
        .into())
}

fn unfold(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    let d = wrap_dim(a.int(1)?, t.ndim())?;
    let (size, step) = (a.int(2)?, a.int(3)?);
    let have = if t.ndim() == 0 { 1 } else { t.shape()[d] };
    ensure!(
        size <= have,
        Runtime,
        "maximum size for tensor at dimension {d} is {have} but size is {size}"
    );
    ensure!(size >= 0, Runtime, "size is {size} but must be >= 0");
    ensure!(step > 0, Runtime, "step is {step} but must be > 0");
    if t.ndim() == 0 {
        return Ok(t
            .view_with(Dims::new(&[size]), Dims::new(&[1]), t.offset())
            .into());
    }
    let shape = t.shape().with(d, (have - size) / step + 1).concat(&[size]);
    let strides = t
        .strides()
        .with(d, t.strides()[d] * step)
        .concat(&[t.strides()[d]]);
    Ok(t.view_with(shape, strides, t.offset()).into())
}

pub(in crate::ops) fn split(t: &Tensor, size: i64, dim: i64) -> Result<Ret> {
    ensure!(
        t.ndim() > 0,
        Runtime,
        "split expects at least a 1-dimensional tensor"
    );
    ensure!(
        size >= 0,
        Runtime,
        "split expects split_size be non-negative, but got split_size={size}"
    );
    let d = wrap_dim(dim, t.ndim())?;
    let total = t.shape()[d];
    ensure!(
        size > 0 || total == 0,
        Runtime,
        "split_size can only be 0 if dimension size is 0, but got dimension size of {total}"
    );
    let n = if size == 0 {
        1
    } else {
        ((total + size - 1) / size).max(1)
    };
    Ok(Ret::List(
        (0..n)
            .map(|i| t.narrowed(d, i * size, size.min(total - i * size)))
            .collect(),
    ))
}

fn split_sizes(t: &Tensor, sizes: &[i64], dim: i64) -> Result<Ret> {
    ensure!(
        t.ndim() > 0,
        Runtime,
        "split expects at least a 1-dimensional tensor"
    );
    let d = wrap_dim(dim, t.ndim())?;
    let total = t.shape()[d];
    let mut at = 0i64;
    let mut out = Vec::with_capacity(sizes.len());
    for &s in sizes {
        ensure!(
            s >= 0,
            Runtime,
            "split_with_sizes expects split_sizes have only non-negative entries, but got split_sizes={}",
            Dims::new(sizes)
        );
        if at.saturating_add(s) <= total {
            out.push(t.narrowed(d, at, s));
        }
        at = at.saturating_add(s);
    }
    ensure!(
        at == total,
        Runtime,
        "split_with_sizes expects split_sizes to sum exactly to {total} (input tensor's size at dimension {dim}), but got split_sizes={}",
        Dims::new(sizes)
    );
    Ok(Ret::List(out))
}

fn chunk(a: &Args) -> Result<Ret> {
    let (t, chunks) = (a.tensor(0)?, a.int(1)?);
    ensure!(
        t.ndim() > 0,
        Runtime,
        "chunk expects at least a 1-dimensional tensor"
    );
    ensure!(
        chunks > 0,
        Runtime,
        "chunk expects `chunks` to be greater than 0, got: {chunks}"
    );
    let d = wrap_dim(a.int(2)?, t.ndim())?;
    let total = t.shape()[d];
    let size = (total + chunks - 1) / chunks;
    if size == 0 {
        return Ok(Ret::List(
            (0..chunks).map(|_| t.narrowed(d, 0, 0)).collect(),
        ));
    }
    split(t, size, d as i64)
}

fn unbind(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(
        t.ndim() > 0,
        Index,
        "Dimension specified as {} but tensor has no dimensions",
        a.int(1)?
    );
    let d = rules::dim(t, a.int(1)?)?;
    Ok(Ret::List(
        (0..t.shape()[d]).map(|i| t.selected(d, i)).collect(),
    ))
}
