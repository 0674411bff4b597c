//! Searching sorted sequences.

use crate::ops::core::args::{Arg, Args};
use crate::ops::core::op::{F, KernelBody, O, OpDef, Plan, X, kernel};
use crate::ops::pointwise::rule::result_type;
use crate::ops::reduce::sums::comparable;
use crate::{DType, Dims, Result, Scalar, Tensor, bail, cpu, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
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
];

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
            return Err(d.no_kernel("searchsorted_out_cpu"));
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

pub(in crate::ops) fn as_tensor(v: &Arg, d: DType) -> Result<Tensor> {
    match v {
        Arg::Tensor(t) => cpu::copy::dense(t, d),
        other => Tensor::scalar(
            crate::ops::pointwise::rule::scalar_of(other).unwrap_or(Scalar::Int(0)),
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
