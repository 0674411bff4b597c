//! Reductions over segments of a dimension.

use crate::ops::core::helpers::{at_hand, beside};
use crate::ops::core::op::{F, OpDef, compose};
use crate::ops::core::rules;
use crate::ops::f;
use crate::{DType, Dims, Result, Tensor, bail, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "segment_reduce",
        "(Tensor data, str reduce, *, Tensor? lengths=None, Tensor? indices=None, Tensor? offsets=None, int axis=0, bool unsafe=False, Scalar? initial=None)",
        F,
        segment_reduce,
        "Sums, products, means or extremes of segments of a dimension, whose lengths or edges are given. An empty segment gives `initial`, or what nothing is for this `reduce`.",
    )
    .samples("f32[5], 'sum', lengths=i64([2, 0, 3]); f64[2, 4], 'mean', offsets=i64([[0, 1, 4], [0, 3, 4]]), axis=1, initial=0; f32[4, 2], 'max', lengths=i64([1, 3])")
    .grad("data: _grad._segment_reduce_backward(grad, result, data, reduce, lengths, offsets, axis, initial)"),
    compose(
        "_grad._segment_reduce_backward",
        "(Tensor grad, Tensor output, Tensor data, str reduce, Tensor? lengths, Tensor? offsets, int axis, Scalar? initial)",
        0,
        backward,
        "The gradient of segment_reduce.",
    )
    .samples("f32[2], f32[2], f32[5], 'mean', i64([2, 3]), None, 0, None; f32[2, 2], f32[2, 2], f32[4, 2], 'max', None, i64([0, 1, 4]), 0, 1")
    .refused(),
];

/// Which elements belong together.
struct Segments {
    /// How many elements each segment has.
    lengths: Tensor,
    /// The segment of each element; those behind the last have one of their own.
    place: Tensor,
    axis: usize,
}

impl Segments {
    fn of(
        data: &Tensor,
        lengths: Option<&Tensor>,
        offsets: Option<&Tensor>,
        axis: i64,
    ) -> Result<Self> {
        ensure!(
            data.ndim() > 0,
            Index,
            "Dimension specified as {axis} but tensor has no dimensions"
        );
        let axis = rules::dim(data, axis)?;
        let dim = axis as i64;
        let lengths = match (lengths, offsets) {
            (Some(lengths), _) => lengths.clone(),
            (None, Some(offsets)) => f::Diff::new(offsets).dim(dim).call()?,
            (None, None) => bail!(
                Runtime,
                "segment_reduce(): Either lengths or offsets must be defined."
            ),
        };
        ensure!(
            lengths.ndim() == axis + 1,
            Runtime,
            "segment_reduce(): Expected axis to be the last dimension of lengths but got {axis}."
        );
        let d = lengths.dtype();
        d.check_kernel(
            matches!(d, DType::I32 | DType::I64),
            "_segment_reduce_lengths_cpu_kernel1",
        )?;
        let lengths = f::to_dtype(&lengths, DType::I64)?;
        let line = f::Arange::new(data.shape()[axis])
            .dtype(DType::I64)
            .device(beside(data))
            .call()?;
        let spread = Dims::from(&lengths.shape()[..axis]).concat(&data.shape()[axis..=axis]);
        let line = f::expand(&line, &spread)?.contiguous()?;
        let segment = f::Searchsorted::new(&f::cumsum(&lengths, dim)?, &line)
            .right(true)
            .call()?;
        let place = f::expand(&widened(&segment, data, axis)?, data.shape())?;
        Ok(Self {
            lengths,
            place,
            axis,
        })
    }

    fn count(&self) -> i64 {
        self.lengths.shape()[self.axis]
    }

    /// One number for each segment, and one for the elements behind the last.
    fn starts(&self, data: &Tensor, start: f64) -> Result<Tensor> {
        let shape = data.shape().with(self.axis, self.count() + 1);
        f::new_full(data, &shape, start)
    }

    /// The segments' numbers, and that of the elements behind the last.
    fn followed(&self, values: &Tensor, last: &Tensor) -> Result<Tensor> {
        let dim = self.axis as i64;
        let last = f::narrow(last, dim, self.count(), 1)?;
        f::Cat::new(&[values, &last]).dim(dim).call()
    }

    /// The lengths beside results for this data.
    fn many(&self, data: &Tensor) -> Result<Tensor> {
        widened(&self.lengths, data, self.axis)
    }
}

/// Numbers along the first dimensions up to an axis, beside data of more.
fn widened(t: &Tensor, data: &Tensor, axis: usize) -> Result<Tensor> {
    let ones = Dims::filled(data.ndim() - axis - 1, 1);
    f::reshape(t, &t.shape().concat(&ones))
}

/// What a reduction is for scatter_reduce, and what it begins with.
fn fold(reduce: &str) -> Result<(&'static str, f64)> {
    Ok(match reduce {
        "sum" | "mean" => ("sum", 0.0),
        "prod" => ("prod", 1.0),
        "max" => ("amax", f64::NEG_INFINITY),
        "min" => ("amin", f64::INFINITY),
        other => bail!(
            Runtime,
            "reduce argument must be either sum, prod, mean, amax or amin, got {other}"
        ),
    })
}

/// Refuses lengths that do not fit, where their values are known.
fn check(a: &calls::SegmentReduce, segments: &Segments) -> Result<()> {
    let lengths = &segments.lengths;
    if a.r#unsafe || !at_hand(lengths) {
        return Ok(());
    }
    // Of all examples, where these differ.
    let any = |t: Tensor| Ok::<bool, crate::Error>(f::any(&t.whole())?.item()?.to_f64() != 0.0);
    ensure!(
        !any(f::lt(lengths, 0i64)?)?,
        Runtime,
        "lengths contains negative value!"
    );
    let sums = f::SumDim::new(lengths, &[segments.axis as i64][..]).call()?;
    let size = a.data.shape()[segments.axis];
    ensure!(
        a.offsets.is_some() || !any(f::ne(&sums, size)?)?,
        Runtime,
        "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe."
    );
    Ok(())
}

fn segment_reduce(a: &calls::SegmentReduce) -> Result<Tensor> {
    let (fold, nothing) = fold(a.reduce)?;
    ensure!(
        a.indices.is_none(),
        Runtime,
        "segment_reduce(): indices based reduction is not supported yet."
    );
    let segments = Segments::of(a.data, a.lengths, a.offsets, a.axis)?;
    check(a, &segments)?;
    let dim = segments.axis as i64;
    let start = segments.starts(a.data, a.initial.map_or(nothing, |v| v.to_f64()))?;
    let made = f::ScatterReduce::new(&start, dim, &segments.place, a.data, fold).call()?;
    let made = f::narrow(&made, dim, 0, segments.count())?;
    if a.reduce != "mean" {
        return made.contiguous();
    }
    let many = segments.many(a.data)?;
    let mean = f::div(&made, &f::clamp_min(&many, 1i64)?)?;
    let empty = a.initial.map_or(f64::NAN, |v| v.to_f64());
    f::where_(&f::gt(&many, 0i64)?, &mean, empty)?.contiguous()
}

fn backward(a: &calls::_GradSegmentReduceBackward) -> Result<Tensor> {
    let (fold, nothing) = fold(a.reduce)?;
    let segments = Segments::of(a.data, a.lengths, a.offsets, a.axis)?;
    let dim = segments.axis as i64;
    let start = segments.starts(a.data, a.initial.map_or(nothing, |v| v.to_f64()))?;
    let grad = if a.reduce == "mean" {
        f::div(a.grad, &f::clamp_min(&segments.many(a.data)?, 1i64)?)?
    } else {
        a.grad.clone()
    };
    let grad = segments.followed(&grad, &f::zeros_like(&start)?)?;
    let result = segments.followed(a.output, &start)?;
    let Lost {
        data,
        result,
        unknown,
    } = Lost::of(a.reduce, a.data, &result, dim, &segments.place)?;
    let made = f::_grad_scatter_reduce_src(
        &grad,
        &start,
        dim,
        &segments.place,
        &data,
        fold,
        true,
        &result,
    )?;
    match unknown {
        None => made.contiguous(),
        Some(unknown) => f::MaskedFill::new(&made, &unknown, f64::NAN)
            .call()?
            .contiguous(),
    }
}

/// Numbers in the place of those that are none, which no comparison or division finds.
struct Lost {
    data: Tensor,
    result: Tensor,
    /// Where the gradient is no number either.
    unknown: Option<Tensor>,
}

impl Lost {
    fn of(reduce: &str, data: &Tensor, result: &Tensor, dim: i64, place: &Tensor) -> Result<Self> {
        if !matches!(reduce, "max" | "min" | "prod") {
            return Ok(Self {
                data: data.clone(),
                result: result.clone(),
                unknown: None,
            });
        }
        let (gaps, lost) = (f::isnan(data)?, f::isnan(result)?);
        let beside = f::gather(&lost, dim, place)?;
        if reduce != "prod" {
            // What is no number is what its segment came to.
            let one_of = f::_ToCopy::new(&gaps).dtype(data.dtype()).call()?;
            return Ok(Self {
                data: f::where_(&beside, &one_of, data)?,
                result: f::MaskedFill::new(result, &lost, 1i64).call()?,
                unknown: None,
            });
        }
        // A factor that is no number has the product of the others, as zeros have, if it is the only one.
        let zeros = f::ZerosLike::new(result).dtype(DType::I64).call()?;
        let ones = f::_ToCopy::new(&gaps).dtype(DType::I64).call()?;
        let count = f::scatter_add(&zeros, dim, place, &ones)?;
        let only = f::eq(&f::gather(&count, dim, place)?, 1i64)?;
        let known = f::logical_and(&gaps, &only)?;
        Ok(Self {
            data: f::MaskedFill::new(data, &gaps, 0i64).call()?,
            result: f::MaskedFill::new(result, &lost, 0i64).call()?,
            unknown: Some(f::logical_and(&beside, &f::logical_not(&known)?)?),
        })
    }
}
