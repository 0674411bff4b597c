//! Views of the whole: other shapes and orders on the same storage. No device needs a kernel for them.

use crate::dims::{self, MemoryFormat, wrap_dim};
use crate::ops::core::op::{F, FM, I, M, OpDef, Ret, Value, compose, view};
use crate::ops::core::plan::ViewPlan;
use crate::ops::f;
use crate::{Dims, Result, Scalar, Tensor, bail, ensure};
use smallvec::SmallVec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    view(
        "view",
        "(Tensor self, int[*] size)",
        M,
        |a| view_as_shape(a.input, a.size),
        "The same memory in another shape.",
    )
    .samples("f32[25, 5], (5, -1, 5); b8[5, 5, 5], (25, 5)"),
    view(
        "view#dtype",
        "(Tensor self, dtype dtype)",
        M,
        view_dtype,
        "The same memory read as another dtype.",
    )
    .samples("f32[2, 3], i32; f32[2, 4], u8"),
    view(
        "view_as",
        "(Tensor self, Tensor other)",
        M,
        |a| view_as_shape(a.input, a.other.shape()),
        "The same memory in another tensor's shape.",
    )
    .samples("f32[5], f32[5]; b8[5, 5, 5], b8[25, 5]"),
    view(
        "_unsafe_view",
        "(Tensor self, int[] size)",
        0,
        |a| view_as_shape(a.input, a.size),
        "The same memory in another shape, of a tensor that nobody else sees.",
    )
    .samples("f32[2, 3], [6]"),
    compose(
        "reshape",
        "(Tensor self, int[*] shape)",
        FM,
        |a| reshape(a.input, a.shape),
        "The same values in another shape; a view where possible.",
    )
    .samples("f32[5], (5,); c64[50, 5], (5, -1)"),
    compose(
        "reshape_as",
        "(Tensor self, Tensor other)",
        M,
        |a| reshape(a.input, a.other.shape()),
        "The same values in another tensor's shape.",
    )
    .samples("b8[5, 5, 5], b8[25, 5]"),
    compose(
        "flatten",
        "(Tensor self, int start_dim=0, int end_dim=-1)",
        FM,
        flatten,
        "Neighbouring dimensions joined into one.",
    )
    .samples("f32[3, 4]; b8[3, 4]; f32[3, 4], 0, -1"),
    compose(
        "ravel",
        "(Tensor self)",
        FM,
        |a| f::view(&f::contiguous(a.input)?, &[-1]),
        "The values in one dimension.",
    )
    .samples("f64[3, 4]"),
    compose(
        "unflatten",
        "(Tensor self, int dim, int[] sizes)",
        FM,
        unflatten,
        "A dimension split into several.",
    )
    .samples("f32[8], 0, (8,); c64[3, 6, 2], 1, (2, 3); f32[8], -1, (2, 2, 2)"),
    view(
        "permute",
        "(Tensor self, int[*] dims)",
        FM,
        permute,
        "Dimensions in another order.",
    )
    .samples("f32[1, 2, 3, 4], (0, 2, 3, 1); b8[1, 2, 3, 4], (2, 1, 3, 0)"),
    view(
        "transpose",
        "(Tensor self, int dim0, int dim1)",
        FM | I,
        transpose,
        "Two dimensions swapped.",
    )
    .samples("f32[3, 4], 0, 0; c64[3, 4], 0, 0"),
    view("t", "(Tensor self)", FM | I, t, "A matrix transposed.").samples("c64[3, 4]"),
    view(
        "adjoint",
        "(Tensor self)",
        FM,
        |a| matrix_transpose(a.input, "adjoint", true),
        "The last two dimensions swapped, conjugated.",
    )
    .samples("f32[3, 4]"),
    view(
        "movedim",
        "(Tensor self, int[] source, int[] destination)",
        FM,
        |a| move_dims(a.input, a.source, a.destination),
        "Dimensions moved to other places.",
    )
    .samples("f32[3, 4], (), (); b8[4, 3, 2, 1], [0, 1, 2, 3], [3, 2, 1, 0]"),
    view(
        "movedim#int",
        "(Tensor self, int source, int destination)",
        FM,
        |a| move_dims(a.input, &[a.source], &[a.destination]),
        "One dimension moved to another place.",
    )
    .samples("f32[2, 3, 4], 0, -1"),
    view(
        "squeeze",
        "(Tensor self)",
        FM | I,
        |a| squeeze(a.input, None),
        "Without dimensions of size 1.",
    )
    .samples("f32[3, 4]; b8[3, 4]"),
    view(
        "squeeze#dim",
        "(Tensor self, int dim)",
        FM | I,
        |a| squeeze(a.input, Some(&[a.dim])),
        "Without one dimension, if its size is 1.",
    )
    .samples("f32[3, 4], -1"),
    view(
        "squeeze#dims",
        "(Tensor self, int[] dim)",
        FM | I,
        |a| squeeze(a.input, Some(a.dim)),
        "Without these dimensions of size 1.",
    )
    .samples("f32[3, 4], (1,)"),
    view(
        "unsqueeze",
        "(Tensor self, int dim)",
        FM | I,
        unsqueeze,
        "With a dimension of size 1 put in.",
    )
    .samples("f32[3, 4], 0; b8[3, 4], 0"),
    view(
        "expand",
        "(Tensor self, int[*] size, *, bool implicit=False)",
        M,
        |a| expand(a.input, a.size),
        "Dimensions of size 1 repeated without copying.",
    )
    .samples("f32[1], (5, 5, 5)"),
    view(
        "expand_as",
        "(Tensor self, Tensor other)",
        M,
        |a| expand(a.input, a.other.shape()),
        "Expanded to another tensor's shape.",
    )
    .samples("f32[()], f32[()]"),
    view(
        "broadcast_to",
        "(Tensor self, int[*] size)",
        FM,
        |a| expand(a.input, a.size),
        "Expanded to a shape.",
    )
    .samples("f32[1], (5, 5, 5); c64[1], (5, 5, 5)"),
    view(
        "_neg_view",
        "(Tensor self)",
        F,
        |a| {
            Ok(ViewPlan {
                neg: !a.input.is_neg(),
                ..ViewPlan::of(a.input)
            })
        },
        "Negated, lazily.",
    )
    .samples("f32[2, 3]; c64[2]"),
    compose(
        "numpy_T",
        "(Tensor self)",
        0,
        numpy_t,
        "`Tensor.T`: all dimensions in reverse order.",
    )
    .samples("f32[2, 3, 4]"),
    compose(
        "mT",
        "(Tensor self)",
        0,
        |a| f::transpose(batch_of_matrices(a.input, "mT")?, -2, -1),
        "`Tensor.mT`: the last two dimensions swapped.",
    )
    .samples("f32[3, 4]; b8[3, 4]"),
    compose(
        "mH",
        "(Tensor self)",
        0,
        |a| hermitian(batch_of_matrices(a.input, "mH")?),
        "`Tensor.mH`: the last two dimensions swapped, conjugated.",
    )
    .samples("f32[3, 4]; b8[3, 4]"),
    compose(
        "matrix_H",
        "(Tensor self)",
        0,
        matrix_h,
        "`Tensor.H`: a matrix transposed and conjugated.",
    )
    .samples("c64[2, 3]; f32[2, 3]"),
    compose(
        "numel",
        "(Tensor self) -> int",
        FM,
        |a| Ok(Ret::Value(Value::Scalar(Scalar::Int(a.input.numel())))),
        "The number of elements.",
    )
    .samples("f32[2, 3]; i64[0]"),
];

fn numpy_t(a: &calls::NumpyT) -> Result<Tensor> {
    let order: SmallVec<[i64; 8]> = (0..a.input.ndim() as i64).rev().collect();
    f::permute(a.input, &order)
}

/// Checks for `mT` and `mH`.
fn batch_of_matrices<'a>(t: &'a Tensor, name: &str) -> Result<&'a Tensor> {
    ensure!(
        t.ndim() != 1,
        Runtime,
        "tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor."
    );
    ensure!(
        t.ndim() != 0,
        Runtime,
        "tensor.{name} is only supported on matrices or batches of matrices. Got 0-D tensor."
    );
    Ok(t)
}

/// The last two dimensions swapped, conjugated if complex.
fn hermitian(t: &Tensor) -> Result<Tensor> {
    let swapped = f::transpose(t, -2, -1)?;
    if t.dtype().is_complex() {
        f::_conj(&swapped)
    } else {
        Ok(swapped)
    }
}

fn matrix_h(a: &calls::MatrixH) -> Result<Ret> {
    let t = a.input;
    ensure!(
        t.ndim() == 2 || t.ndim() == 0,
        Runtime,
        "tensor.H is only supported on matrices (2-D tensors). Got {}-D tensor.",
        t.ndim()
    );
    if t.ndim() == 2 {
        return Ok(hermitian(t)?.into());
    }
    f::conj(t).map(Ret::from)
}

fn view_as_shape(t: &Tensor, size: &[i64]) -> Result<ViewPlan> {
    let shape = dims::infer_size(size, t.numel())?;
    match dims::view_strides(t.shape(), t.strides(), &shape) {
        Some(strides) => Ok(ViewPlan::with(t, shape, strides, t.offset())),
        None => bail!(
            Runtime,
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous \
             subspaces). Use .reshape(...) instead."
        ),
    }
}

fn reshape(t: &Tensor, size: &[i64]) -> Result<Ret> {
    let shape = dims::infer_size(size, t.numel())?;
    if dims::view_strides(t.shape(), t.strides(), &shape).is_some() {
        return f::view(t, &shape).map(Ret::from);
    }
    let copy = f::Clone::new(t)
        .memory_format(MemoryFormat::Contiguous)
        .call()?;
    f::_unsafe_view(&copy, &shape).map(Ret::from)
}

fn view_dtype(a: &calls::ViewDtype) -> Result<ViewPlan> {
    let (t, d) = (a.input, a.dtype);
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
        return Ok(ViewPlan::reinterpret(d, shape, strides, t.offset()));
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
        return Ok(ViewPlan::reinterpret(d, shape, strides, t.offset() * r));
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
    Ok(ViewPlan::reinterpret(d, shape, strides, t.offset() / r))
}

fn flatten(a: &calls::Flatten) -> Result<Ret> {
    let t = a.input;
    let (start, end) = (
        wrap_dim(a.start_dim, t.ndim())?,
        wrap_dim(a.end_dim, t.ndim())?,
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
        return Ok(Ret::Same(0));
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

fn unflatten(a: &calls::Unflatten) -> Result<Tensor> {
    let (t, sizes) = (a.input, a.sizes);
    let d = wrap_dim(a.dim, t.ndim())?;
    ensure!(
        !sizes.is_empty(),
        Runtime,
        "unflatten: sizes must be non-empty"
    );
    let size = if t.ndim() == 0 { 1 } else { t.shape()[d] };
    let Ok(sizes) = dims::infer_size(sizes, size) else {
        bail!(
            Runtime,
            "unflatten: Provided sizes {} don't multiply up to the size of dim {d} ({size}) in the input tensor",
            Dims::new(sizes)
        );
    };
    let shape: Dims = t.shape()[..d]
        .iter()
        .copied()
        .chain(sizes.iter().copied())
        .chain(t.shape().iter().skip(d + 1).copied())
        .collect();
    // Splitting one dimension never needs a copy.
    f::view(t, &shape)
}

fn permute(a: &calls::Permute) -> Result<ViewPlan> {
    let (t, order) = (a.input, a.dims);
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
    Ok(ViewPlan::of(t).permuted(&perm))
}

fn transpose(a: &calls::Transpose) -> Result<ViewPlan> {
    let t = a.input;
    let (x, y) = (wrap_dim(a.dim0, t.ndim())?, wrap_dim(a.dim1, t.ndim())?);
    let plan = ViewPlan::of(t);
    Ok(if t.ndim() == 0 {
        plan
    } else {
        plan.swapped(x, y)
    })
}

fn t(a: &calls::T) -> Result<ViewPlan> {
    let plan = ViewPlan::of(a.input);
    match a.input.ndim() {
        0 | 1 => Ok(plan),
        2 => Ok(plan.swapped(0, 1)),
        n => bail!(
            Runtime,
            "t() expects a tensor with <= 2 dimensions, but self is {n}D"
        ),
    }
}

/// The last two dimensions swapped, and conjugated.
fn matrix_transpose(t: &Tensor, name: &str, conjugate: bool) -> Result<ViewPlan> {
    let n = t.ndim();
    ensure!(
        n != 1,
        Runtime,
        "tensor.{name} is only supported on matrices or batches of matrices. Got 1-D tensor."
    );
    let mut plan = ViewPlan::of(t);
    if n > 0 {
        plan = plan.swapped(n - 2, n - 1);
    }
    Ok(if conjugate && t.dtype().is_complex() {
        plan.conjugated()
    } else {
        plan
    })
}

fn move_dims(t: &Tensor, source: &[i64], destination: &[i64]) -> Result<ViewPlan> {
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
        return Ok(ViewPlan::of(t));
    }
    let mut perm: SmallVec<[usize; 8]> = SmallVec::from_elem(usize::MAX, t.ndim());
    for (&f, &d) in from.iter().zip(&to) {
        perm[d] = f;
    }
    let mut rest = (0..t.ndim()).filter(|d| !from.contains(d));
    for p in perm.iter_mut().filter(|p| **p == usize::MAX) {
        *p = rest.next().unwrap_or(0);
    }
    Ok(ViewPlan::of(t).permuted(&perm))
}

fn squeeze(t: &Tensor, dims: Option<&[i64]>) -> Result<ViewPlan> {
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
    let (shape, strides) = (pick(t.shape()), pick(t.strides()));
    Ok(ViewPlan::with(t, shape, strides, t.offset()))
}

fn unsqueeze(a: &calls::Unsqueeze) -> Result<ViewPlan> {
    let dim = wrap_dim(a.dim, a.input.ndim() + 1)?;
    Ok(ViewPlan::of(a.input).unsqueezed(dim))
}

/// `Tensor.expand`.
fn expand(t: &Tensor, size: &[i64]) -> Result<ViewPlan> {
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
    Ok(ViewPlan::with(t, shape, strides, t.offset()))
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
