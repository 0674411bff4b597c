//! Views of the whole: other shapes and orders on the same storage. No device needs a kernel for them.

use crate::dims::{self, MemoryFormat, wrap_dim};
use crate::ops::core::args::Args;
use crate::ops::core::op::{F, FM, I, M, OpDef, Ret, Value, old_compose, old_view};
use crate::ops::view::complex::conj;
use crate::{DType, Dims, Result, Scalar, Tensor, bail, ensure, run1};
use smallvec::SmallVec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    old_view(
        "view",
        "(Tensor self, int[*] size)",
        M,
        |a| view_as_shape(a.tensor(0)?, a.ints(1)?),
        "The same memory in another shape.",
    ),
    old_view(
        "view#dtype",
        "(Tensor self, dtype dtype)",
        M,
        view_dtype,
        "The same memory read as another dtype.",
    ),
    old_view(
        "view_as",
        "(Tensor self, Tensor other)",
        M,
        |a| view_as_shape(a.tensor(0)?, a.tensor(1)?.shape()),
        "The same memory in another tensor's shape.",
    ),
    old_compose(
        "reshape",
        "(Tensor self, int[*] shape)",
        FM,
        |a| reshape(a.tensor(0)?, a.ints(1)?),
        "The same values in another shape; a view where possible.",
    ),
    old_compose(
        "reshape_as",
        "(Tensor self, Tensor other)",
        M,
        |a| reshape(a.tensor(0)?, a.tensor(1)?.shape()),
        "The same values in another tensor's shape.",
    ),
    old_compose(
        "flatten",
        "(Tensor self, int start_dim=0, int end_dim=-1)",
        FM,
        flatten,
        "Neighbouring dimensions joined into one.",
    ),
    old_compose(
        "ravel",
        "(Tensor self)",
        FM,
        |a| reshape(&run1!("contiguous", a.tensor(0)?)?, &[-1]),
        "The values in one dimension.",
    ),
    old_compose(
        "unflatten",
        "(Tensor self, int dim, int[] sizes)",
        FM,
        unflatten,
        "A dimension split into several.",
    ),
    old_view(
        "permute",
        "(Tensor self, int[*] dims)",
        FM,
        permute,
        "Dimensions in another order.",
    ),
    old_view(
        "transpose",
        "(Tensor self, int dim0, int dim1)",
        FM | I,
        transpose,
        "Two dimensions swapped.",
    ),
    old_view("t", "(Tensor self)", FM | I, t, "A matrix transposed."),
    old_view(
        "adjoint",
        "(Tensor self)",
        FM,
        |a| matrix_transpose(a.tensor(0)?, "adjoint", true),
        "The last two dimensions swapped, conjugated.",
    ),
    old_view(
        "movedim",
        "(Tensor self, int[] source, int[] destination)",
        FM,
        movedim,
        "Dimensions moved to other places.",
    ),
    old_view(
        "movedim#int",
        "(Tensor self, int source, int destination)",
        FM,
        movedim_one,
        "One dimension moved to another place.",
    ),
    old_view(
        "squeeze",
        "(Tensor self)",
        FM | I,
        |a| squeeze(a.tensor(0)?, None),
        "Without dimensions of size 1.",
    ),
    old_view(
        "squeeze#dim",
        "(Tensor self, int dim)",
        FM | I,
        |a| squeeze(a.tensor(0)?, Some(&[a.int(1)?])),
        "Without one dimension, if its size is 1.",
    ),
    old_view(
        "squeeze#dims",
        "(Tensor self, int[] dim)",
        FM | I,
        |a| squeeze(a.tensor(0)?, Some(a.ints(1)?)),
        "Without these dimensions of size 1.",
    ),
    old_view(
        "unsqueeze",
        "(Tensor self, int dim)",
        FM | I,
        unsqueeze,
        "With a dimension of size 1 put in.",
    ),
    old_view(
        "expand",
        "(Tensor self, int[*] size, *, bool implicit=False)",
        M,
        |a| expand(a.tensor(0)?, a.ints(1)?),
        "Dimensions of size 1 repeated without copying.",
    ),
    old_view(
        "expand_as",
        "(Tensor self, Tensor other)",
        M,
        |a| expand(a.tensor(0)?, a.tensor(1)?.shape()),
        "Expanded to another tensor's shape.",
    ),
    old_view(
        "broadcast_to",
        "(Tensor self, int[*] size)",
        FM,
        |a| expand(a.tensor(0)?, a.ints(1)?),
        "Expanded to a shape.",
    ),
    old_view(
        "_neg_view",
        "(Tensor self)",
        F,
        |a| {
            let t = a.tensor(0)?;
            Ok(t.detach().with_neg(!t.is_neg()).into())
        },
        "Negated, lazily.",
    ),
    old_view(
        "size#all",
        "(Tensor self) -> Size",
        0,
        |a| Ok(Ret::Value(Value::Ints(a.tensor(0)?.shape().to_vec()))),
        "",
    ),
    old_view(
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
    let copy = crate::ops::core::helpers::clone(t, MemoryFormat::Contiguous)?;
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

pub(in crate::ops) fn t(a: &Args) -> Result<Ret> {
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
