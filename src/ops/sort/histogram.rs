//! Counting: histograms, bins, membership.

use crate::ops::core::args::{Arg, Args};
use crate::ops::core::op::{F, FM, FMO, KernelBody, O, OpDef, Plan, X, kernel};
use crate::ops::pointwise::rule::result_type;
use crate::ops::reduce::sums::comparable;
use crate::ops::sort::search::as_tensor;
use crate::{DType, Device, Dims, Result, Scalar, Tensor, bail, cpu, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
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

fn infer_histc(a: &Args) -> Result<Plan> {
    let (t, bins) = (a.tensor(0)?, a.int(1)?);
    let d = t.dtype();
    if d == DType::Bool {
        return Err(d.no_kernel("linspace_cpu"));
    }
    comparable("aminmax_cpu", d)?;
    ensure!(
        bins > 0,
        Runtime,
        "torch.histogram(): bins must be > 0, but got {bins} for dimension 0"
    );
    if d.is_integral(true) {
        return Err(d.no_kernel("histogram_cpu"));
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
        return Err(t.dtype().no_kernel("histogramdd"));
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
        return Err(t.dtype().no_kernel("bincount_cpu"));
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
            other => crate::ops::pointwise::rule::scalar_of(other)
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
