//! Counting: histograms, bins, membership.

use crate::cpu::histogram as counting;
use crate::cpu::room::Room;
use crate::ops::core::helpers;
use crate::ops::core::op::{Batch, F, FM, FMO, O, OpDef, Plan, X, kernel};
use crate::ops::core::typed::Operand;
use crate::ops::pointwise::rule::result_type;
use crate::ops::reduce::rule::comparable;
use crate::ops::sort::search::{as_tensor, shape_of, wide};
use crate::{DType, Dims, Result, Tensor, cpu, ensure, err, mode};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "histc",
        "(Tensor self, int bins=100, Scalar min=0, Scalar max=0)",
        FMO | X,
        body!(histc, write_histc, scratch: histc_room),
        "How many elements fall in each of equal bins.",
    ).samples("f32[3, 4]; f32[3, 4], bins=1, min=-10, max=10")
    .no_grad(),
    kernel(
        "histogram",
        "(Tensor self, Tensor bins, *, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor bin_edges)",
        FMO | X,
        body!(
            |a| histogram(a.input, edges_of(a.input, a.bins)?, a.weight, a.density),
            write_histogram, scratch: histogram_room
        ),
        "How many elements fall between edges.",
    ).alike(0b10)
    .samples("f32[5], f32[2]")
    .refused(),
    kernel(
        "histogram#count",
        "(Tensor self, int bins=100, *, float[]? range=None, Tensor? weight=None, bool density=False) -> (Tensor hist, Tensor bin_edges)",
        FMO | X,
        body!(
            |a| histogram(a.input, equal(a.bins, a.range)?, a.weight, a.density),
            write_histogram, scratch: histogram_room
        ),
        "How many elements fall in each of equal bins, and their edges.",
    ).samples("f32[3, 4], 2, density=True")
    .refused(),
    kernel(
        "bincount",
        "(Tensor self, Tensor? weights=None, int minlength=0)",
        FM,
        body!(bincount, |a, weights, outs| {
            let made = counting::occurrences(a.input, *weights, outs[0].numel() as usize)?;
            cpu::copy::copy(&outs[0], &made)
        })
        .data_dependent(),
        "How often each non-negative integer occurs.",
    ).samples("i8[4].below(10); i16[10].below(10), weights=i16[10], minlength=18")
    .refused()
    .batch(Batch::Each),
    kernel(
        "isin",
        "(Tensor elements, Tensor test_elements, *, bool assume_unique=False, bool invert=False)",
        F | O | X,
        body!(
            |a| isin(a.elements.into(), a.test_elements.into(), a.invert),
            write_isin, scratch: isin_room
        ),
        "True where an element is among the test elements.",
    ).samples("f64[20], f64[5]")
    .no_grad(),
    kernel(
        "isin#element",
        "(Scalar element, Tensor test_elements, *, bool assume_unique=False, bool invert=False)",
        F | O | X,
        body!(
            |a| isin(a.element.into(), a.test_elements.into(), a.invert),
            write_isin, scratch: isin_room
        ),
        "Whether a number is among the test elements.",
    ).samples("2, i64([1, 2, 3]); 0.5, f32([0.5, 1])")
    .no_grad(),
    kernel(
        "isin#test",
        "(Tensor elements, Scalar test_element, *, bool assume_unique=False, bool invert=False)",
        F | O | X,
        body!(
            |a| isin(a.elements.into(), a.test_element.into(), a.invert),
            write_isin, scratch: isin_room
        ),
        "True where an element is the test element.",
    ).samples("i64([1, 2, 3]), 2; f32([0.5, 1]), 0.5, invert=True")
    .no_grad(),
];

fn histc(a: &calls::Histc) -> Result<Plan> {
    let (t, bins, d) = (a.input, a.bins, a.input.dtype());
    // GPUs count integers, and shapes alone stand for them too.
    let counted = helpers::has_no_values(t);
    d.check_kernel(counted || d != DType::Bool, "linspace_cpu")?;
    comparable("aminmax_cpu", d)?;
    ensure!(
        bins > 0,
        Runtime,
        "torch.histogram(): bins must be > 0, but got {bins} for dimension 0"
    );
    let (min, max) = (a.min.to_f64(), a.max.to_f64());
    ensure!(
        min <= max || !min.is_finite() || !max.is_finite(),
        Runtime,
        "torch.histc: max must be larger than min"
    );
    d.check_kernel(counted || !d.is_integral(true), "histogram_cpu")?;
    Ok(Plan::contiguous(&[bins], t.dtype()))
}

fn write_histc(a: &calls::Histc, (): &(), outs: &[Tensor]) -> Result<()> {
    let (t, mut range) = (a.input, (a.min.to_f64(), a.max.to_f64()));
    if range.0 == range.1 && t.numel() > 0 {
        range = counting::range(t)?;
    }
    ensure!(
        range.0.is_finite() && range.1.is_finite(),
        Runtime,
        "torch.histc: range of [{}, {}] is not finite",
        shown(range.0),
        shown(range.1)
    );
    cpu::lines::written::<i64>(&outs[0], |counts| {
        counting::count(t, counts, widened(range, 1.0))
    })
}

fn histc_room(a: &calls::Histc, (): &(), outs: &[Tensor], room: &mut Room) -> Result<()> {
    let t = a.input;
    if a.min.to_f64() == a.max.to_f64() && t.numel() > 0 {
        room.within(|room| room.dense(t, DType::F64).map(drop))?;
    }
    room.dense(&outs[0], DType::I64)?;
    room.dense(t, wide(t.dtype())).map(drop)
}

/// A number as PyTorch's messages show it.
fn shown(x: f64) -> String {
    if x.is_nan() {
        "nan".to_owned()
    } else {
        x.to_string()
    }
}

/// An empty range with some room on both sides.
fn widened((lo, hi): (f64, f64), room: f64) -> (f64, f64) {
    if lo == hi {
        (lo - room, hi + room)
    } else {
        (lo, hi)
    }
}

/// A histogram to make.
struct Histogram<'a> {
    input: &'a Tensor,
    edges: Edges<'a>,
    weight: Option<&'a Tensor>,
    density: bool,
}

/// Where bins end.
enum Edges<'a> {
    /// At these places.
    Given(&'a Tensor),
    /// So many of the same size, between two numbers or over the whole input.
    Equal(i64, Option<&'a [f64]>),
}

fn edges_of<'a>(t: &Tensor, edges: &'a Tensor) -> Result<Edges<'a>> {
    check_edges(t, edges, 0)?;
    Ok(Edges::Given(edges))
}

/// Refuses what are no edges of bins along a dimension of this input.
pub(super) fn check_edges(t: &Tensor, edges: &Tensor, dim: usize) -> Result<()> {
    ensure!(
        edges.dtype() == t.dtype(),
        Runtime,
        "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype {} and bins for dimension {dim} with dtype {}",
        t.dtype().cpp_name(),
        edges.dtype().cpp_name()
    );
    ensure!(
        edges.ndim() == 1,
        Runtime,
        "torch.histogramdd: bins tensor should have one dimension, but got {} dimensions in the bins tensor for dimension {dim}",
        edges.ndim()
    );
    ensure!(
        edges.numel() > 0,
        Runtime,
        "torch.histogramdd: bins tensor should have at least 1 element, but got 0 elements in the bins tensor for dimension {dim}"
    );
    Ok(())
}

fn equal(bins: i64, range: Option<&[f64]>) -> Result<Edges<'_>> {
    check_count(bins, 0)?;
    check_range(range, 1)?;
    Ok(Edges::Equal(bins, range))
}

/// Refuses a number of bins along a dimension that is none.
pub(super) fn check_count(bins: i64, dim: usize) -> Result<()> {
    ensure!(
        bins > 0,
        Runtime,
        "torch.histogram(): bins must be > 0, but got {bins} for dimension {dim}"
    );
    Ok(())
}

/// Refuses a range that has not two ends for each of `n` dimensions.
pub(super) fn check_range(range: Option<&[f64]>, n: usize) -> Result<()> {
    let given = range.map_or(2 * n, <[f64]>::len);
    ensure!(
        given == 2 * n,
        Runtime,
        "torch.histogramdd: for a {n}-dimensional histogram range should have {} elements, but got {given}",
        2 * n
    );
    Ok(())
}

/// Refuses vectors of other types, and weights that are not one for each vector.
pub(super) fn check_vectors(d: DType, shape: &Dims, weight: Option<(DType, &Dims)>) -> Result<()> {
    d.check_kernel(matches!(d, DType::F32 | DType::F64), "histogramdd")?;
    let Some((dtype, weights)) = weight else {
        return Ok(());
    };
    ensure!(
        dtype == d,
        Runtime,
        "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same dtype, but got input({}), and weight({})",
        d.cpp_name(),
        dtype.cpp_name()
    );
    ensure!(
        weights[..] == shape[..shape.len() - 1],
        Runtime,
        "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor excluding its innermost dimension, but got input with shape {shape} and weight with shape {weights}"
    );
    Ok(())
}

fn histogram<'a>(
    t: &'a Tensor,
    edges: Edges<'a>,
    weight: Option<&'a Tensor>,
    density: bool,
) -> Result<(Plan, Histogram<'a>)> {
    // Elements are vectors of one coordinate.
    let d = t.dtype();
    let count = weight.map(|w| (w.dtype(), Dims::from(&[w.numel()][..])));
    let weights = count.as_ref().map(|(dtype, shape)| (*dtype, shape));
    check_vectors(d, &Dims::from(&[t.numel(), 1][..]), weights)?;
    let bins = match edges {
        Edges::Given(edges) => edges.numel() - 1,
        Edges::Equal(bins, _) => bins,
    };
    let plan = Plan::many(&[(&[bins], d), (&[bins + 1], d)]);
    let found = Histogram {
        input: t,
        edges,
        weight,
        density,
    };
    Ok((plan, found))
}

/// The range of equal bins along a dimension: as given, that of the data, or 0 to 1 for no data; with some room where it is empty.
pub(super) fn outer_edges(
    t: &Tensor,
    given: Option<&[f64]>,
    dim: usize,
    found: impl FnOnce(&Tensor) -> Result<(f64, f64)>,
) -> Result<(f64, f64)> {
    let (lo, hi) = match given {
        Some(ends) => (ends[2 * dim], ends[2 * dim + 1]),
        None if t.numel() == 0 => (0.0, 1.0),
        None => found(t)?,
    };
    ensure!(
        lo.is_finite() && hi.is_finite(),
        Runtime,
        "torch.histogramdd: dimension {dim}'s range [{}, {}] is not finite",
        shown(lo),
        shown(hi)
    );
    ensure!(
        lo <= hi,
        Runtime,
        "torch.histogramdd: min should not exceed max, but got min {lo} max {hi} for dimension {dim}"
    );
    Ok(widened((lo, hi), 0.5))
}

fn write_histogram<A>(_: &A, h: &Histogram, outs: &[Tensor]) -> Result<()> {
    let edges = match h.edges {
        Edges::Given(e) => cpu::slice::<f64>(&cpu::copy::dense(e, DType::F64)?).to_vec(),
        Edges::Equal(bins, range) => {
            let range = outer_edges(h.input, range, 0, counting::range)?;
            counting::even_edges(bins as usize, range, h.input.dtype())
        }
    };
    let sums = counting::sums(h.input, &edges, h.weight, h.density)?;
    for (out, numbers) in outs.iter().zip([sums, edges]) {
        cpu::copy::copy(out, &Tensor::from_slice(&numbers, out.shape())?)?;
    }
    Ok(())
}

fn histogram_room<A>(_: &A, h: &Histogram, outs: &[Tensor], room: &mut Room) -> Result<()> {
    room.within(|room| match h.edges {
        Edges::Given(e) => room.dense(e, DType::F64).map(drop),
        Edges::Equal(_, None) if h.input.numel() > 0 => room.dense(h.input, DType::F64).map(drop),
        Edges::Equal(..) => Ok(()),
    })?;
    room.within(|room| room.all_dense([Some(h.input), h.weight], DType::F64))?;
    for out in outs {
        room.within(|room| room.empty(out.shape(), DType::F64).map(drop))?;
    }
    Ok(())
}

/// Rule of `bincount`; finds the weights that count.
fn bincount<'a>(a: &calls::Bincount<'a>) -> Result<(Plan, Option<&'a Tensor>)> {
    let (t, d) = (a.input, a.input.dtype());
    let counted = d.is_integral(false)
        && !matches!(d, DType::U16 | DType::U32 | DType::U64)
        && !d.is_storage_only();
    d.check_kernel(counted, "bincount_cpu")?;
    ensure!(a.minlength >= 0, Runtime, "minlength should be >= 0");
    ensure!(
        t.ndim() == 1,
        Runtime,
        "bincount only supports 1-d non-negative integral inputs."
    );
    let weights = a.weights.filter(|_| t.numel() > 0);
    if let Some(w) = weights {
        ensure!(
            w.ndim() == 1 && w.numel() == t.numel(),
            Runtime,
            "weights should be 1-d and have the same length as input"
        );
    }
    // The shape itself needs the values.
    let size = if helpers::at_hand(t) && t.numel() > 0 {
        a.minlength.max(integers(t)?)
    } else {
        a.minlength
    };
    let dtype = match weights.map(Tensor::dtype) {
        None => DType::I64,
        Some(DType::F32) => DType::F32,
        Some(_) => DType::F64,
    };
    Ok((Plan::contiguous(&[size], dtype), weights))
}

/// How many integers there are from 0 to the largest.
fn integers(t: &Tensor) -> Result<i64> {
    let (lo, hi) = counting::ends(t)?;
    ensure!(
        lo >= 0,
        Runtime,
        "bincount only supports 1-d non-negative integral inputs."
    );
    hi.checked_add(1).ok_or_else(|| {
        err!(
            Runtime,
            "maximum value of input overflowed, it should be < {} but got {hi}",
            i64::MAX
        )
    })
}

/// A search for elements among others.
struct Membership<'a> {
    elements: Operand<'a>,
    among: Operand<'a>,
    /// The type that they are compared in.
    compared: DType,
    invert: bool,
}

fn isin<'a>(
    elements: Operand<'a>,
    among: Operand<'a>,
    invert: bool,
) -> Result<(Plan, Membership<'a>)> {
    for v in [elements, among] {
        let d = match v {
            Operand::Tensor(t) => t.dtype(),
            Operand::Scalar(s) => s.dtype(mode::default_dtype()),
        };
        ensure!(
            !matches!(d, DType::Bool | DType::C64 | DType::C128),
            Runtime,
            "Unsupported input type encountered for isin(): {}",
            d.scalar_type()
        );
    }
    let common = result_type(&[elements.into(), among.into()])?;
    comparable("isin_default_cpu", common)?;
    // A number is compared as one of this type, as it is where it equals an element.
    let number = |v| match v {
        Operand::Scalar(s) => Operand::Scalar(cpu::halves::rounded(s, common)),
        tensor => tensor,
    };
    let found = Membership {
        elements: number(elements),
        among: number(among),
        compared: wide(common),
        invert,
    };
    Ok((Plan::contiguous(&shape_of(elements), DType::Bool), found))
}

fn isin_room<A>(_: &A, m: &Membership, outs: &[Tensor], room: &mut Room) -> Result<()> {
    let mut dense = |v| match v {
        Operand::Tensor(t) => room.dense(t, m.compared),
        Operand::Scalar(_) => room.empty(&[], m.compared),
    };
    let [x, among] = [dense(m.elements)?, dense(m.among)?];
    room.dense(&outs[0], DType::Bool)?;
    room.lists(1, cpu::groups::listed(&x, &among))
}

fn write_isin<A>(_: &A, m: &Membership, outs: &[Tensor]) -> Result<()> {
    let (x, test) = (
        as_tensor(m.elements, m.compared)?,
        as_tensor(m.among, m.compared)?,
    );
    let to = cpu::lines::results(&outs[0], DType::Bool)?;
    cpu::groups::membership(&to, &x, &test, m.invert);
    cpu::lines::put(&outs[0], &to)
}
