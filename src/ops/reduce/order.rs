//! Order statistics: medians, k-th values, quantiles.

use crate::cpu::lines_room;
use crate::cpu::room::Room;
use crate::cpu::select::{self, Pick};
use crate::dims::{contiguous_strides, wrap_dim};
use crate::ops::batch;
use crate::ops::core::op::{Batch, Cast, FM, FMO, Hidden, OpDef, Plan, Ret, X, kernel};
use crate::ops::core::typed::{self, Operand};
use crate::ops::f;
use crate::ops::reduce::rule::{Over, comparable};
use crate::{DType, Result, Tensor, cpu, ensure};
use torchlike_macros::operators;

macro_rules! ask {
    ($a:ident, $skip:expr) => {
        Ask {
            input: $a.input,
            q: $a.q.into(),
            dim: $a.dim,
            keepdim: $a.keepdim,
            how: $a.interpolation,
            skip: $skip,
        }
    };
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "median",
        "(Tensor self)",
        FM,
        body!(|a| of_all(a.input, Pick::Median), choose, scratch: choose_room),
        "The lower median of all elements.",
    )
    .samples("f16[3, 4]")
    .grad("self: _grad.extreme_of_all(grad, self, result)")
    .batch(Batch::As(typed!(|a, h| batch::first(f::MedianDim::new(&batch::flat(a.input, h)?, -1).call()), Hidden))),
    kernel(
        "median#dim",
        "(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        body!(
            |a| along(Over::one(a.input, a.dim, a.keepdim)?, Pick::Median),
            choose, scratch: choose_room
        ),
        "The lower median along a dimension and its index.",
    )
    .samples("f32[3, 4], dim=-1; f32[3, 4], dim=0, keepdim=True")
    .grad("MedianBackward1 | self: _grad.value_selecting_reduction_backward(grad, dim, indices, self.sizes, keepdim)"),
    kernel(
        "nanmedian",
        "(Tensor self)",
        FM,
        body!(|a| of_all(a.input, Pick::NanMedian), choose, scratch: choose_room),
        "The lower median of all elements but NaN.",
    )
    .samples("f32[3, 4]")
    .grad("self: _grad.extreme_of_all(grad, self, result)")
    .batch(Batch::As(typed!(|a, h| batch::first(f::NanmedianDim::new(&batch::flat(a.input, h)?, -1).call()), Hidden))),
    kernel(
        "nanmedian#dim",
        "(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        body!(
            |a| along(Over::one(a.input, a.dim, a.keepdim)?, Pick::NanMedian),
            choose, scratch: choose_room
        ),
        "The lower median without NaN along a dimension and its index.",
    )
    .samples("f32[3, 4], dim=0, keepdim=True")
    .grad("NanmedianBackward1 | self: _grad.value_selecting_reduction_backward(grad, dim, indices, self.sizes, keepdim)"),
    kernel(
        "mode",
        "(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        body!(
            |a| along(Over::one(a.input, a.dim, a.keepdim)?, Pick::Mode),
            choose, scratch: choose_room
        ),
        "The most frequent element along a dimension and an index of it.",
    )
    .apart(1)
    .samples("f32[3, 4]; f32[3, 4], 0, True")
    .grad("self: _grad.value_selecting_reduction_backward(grad, dim, indices, self.sizes, keepdim)"),
    kernel(
        "kthvalue",
        "(Tensor self, int k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        body!(kth, choose, scratch: choose_room),
        "The k-th smallest element along a dimension and its index.",
    )
    .apart(1)
    .samples("f32[3, 4], 1; i64[3, 4], 2, -1, True; f32[3, 4], 2, 0, True")
    .grad("self: _grad.value_selecting_reduction_backward(grad, dim, indices, self.sizes, keepdim)"),
    kernel(
        "quantile",
        "(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str interpolation='linear')",
        FMO | X,
        body!(|a| ask!(a, false).plan(), quantile, scratch: quantile_room),
        "Quantiles of all elements or along a dimension.",
    )
    .samples("f64[3, 2, 1, 2].unit, f64[2].unit, dim=2, keepdim=True, interpolation='midpoint'")
    .through(typed!(|a: &calls::Quantile| ask!(a, false).composed()))
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "quantile#scalar",
        "(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation='linear')",
        FMO | X,
        body!(|a| ask!(a, false).plan(), quantile, scratch: quantile_room),
        "A quantile of all elements or along a dimension.",
    )
    .samples("f32[3, 4], 0.5; f32[3, 4], 0.5, dim=0, keepdim=True, interpolation='midpoint'")
    .through(typed!(|a: &calls::QuantileScalar| ask!(a, false).composed()))
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "nanquantile",
        "(Tensor self, Tensor q, int? dim=None, bool keepdim=False, *, str interpolation='linear')",
        FMO | X,
        body!(|a| ask!(a, true).plan(), quantile, scratch: quantile_room),
        "Quantiles without NaN.",
    )
    .samples("f32[3, 4], f32([0.25, 0.5]), 1; f64[5], f64(0.4)")
    .through(typed!(|a: &calls::Nanquantile| ask!(a, true).composed()))
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "nanquantile#scalar",
        "(Tensor self, float q, int? dim=None, bool keepdim=False, *, str interpolation='linear')",
        FMO | X,
        body!(|a| ask!(a, true).plan(), quantile, scratch: quantile_room),
        "A quantile without NaN.",
    )
    .samples("f32[3, 4], 0.5; f32[3, 4], 0.5, dim=0, keepdim=True")
    .through(typed!(|a: &calls::NanquantileScalar| ask!(a, true).composed()))
    .amp(Cast::Single, Cast::Kept),
];

/// Which element is looked for, and among which.
struct Choice<'a> {
    over: Over<'a>,
    what: Pick,
}

fn ordered(kernel: &str, d: DType) -> Result<()> {
    d.check_kernel(d != DType::Bool, kernel)?;
    comparable(kernel, d)
}

/// Rule of medians of all elements.
fn of_all(t: &Tensor, what: Pick) -> Result<(Plan, Choice<'_>)> {
    ordered("median_cpu", t.dtype())?;
    let over = Over::all(t)?;
    Ok((over.plan(t.dtype()), Choice { over, what }))
}

/// Rule of elements along a dimension with their places.
fn along(over: Over, what: Pick) -> Result<(Plan, Choice)> {
    let d = over.input.dtype();
    match what {
        Pick::Mode => {
            over.not_empty("mode")?;
            comparable("mode_cpu", d)?;
        }
        Pick::Kth(_) => {
            over.not_empty("kthvalue")?;
            ordered("kthvalue_cpu", d)?;
        }
        Pick::Median | Pick::NanMedian => {
            over.not_empty("median")?;
            ordered("median_out", d)?;
        }
    }
    Ok((over.pair(d, DType::I64), Choice { over, what }))
}

fn kth<'a>(a: &calls::Kthvalue<'a>) -> Result<(Plan, Choice<'a>)> {
    let over = Over::one(a.input, a.dim, a.keepdim)?;
    over.not_empty("kthvalue")?;
    ensure!(
        a.k >= 1 && a.k <= over.count(),
        Runtime,
        "kthvalue(): selected number k out of range for dimension {}",
        over.dims[0]
    );
    along(over, Pick::Kth(a.k as usize))
}

fn choose<A>(_: &A, choice: &Choice, outs: &[Tensor]) -> Result<()> {
    let over = &choice.over;
    if outs[0].numel() == 0 {
        return Ok(());
    }
    select::choose(&outs[0], outs.get(1), over.input, &over.dims, choice.what)
}

fn choose_room<A>(_: &A, choice: &Choice, outs: &[Tensor], room: &mut Room) -> Result<()> {
    if outs[0].numel() == 0 {
        return Ok(());
    }
    lines_room::choose(
        room,
        outs,
        choice.over.input,
        &choice.over.dims,
        choice.what,
    )
}

/// What quantiles are asked for.
struct Ask<'a> {
    input: &'a Tensor,
    q: Operand<'a>,
    dim: Option<i64>,
    keepdim: bool,
    how: &'a str,
    /// Whether NaN is left out.
    skip: bool,
}

/// The quantiles to compute.
struct Quantiles<'a> {
    over: Over<'a>,
    q: Operand<'a>,
    how: &'a str,
    skip: bool,
}

impl<'a> Ask<'a> {
    fn plan(self) -> Result<(Plan, Quantiles<'a>)> {
        let (t, d, how) = (self.input, self.input.dtype(), self.how);
        ensure!(
            t.numel() > 0,
            Runtime,
            "quantile() input tensor must be non-empty"
        );
        ensure!(
            matches!(d, DType::F32 | DType::F64),
            Runtime,
            "quantile() input tensor must be either float or double dtype"
        );
        self.check_q()?;
        ensure!(
            matches!(how, "linear" | "lower" | "higher" | "midpoint" | "nearest"),
            Runtime,
            "quantile() interpolation must be one of linear, lower, higher, midpoint or nearest, but got {how}"
        );
        let over = Over::optional(t, self.dim, self.keepdim)?;
        let plan = match self.q.tensor() {
            Some(q) if q.ndim() == 1 => {
                // Computed with the quantiles last and moved to the front.
                let (kept, n) = (over.shape(), q.numel());
                let strides = contiguous_strides(&kept.concat(&[n]));
                let k = strides.len() - 1;
                let strides = strides.removed(k).inserted(0, strides[k]);
                Plan::one(kept.inserted(0, n), strides, d)
            }
            _ => over.plan(d),
        };
        let found = Quantiles {
            over,
            q: self.q,
            how,
            skip: self.skip,
        };
        Ok((plan, found))
    }

    /// The quantiles as operators that have gradients.
    fn composed(self) -> Result<Ret> {
        let (t, skip, how) = (self.input, self.skip, self.how);
        let q = match self.q {
            Operand::Tensor(q) => q.clone(),
            Operand::Scalar(q) => f::new_full(t, &[], q)?,
        };
        let line = self.lines()?;
        let last = line.shape()[line.ndim() - 1] - 1;
        let nan = f::isnan(&line)?;
        let ranks = if skip {
            let count = f::SumDim::new(&f::logical_not(&nan)?, &[-1][..])
                .keepdim(true)
                .call()?;
            let ranks = f::mul(&q, &f::sub(&count, 1i64)?)?;
            f::masked_fill(&ranks, &f::lt(&ranks, 0i64)?, 0i64)?
        } else {
            let any = f::AnyDim::new(&nan, -1).keepdim(true).call()?;
            let ranks = f::broadcast_tensors(&[f::_mul_number(&q, last)?, any][..])?;
            f::masked_fill(&ranks[0], &ranks[1], last)?
        };
        let found = between(&line, &ranks, how)?;
        if q.ndim() == 0 {
            return typed::changed(&f::SqueezeDim::new(&found, -1).args()?).map(Ret::One);
        }
        let found = typed::changed(&f::Unsqueeze::new(&found, 0).args()?)?;
        let found = typed::changed(&f::Transpose::new(&found, 0, -1).args()?)?;
        typed::changed(&f::SqueezeDim::new(&found, -1).args()?).map(Ret::One)
    }

    /// The elements in order along the last dimension, the others as in the result; with all checks.
    fn lines(self) -> Result<Tensor> {
        let (t, dim) = (self.input, self.dim);
        let (_, found) = self.plan()?;
        let dim = dim.map(|d| wrap_dim(d, t.ndim())).transpose()?;
        let [sorted, _] = match dim {
            None => f::sort(&f::flatten(t)?)?,
            Some(d) if d + 1 == t.ndim() => f::sort(t)?,
            Some(d) => f::sort(&f::transpose(&f::unsqueeze(t, -1)?, d as i64, -1)?)?,
        };
        f::view(&sorted, &found.over.shape().concat(&[-1]))
    }

    fn check_q(&self) -> Result<()> {
        match self.q {
            Operand::Tensor(q) => {
                ensure!(
                    q.ndim() <= 1,
                    Runtime,
                    "quantile() q must be a scalar or 1D tensor"
                );
                ensure!(
                    q.dtype() == self.input.dtype(),
                    Runtime,
                    "quantile() q tensor must be same dtype as the input tensor"
                );
            }
            Operand::Scalar(q) => {
                let q = q.to_f64();
                ensure!(
                    (0.0..=1.0).contains(&q),
                    Runtime,
                    "quantile() q must be in the range [0, 1] but got {q}"
                );
            }
        }
        Ok(())
    }
}

/// What lies at ranks that may be between two elements.
fn between(line: &Tensor, ranks: &Tensor, how: &str) -> Result<Tensor> {
    let ranks = &match how {
        "lower" => f::floor(ranks)?,
        "higher" => f::ceil(ranks)?,
        "nearest" => f::round(ranks)?,
        _ => ranks.clone(),
    };
    let below = f::to_dtype(ranks, DType::I64)?;
    let low = f::gather(line, -1, &below)?;
    let weights = match how {
        "linear" => f::sub(ranks, &below)?,
        "midpoint" => f::full_like(ranks, 0.5)?,
        _ => return Ok(low),
    };
    let above = f::to_dtype(&f::ceil(ranks)?, DType::I64)?;
    f::lerp(&low, &f::gather(line, -1, &above)?, &weights)
}

fn quantile<A>(_: &A, found: &Quantiles, outs: &[Tensor]) -> Result<()> {
    let (t, dims) = (found.over.input, &found.over.dims);
    let q = match found.q {
        Operand::Tensor(q) => {
            let values = cpu::copy::dense(q, DType::F64)?;
            ensure!(
                cpu::slice::<f64>(&values)
                    .iter()
                    .all(|x| (0.0..=1.0).contains(x)),
                Runtime,
                "quantile() q values must be in the range [0, 1]"
            );
            cpu::copy::dense(q, t.dtype())?
        }
        Operand::Scalar(q) => Tensor::scalar(q, t.dtype())?,
    };
    cpu::quantile::quantile(&outs[0], t, &q, dims, found.how, found.skip)
}

fn quantile_room<A>(_: &A, found: &Quantiles, outs: &[Tensor], room: &mut Room) -> Result<()> {
    let (t, dims) = (found.over.input, &found.over.dims);
    let several = match found.q {
        Operand::Tensor(q) => {
            room.within(|room| {
                room.dense(q, DType::F64)?;
                room.dense(q, t.dtype()).map(drop)
            })?;
            room.dense(q, t.dtype())?.ndim() == 1
        }
        Operand::Scalar(_) => {
            room.elements(1, t.dtype())?;
            false
        }
    };
    lines_room::quantile(room, &outs[0], t, several, dims)
}
