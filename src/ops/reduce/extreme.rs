//! Extremes and their places, norms and log-sum-exp.

use crate::cpu::lines_room;
use crate::cpu::magnitudes;
use crate::cpu::range;
use crate::cpu::reduce::{self, Kind, Post};
use crate::cpu::room::Room;
use crate::dims::MAX_NDIM;
use crate::ops::core::op::{Cast, F, FMO, O, OpDef, Plan, X, compose, kernel};
use crate::ops::f;
use crate::ops::reduce::rule::{Fold, Over, comparable, computable};
use crate::{DType, Result, Scalar, Tensor, bail, dtype, ensure, kernels, mode};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "max#dim",
        "(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        body!(|a| extremes(Over::one(a.input, a.dim, a.keepdim)?, true), anywhere: write_extremes, scratch: extremes_room),
        "The largest element along a dimension and its index.",
    ).apart(1)
    .samples("f32[3, 4], 0, True; b8[3, 4], 1")
    .grad("MaxBackward0 | self: _grad.value_selecting_reduction_backward(grad, dim, indices, self.sizes, keepdim)"),
    kernel(
        "min#dim",
        "(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        body!(|a| extremes(Over::one(a.input, a.dim, a.keepdim)?, false), anywhere: write_extremes, scratch: extremes_room),
        "The smallest element along a dimension and its index.",
    ).apart(1)
    .samples("f64[3, 4], 0; b8[3, 4], 1; f64[3, 4], 0, True")
    .grad("MinBackward0 | self: _grad.value_selecting_reduction_backward(grad, dim, indices, self.sizes, keepdim)"),
    kernel(
        "aminmax",
        "(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)",
        FMO | X,
        body!(range, anywhere: write_range, scratch: range_room),
        "The smallest and the largest element.",
    ).samples("f32[3, 4], dim=0; f32[3, 4], dim=0, keepdim=True")
    .grad("self: _grad.aminmax(self, grads[0], grads[1], min, max, dim, keepdim)"),
    kernel(
        "argmax",
        "(Tensor self, int? dim=None, bool keepdim=False)",
        FMO | X,
        body!(|a| place(a.input, a.dim, a.keepdim, true), anywhere: write_place, scratch: place_room),
        "The index of the largest element.",
    ).samples("f32[3, 4]; f32[3, 4], dim=0, keepdim=True")
    .no_grad(),
    kernel(
        "argmin",
        "(Tensor self, int? dim=None, bool keepdim=False)",
        FMO | X,
        body!(|a| place(a.input, a.dim, a.keepdim, false), anywhere: write_place, scratch: place_room),
        "The index of the smallest element.",
    ).samples("f32[3, 4]; f32[3, 4], dim=0, keepdim=True")
    .no_grad(),
    kernel(
        "linalg.vector_norm",
        "(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)",
        F | O | X,
        body!(norm, anywhere: write_norm, scratch: norm_room),
        "The norm of the elements over dimensions as vectors.",
    ).samples("f32[3, 4], ord=6; c64[3, 4], ord=6; f32[3, 4], ord=-2.1, dim=0, keepdim=True")
    .grad("self: None if ord == 0 else _grad.vector_norm(grad, self, ord, result, dim, keepdim); jvp: _grad.vector_norm_tangent(self_t, self, ord, result, dim, keepdim)")
    .amp(Cast::Kept, Cast::Result),
    compose(
        "norm",
        "(Tensor self, Scalar? p, int[1]? dim=None, bool keepdim=False, dtype? dtype=None)",
        FMO | X,
        |a| {
            vector_norm(
                a.input,
                a.p.unwrap_or(Scalar::Int(2)),
                a.dim,
                a.keepdim,
                a.dtype,
            )
        },
        "The norm of the elements over dimensions as vectors.",
    ).samples("f32[3, 4], 2; c64[3, 4], -inf; f32[3, 4], 2, 0, True")
    .amp(Cast::Kept, Cast::Result),
    compose(
        "norm#str",
        "(Tensor self, str? p='fro', int[1]? dim=None, bool keepdim=False, dtype? dtype=None)",
        FMO | X,
        |a| match a.p {
            None | Some("fro") if a.dim.is_none_or(|d| d.len() <= 2) => vector_norm(a.input, Scalar::Int(2), a.dim, a.keepdim, a.dtype),
            word => {
                let word = word.unwrap_or("fro");
                let all: Vec<i64> = (0..a.input.ndim() as i64).collect();
                f::LinalgMatrixNormStr::new(a.input)
                    .ord(word)
                    .dim(a.dim.unwrap_or(&all))
                    .keepdim(a.keepdim)
                    .dtype(a.dtype)
                    .call()
            }
        },
        "The Frobenius or nuclear norm.",
    ).samples("f32[3, 4]; c64[3, 4]; f32[2, 3, 4], 'nuc', [1, 2]")
    .amp(Cast::Kept, Cast::Result),
    kernel(
        "logsumexp",
        "(Tensor self, int[1] dim, bool keepdim=False)",
        FMO,
        body!(logsumexp, anywhere: |_, over, outs| {
            kernels::scan::logsumexp(&outs[0], over.input, &over.dims)
        }, scratch: |_, over, outs, room| lines_room::logsumexp(room, &outs[0], over.input, &over.dims)),
        "The logarithm of the sum of exponentials over dimensions.",
    ).samples("f32[3, 4], (0,), True; b8[3, 4], (1,), False")
    .grad("self: _grad.logsumexp(grad, self, result, dim, keepdim); jvp: _grad.logsumexp_tangent(self_t, self, dim, keepdim)")
    .amp(Cast::Kept, Cast::Single),
    compose(
        "nanmean",
        "(Tensor self, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)",
        FMO,
        nanmean,
        "The mean over dimensions without NaN.",
    ).samples("f32[3, 4]; f32[3, 4], dim=0, keepdim=True"),
];

/// Rule of extremes with their places; finds whether they are the largest.
fn extremes(over: Over, max: bool) -> Result<(Plan, (Over, bool))> {
    let (name, kernel) = if max {
        ("max", "max_cpu")
    } else {
        ("min", "min_cpu")
    };
    let d = over.input.dtype();
    over.not_empty(name)?;
    ensure!(
        !d.is_complex(),
        Runtime,
        "{name}(): does not support complex input"
    );
    comparable(kernel, d)?;
    Ok((over.pair(d, DType::I64), (over, max)))
}

fn write_extremes<A>(_: &A, (over, max): &(Over, bool), outs: &[Tensor]) -> Result<()> {
    kernels::arg_extreme(Some(&outs[0]), &outs[1], over.input, &over.dims, *max)
}

fn extremes_room<A>(_: &A, (over, _): &(Over, bool), o: &[Tensor], room: &mut Room) -> Result<()> {
    lines_room::arg_extreme(room, Some(&o[0]), &o[1], over.input, &over.dims)
}

fn range<'a>(a: &calls::Aminmax<'a>) -> Result<(Plan, Over<'a>)> {
    let (t, d) = (a.input, a.input.dtype());
    ensure!(
        t.ndim() <= MAX_NDIM,
        Runtime,
        "only tensors with up to {MAX_NDIM} dims are supported"
    );
    let over = Over::optional(a.input, a.dim, a.keepdim)?;
    match a.dim {
        Some(_) => {
            let at = over.dims[0];
            ensure!(
                t.shape().get(at).is_none_or(|&n| n > 0),
                Index,
                "aminmax: Expected reduction dim {at} to have non-zero size."
            );
        }
        None => ensure!(
            t.numel() > 0,
            Runtime,
            "aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity."
        ),
    }
    comparable("aminmax_cpu", d)?;
    Ok((over.pair(d, d), over))
}

fn write_range<A>(_: &A, over: &Over, outs: &[Tensor]) -> Result<()> {
    kernels::range(outs, over.input, &over.dims)
}

fn range_room<A>(_: &A, over: &Over, _: &[Tensor], room: &mut Room) -> Result<()> {
    range::room(room, over.input, &over.dims)
}

/// Rule of `argmax` and `argmin`; finds whether it is the largest.
fn place(
    t: &Tensor,
    dim: Option<i64>,
    keepdim: bool,
    max: bool,
) -> Result<(Plan, (Over<'_>, bool))> {
    let (name, kernel) = if max {
        ("argmax", "argmax_cpu")
    } else {
        ("argmin", "argmin_cpu")
    };
    ensure!(
        !t.dtype().is_complex(),
        Runtime,
        "{name}(): does not support complex input"
    );
    ensure!(
        t.dtype() != DType::Bool,
        Runtime,
        "{name}(): does not support bool input"
    );
    let over = Over::optional(t, dim, keepdim)?;
    if dim.is_some() {
        over.not_empty(name)?;
    } else {
        ensure!(
            t.numel() > 0,
            Index,
            "{name}(): Expected reduction dim to be specified for input.numel() == 0."
        );
    }
    comparable(kernel, t.dtype())?;
    Ok((over.plan(DType::I64), (over, max)))
}

fn write_place<A>(_: &A, (over, max): &(Over, bool), outs: &[Tensor]) -> Result<()> {
    kernels::arg_extreme(None, &outs[0], over.input, &over.dims, *max)
}

fn place_room<A>(_: &A, (over, _): &(Over, bool), outs: &[Tensor], room: &mut Room) -> Result<()> {
    lines_room::arg_extreme(room, None, &outs[0], over.input, &over.dims)
}

fn norm<'a>(a: &calls::LinalgVectorNorm<'a>) -> Result<(Plan, Fold<'a>)> {
    let (t, d) = (a.input, a.input.dtype());
    ensure!(
        d.is_float() || d.is_complex(),
        Runtime,
        "linalg.vector_norm: Expected a floating point or complex tensor as input. Got {}",
        d.scalar_type()
    );
    ensure!(
        !matches!(a.ord, Scalar::Complex(_)),
        Runtime,
        "linalg.vector_norm: Expected a non-complex scalar as the order of norm."
    );
    let p = a.ord.to_f64();
    let over = Over::list(t, a.dim, a.keepdim)?;
    if (p < 0.0 || p == f64::INFINITY) && t.numel() == 0 {
        has_identity(&over, a.dim, p)?;
    }
    if let Some(to) = a.dtype {
        takes_norm("linalg.vector_norm", d, to)?;
    }
    d.check_kernel(!d.is_storage_only() || d == DType::C32, "norm_cpu")?;
    let (kind, post) = match fold_of(p) {
        // A magnitude is not rounded, nor does its square overflow.
        (kind, _) if kind != Kind::NonZero && over.count() == 1 => (Kind::AbsMax, Post::None),
        fold => fold,
    };
    let plan = over.plan(a.dtype.unwrap_or(d).to_real());
    let read_as = a.dtype.map(DType::to_real);
    Ok((
        plan,
        Fold {
            over,
            read_as,
            kind,
            p,
            post,
        },
    ))
}

/// Norms that are extremes have no value for nothing.
fn has_identity(over: &Over, given: Option<&[i64]>, p: f64) -> Result<()> {
    ensure!(
        given.is_some_and(|d| !d.is_empty()),
        Runtime,
        "linalg.vector_norm cannot compute the {p} norm on an empty tensor because the operation does not have an identity"
    );
    for &d in &over.dims {
        ensure!(
            over.input.shape().get(d).is_none_or(|&n| n > 0),
            Runtime,
            "linalg.vector_norm cannot compute the {p} norm on the dimension {d}because this dimension is empty and the operation does not have an identity"
        );
    }
    Ok(())
}

/// Whether a norm of `d` may be asked for in `to`.
pub(crate) fn takes_norm(name: &str, d: DType, to: DType) -> Result<()> {
    ensure!(
        to.is_float() || to.is_complex(),
        Runtime,
        "{name}: dtype should be floating point or complex, but got {}",
        to.scalar_type()
    );
    if to.is_complex() != d.is_complex() {
        let kind = if d.is_complex() { "complex" } else { "real" };
        bail!(
            Runtime,
            "{name}: dtype should be {kind} for {kind} inputs, but got {}",
            to.scalar_type()
        );
    }
    ensure!(
        dtype::promote(d, to) == Some(to),
        Runtime,
        "{name}: the dtype of the input ({}) should be convertible without narrowing to the specified dtype ({})",
        d.scalar_type(),
        to.scalar_type()
    );
    Ok(())
}

/// The fold of the `p`-norm.
fn fold_of(p: f64) -> (Kind, Post) {
    if p == 2.0 {
        (Kind::SqSum, Post::Sqrt)
    } else if p == 1.0 {
        (Kind::AbsSum, Post::None)
    } else if p == 0.0 {
        (Kind::NonZero, Post::None)
    } else if p == f64::INFINITY {
        (Kind::AbsMax, Post::None)
    } else if p == f64::NEG_INFINITY {
        (Kind::AbsMin, Post::None)
    } else {
        (Kind::PowSum, Post::Pow(1.0 / p))
    }
}

/// The wider type that real elements are folded in.
fn widened(fold: &Fold, real: &Tensor) -> Option<DType> {
    let size = real.dtype().size();
    fold.read_as.filter(|to| to.size() > size && size >= 4)
}

fn write_norm<A>(_: &A, fold: &Fold, outs: &[Tensor]) -> Result<()> {
    let t = fold.over.input;
    let mut real = if t.dtype().is_complex() {
        kernels::magnitudes(t)?
    } else {
        t.clone()
    };
    if let Some(to) = widened(fold, &real) {
        real = kernels::converted(&real, to)?;
    }
    fold.run(&outs[0], &real)
}

fn norm_room<A>(_: &A, fold: &Fold, _: &[Tensor], room: &mut Room) -> Result<()> {
    let t = fold.over.input;
    let real = room.keep(|room| {
        let real = if t.dtype().is_complex() {
            magnitudes::room(room, t)?
        } else {
            t.clone()
        };
        match widened(fold, &real) {
            Some(to) => room.converted(&real, to),
            None => Ok(real),
        }
    })?;
    reduce::fold_room(room, fold.kind, &real)
}

fn vector_norm(
    t: &Tensor,
    p: Scalar,
    dim: Option<&[i64]>,
    keepdim: bool,
    dtype: Option<DType>,
) -> Result<Tensor> {
    f::LinalgVectorNorm::new(t)
        .ord(p)
        .dim(dim)
        .keepdim(keepdim)
        .dtype(dtype)
        .call()
}

fn logsumexp<'a>(a: &calls::Logsumexp<'a>) -> Result<(Plan, Over<'a>)> {
    let d = a.input.dtype();
    let d = if d.is_integral(true) {
        mode::default_dtype()
    } else {
        d
    };
    d.check_kernel(d != DType::C32, "exp_vml_cpu")?;
    computable("max_values_cpu", d)?;
    let over = Over::list(a.input, a.dim, a.keepdim)?;
    Ok((over.plan(d), over))
}

fn nanmean(a: &calls::Nanmean) -> Result<Tensor> {
    let t = a.input;
    ensure!(
        t.dtype().is_float() || t.dtype().is_complex(),
        Runtime,
        "nanmean(): expected input to have floating point or complex dtype but got {}",
        t.dtype().scalar_type()
    );
    if let Some(d) = a.dtype.filter(|d| d.is_integral(true)) {
        bail!(
            Runtime,
            "nanmean(): could not infer output dtype. Optional dtype must be either a floating point or complex dtype. Got: {}",
            d.scalar_type()
        );
    }
    let sum = f::Nansum::new(t)
        .dim(a.dim)
        .keepdim(a.keepdim)
        .dtype(a.dtype)
        .call()?;
    let there = f::eq(t, t)?;
    let count = f::SumDim::new(&there, a.dim).keepdim(a.keepdim).call()?;
    f::div(&sum, &count)
}
