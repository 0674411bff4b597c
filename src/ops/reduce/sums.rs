//! Reductions: sums, products, truth, counts.

use crate::cpu::reduce::{Kind, Post, bytes};
use crate::cpu::room::Room;
use crate::ops::batch;
use crate::ops::core::op::{Batch, Cast, D, FM, FMO, Hidden, OpDef, Plan, X, compose, kernel};
use crate::ops::core::rules::sum_dtype;
use crate::ops::f;
use crate::ops::reduce::rule::{Fold, Over, comparable, computable, fold, fold_room};
use crate::{DType, Result, Scalar, Tensor, bail, cpu, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "sum",
        "(Tensor self, *, dtype? dtype=None)",
        FM,
        body!(|a| sum(Over::all(a.input)?, a.dtype), anywhere: fold, scratch: fold_room),
        "The sum of all elements.",
    ).samples("f32[3, 4]; c64[3, 4]")
    .grad("self: grad.expand(self.sizes); jvp: linear")
    .batch(Batch::As(typed!(|a, h| batch::one(f::SumDim::new(&batch::flat(a.input, h)?, &[-1][..]).dtype(a.dtype).call()), Hidden)))
    .amp(Cast::Kept, Cast::Result),
    kernel(
        "sum#dim",
        "(Tensor self, int[1]? dim, bool keepdim=False, *, dtype? dtype=None)",
        FMO | D,
        body!(|a| sum(Over::list(a.input, a.dim, a.keepdim)?, a.dtype), anywhere: fold, scratch: fold_room),
        "The sum over dimensions.",
    ).samples("f32[3, 4], dim=-1; f32[3, 4], dim=0, keepdim=True")
    .grad("SumBackward1 | self: _grad.unreduce(grad, self.sizes, dim, keepdim); jvp: linear")
    .amp(Cast::Kept, Cast::Result),
    kernel(
        "mean",
        "(Tensor self, *, dtype? dtype=None)",
        FMO | D,
        body!(|a| mean(mean_type(a.input, a.dtype)?, Over::all(a.input)?), anywhere: fold, scratch: fold_room),
        "The mean of all elements.",
    ).samples("f64[3, 4]; c64[3, 4]")
    .grad("self: grad.expand(self.sizes) / self.numel; jvp: linear")
    .batch(Batch::As(typed!(|a, h| batch::one(f::MeanDim::new(&batch::flat(a.input, h)?, &[-1][..]).dtype(a.dtype).call()), Hidden))),
    kernel(
        "mean#dim",
        "(Tensor self, int[1]? dim, bool keepdim=False, *, dtype? dtype=None)",
        FMO | D,
        body!(
            |a| mean(mean_type(a.input, a.dtype)?, Over::list(a.input, a.dim, a.keepdim)?),
            anywhere: fold, scratch: fold_room
        ),
        "The mean over dimensions.",
    ).samples("f32[3, 4], dim=(); c64[3, 4], dim=-1; f32[2, 3, 4], dim=2, keepdim=True")
    .grad("MeanBackward1 | self: _grad.mean_dim(grad, self.sizes, dim, keepdim); jvp: linear"),
    kernel(
        "prod",
        "(Tensor self, *, dtype? dtype=None)",
        FM,
        body!(|a| product(Over::all(a.input)?, a.dtype), anywhere: fold, scratch: fold_room),
        "The product of all elements.",
    ).samples("f32[3, 4]; b8[3, 4]")
    .grad("self: _grad.prod(grad, self, result)")
    .batch(Batch::As(typed!(|a, h| batch::one(f::ProdDim::new(&batch::flat(a.input, h)?, -1).dtype(a.dtype).call()), Hidden)))
    .amp(Cast::Single, Cast::Result),
    kernel(
        "prod#dim",
        "(Tensor self, int dim, bool keepdim=False, *, dtype? dtype=None)",
        FMO | D,
        body!(|a| product(Over::one(a.input, a.dim, a.keepdim)?, a.dtype), anywhere: fold, scratch: fold_room),
        "The product over a dimension.",
    ).samples("f32[3, 4], 1; b8[3, 4], 1, dtype=b8; f32[3, 4], 0, keepdim=True")
    .grad("ProdBackward1 | self: _grad.prod_dim(grad, self, result, dim, keepdim)")
    .amp(Cast::Single, Cast::Result),
    kernel(
        "nansum",
        "(Tensor self, int[1]? dim=None, bool keepdim=False, *, dtype? dtype=None)",
        FMO | D,
        body!(|a| nan_sum(Over::list(a.input, a.dim, a.keepdim)?, a.dtype), anywhere: fold, scratch: fold_room),
        "The sum over dimensions, NaN counted as 0.",
    ).samples("f32[3, 4]; b8[3, 4], dim=0, keepdim=True; f32[3, 4], dim=0, keepdim=True")
    .grad("self: _grad.unreduce(grad, self.sizes, dim, keepdim) * self.isnan().logical_not()"),
    kernel(
        "amax",
        "(Tensor self, int[1] dim=[], bool keepdim=False)",
        FMO | X,
        body!(|a| extreme_over(Over::list(a.input, a.dim, a.keepdim)?, a.dim, Kind::Max), anywhere: fold, scratch: fold_room),
        "The largest element over dimensions.",
    ).samples("f32[3, 4]; b8[3, 4], dim=-1; f32[3, 4], dim=0, keepdim=True")
    .grad("self: _grad.extreme(grad, self, result, dim, keepdim)"),
    kernel(
        "amin",
        "(Tensor self, int[1] dim=[], bool keepdim=False)",
        FMO | X,
        body!(|a| extreme_over(Over::list(a.input, a.dim, a.keepdim)?, a.dim, Kind::Min), anywhere: fold, scratch: fold_room),
        "The smallest element over dimensions.",
    ).samples("f32[3, 4]; f32[3, 4], dim=0, keepdim=True")
    .grad("self: _grad.extreme(grad, self, result, dim, keepdim)"),
    kernel(
        "max",
        "(Tensor self)",
        FMO,
        body!(|a| extreme_of_all(Over::all(a.input)?, Kind::Max), anywhere: fold, scratch: fold_room),
        "The largest element.",
    ).samples("f32[3, 4]")
    .grad("MaxBackward1 | self: _grad.extreme_of_all(grad, self, result)")
    .batch(Batch::As(typed!(|a, h| batch::one(f::Amax::new(&batch::flat(a.input, h)?).dim(&[-1][..]).call()), Hidden))),
    compose(
        "max#other",
        "(Tensor self, Tensor other)",
        FMO,
        |a| f::maximum(a.input, a.other),
        "The larger of two elements; NaN if either is.",
    ).alike(0b11)
    .samples("f32[5], f32[()]"),
    kernel(
        "min",
        "(Tensor self)",
        FMO,
        body!(|a| extreme_of_all(Over::all(a.input)?, Kind::Min), anywhere: fold, scratch: fold_room),
        "The smallest element.",
    ).samples("f32[3, 4]; b8[3, 4]")
    .grad("MinBackward1 | self: _grad.extreme_of_all(grad, self, result)")
    .batch(Batch::As(typed!(|a, h| batch::one(f::Amin::new(&batch::flat(a.input, h)?).dim(&[-1][..]).call()), Hidden))),
    compose(
        "min#other",
        "(Tensor self, Tensor other)",
        FMO,
        |a| f::minimum(a.input, a.other),
        "The smaller of two elements; NaN if either is.",
    ).alike(0b11)
    .samples("f32[5], f32[()]"),
    kernel(
        "any",
        "(Tensor self)",
        FMO | X,
        body!(|a| Ok(truth(Over::all(a.input)?, Kind::Any)), truth_cpu, cuda: truth_cuda, scratch: truth_scratch),
        "True if any element is not zero.",
    ).samples("f32[3, 4]")
    .no_grad()
    .batch(Batch::As(typed!(|a, h| batch::one(f::AnyDim::new(&batch::flat(a.input, h)?, -1).call()), Hidden))),
    kernel(
        "any#dim",
        "(Tensor self, int dim, bool keepdim=False)",
        FMO | X,
        body!(|a| Ok(truth(Over::one(a.input, a.dim, a.keepdim)?, Kind::Any)), truth_cpu, cuda: truth_cuda, scratch: truth_scratch),
        "True where any element along a dimension is not zero.",
    ).samples("f32[3, 4], dim=-1; c64[3, 4], dim=-1; f32[3, 4], dim=0, keepdim=True")
    .no_grad(),
    kernel(
        "any#dims",
        "(Tensor self, int[]? dim=None, bool keepdim=False)",
        FMO | X,
        body!(|a| Ok(truth(given(a.input, a.dim, a.keepdim)?, Kind::Any)), truth_cpu, cuda: truth_cuda, scratch: truth_scratch),
        "True where any element over dimensions is not zero.",
    ).samples("f64[3, 2, 1, 2], dim=(1, 3); b8[3, 2, 1, 2], dim=(1, 3)")
    .no_grad(),
    compose(
        "_is_all_true",
        "(Tensor self)",
        FM,
        |a| {
            truths(a.input)?;
            f::all(a.input)
        },
        "True if all truth values are.",
    ).samples("b8[3, 4]")
    .batch(Batch::Together),
    compose(
        "_is_any_true",
        "(Tensor self)",
        FM,
        |a| {
            truths(a.input)?;
            f::any(a.input)
        },
        "True if a truth value is.",
    ).samples("b8[3, 4]")
    .batch(Batch::Together),
    kernel(
        "all",
        "(Tensor self)",
        FMO | X,
        body!(|a| Ok(truth(Over::all(a.input)?, Kind::All)), truth_cpu, cuda: truth_cuda, scratch: truth_scratch),
        "True if no element is zero.",
    ).samples("f32[3, 4]")
    .no_grad()
    .batch(Batch::As(typed!(|a, h| batch::one(f::AllDim::new(&batch::flat(a.input, h)?, -1).call()), Hidden))),
    kernel(
        "all#dim",
        "(Tensor self, int dim, bool keepdim=False)",
        FMO | X,
        body!(|a| Ok(truth(Over::one(a.input, a.dim, a.keepdim)?, Kind::All)), truth_cpu, cuda: truth_cuda, scratch: truth_scratch),
        "True where no element along a dimension is zero.",
    ).samples("f32[3, 4], dim=-1; c64[3, 4], dim=-1; f32[3, 4], dim=0, keepdim=True")
    .no_grad(),
    kernel(
        "all#dims",
        "(Tensor self, int[]? dim=None, bool keepdim=False)",
        FMO | X,
        body!(|a| Ok(truth(given(a.input, a.dim, a.keepdim)?, Kind::All)), truth_cpu, cuda: truth_cuda, scratch: truth_scratch),
        "True where no element over dimensions is zero.",
    ).samples("f64[3, 2, 1, 2], dim=(1, 3)")
    .no_grad(),
    kernel(
        "count_nonzero",
        "(Tensor self, int? dim=None)",
        FM,
        body!(count_along, anywhere: fold, scratch: fold_room),
        "How many elements are not zero.",
    ).samples("f32[3, 4]; b8[3, 4], dim=-1; f32[3, 4], dim=0")
    .no_grad(),
    kernel(
        "count_nonzero#dims",
        "(Tensor self, int[*] dim)",
        FM,
        body!(|a| Ok(count(Over::list(a.input, a.dim, false)?)), fold, cuda: fold, scratch: fold_room),
        "How many elements over dimensions are not zero.",
    ).samples("f32[3, 4], dim=(); b8[3, 2, 1, 2], dim=(1, 3)")
    .no_grad()
    .batch(Batch::As(typed!(|a, h| batch::count_nonzero(a.input, a.dim, h), Hidden))),
];

fn sum(over: Over, asked: Option<DType>) -> Result<(Plan, Fold)> {
    let dtype = sum_dtype(over.input.dtype(), asked);
    computable("sum_cpu", dtype)?;
    Ok(over.folded(Kind::Sum, dtype))
}

/// The type of means, which is asked for before dimensions are looked at.
fn mean_type(t: &Tensor, asked: Option<DType>) -> Result<DType> {
    let dtype = asked.unwrap_or(t.dtype());
    if dtype.is_integral(true) {
        let what = if asked.is_some() { "Optional" } else { "Input" };
        bail!(
            Runtime,
            "mean(): could not infer output dtype. {what} dtype must be either a floating point or complex dtype. Got: {}",
            dtype.scalar_type()
        );
    }
    Ok(dtype)
}

fn mean(dtype: DType, over: Over) -> Result<(Plan, Fold)> {
    computable("sum_cpu", dtype)?;
    let post = Post::Over(over.count() as f64);
    let (plan, fold) = over.folded(Kind::Sum, dtype);
    Ok((plan, Fold { post, ..fold }))
}

fn product(over: Over, asked: Option<DType>) -> Result<(Plan, Fold)> {
    let dtype = sum_dtype(over.input.dtype(), asked);
    computable("prod_out_cpu", dtype)?;
    Ok(over.folded(Kind::Prod, dtype))
}

fn nan_sum(over: Over, asked: Option<DType>) -> Result<(Plan, Fold)> {
    ensure!(
        !over.input.dtype().is_complex(),
        Runtime,
        "nansum on CPU does not support complex inputs"
    );
    let dtype = sum_dtype(over.input.dtype(), asked);
    dtype.check_kernel(!dtype.is_complex(), "nansum_cpu")?;
    computable("nansum_cpu", dtype)?;
    Ok(over.folded(Kind::NanSum, dtype))
}

/// Rule of `amax` and `amin`, with the dimensions as they were given.
fn extreme_over<'a>(over: Over<'a>, given: &[i64], kind: Kind) -> Result<(Plan, Fold<'a>)> {
    let (name, kernel) = match kind {
        Kind::Max => ("amax", "max_values_cpu"),
        _ => ("amin", "min_values_cpu"),
    };
    if over.input.numel() == 0 {
        if given.is_empty() {
            bail!(Runtime, "{}", nothing_to_choose(name));
        }
        over.not_empty(name)?;
    }
    extreme(over, kind, kernel)
}

/// Rule of `max` and `min` of all elements.
fn extreme_of_all(over: Over, kind: Kind) -> Result<(Plan, Fold)> {
    let (name, kernel) = match kind {
        Kind::Max => ("max", "max_all"),
        _ => ("min", "min_all"),
    };
    ensure!(
        over.input.numel() > 0,
        Runtime,
        "{}",
        nothing_to_choose(name)
    );
    extreme(over, kind, kernel)
}

fn nothing_to_choose(name: &str) -> String {
    format!(
        "{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' argument."
    )
}

fn extreme<'a>(over: Over<'a>, kind: Kind, kernel: &str) -> Result<(Plan, Fold<'a>)> {
    let dtype = over.input.dtype();
    comparable(kernel, dtype)?;
    Ok(over.folded(kind, dtype))
}

/// The dimensions of `any` and `all`: a given but empty list reduces nothing here, unlike elsewhere.
fn given<'a>(input: &'a Tensor, dims: Option<&[i64]>, keepdim: bool) -> Result<Over<'a>> {
    if dims.is_some_and(<[i64]>::is_empty) {
        return Ok(Over::nothing(input));
    }
    Over::list(input, dims, keepdim)
}

/// Rule of `any` and `all`: u8 stays, everything else gives bool.
fn truth(over: Over, kind: Kind) -> (Plan, Fold) {
    let dtype = match over.input.dtype() {
        DType::U8 => DType::U8,
        _ => DType::Bool,
    };
    over.folded(kind, dtype)
}

/// Refuses all but truth values.
fn truths(t: &Tensor) -> Result<()> {
    ensure!(
        t.dtype() == DType::Bool,
        Runtime,
        "Expected a tensor of truth values, but got {}",
        t.dtype().scalar_type()
    );
    Ok(())
}

fn truth_cpu<A>(_: &A, fold: &Fold, outs: &[Tensor]) -> Result<()> {
    let (out, input) = (&outs[0], fold.over.input);
    if input.numel() == 0 {
        return cpu::fill(out, Scalar::Bool(fold.kind == Kind::All));
    }
    fold.run(&bytes(out), input)
}

/// Complex numbers become truth values first.
fn truth_scratch<A>(_: &A, fold: &Fold, _: &[Tensor], room: &mut Room) -> Result<()> {
    let input = fold.over.input;
    if input.dtype().is_complex() && input.numel() > 0 {
        room.converted(input, DType::Bool)?;
    }
    Ok(())
}

/// The host has folds for truth itself; a GPU compares truth values.
fn truth_cuda<A>(_: &A, fold: &Fold, outs: &[Tensor]) -> Result<()> {
    let (out, input, all) = (&outs[0], fold.over.input, fold.kind == Kind::All);
    if input.numel() == 0 {
        return kernels::fill(out, Scalar::Bool(all));
    }
    let kind = if all { Kind::Min } else { Kind::Max };
    let dims = &fold.over.dims;
    if input.dtype() == DType::Bool {
        return kernels::fold(kind, &bytes(out), input, dims, 0.0, Post::None);
    }
    let truth = kernels::converted(input, DType::Bool)?;
    kernels::fold(kind, &bytes(out), &truth, dims, 0.0, Post::None)
}

fn count_along<'a>(a: &calls::CountNonzero<'a>) -> Result<(Plan, Fold<'a>)> {
    let d = a.input.dtype();
    let uncounted =
        matches!(d, DType::U16 | DType::U32 | DType::U64) || d.is_storage_only() && d != DType::C32;
    d.check_kernel(a.dim.is_some() || !uncounted, "nonzero_count_cpu")?;
    Ok(count(Over::optional(a.input, a.dim, false)?))
}

fn count(over: Over) -> (Plan, Fold) {
    let d = over.input.dtype();
    let as_it_is = d.is_integral(true) || d.is_float() && !d.is_storage_only();
    let read_as = (!as_it_is).then_some(DType::Bool);
    let (plan, fold) = over.folded(Kind::NonZero, DType::I64);
    (plan, Fold { read_as, ..fold })
}
