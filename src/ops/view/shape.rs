//! Views of the whole: other shapes and orders on the same storage. No device needs a kernel for them.

use crate::dims::{self, MemoryFormat, wrap_dim};
use crate::ops::batch;
use crate::ops::core::op::{Batch, FM, Hidden, I, M, OpDef, Ret, Value, compose, view};
use crate::ops::core::plan::ViewPlan;
use crate::ops::f;
use crate::{DType, DeviceKind, Dims, Result, Scalar, Tensor, bail, ensure};
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
    .samples("f32[25, 5], (5, -1, 5); b8[5, 5, 5], (25, 5)")
    .grad("self: grad.reshape(self.sizes); jvp: linear")
    .batch(Batch::As(typed!(|a, h| batch::view(a.input, a.size, h), Hidden))),
    view(
        "view#dtype",
        "(Tensor self, dtype dtype)",
        M,
        view_dtype,
        "The same memory read as another dtype.",
    )
    .samples("f32[2, 3], i32; f32[2, 4], u8")
    .no_grad()
    .batch(Batch::Lead),
    view(
        "view_as",
        "(Tensor self, Tensor other)",
        M,
        |a| view_as_shape(a.input, a.other.shape()),
        "The same memory in another tensor's shape.",
    )
    .samples("f32[5], f32[5]; b8[5, 5, 5], b8[25, 5]")
    .grad("ViewBackward0 | self: grad.reshape(self.sizes)")
    .batch(Batch::As(typed!(|a, h| batch::view_as(a.input, a.other, h), Hidden))),
    view(
        "_unsafe_view",
        "(Tensor self, int[] size)",
        0,
        |a| Ok(view_as_shape(a.input, a.size)?.detached()),
        "The same memory in another shape, of a tensor that nobody else sees.",
    )
    .samples("f32[2, 3], [6]")
    .grad("self: grad.reshape(self.sizes); jvp: linear")
    .batch(Batch::As(typed!(|a, h| batch::one(f::reshape(a.input, &batch::sized(a.input, a.size, h)[..])), Hidden))),
    view(
        "_reshape_alias",
        "(Tensor self, int[] size)",
        0,
        |a| view_as_shape(a.input, a.size),
        "What reshape makes of memory that is not in order.",
    )
    .samples("f32[2, 3].T, [2, 1, 3]")
    .grad("self: grad.reshape(self.sizes); jvp: linear")
    .batch(Batch::As(typed!(|a, h| batch::view(a.input, a.size, h), Hidden))),
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
        "squeeze",
        "(Tensor self)",
        FM | I,
        |a| squeeze(a.input, None),
        "Without dimensions of size 1.",
    )
    .samples("f32[3, 4]; b8[3, 4]")
    .grad("in place SqueezeBackward3 | self: _grad.unsqueeze_to(grad, self.sizes)")
    .batch(Batch::As(typed!(|a, h| batch::squeeze(a.input, h), Hidden))),
    view(
        "squeeze#dim",
        "(Tensor self, int dim)",
        FM | I,
        |a| squeeze(a.input, Some(&[a.dim])),
        "Without one dimension, if its size is 1.",
    )
    .samples("f32[3, 4], -1")
    .grad("SqueezeBackward1 in place SqueezeBackward4 | self: _grad.unsqueeze_to(grad, self.sizes, [dim])"),
    view(
        "squeeze#dims",
        "(Tensor self, int[*] dim)",
        FM | I,
        |a| squeeze(a.input, Some(a.dim)),
        "Without these dimensions of size 1.",
    )
    .samples("f32[3, 4], (1,)")
    .grad("SqueezeBackward2 in place SqueezeBackward5 | self: _grad.unsqueeze_to(grad, self.sizes, dim)"),
    view(
        "unsqueeze",
        "(Tensor self, int dim)",
        FM | I,
        unsqueeze,
        "With a dimension of size 1 put in.",
    )
    .samples("f32[3, 4], 0; b8[3, 4], 0")
    .grad("in place UnsqueezeBackward1 | self: grad.squeeze(dim); jvp: linear")
    .batch(Batch::Inserting),
    view(
        "expand",
        "(Tensor self, int[*] size, *, bool implicit=False)",
        M,
        |a| expand(a.input, a.size),
        "Dimensions of size 1 repeated without copying.",
    )
    .samples("f32[1], (5, 5, 5)")
    .grad("self: _grad.sum_to(grad, self.sizes); jvp: linear")
    .batch(Batch::As(typed!(|a, h| batch::expand(a.input, a.size, h), Hidden))),
    view(
        "expand_as",
        "(Tensor self, Tensor other)",
        M,
        |a| expand(a.input, a.other.shape()),
        "Expanded to another tensor's shape.",
    )
    .samples("f32[()], f32[()]")
    .grad("ExpandBackward0 | self: _grad.sum_to(grad, self.sizes)")
    .batch(Batch::As(typed!(|a, h| batch::expand_as(a.input, a.other, h), Hidden))),
    view(
        "broadcast_to",
        "(Tensor self, int[*] size)",
        FM,
        |a| expand(a.input, a.size),
        "Expanded to a shape.",
    )
    .samples("f32[1], (5, 5, 5); c64[1], (5, 5, 5)")
    .grad("ExpandBackward0 | self: _grad.sum_to(grad, self.sizes)")
    .batch(Batch::As(typed!(|a, h| batch::expand(a.input, a.size, h), Hidden))),
    view(
        "_neg_view",
        "(Tensor self)",
        FM,
        |a| {
            Ok(ViewPlan {
                neg: !a.input.is_neg(),
                ..ViewPlan::of(a.input)
            })
        },
        "Negated, lazily.",
    )
    .samples("f32[2, 3]; c64[2]")
    .grad("self: grad.neg(); jvp: linear")
    .batch(Batch::Lead),
    compose(
        "numel",
        "(Tensor self) -> int",
        FM,
        |a| Ok(Ret::Value(Value::Scalar(Scalar::Int(a.input.numel())))),
        "The number of elements.",
    )
    .samples("f32[2, 3]; i64[0]"),
];

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
    if t.is_contiguous() {
        return f::view(t, &shape).map(Ret::from);
    }
    if dims::view_strides(t.shape(), t.strides(), &shape).is_some() {
        return f::_reshape_alias(t, &shape).map(Ret::from);
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
        return Ok(ViewPlan::reinterpret(d, shape, strides, t.offset()).detached());
    }
    let (fname, tname) = (t.dtype().scalar_type(), d.scalar_type());
    ensure!(
        t.ndim() > 0,
        Runtime,
        "self.dim() cannot be 0 to view {fname} as {tname} (different element sizes)"
    );
    let last = t.ndim() - 1;
    let side_by_side = |stride: i64| {
        ensure!(
            stride == 1,
            Runtime,
            "self.stride(-1) must be 1 to view {fname} as {tname} (different element sizes), but got {stride}"
        );
        Ok(())
    };
    if from > to {
        side_by_side(strides[last])?;
        let r = from / to;
        shape[last] *= r;
        for s in strides.iter_mut().take(last) {
            *s *= r;
        }
        return Ok(ViewPlan::reinterpret(d, shape, strides, t.offset() * r).detached());
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
    side_by_side(strides[last])?;
    shape[last] /= r;
    for (d, s) in strides.iter_mut().enumerate().take(last) {
        ensure!(
            *s % r == 0,
            Runtime,
            "self.stride({d}) must be divisible by {r} to view {fname} as {tname} (different element sizes), but got {s}"
        );
        *s /= r;
    }
    Ok(ViewPlan::reinterpret(d, shape, strides, t.offset() / r).detached())
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
    if sizes.iter().any(|&s| s < -1) || sizes.iter().filter(|&&s| s == -1).count() > 1 {
        let why = dims::infer_size(sizes, size).err();
        let why = why.map_or_else(String::new, |e| e.to_string());
        bail!(Runtime, "unflatten got an unexpected error:\n{why}");
    }
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
        let stride = if t.ndim() == 0 {
            0
        } else if i < lead {
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

/// What is said of a tensor whose type an operator does not take; on meta a formula in Python checks it.
pub(in crate::ops) fn found(t: &Tensor, operator: &str) -> String {
    match t.device().kind {
        DeviceKind::Meta => format!("torch.{} instead", t.dtype()),
        _ => {
            let kind = type_name(t);
            format!("{kind} instead (while checking arguments for {operator})")
        }
    }
}

/// The type of a tensor as PyTorch's messages name it: types that it had from the beginning have a class
/// (`torch.FloatTensor`), others are named by what computes them (`CPUBoolType`, `MetaFloatType`).
#[must_use]
pub fn type_name(t: &Tensor) -> String {
    let s = t.dtype().scalar_type();
    let classed = matches!(
        t.dtype(),
        DType::U8
            | DType::I8
            | DType::I16
            | DType::I32
            | DType::I64
            | DType::F16
            | DType::F32
            | DType::F64
    );
    match t.device().kind {
        DeviceKind::Cpu if classed => format!("torch.{s}Tensor"),
        DeviceKind::Cpu => format!("CPU{s}Type"),
        DeviceKind::Cuda if classed => format!("torch.cuda.{s}Tensor"),
        DeviceKind::Cuda => format!("CUDA{s}Type"),
        DeviceKind::Meta => format!("Meta{s}Type"),
    }
}
