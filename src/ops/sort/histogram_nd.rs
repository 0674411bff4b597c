//! Histograms of vectors: how many fall in each cell of a grid.

use crate::ops::core::helpers::beside;
use crate::ops::core::op::{Batch, F, OpDef, compose};
use crate::ops::f;
use crate::ops::sort::histogram::{
    check_count, check_edges, check_range, check_vectors, outer_edges,
};
use crate::{DType, Dims, Result, Scalar, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_histogramdd_bin_edges",
        "(Tensor self, int[] bins, *, float[]? range=None, Tensor? weight=None, bool density=False) -> Tensor[]",
        F,
        |a| edges(a.input, a.bins, a.range, a.weight),
        "The edges of equal bins for each column, between given limits or the smallest and largest number.",
    )
    .samples("f32[6, 2], [2, 3]; f64[6, 1], [2], range=[0.0, 1.0]")
    .refused()
    .batch(Batch::Each),
    compose(
        "_histogramdd_from_bin_cts",
        "(Tensor self, int[] bins, *, float[]? range=None, Tensor? weight=None, bool density=False)",
        F,
        |a| {
            let edges = edges(a.input, a.bins, a.range, a.weight)?;
            counted(a.input, &edges.iter().collect::<Vec<_>>(), a.weight, a.density)
        },
        "How many vectors fall in each cell of a grid of equal bins.",
    )
    .samples("f32[6, 2], [2, 3]; f64[6, 1], [2], range=[0.0, 1.0], weight=f64[6].pos, density=True")
    .refused()
    .batch(Batch::Each),
    compose(
        "_histogramdd_from_bin_tensors",
        "(Tensor self, Tensor[] bins, *, Tensor? weight=None, bool density=False)",
        F,
        between,
        "How many vectors fall in each cell of a grid with these edges.",
    )
    .samples("f32[6, 2], [f32([-1, 0, 1]), f32([-2, 2])]")
    .refused()
    .batch(Batch::Each),
];

/// Vectors as the rows of a matrix.
fn rows(t: &Tensor) -> Result<Tensor> {
    let (leading, width) = t.shape().split_at(t.ndim() - 1);
    f::reshape(t, &[leading.iter().product(), width[0]])
}

/// How many coordinates the vectors have.
fn coordinates(t: &Tensor) -> Result<usize> {
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "torch.histogramdd: input tensor should have at least 2 dimensions"
    );
    Ok(t.size(-1)? as usize)
}

fn check(t: &Tensor, weight: Option<&Tensor>) -> Result<()> {
    check_vectors(t.dtype(), t.shape(), weight.map(|w| (w.dtype(), w.shape())))
}

fn edges(
    t: &Tensor,
    bins: &[i64],
    range: Option<&[f64]>,
    weight: Option<&Tensor>,
) -> Result<Vec<Tensor>> {
    ensure!(
        bins.len() == coordinates(t)?,
        Runtime,
        "histogramdd: The size of bins must be equal to the innermost dimension of the input."
    );
    check(t, weight)?;
    check_range(range, bins.len())?;
    let flat = rows(t)?;
    let extremes = |column: &Tensor| {
        let value = |t: Tensor| Ok::<f64, crate::Error>(t.item()?.to_f64());
        Ok((value(f::min(column)?)?, value(f::max(column)?)?))
    };
    let edge = |(d, &count): (usize, &i64)| {
        check_count(count, d)?;
        let column = f::select(&flat, 1, d as i64)?;
        let (low, high) = outer_edges(&column, range, d, extremes)?;
        f::Linspace::new(low, high, count + 1)
            .dtype(t.dtype())
            .device(beside(t))
            .call()
    };
    bins.iter().enumerate().map(edge).collect()
}

fn between(a: &calls::_HistogramddFromBinTensors) -> Result<Tensor> {
    let (n, given) = (coordinates(a.input)?, a.bins.len());
    ensure!(
        given == n,
        Runtime,
        "torch.histogramdd: expected {n} sequences of bin edges for a {n}-dimensional histogram but got {given}"
    );
    check(a.input, a.weight)?;
    for (d, edges) in a.bins.iter().enumerate() {
        check_edges(a.input, edges, d)?;
    }
    counted(a.input, &a.bins.refs(), a.weight, a.density)
}

/// The number of rows in each cell between edges, or the sum of their weights.
fn counted(
    t: &Tensor,
    edges: &[&Tensor],
    weight: Option<&Tensor>,
    density: bool,
) -> Result<Tensor> {
    let flat = rows(t)?;
    let sizes: Dims = edges.iter().map(|e| (e.numel() - 1).max(0)).collect();
    let count = &flat.shape()[..1];
    let mut place = f::NewZeros::new(&flat, count).dtype(DType::I64).call()?;
    let mut amounts = match weight {
        Some(w) => f::reshape(w, &[-1])?,
        None => f::NewOnes::new(&flat, count).call()?,
    };
    for (d, (edges, &n)) in edges.iter().zip(sizes.iter()).enumerate() {
        let column = f::select(&flat, 1, d as i64)?.contiguous()?;
        let (first, last) = (f::select(edges, 0, 0)?, f::select(edges, 0, -1)?);
        let cell = f::Searchsorted::new(&edges.contiguous()?, &column)
            .right(true)
            .call()?;
        // The last edge belongs to the last cell.
        let cell = f::where_(&f::eq(&column, &last)?, n, &cell)?;
        let cell = f::Clamp::new(&f::sub(&cell, 1i64)?)
            .min(Scalar::Int(0))
            .max(Scalar::Int((n - 1).max(0)))
            .call()?;
        let inside = f::logical_and(&f::ge(&column, &first)?, &f::le(&column, &last)?)?;
        amounts = f::where_(&inside, &amounts, 0.0)?;
        place = f::add(&f::mul(&place, n)?, &cell)?;
    }
    let mut made = f::new_zeros(&flat, &sizes)?;
    if made.numel() > 0 && t.numel() > 0 {
        let counts = f::index_add(&f::view(&made, &[-1])?, 0, &place, &amounts)?;
        made = f::view(&counts, &sizes)?;
    }
    if density {
        return by_volume(&made, edges);
    }
    Ok(made)
}

/// The share of the whole in each cell, for its size.
fn by_volume(counts: &Tensor, edges: &[&Tensor]) -> Result<Tensor> {
    let mut made = f::div(counts, &f::sum(counts)?)?;
    let ones = Dims::filled(edges.len(), 1);
    for (d, edges) in edges.iter().enumerate() {
        let widths = f::reshape(&f::diff(edges)?, &ones.with(d, -1))?;
        made = f::div(&made, &widths)?;
    }
    Ok(made)
}
