//! Sorting, the best few, distinct elements, places in sorted lists, histograms.

use super::args::{Arg, Args};
use super::op::{F, FM, FMO, KernelBody, O, OpDef, Plan, Ret, X, compose, kernel};
use super::pointwise::result_type;
use super::reduce::{comparable, unknown};
use crate::dims::{contiguous_strides, preserved_strides, wrap_dim};
use crate::{DType, Device, Dims, Result, Scalar, Tensor, bail, cpu, ensure, run};
use smallvec::SmallVec;

/// The family's rows.
pub static OPS: &[OpDef] = &[
    kernel(
        "sort",
        "(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        KernelBody::new(|a| infer_sort(a, 1), |a, o| sort_cpu(a, o, 1)),
        "The elements along a dimension in order, and where they were.",
    ),
    kernel(
        "sort#stable",
        "(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
        FMO | X,
        KernelBody::new(|a| infer_sort(a, 2), |a, o| sort_cpu(a, o, 2)),
        "The elements along a dimension in order, and where they were.",
    ),
    compose(
        "argsort",
        "(Tensor self, int dim=-1, bool descending=False)",
        FM,
        |a| second(run!("sort", a.tensor(0)?, a.int(1)?, a.bool(2))?),
        "The indices that sort a dimension.",
    ),
    compose(
        "argsort#stable",
        "(Tensor self, *, bool stable, int dim=-1, bool descending=False)",
        FMO | X,
        |a| second(run!("sort", a.tensor(0)?, a.int(2)?, a.bool(3))?),
        "The indices that sort a dimension.",
    ),
    compose(
        "msort",
        "(Tensor self)",
        FMO | X,
        |a| {
            Ok(run!("sort", a.tensor(0)?, 0i64)?
                .tensors()
                .swap_remove(0)
                .into())
        },
        "The elements along the first dimension in order.",
    ),
    kernel(
        "topk",
        "(Tensor self, int k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)",
        FMO | X,
        KernelBody::new(infer_topk, topk_cpu),
        "The k largest or smallest elements along a dimension.",
    ),
    compose(
        "unique",
        "(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False, int? dim=None)",
        FM,
        |a| unique(a, false, a.bool(2), a.bool(3), a.opt_int(4)),
        "The distinct elements, in order.",
    ),
    compose(
        "unique_consecutive",
        "(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None)",
        FM,
        |a| unique(a, true, a.bool(1), a.bool(2), a.opt_int(3)),
        "The elements without repetitions of their neighbours.",
    ),
    kernel(
        "searchsorted",
        "(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None)",
        F | O | X,
        KernelBody::new(infer_search, search_cpu),
        "Where elements would be put into sorted lists.",
    ),
    kernel(
        "searchsorted#scalar",
        "(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None)",
        F | O | X,
        KernelBody::new(infer_search, search_cpu),
        "Where a number would be put into a sorted list.",
    ),
    kernel(
        "bucketize",
        "(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False)",
        F | O | X,
        KernelBody::new(infer_bucketize, bucketize_cpu),
        "The bucket between boundaries that each element falls in.",
    ),
    kernel(
        "bucketize#scalar",
        "(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False)",
        F | O | X,
        KernelBody::new(infer_bucketize, bucketize_cpu),
        "The bucket between boundaries that a number falls in.",
    ),
    kernel(
        "histc",
        "(Tensor self, int bins=100, Scalar min=0, Scalar max=0)",
        FMO | X,
        KernelBody::new(infer_histc, histc_cpu),
        "How many elements fall in each of equal bins.",
    ),
    kernel(
        "histogram",
        "(Tensor self, Tensor bins, *, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor bin_edges)",
        FMO,
        KernelBody::new(infer_histogram, histogram_cpu),
        "How many elements fall between edges.",
    ),
    kernel(
        "histogram#count",
        "(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor bin_edges)",
        FMO,
        KernelBody::new(infer_histogram, histogram_cpu),
        "How many elements fall in each of equal bins, and their edges.",
    ),
    kernel(
        "bincount",
        "(Tensor self, Tensor? weights=None, int minlength=0)",
        FM,
        KernelBody::new(infer_bincount, bincount_cpu).data_dependent(),
        "How often each non-negative integer occurs.",
    ),
    kernel(
        "isin",
        "(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False)",
        F | O,
        KernelBody::new(infer_isin, isin_cpu),
        "True where an element is among the test elements.",
    ),
    kernel(
        "isin#element",
        "(Scalar element, Tensor test_elements, *, bool assume_unique=False, bool invert=False)",
        F | O,
        KernelBody::new(infer_isin, isin_cpu),
        "Whether a number is among the test elements.",
    ),
    kernel(
        "isin#test",
        "(Tensor elements, Scalar test_element, *, bool assume_unique=False, bool invert=False)",
        F | O,
        KernelBody::new(infer_isin, isin_cpu),
        "True where an element is the test element.",
    ),
];

fn second(r: Ret) -> Result<Ret> {
    Ok(r.tensors().swap_remove(1).into())
}

fn infer_sort(a: &Args, at: usize) -> Result<Plan> {
    let t = a.tensor(0)?;
    wrap_dim(a.int(at)?, t.ndim())?;
    ensure!(
        !t.dtype().is_complex(),
        Runtime,
        " Sort does not support complex dtypes on CPU"
    );
    if t.dtype().is_storage_only() {
        return Err(unknown("sorting_kernel_method_name", t.dtype()));
    }
    let strides = preserved_strides(t.shape(), t.strides());
    let mut plan = Plan::one(t.shape().clone(), strides.clone(), t.dtype());
    plan.outs
        .extend(Plan::one(t.shape().clone(), strides, DType::I64).outs);
    Ok(plan)
}

fn sort_cpu(a: &Args, outs: &[Tensor], at: usize) -> Result<()> {
    let t = a.tensor(0)?;
    cpu::sort::sort(
        &outs[0],
        &outs[1],
        t,
        wrap_dim(a.int(at)?, t.ndim())?,
        a.bool(at + 1),
    )
}

fn infer_topk(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let (k, d) = (a.int(1)?, wrap_dim(a.int(2)?, t.ndim())?);
    let n = t.shape().get(d).copied().unwrap_or(1);
    ensure!(k >= 0 && k <= n, Runtime, "selected index k out of range");
    ensure!(
        !t.dtype().is_complex(),
        Runtime,
        " topk does not support complex dtypes on CPU"
    );
    ensure!(
        t.dtype() != DType::Bool,
        Runtime,
        "topk does not support bool dtypes on CPU"
    );
    comparable("topk_cpu", t.dtype())?;
    let shape = if t.ndim() == 0 {
        Dims::EMPTY
    } else {
        t.shape().with(d, k)
    };
    Ok(Plan::many(&[(&shape, t.dtype()), (&shape, DType::I64)]))
}

fn topk_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    cpu::sort::topk(
        &outs[0],
        &outs[1],
        t,
        wrap_dim(a.int(2)?, t.ndim())?,
        a.int(1)? as usize,
        a.bool(3),
    )
}

/// Distinct elements or slices; how many there are depends on values, so this reads them.
fn unique(
    a: &Args,
    consecutive: bool,
    inverse: bool,
    counts: bool,
    dim: Option<i64>,
) -> Result<Ret> {
    let t = a.tensor(0)?;
    if t.dtype().is_complex() || t.dtype().is_storage_only() {
        return Err(unknown(
            if dim.is_some() {
                "unique_dim"
            } else {
                "unique"
            },
            t.dtype(),
        ));
    }
    let d = match dim {
        Some(d) => {
            ensure!(
                t.ndim() > 0,
                Index,
                "Dimension specified as {d} but tensor has no dimensions"
            );
            let d = wrap_dim(d, t.ndim())?;
            let empty = t.shape().iter().enumerate().any(|(i, &n)| n == 0 && i != d);
            ensure!(
                !empty || t.shape()[d] == 0,
                Runtime,
                "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied"
            );
            Some(d)
        }
        None => None,
    };
    if t.is_meta() && t.storage().source().is_none() {
        let name = a.name();
        bail!(
            NotImplemented,
            "{name}(): the shape of the result depends on the values of its input, and meta tensors have none. \
             Call {name}() on real data, or materialize() the input first."
        );
    }
    let device = t.device();
    let real = super::call::readable(t, "unique() cannot be called on meta tensors")?;
    let real = super::call::resolve(&real)?;
    let (moved, back): (Tensor, Option<SmallVec<[usize; 8]>>) = match d {
        Some(d) => {
            let order: SmallVec<[usize; 8]> = std::iter::once(d)
                .chain((0..t.ndim()).filter(|&i| i != d))
                .collect();
            let mut back: SmallVec<[usize; 8]> = SmallVec::from_elem(0, order.len());
            order
                .iter()
                .enumerate()
                .for_each(|(to, &from)| back[from] = to);
            (real.permuted(&order), Some(back))
        }
        None => (real.clone(), None),
    };
    let dense = cpu::copy::dense(&moved, t.dtype())?;
    let n = if d.is_some() {
        dense.shape()[0]
    } else {
        dense.numel()
    };
    let width = if n == 0 { 1 } else { dense.numel() / n };
    let rows = dense.view_with(
        Dims::from([n, width]),
        contiguous_strides(&[n, width]),
        dense.offset(),
    );
    let groups = cpu::sort::unique(&rows, consecutive)?;
    let shape = if d.is_some() {
        dense.shape().with(0, groups.first.len() as i64)
    } else {
        Dims::from([groups.first.len() as i64])
    };
    let values = Tensor::empty(&shape, t.dtype(), Device::CPU)?;
    for (k, &i) in groups.first.iter().enumerate() {
        let (to, from) = (
            values_row(&values, k as i64, width),
            values_row(&rows, i, width),
        );
        cpu::copy::copy(&to, &from)?;
    }
    let values = if let Some(back) = back {
        values.permuted(&back)
    } else {
        values
    };
    let mut outs = vec![values];
    if inverse {
        let shape = if d.is_some() {
            Dims::from([n])
        } else {
            t.shape().clone()
        };
        outs.push(Tensor::from_slice(&groups.inverse, &shape)?);
    }
    if counts {
        outs.push(Tensor::from_slice(
            &groups.counts,
            &[groups.counts.len() as i64],
        )?);
    }
    if !device.is_cpu() && !device.is_meta() {
        outs = outs
            .iter()
            .map(|t| t.to_device(device))
            .collect::<Result<_>>()?;
    }
    Ok(if outs.len() == 1 {
        Ret::One(outs.remove(0))
    } else {
        Ret::Tuple(outs)
    })
}

/// `width` elements of a dense tensor from row `k` on.
fn values_row(t: &Tensor, k: i64, width: i64) -> Tensor {
    t.view_with(Dims::from([width]), Dims::from([1]), t.offset() + k * width)
}

fn side_is_right(a: &Args) -> Result<bool> {
    match a.str(4) {
        None => Ok(a.bool(3)),
        Some("left") => {
            ensure!(
                !a.bool(3),
                Runtime,
                "torch.searchsorted(): side and right can't be set to opposites, got side of left while right was True"
            );
            Ok(false)
        }
        Some("right") => Ok(true),
        Some(other) => bail!(
            Runtime,
            "torch.searchsorted(): side can only be 'left' or 'right' but got {other}"
        ),
    }
}

fn infer_search(a: &Args) -> Result<Plan> {
    let edges = a.tensor(0)?;
    side_is_right(a)?;
    if let Some(s) = a.opt_tensor(5) {
        ensure!(
            s.shape() == edges.shape(),
            Runtime,
            "torch.searchsorted(): boundary and sorter must have the same size, but got boundary tensor {}and got sorter tensor {}",
            edges.shape(),
            s.shape()
        );
        ensure!(
            s.dtype() == DType::I64,
            Runtime,
            "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype {}",
            s.dtype().scalar_type()
        );
        if s.device().is_cpu() && s.numel() > 0 {
            let s = cpu::copy::dense(s, DType::I64)?;
            let n = edges.shape().last().copied().unwrap_or(1);
            ensure!(
                cpu::slice::<i64>(&s).iter().all(|i| (0..n).contains(i)),
                Runtime,
                "torch.searchsorted(): sorter index out of range"
            );
        }
    }
    let shape = a.opt_tensor(1).map_or(Dims::EMPTY, |t| t.shape().clone());
    let numel: i64 = shape.iter().product();
    ensure!(
        edges.ndim() == 1 || !shape.is_empty(),
        Runtime,
        "torch.searchsorted(): input value can be a scalar only when boundaries tensor dimension is 1, but we got boundaries tensor dim({}) and input value's dim({}) numel({numel})",
        edges.ndim(),
        shape.len()
    );
    ensure!(
        edges.ndim() != 0,
        Runtime,
        "torch.searchsorted(): boundaries tensor should have positive dimension, but got 0 dimension"
    );
    let lead = edges.ndim() - 1;
    ensure!(
        edges.ndim() == 1 || edges.ndim() == shape.len() && edges.shape()[..lead] == shape[..lead],
        Runtime,
        "torch.searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input value tensor must match, but we got boundaries tensor {} and input value tensor {shape}",
        edges.shape()
    );
    search_type(edges, &a.values[1])?;
    Ok(Plan::contiguous(
        &shape,
        if a.bool(2) { DType::I32 } else { DType::I64 },
    ))
}

/// The type that edges and values are compared in.
fn search_type(edges: &Tensor, values: &Arg) -> Result<DType> {
    let d = match values {
        Arg::Tensor(t) if t.dtype() == edges.dtype() => t.dtype(),
        other => result_type(&[Arg::Tensor(edges), other.clone()])?,
    };
    for d in [edges.dtype(), d] {
        if d == DType::Bool {
            return Err(unknown("searchsorted_out_cpu", d));
        }
        comparable("searchsorted_out_cpu", d)?;
    }
    Ok(if d.is_integral(true) {
        DType::I64
    } else if d == DType::F64 {
        d
    } else {
        DType::F32
    })
}

fn as_tensor(v: &Arg, d: DType) -> Result<Tensor> {
    match v {
        Arg::Tensor(t) => cpu::copy::dense(t, d),
        other => Tensor::scalar(
            super::pointwise::scalar_of(other).unwrap_or(Scalar::Int(0)),
            d,
        ),
    }
}

fn search_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    search_into(
        &outs[0],
        a.tensor(0)?,
        &a.values[1],
        side_is_right(a)?,
        a.opt_tensor(5),
    )
}

fn search_into(
    out: &Tensor,
    edges: &Tensor,
    values: &Arg,
    right: bool,
    sorter: Option<&Tensor>,
) -> Result<()> {
    let d = search_type(edges, values)?;
    let n = edges.shape().last().copied().unwrap_or(0) as usize;
    let (e, x) = (cpu::copy::dense(edges, d)?, as_tensor(values, d)?);
    let sorter = sorter
        .map(|s| cpu::copy::dense(s, DType::I64))
        .transpose()?;
    let to = cpu::lines::results(out, DType::I64)?;
    // Values of one line share a line of edges.
    let per_line = if edges.ndim() == 1 {
        usize::MAX
    } else {
        x.shape().last().copied().unwrap_or(1).max(1) as usize
    };
    macro_rules! go {
        ($t:ty) => {{
            let (e, x) = (cpu::slice::<$t>(&e), cpu::slice::<$t>(&x));
            let s = sorter.as_ref().map(|s| cpu::slice::<i64>(s));
            cpu::lines::for_each(x, 1, cpu::slice_mut::<i64>(&to), 1, |i, x, to| {
                let at = i / per_line * n;
                to[0] = cpu::sort::search(&e[at..at + n], s.map(|s| &s[at..at + n]), x[0], right);
            });
        }};
    }
    match d {
        DType::I64 => go!(i64),
        DType::F64 => go!(f64),
        _ => go!(f32),
    }
    cpu::lines::put(out, &to)
}

fn infer_bucketize(a: &Args) -> Result<Plan> {
    let edges = a.tensor(1)?;
    ensure!(
        edges.ndim() == 1,
        Runtime,
        "boundaries tensor must be 1 dimension, but got dim({})",
        edges.ndim()
    );
    search_type(edges, &a.values[0])?;
    let shape = a.opt_tensor(0).map_or(Dims::EMPTY, |t| t.shape().clone());
    Ok(Plan::contiguous(
        &shape,
        if a.bool(2) { DType::I32 } else { DType::I64 },
    ))
}

fn bucketize_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    search_into(&outs[0], a.tensor(1)?, &a.values[0], a.bool(3), None)
}

fn infer_histc(a: &Args) -> Result<Plan> {
    let (t, bins) = (a.tensor(0)?, a.int(1)?);
    let d = t.dtype();
    if d == DType::Bool {
        return Err(unknown("linspace_cpu", d));
    }
    comparable("aminmax_cpu", d)?;
    ensure!(
        bins > 0,
        Runtime,
        "torch.histogram(): bins must be > 0, but got {bins} for dimension 0"
    );
    if d.is_integral(true) {
        return Err(unknown("histogram_cpu", d));
    }
    ensure!(
        a.scalar(2)?.to_f64() <= a.scalar(3)?.to_f64(),
        Runtime,
        "torch.histc: max must be larger than min"
    );
    if t.device().is_cpu() {
        histogram_range(a)?;
    }
    Ok(Plan::contiguous(&[bins], d))
}

/// The outer edges: as given, or those of the data.
fn histogram_range(a: &Args) -> Result<(f64, f64)> {
    let t = a.tensor(0)?;
    let (mut lo, mut hi) = (a.scalar(2)?.to_f64(), a.scalar(3)?.to_f64());
    if lo == hi && t.numel() > 0 {
        let dims: Vec<usize> = (0..t.ndim()).collect();
        let edge = |kind| -> Result<f64> {
            let out = Tensor::empty(&[], DType::F64, Device::CPU)?;
            cpu::reduce::run_kind(kind, &out, t, &dims, 0.0, cpu::reduce::Post::None)?;
            Ok(cpu::read_scalar(&out, 0)?.to_f64())
        };
        (lo, hi) = (edge(cpu::reduce::Kind::Min)?, edge(cpu::reduce::Kind::Max)?);
    }
    if !lo.is_finite() || !hi.is_finite() {
        let show = |x: f64| {
            if x.is_nan() {
                "nan".to_owned()
            } else {
                x.to_string()
            }
        };
        bail!(
            Runtime,
            "torch.histc: range of [{}, {}] is not finite",
            show(lo),
            show(hi)
        );
    }
    Ok(if lo == hi {
        (lo - 1.0, hi + 1.0)
    } else {
        (lo, hi)
    })
}

fn histc_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (t, bins) = (a.tensor(0)?, a.int(1)? as usize);
    let (lo, hi) = histogram_range(a)?;
    let mut counts = vec![0i64; bins];
    let mut count = |place: i64| counts[(place as usize).min(bins - 1)] += 1;
    if t.dtype() == DType::F64 {
        for &x in cpu::slice::<f64>(&cpu::copy::dense(t, DType::F64)?) {
            if x >= lo && x <= hi {
                count(((x - lo) * bins as f64 / (hi - lo)) as i64);
            }
        }
    } else {
        let (lo, hi) = (lo as f32, hi as f32);
        for &x in cpu::slice::<f32>(&cpu::copy::dense(t, DType::F32)?) {
            if x >= lo && x <= hi {
                count(((x - lo) * bins as f32 / (hi - lo)) as i64);
            }
        }
    }
    cpu::copy::copy(&outs[0], &Tensor::from_slice(&counts, &[bins as i64])?)
}

fn infer_histogram(a: &Args) -> Result<Plan> {
    let t = a.tensor(0)?;
    let bins = match a.opt_tensor(1) {
        Some(edges) => {
            ensure!(
                edges.ndim() == 1,
                Runtime,
                "torch.histogramdd: bins tensor should have one dimension, but got {} dimensions in the bins tensor for dimension 0",
                edges.ndim()
            );
            ensure!(
                edges.dtype() == t.dtype(),
                Runtime,
                "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype {} and bins for dimension 0 with dtype {}",
                t.dtype().cpp_name(),
                edges.dtype().cpp_name()
            );
            ensure!(
                edges.numel() > 0,
                Runtime,
                "torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in the bins tensor for dimension 0"
            );
            edges.numel() - 1
        }
        None => {
            let bins = a.int(1)?;
            ensure!(
                bins > 0,
                Runtime,
                "torch.histogram(): bins must be > 0, but got {bins} for dimension 0"
            );
            bins
        }
    };
    if !matches!(t.dtype(), DType::F32 | DType::F64) {
        return Err(unknown("histogramdd", t.dtype()));
    }
    if let Some(w) = weights_of(a) {
        ensure!(
            w.shape() == t.shape(),
            Runtime,
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor excluding its innermost dimension, but got input with shape {} and weight with shape {}",
            t.shape().concat(&[1]),
            w.shape()
        );
    }
    if a.opt_tensor(1).is_none() && t.device().is_cpu() {
        outer_edges(a)?;
    }
    Ok(Plan::many(&[
        (&[bins], t.dtype()),
        (&[bins + 1], t.dtype()),
    ]))
}

fn weights_of<'a>(a: &Args<'a>) -> Option<&'a Tensor> {
    a.op.schema.position("weight").and_then(|i| a.opt_tensor(i))
}

/// The range of a histogram by count: as given, that of the data, or 0 to 1 for no data.
fn outer_edges(a: &Args) -> Result<(f64, f64)> {
    let t = a.tensor(0)?;
    let (lo, hi) = match a.opt_floats(2) {
        Some([lo, hi]) => (*lo, *hi),
        Some(_) => bail!(
            Runtime,
            "torch.histogramdd: for a 1-dimensional histogram range should have 2 elements"
        ),
        None if t.numel() == 0 => (0.0, 1.0),
        None => {
            let t = cpu::copy::dense(t, DType::F64)?;
            cpu::slice::<f64>(&t)
                .iter()
                .fold((f64::INFINITY, f64::NEG_INFINITY), |(lo, hi), &x| {
                    if x.is_nan() || lo.is_nan() {
                        (f64::NAN, f64::NAN)
                    } else {
                        (lo.min(x), hi.max(x))
                    }
                })
        }
    };
    let show = |x: f64| {
        if x.is_nan() {
            "nan".to_owned()
        } else {
            x.to_string()
        }
    };
    ensure!(
        lo.is_finite() && hi.is_finite(),
        Runtime,
        "torch.histogramdd: dimension 0's range [{}, {}] is not finite",
        show(lo),
        show(hi)
    );
    ensure!(
        lo <= hi,
        Runtime,
        "torch.histogramdd: min should not exceed max, but got min {lo} max {hi} for dimension 0"
    );
    Ok(if lo == hi {
        (lo - 0.5, hi + 0.5)
    } else {
        (lo, hi)
    })
}

fn histogram_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = a.tensor(0)?;
    let single = t.dtype() == DType::F32;
    let bins = outs[0].numel() as usize;
    let edges: Vec<f64> = match a.opt_tensor(1) {
        Some(e) => cpu::slice::<f64>(&cpu::copy::dense(e, DType::F64)?).to_vec(),
        None => {
            let (lo, hi) = outer_edges(a)?;
            let at = |i: usize| -> f64 {
                // From the nearer end, as linspace does it.
                if single {
                    let (lo, hi) = (lo as f32, hi as f32);
                    let step = (hi - lo) / bins as f32;
                    f64::from(if i < bins.div_ceil(2) {
                        lo + step * i as f32
                    } else {
                        hi - step * (bins - i) as f32
                    })
                } else {
                    let step = (hi - lo) / bins as f64;
                    if i < bins.div_ceil(2) {
                        lo + step * i as f64
                    } else {
                        hi - step * (bins - i) as f64
                    }
                }
            };
            (0..=bins).map(at).collect()
        }
    };
    let x = cpu::copy::dense(t, DType::F64)?;
    let weights = weights_of(a)
        .map(|w| cpu::copy::dense(w, DType::F64))
        .transpose()?;
    let weights = weights.as_ref().map(cpu::slice::<f64>);
    let mut sums = vec![0f64; bins];
    for (i, &x) in cpu::slice::<f64>(&x).iter().enumerate() {
        if bins > 0 && x >= edges[0] && x <= edges[bins] {
            let place = (cpu::sort::search(&edges, None, x, true) as usize - 1).min(bins - 1);
            sums[place] += weights.map_or(1.0, |w| w[i]);
        }
    }
    if a.op.schema.position("density").is_some_and(|i| a.bool(i)) {
        let total: f64 = sums.iter().sum();
        sums.iter_mut()
            .zip(edges.windows(2))
            .for_each(|(s, e)| *s /= total * (e[1] - e[0]));
    }
    cpu::copy::copy(&outs[0], &Tensor::from_slice(&sums, &[bins as i64])?)?;
    cpu::copy::copy(&outs[1], &Tensor::from_slice(&edges, &[bins as i64 + 1])?)
}

fn infer_bincount(a: &Args) -> Result<Plan> {
    let (t, least) = (a.tensor(0)?, a.int(2)?);
    if !t.dtype().is_integral(false)
        || matches!(t.dtype(), DType::U16 | DType::U32 | DType::U64)
        || t.dtype().is_storage_only()
    {
        return Err(unknown("bincount_cpu", t.dtype()));
    }
    ensure!(least >= 0, Runtime, "minlength should be >= 0");
    ensure!(
        t.ndim() == 1,
        Runtime,
        "bincount only supports 1-d non-negative integral inputs."
    );
    let weights = a.opt_tensor(1).filter(|_| t.numel() > 0);
    if let Some(w) = weights {
        ensure!(
            w.ndim() == 1 && w.numel() == t.numel(),
            Runtime,
            "weights should be 1-d and have the same length as input"
        );
    }
    let mut size = least;
    if t.device().is_cpu() && t.numel() > 0 {
        let t = cpu::copy::dense(t, DType::I64)?;
        let v = cpu::slice::<i64>(&t);
        let (lo, hi) = v
            .iter()
            .fold((0, 0), |(lo, hi): (i64, i64), &x| (lo.min(x), hi.max(x)));
        ensure!(
            lo >= 0,
            Runtime,
            "bincount only supports 1-d non-negative integral inputs."
        );
        let need = hi.checked_add(1).ok_or_else(|| {
            crate::err!(
                Runtime,
                "maximum value of input overflowed, it should be < {} but got {hi}",
                i64::MAX
            )
        })?;
        size = size.max(need);
    }
    let d = match weights.map(|w| w.dtype()) {
        None => DType::I64,
        Some(DType::F32) => DType::F32,
        Some(_) => DType::F64,
    };
    Ok(Plan::contiguous(&[size], d))
}

fn bincount_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let t = cpu::copy::dense(a.tensor(0)?, DType::I64)?;
    let places = cpu::slice::<i64>(&t);
    let size = outs[0].numel() as usize;
    match a.opt_tensor(1).filter(|_| t.numel() > 0) {
        None => {
            let mut counts = vec![0i64; size];
            places.iter().for_each(|&p| counts[p as usize] += 1);
            cpu::copy::copy(&outs[0], &Tensor::from_slice(&counts, &[size as i64])?)
        }
        Some(w) => {
            let w = cpu::copy::dense(w, DType::F64)?;
            let mut sums = vec![0f64; size];
            places
                .iter()
                .zip(cpu::slice::<f64>(&w))
                .for_each(|(&p, w)| sums[p as usize] += w);
            cpu::copy::copy(&outs[0], &Tensor::from_slice(&sums, &[size as i64])?)
        }
    }
}

fn infer_isin(a: &Args) -> Result<Plan> {
    for v in &a.values[..2] {
        let d = match v {
            Arg::Tensor(t) => t.dtype(),
            other => super::pointwise::scalar_of(other)
                .unwrap_or(Scalar::Int(0))
                .dtype(crate::mode::default_dtype()),
        };
        ensure!(
            !matches!(d, DType::Bool | DType::C64 | DType::C128),
            Runtime,
            "Unsupported input type encountered for isin(): {}",
            d.scalar_type()
        );
    }
    comparable("isin_default_cpu", result_type(&a.values[..2])?)?;
    Ok(Plan::contiguous(
        &a.opt_tensor(0).map_or(Dims::EMPTY, |t| t.shape().clone()),
        DType::Bool,
    ))
}

fn isin_cpu(a: &Args, outs: &[Tensor]) -> Result<()> {
    let common = result_type(&a.values[..2])?;
    let d = if common.is_integral(true) {
        DType::I64
    } else if common == DType::F64 {
        common
    } else {
        DType::F32
    };
    let (x, test) = (as_tensor(&a.values[0], d)?, as_tensor(&a.values[1], d)?);
    let to = cpu::lines::results(&outs[0], DType::Bool)?;
    let invert = a.bool(3);
    macro_rules! go {
        ($t:ty) => {{
            let mut test: Vec<$t> = cpu::slice::<$t>(&test).to_vec();
            test.sort_unstable_by(cpu::select::rank);
            cpu::lines::for_each(
                cpu::slice::<$t>(&x),
                1,
                cpu::slice_mut::<bool>(&to),
                1,
                |_, x, to| {
                    let at = cpu::sort::search(&test, None, x[0], false) as usize;
                    to[0] = test.get(at).is_some_and(|t| *t == x[0]) != invert;
                },
            );
        }};
    }
    match d {
        DType::I64 => go!(i64),
        DType::F64 => go!(f64),
        _ => go!(f32),
    }
    cpu::lines::put(&outs[0], &to)
}
