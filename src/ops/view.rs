//! Views: other shapes and strides on the same storage. No device needs a kernel for them.

use super::args::Args;
use super::op::{F, FM, I, M, OpDef, Ret, Value, compose, view};
use super::rules;
use crate::dims::{self, MemoryFormat, wrap_dim};
use crate::{DType, Dims, Result, Scalar, Tensor, bail, ensure, run1};
use smallvec::SmallVec;

/// The family's rows.
pub static OPS: &[OpDef] = &[
    view(
        "view",
        "(Tensor self, int[*] size)",
        M,
        |a| view_as_shape(a.tensor(0)?, a.ints(1)?),
        "The same memory in another shape.",
    ),
    view(
        "view#dtype",
        "(Tensor self, dtype dtype)",
        M,
        view_dtype,
        "The same memory read as another dtype.",
    ),
    view(
        "view_as",
        "(Tensor self, Tensor other)",
        M,
        |a| view_as_shape(a.tensor(0)?, a.tensor(1)?.shape()),
        "The same memory in another tensor's shape.",
    ),
    compose(
        "reshape",
        "(Tensor self, int[*] shape)",
        FM,
        |a| reshape(a.tensor(0)?, a.ints(1)?),
        "The same values in another shape; a view where possible.",
    ),
    compose(
        "reshape_as",
        "(Tensor self, Tensor other)",
        M,
        |a| reshape(a.tensor(0)?, a.tensor(1)?.shape()),
        "The same values in another tensor's shape.",
    ),
    compose(
        "flatten",
        "(Tensor self, int start_dim=0, int end_dim=-1)",
        FM,
        flatten,
        "Neighbouring dimensions joined into one.",
    ),
    compose(
        "ravel",
        "(Tensor self)",
        FM,
        |a| reshape(&run1!("contiguous", a.tensor(0)?)?, &[-1]),
        "The values in one dimension.",
    ),
    compose(
        "unflatten",
        "(Tensor self, int dim, int[] sizes)",
        FM,
        unflatten,
        "A dimension split into several.",
    ),
    view(
        "permute",
        "(Tensor self, int[*] dims)",
        FM,
        permute,
        "Dimensions in another order.",
    ),
    view(
        "transpose",
        "(Tensor self, int dim0, int dim1)",
        FM | I,
        transpose,
        "Two dimensions swapped.",
    ),
    view("t", "(Tensor self)", FM | I, t, "A matrix transposed."),
    view(
        "adjoint",
        "(Tensor self)",
        FM,
        |a| matrix_transpose(a.tensor(0)?, "adjoint", true),
        "The last two dimensions swapped, conjugated.",
    ),
    view(
        "movedim",
        "(Tensor self, int[] source, int[] destination)",
        FM,
        movedim,
        "Dimensions moved to other places.",
    ),
    view(
        "movedim#int",
        "(Tensor self, int source, int destination)",
        FM,
        movedim_one,
        "One dimension moved to another place.",
    ),
    view(
        "squeeze",
        "(Tensor self)",
        FM | I,
        |a| squeeze(a.tensor(0)?, None),
        "Without dimensions of size 1.",
    ),
    view(
        "squeeze#dim",
        "(Tensor self, int dim)",
        FM | I,
        |a| squeeze(a.tensor(0)?, Some(&[a.int(1)?])),
        "Without one dimension, if its size is 1.",
    ),
    view(
        "squeeze#dims",
        "(Tensor self, int[] dim)",
        FM | I,
        |a| squeeze(a.tensor(0)?, Some(a.ints(1)?)),
        "Without these dimensions of size 1.",
    ),
    view(
        "unsqueeze",
        "(Tensor self, int dim)",
        FM | I,
        unsqueeze,
        "With a dimension of size 1 put in.",
    ),
    view(
        "expand",
        "(Tensor self, int[*] size, *, bool implicit=False)",
        M,
        |a| expand(a.tensor(0)?, a.ints(1)?),
        "Dimensions of size 1 repeated without copying.",
    ),
    view(
        "expand_as",
        "(Tensor self, Tensor other)",
        M,
        |a| expand(a.tensor(0)?, a.tensor(1)?.shape()),
        "Expanded to another tensor's shape.",
    ),
    view(
        "broadcast_to",
        "(Tensor self, int[*] size)",
        FM,
        |a| expand(a.tensor(0)?, a.ints(1)?),
        "Expanded to a shape.",
    ),
    view(
        "select",
        "(Tensor self, int dim, int index)",
        FM,
        select,
        "One index along a dimension.",
    ),
    view(
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
    view(
        "narrow",
        "(Tensor self, int dim, int start, int length)",
        FM,
        |a| narrow(a.tensor(0)?, a.int(1)?, a.int(2)?, a.int(3)?),
        "`length` indices from `start` along a dimension.",
    ),
    view(
        "narrow#tensor",
        "(Tensor self, int dim, Tensor start, int length)",
        FM,
        narrow_tensor,
        "`length` indices from a tensor's value along a dimension.",
    ),
    view(
        "diagonal",
        "(Tensor self, int offset=0, int dim1=0, int dim2=1)",
        FM,
        diagonal,
        "A diagonal of two dimensions, as the last dimension.",
    ),
    view(
        "as_strided",
        "(Tensor self, int[] size, int[] stride, int? storage_offset=None)",
        FM | I,
        as_strided,
        "Any layout of the tensor's storage.",
    ),
    view(
        "unfold",
        "(Tensor self, int dimension, int size, int step)",
        M,
        unfold,
        "Sliding windows along a dimension, as a new last dimension.",
    ),
    view(
        "split",
        "(Tensor self, int split_size, int dim=0) -> Tensor[]",
        FM,
        |a| split(a.tensor(0)?, a.int(1)?, a.int(2)?),
        "Pieces of one size along a dimension.",
    ),
    view(
        "split#sizes",
        "(Tensor self, int[] split_size, int dim=0) -> Tensor[]",
        FM,
        |a| split_sizes(a.tensor(0)?, a.ints(1)?, a.int(2)?),
        "Pieces of given sizes along a dimension.",
    ),
    view(
        "split_with_sizes",
        "(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]",
        FM,
        |a| split_sizes(a.tensor(0)?, a.ints(1)?, a.int(2)?),
        "Pieces of given sizes along a dimension.",
    ),
    view(
        "chunk",
        "(Tensor self, int chunks, int dim=0) -> Tensor[]",
        FM,
        chunk,
        "At most `chunks` pieces along a dimension.",
    ),
    view(
        "unbind",
        "(Tensor self, int dim=0) -> Tensor[]",
        FM,
        unbind,
        "One tensor for each index along a dimension.",
    ),
    view("real", "(Tensor self)", F, real, "The real parts."),
    view("imag", "(Tensor self)", F, imag, "The imaginary parts."),
    view(
        "view_as_real",
        "(Tensor self)",
        F,
        view_as_real,
        "Complex numbers as pairs in a last dimension.",
    ),
    view(
        "view_as_complex",
        "(Tensor self)",
        F,
        view_as_complex,
        "Pairs in the last dimension as complex numbers.",
    ),
    view(
        "conj",
        "(Tensor self)",
        FM,
        |a| Ok(conj(a.tensor(0)?).into()),
        "Complex conjugated, lazily.",
    ),
    view(
        "_neg_view",
        "(Tensor self)",
        F,
        |a| {
            let t = a.tensor(0)?;
            Ok(t.detach().with_neg(!t.is_neg()).into())
        },
        "Negated, lazily.",
    ),
    view(
        "size#all",
        "(Tensor self) -> Size",
        0,
        |a| Ok(Ret::Value(Value::Ints(a.tensor(0)?.shape().to_vec()))),
        "",
    ),
    view(
        "numel",
        "(Tensor self) -> int",
        FM,
        |a| Ok(Ret::Value(Value::Scalar(Scalar::Int(a.tensor(0)?.numel())))),
        "The number of elements.",
    ),
];

fn view_as_shape(t: &Tensor, size: &[i64]) -> Result<Ret> {
    let shape = dims::infer_size(size, t.numel())?;
    match dims::view_strides(t.shape(), t.strides(), &shape) {
        Some(strides) => Ok(t.view_with(shape, strides, t.offset()).into()),
        None => bail!(
            Runtime,
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous \
             subspaces). Use .reshape(...) instead."
        ),
    }
}

fn reshape(t: &Tensor, size: &[i64]) -> Result<Ret> {
    let shape = dims::infer_size(size, t.numel())?;
    if let Some(strides) = dims::view_strides(t.shape(), t.strides(), &shape) {
        return Ok(t.view_with(shape, strides, t.offset()).into());
    }
    let copy = super::call::clone(t, MemoryFormat::Contiguous)?;
    Ok(copy
        .view_with(shape.clone(), dims::contiguous_strides(&shape), 0)
        .into())
}

fn view_dtype(a: &Args) -> Result<Ret> {
    let (t, d) = (a.tensor(0)?, a.dtype(1).unwrap_or(DType::F32));
    let (from, to) = (t.dtype().size() as i64, d.size() as i64);
    ensure!(
        !t.is_conj(),
        Runtime,
        "torch.Tensor.view is not supported for conjugate view tensors when converting to a different dtype."
    );
    ensure!(
        !t.is_neg(),
        Runtime,
        "torch.Tensor.view is not supported for tensors with negative bit set when converting to a different dtype."
    );
    let (mut shape, mut strides) = (t.shape().clone(), t.strides().clone());
    if from == to {
        return Ok(t.reinterpret(d, shape, strides, t.offset()).into());
    }
    let (fname, tname) = (t.dtype().scalar_type(), d.scalar_type());
    ensure!(
        t.ndim() > 0,
        Runtime,
        "self.dim() cannot be 0 to view {fname} as {tname} (different element sizes)"
    );
    let last = t.ndim() - 1;
    ensure!(
        strides[last] == 1,
        Runtime,
        "self.stride(-1) must be 1 to view {fname} as {tname} (different element sizes), but got {}",
        strides[last]
    );
    if from > to {
        let r = from / to;
        shape[last] *= r;
        for s in strides.iter_mut().take(last) {
            *s *= r;
        }
        return Ok(t.reinterpret(d, shape, strides, t.offset() * r).into());
    }
    let r = to / from;
    ensure!(
        shape[last] % r == 0,
        Runtime,
        "self.size(-1) must be divisible by {r} to view {fname} as {tname} (different element sizes), but got {}",
        shape[last]
    );
    ensure!(
        t.offset() % r == 0,
        Runtime,
        "self.storage_offset() must be divisible by {r} to view {fname} as {tname} (different element sizes), but got {}",
        t.offset()
    );
    shape[last] /= r;
    for (d, s) in strides.iter_mut().enumerate().take(last) {
        ensure!(
            *s % r == 0,
            Runtime,
            "self.stride({d}) must be divisible by {r} to view {fname} as {tname} (different element sizes), but got {s}"
        );
        *s /= r;
    }
    Ok(t.reinterpret(d, shape, strides, t.offset() / r).into())
}

fn flatten(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    let (start, end) = (
        wrap_dim(a.int(1)?, t.ndim())?,
        wrap_dim(a.int(2)?, t.ndim())?,
    );
    ensure!(
        start <= end,
        Runtime,
        "flatten() has invalid args: start_dim cannot come after end_dim"
    );
    if t.ndim() == 0 {
        return reshape(t, &[1]);
    }
    if start == end {
        return Ok(t.clone().into());
    }
    let joined: i64 = t.shape()[start..=end].iter().product();
    let shape: Dims = t.shape()[..start]
        .iter()
        .copied()
        .chain([joined])
        .chain(t.shape()[end + 1..].iter().copied())
        .collect();
    reshape(t, &shape)
}

fn unflatten(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    let d = wrap_dim(a.int(1)?, t.ndim())?;
    let sizes = a.ints(2)?;
    ensure!(
        !sizes.is_empty(),
        Runtime,
        "unflatten: sizes must be non-empty"
    );
    let size = if t.ndim() == 0 { 1 } else { t.shape()[d] };
    let Ok(sizes) = dims::infer_size(sizes, size) else {
        if sizes.contains(&-1) {
            bail!(
                Runtime,
                "unflatten: Provided sizes {sizes} don't multiply up to the size of dim {d} ({size}) in the input tensor"
            );
        }
        bail!(
            Runtime,
            "unflatten: Provided sizes {sizes} don't multiply up to the size of dim {d} ({size}) in the input tensor"
        );
    };
    let shape: Dims = t.shape()[..d]
        .iter()
        .copied()
        .chain(sizes.iter().copied())
        .chain(t.shape().iter().skip(d + 1).copied())
        .collect();
    // Splitting one dimension never needs a copy.
    view_as_shape(t, &shape)
}

fn permute(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    let order = a.ints(1)?;
    ensure!(
        order.len() == t.ndim(),
        Runtime,
        "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of dimensions \
         i.e. input.dim() = {} is not equal to len(dims) = {}",
        t.ndim(),
        order.len()
    );
    let mut seen: SmallVec<[bool; 8]> = SmallVec::from_elem(false, t.ndim().max(1));
    let mut perm: SmallVec<[usize; 8]> = SmallVec::new();
    for &d in order.iter() {
        let d = wrap_dim(d, t.ndim())?;
        ensure!(
            !std::mem::replace(&mut seen[d], true),
            Runtime,
            "permute(): duplicate dims are not allowed."
        );
        perm.push(d);
    }
    Ok(t.permuted(&perm).into())
}

fn transpose(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    let (x, y) = (
        wrap_dim(a.int(1)?, t.ndim())?,
        wrap_dim(a.int(2)?, t.ndim())?,
    );
    if t.ndim() == 0 {
        return Ok(t.detach().into());
    }
    Ok(t.swapped(x, y).into())
}

fn t(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    match t.ndim() {
        0 | 1 => Ok(t.detach().into()),
        2 => Ok(t.swapped(0, 1).into()),
        n => bail!(
            Runtime,
            "t() expects a tensor with <= 2 dimensions, but self is {n}D"
        ),
    }
}

/// `mT`, `mH` and `adjoint`: the last two dimensions swapped.
///
/// # Errors
/// If there are fewer than two.
pub fn matrix_transpose(t: &Tensor, name: &str, conjugate: bool) -> Result<Ret> {
    let n = t.ndim();
    if n == 1 {
        bail!(
            Runtime,
            "tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor."
        );
    }
    let swapped = if n == 0 {
        t.detach()
    } else {
        t.swapped(n - 2, n - 1)
    };
    Ok(if conjugate { conj(&swapped) } else { swapped }.into())
}

fn movedim(a: &Args) -> Result<Ret> {
    move_dims(a.tensor(0)?, a.ints(1)?, a.ints(2)?)
}

fn movedim_one(a: &Args) -> Result<Ret> {
    move_dims(a.tensor(0)?, &[a.int(1)?], &[a.int(2)?])
}

fn move_dims(t: &Tensor, source: &[i64], destination: &[i64]) -> Result<Ret> {
    let list = |d: &[i64]| {
        Dims::new(d)
            .to_string()
            .replace('[', "{")
            .replace(']', "}")
            .replace("{", "[")
            .replace('}', "]")
    };
    ensure!(
        source.len() == destination.len(),
        Runtime,
        "movedim: Invalid source or destination dims: source ({} dims) should contain the same number of dims as destination ({} dims)",
        list(source),
        list(destination)
    );
    let wrap = |dims: &[i64], what: &str| -> Result<SmallVec<[usize; 6]>> {
        let mut out: SmallVec<[usize; 6]> = SmallVec::new();
        for &d in dims {
            let d = wrap_dim(d, t.ndim())?;
            ensure!(
                !out.contains(&d),
                Runtime,
                "movedim: repeated dim in `{what}` ({})",
                list(dims)
            );
            out.push(d);
        }
        Ok(out)
    };
    let (from, to) = (wrap(source, "source")?, wrap(destination, "destination")?);
    if t.ndim() == 0 {
        return Ok(t.detach().into());
    }
    let mut perm: SmallVec<[usize; 8]> = SmallVec::from_elem(usize::MAX, t.ndim());
    for (&f, &d) in from.iter().zip(&to) {
        perm[d] = f;
    }
    let mut rest = (0..t.ndim()).filter(|d| !from.contains(d));
    for p in perm.iter_mut().filter(|p| **p == usize::MAX) {
        *p = rest.next().unwrap_or(0);
    }
    Ok(t.permuted(&perm).into())
}

fn squeeze(t: &Tensor, dims: Option<&[i64]>) -> Result<Ret> {
    let mut drop: SmallVec<[bool; 8]> = SmallVec::from_elem(dims.is_none(), t.ndim().max(1));
    for &d in dims.unwrap_or(&[]) {
        let d = wrap_dim(d, t.ndim())?;
        ensure!(
            !drop[d],
            Runtime,
            "dim {d} appears multiple times in the list of dims"
        );
        drop[d] = true;
    }
    let keep = |d: usize| !(drop[d] && t.shape()[d] == 1);
    let pick = |v: &Dims| {
        (0..t.ndim())
            .filter(|&d| keep(d))
            .map(|d| v[d])
            .collect::<Dims>()
    };
    Ok(t.view_with(pick(t.shape()), pick(t.strides()), t.offset())
        .into())
}

fn unsqueeze(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    let d = wrap_dim(a.int(1)?, t.ndim() + 1)?;
    let stride = if d < t.ndim() {
        t.shape()[d] * t.strides()[d]
    } else {
        1
    };
    Ok(t.view_with(
        t.shape().inserted(d, 1),
        t.strides().inserted(d, stride),
        t.offset(),
    )
    .into())
}

/// `Tensor.expand`.
///
/// # Errors
/// PyTorch's texts for sizes that do not fit.
pub fn expand(t: &Tensor, size: &[i64]) -> Result<Ret> {
    ensure!(
        size.len() >= t.ndim(),
        Runtime,
        "expand({}{{{}}}, size={}): the number of sizes provided ({}) must be greater or equal to the number of dimensions in the tensor ({})",
        type_name(t),
        t.shape(),
        Dims::new(size),
        size.len(),
        t.ndim()
    );
    let lead = size.len() - t.ndim();
    let mut shape = Dims::new(size);
    let mut strides = Dims::filled(size.len(), 0);
    for i in (0..size.len()).rev() {
        let have = if i < lead { 1 } else { t.shape()[i - lead] };
        let stride = if i < lead {
            if i + 1 < size.len() {
                shape[i + 1] * strides[i + 1]
            } else {
                1
            }
        } else {
            t.strides()[i - lead]
        };
        let mut want = size[i];
        if want == -1 {
            ensure!(
                i >= lead,
                Runtime,
                "The expanded size of the tensor ({want}) isn't allowed in a leading, non-existing dimension {i}"
            );
            want = have;
        }
        if have == want {
            strides[i] = stride;
        } else {
            ensure!(
                have == 1,
                Runtime,
                "The expanded size of the tensor ({want}) must match the existing size ({have}) at non-singleton dimension {i}.  \
                 Target sizes: {}.  Tensor sizes: {}",
                Dims::new(size),
                t.shape()
            );
            strides[i] = 0;
        }
        shape[i] = want;
    }
    if let Some(&d) = shape.iter().find(|&&d| d < 0) {
        bail!(
            Runtime,
            "Trying to create tensor with negative dimension {d}: {shape}"
        );
    }
    Ok(t.view_with(shape, strides, t.offset()).into())
}

/// The C++ type name that PyTorch's messages use: `torch.FloatTensor`, `MetaFloatType`.
#[must_use]
pub fn type_name(t: &Tensor) -> String {
    let s = t.dtype().scalar_type();
    match t.device().kind {
        crate::DeviceKind::Cpu => format!("torch.{s}Tensor"),
        crate::DeviceKind::Cuda => format!("torch.cuda.{s}Tensor"),
        crate::DeviceKind::Meta => format!("torch.{s}Tensor"),
    }
}

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

fn split(t: &Tensor, size: i64, dim: i64) -> Result<Ret> {
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

/// The lazily conjugated tensor; real tensors are returned as they are.
#[must_use]
pub fn conj(t: &Tensor) -> Tensor {
    if t.dtype().is_complex() {
        t.detach().with_conj(!t.is_conj())
    } else {
        t.clone()
    }
}

fn parts(t: &Tensor, which: i64) -> Tensor {
    let strides: Dims = t.strides().iter().map(|s| s * 2).collect();
    t.reinterpret(
        t.dtype().to_real(),
        t.shape().clone(),
        strides,
        t.offset() * 2 + which,
    )
}

fn real(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    Ok(if t.dtype().is_complex() {
        parts(t, 0)
    } else {
        t.clone()
    }
    .into())
}

fn imag(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(
        t.dtype().is_complex(),
        Runtime,
        "imag is not implemented for tensors with non-complex dtypes."
    );
    Ok(parts(t, 1).with_neg(t.is_conj()).into())
}

fn view_as_real(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(
        t.dtype().is_complex(),
        Runtime,
        "view_as_real is only supported for complex tensors"
    );
    ensure!(
        !t.is_conj(),
        Runtime,
        "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor so you can view it as real, use \
         self.resolve_conj(); however, be warned that the resulting tensor will NOT alias the original."
    );
    let p = parts(t, 0);
    Ok(
        p.view_with(p.shape().concat(&[2]), p.strides().concat(&[1]), p.offset())
            .into(),
    )
}

fn view_as_complex(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(
        matches!(t.dtype(), DType::F16 | DType::F32 | DType::F64),
        Runtime,
        "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: {}",
        t.dtype().scalar_type()
    );
    let n = t.ndim();
    ensure!(
        n > 0,
        Runtime,
        "Input tensor must have one or more dimensions"
    );
    ensure!(
        t.shape()[n - 1] == 2,
        Runtime,
        "Tensor must have a last dimension of size 2"
    );
    ensure!(
        t.strides()[n - 1] == 1,
        Runtime,
        "Tensor must have a last dimension with stride 1"
    );
    ensure!(
        t.offset() % 2 == 0,
        Runtime,
        "Tensor must have a storage_offset divisible by 2"
    );
    let mut strides = Dims::filled(n - 1, 0);
    for d in 0..n - 1 {
        ensure!(
            t.strides()[d] % 2 == 0,
            Runtime,
            "Tensor must have a stride divisible by 2 for all but last dimension"
        );
        strides[d] = t.strides()[d] / 2;
    }
    Ok(t.reinterpret(
        t.dtype().to_complex(),
        Dims::new(&t.shape()[..n - 1]),
        strides,
        t.offset() / 2,
    )
    .into())
}

/// A copy of a view: what the `*_copy` forms return.
///
/// # Errors
/// If memory cannot be had.
pub fn copied(r: Ret) -> Result<Ret> {
    let copy = |t: Tensor| run1!("clone", &t, MemoryFormat::Contiguous);
    Ok(match r {
        Ret::One(t) => Ret::One(copy(t)?),
        Ret::List(l) => Ret::List(l.into_iter().map(copy).collect::<Result<_>>()?),
        other => other,
    })
}
