//! Searching sorted sequences.

use crate::cpu::room::Room;
use crate::ops::core::op::{F, O, OpDef, Plan, X, kernel};
use crate::ops::core::typed::Operand;
use crate::ops::pointwise::rule::result_type;
use crate::ops::reduce::rule::comparable;
use crate::{DType, Dims, Result, Tensor, bail, cpu, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "searchsorted",
        "(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None)",
        F | O | X,
        body!(
            |a| searched(
                a.sorted_sequence,
                a.input.into(),
                a.sorter,
                side(a.right, a.side)?,
                a.out_int32
            ),
            search,
            cuda: search_beside,
            scratch: search_room
        ),
        "Where elements would be put into sorted lists.",
    ).samples(
        "f32[10], f32[10], side='left'; \
         f32[10], f32[10], out_int32=True, side='right', sorter=i64[10].below(10)",
    )
    .no_grad(),
    kernel(
        "searchsorted#scalar",
        "(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None)",
        F | O | X,
        body!(
            |a| searched(
                a.sorted_sequence,
                a.input.into(),
                a.sorter,
                side(a.right, a.side)?,
                a.out_int32
            ),
            search,
            cuda: search_beside,
            scratch: search_room
        ),
        "Where a number would be put into a sorted list.",
    ).samples("bf16[20], -1.6016, out_int32=True, side='right', sorter=i64[20].below(20)")
    .no_grad(),
    kernel(
        "bucketize",
        "(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False)",
        F | O | X,
        body!(
            |a| bucketized(a.input.into(), a.boundaries, a.right, a.out_int32),
            search,
            cuda: search_beside,
            scratch: search_room
        ),
        "The bucket between boundaries that each element falls in.",
    ).samples("f32[3, 4], f32([-1, 0, 1]); f32[5], f32([0, 1]), out_int32=True, right=True")
    .no_grad(),
    kernel(
        "bucketize#scalar",
        "(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False)",
        F | O | X,
        body!(
            |a| bucketized(a.input.into(), a.boundaries, a.right, a.out_int32),
            search,
            cuda: search_beside,
            scratch: search_room
        ),
        "The bucket between boundaries that a number falls in.",
    ).samples("2, f32([1, 2, 3]); 0.5, i64([0, 1]), right=True")
    .no_grad(),
];

/// A search for values between edges.
struct Search<'a> {
    edges: &'a Tensor,
    values: Operand<'a>,
    /// Where the edges are in order, if they are not themselves.
    sorter: Option<&'a Tensor>,
    /// Whether values come after equal edges.
    right: bool,
    /// The type that edges and values are compared in.
    compared: DType,
}

/// Whether the right side is meant.
fn side(right: bool, side: Option<&str>) -> Result<bool> {
    match side {
        None => Ok(right),
        Some("left") => {
            ensure!(
                !right,
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

/// Says that tensors are copied because their elements do not lie one after the other.
fn warn_of_copies(edges: &Tensor, values: Operand, sorter: Option<&Tensor>) {
    if values.tensor().is_some_and(|t| !t.is_contiguous()) {
        crate::warn_once!(
            "torch.searchsorted(): input value tensor is non-contiguous, this will lower the performance due to extra data copy when converting non-contiguous tensor to contiguous, please use contiguous input value tensor if possible. This message will only appear once per program."
        );
    }
    if !edges.is_contiguous() {
        crate::warn_once!(
            "torch.searchsorted(): boundary tensor is non-contiguous, this will lower the performance due to extra data copy when converting non-contiguous tensor to contiguous, please use contiguous boundary tensor if possible. This message will only appear once per program."
        );
    }
    if sorter.is_some_and(|t| !t.is_contiguous()) {
        crate::warn_once!(
            "torch.searchsorted(): sorter tensor is non-contiguous, this will lower the performance due to extra data copy when converting non-contiguous tensor to contiguous, please use contiguous sorter tensor if possible. This message will only appear once per program."
        );
    }
}

fn searched<'a>(
    edges: &'a Tensor,
    values: Operand<'a>,
    sorter: Option<&'a Tensor>,
    right: bool,
    narrow: bool,
) -> Result<(Plan, Search<'a>)> {
    if let Some(s) = sorter {
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
    }
    warn_of_copies(edges, values, sorter);
    let shape = shape_of(values);
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
    let search = Search {
        edges,
        values,
        sorter,
        right,
        compared: compared(edges, values)?,
    };
    Ok((places(&shape, narrow), search))
}

fn bucketized<'a>(
    values: Operand<'a>,
    edges: &'a Tensor,
    right: bool,
    narrow: bool,
) -> Result<(Plan, Search<'a>)> {
    ensure!(
        edges.ndim() == 1,
        Runtime,
        "boundaries tensor must be 1 dimension, but got dim({})",
        edges.ndim()
    );
    let search = Search {
        edges,
        values,
        sorter: None,
        right,
        compared: compared(edges, values)?,
    };
    Ok((places(&shape_of(values), narrow), search))
}

pub(in crate::ops) fn shape_of(values: Operand) -> Dims {
    values.tensor().map_or(Dims::EMPTY, |t| t.shape().clone())
}

fn places(shape: &Dims, narrow: bool) -> Plan {
    Plan::contiguous(shape, if narrow { DType::I32 } else { DType::I64 })
}

/// The type that edges and values are compared in.
fn compared(edges: &Tensor, values: Operand) -> Result<DType> {
    let d = match values {
        Operand::Tensor(t) if t.dtype() == edges.dtype() => t.dtype(),
        other => result_type(&[edges.into(), other.into()])?,
    };
    for d in [edges.dtype(), d] {
        d.check_kernel(d != DType::Bool, "searchsorted_out_cpu")?;
        comparable("searchsorted_out_cpu", d)?;
    }
    Ok(wide(d))
}

/// The widest type of a kind.
pub(in crate::ops) fn wide(d: DType) -> DType {
    if d.is_integral(true) {
        DType::I64
    } else if d == DType::F64 {
        d
    } else {
        DType::F32
    }
}

/// A dense tensor with the values.
pub(in crate::ops) fn as_tensor(values: Operand, d: DType) -> Result<Tensor> {
    match values {
        Operand::Tensor(t) => cpu::copy::dense(t, d),
        Operand::Scalar(s) => Tensor::scalar(s, d),
    }
}

/// As [`search`], on a device beside the host, where places in a sorter are checked with the search.
fn search_beside<A>(_: &A, s: &Search, outs: &[Tensor]) -> Result<()> {
    let edges = kernels::converted(s.edges, s.compared)?;
    let values = match s.values {
        Operand::Tensor(t) => kernels::converted(t, s.compared)?,
        Operand::Scalar(n) => kernels::number(n, &edges)?,
    };
    let sorter = s
        .sorter
        .map(|t| kernels::converted(t, DType::I64))
        .transpose()?;
    kernels::sort::search(&outs[0], &edges, &values, sorter.as_ref(), s.right)
}

fn search_room<A>(_: &A, s: &Search, outs: &[Tensor], room: &mut Room) -> Result<()> {
    room.dense(s.edges, s.compared)?;
    match s.values {
        Operand::Tensor(t) => room.dense(t, s.compared).map(drop)?,
        Operand::Scalar(_) => room.elements(1, s.compared)?,
    }
    room.all_dense([s.sorter, Some(&outs[0])], DType::I64)
}

fn search<A>(_: &A, s: &Search, outs: &[Tensor]) -> Result<()> {
    let n = s.edges.shape().last().copied().unwrap_or(0) as usize;
    let edges = cpu::copy::dense(s.edges, s.compared)?;
    let values = as_tensor(s.values, s.compared)?;
    let sorter = s
        .sorter
        .map(|t| cpu::copy::dense(t, DType::I64))
        .transpose()?;
    let sorter = sorter.as_ref().map(cpu::slice::<i64>);
    ensure!(
        sorter.is_none_or(|s| s.iter().all(|&i| (0..n as i64).contains(&i))),
        Runtime,
        "torch.searchsorted(): sorter index out of range"
    );
    let to = cpu::lines::results(&outs[0], DType::I64)?;
    // Values of one line share a line of edges.
    let per_line = if s.edges.ndim() == 1 {
        usize::MAX
    } else {
        values.shape().last().copied().unwrap_or(1).max(1) as usize
    };
    macro_rules! go {
        ($t:ty) => {{
            let (e, x) = (cpu::slice::<$t>(&edges), cpu::slice::<$t>(&values));
            let to = cpu::slice_mut::<i64>(&to);
            cpu::search::search_all((e, n), sorter, (x, per_line), s.right, to);
        }};
    }
    match s.compared {
        DType::I64 => go!(i64),
        DType::F64 => go!(f64),
        _ => go!(f32),
    }
    cpu::lines::put(&outs[0], &to)
}
