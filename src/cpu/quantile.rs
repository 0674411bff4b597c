//! Quantiles of lines.

use super::{lines, room, select};
use crate::{DType, Element, Result, Tensor};

/// Quantiles `q` (dense, of the input's type) along `dims` of `input`, first in `out` if `q` has a dimension; NaN is left
/// out if `skip`.
///
/// # Errors
/// If memory cannot be had.
pub fn quantile(
    out: &Tensor,
    input: &Tensor,
    q: &Tensor,
    dims: &[usize],
    how: &str,
    skip: bool,
) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let from = lines::read(input, dims, input.dtype())?;
    let n = from.shape()[1] as usize;
    let out = &if q.ndim() == 1 {
        out.permuted(&lines::order(out.ndim(), &[0]))
    } else {
        out.clone()
    };
    let to = lines::results(out, input.dtype())?;
    let _sorted = room::lists(from.shape()[0] as usize, n * input.dtype().size());
    match input.dtype() {
        DType::F64 => run(
            super::slice::<f64>(&from),
            n,
            super::slice_mut(&to),
            super::slice::<f64>(q),
            how,
            skip,
        ),
        _ => run(
            super::slice::<f32>(&from),
            n,
            super::slice_mut(&to),
            super::slice::<f32>(q),
            how,
            skip,
        ),
    }
    lines::put(out, &to)
}

trait Real: super::extreme::Ranked + Element + Into<f64> {
    /// q * (n - 1) in this precision, as PyTorch rounds it.
    fn place(q: Self, n: usize) -> f64;
    fn back(x: f64) -> Self;
}
impl Real for f32 {
    fn place(q: f32, n: usize) -> f64 {
        f64::from(q * (n - 1) as f32)
    }
    fn back(x: f64) -> f32 {
        x as f32
    }
}
impl Real for f64 {
    fn place(q: f64, n: usize) -> f64 {
        q * (n - 1) as f64
    }
    fn back(x: f64) -> f64 {
        x
    }
}

/// Between two values, from the nearer one.
fn mix(lo: f64, hi: f64, w: f64) -> f64 {
    if w < 0.5 {
        lo + w * (hi - lo)
    } else {
        hi - (hi - lo) * (1.0 - w)
    }
}

fn run<T: Real>(from: &[T], n: usize, to: &mut [T], q: &[T], how: &str, skip: bool) {
    lines::for_each(from, n, to, q.len(), |_, line, to| {
        let mut sorted = line.to_vec();
        sorted.sort_unstable_by(select::rank);
        let there = sorted.iter().filter(|x| !x.nan()).count();
        if there == 0 || (there < n && !skip) {
            to.fill(T::back(f64::NAN));
            return;
        }
        for (o, &q) in to.iter_mut().zip(q) {
            let place = T::place(q, there);
            let value = |at: f64| -> f64 { sorted[(at as usize).min(there - 1)].into() };
            let (lo, hi) = (value(place.floor()), value(place.ceil()));
            *o = T::back(match how {
                "lower" => lo,
                "higher" => hi,
                "nearest" => value(place.round_ties_even()),
                "midpoint" => mix(lo, hi, 0.5),
                _ if lo == hi => lo,
                _ => mix(lo, hi, place - place.floor()),
            });
        }
    });
}
