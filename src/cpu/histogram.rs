//! Counting in bins.

use super::ramp::{self, Between};
use super::simd::simd_fn;
use super::{copy, groups, halves, search, slice};
use crate::{DType, Result, Tensor, with_dtype};
use num_traits::PrimInt as Integer;

/// Numbers that are compared at a time.
const LANES: usize = 8;

/// How many elements fall in each of equal bins from `lo` to `hi`.
///
/// # Errors
/// If memory cannot be had.
pub fn count(t: &Tensor, counts: &mut [i64], (lo, hi): (f64, f64)) -> Result<()> {
    let bins = counts.len();
    counts.fill(0);
    let mut count = |place: i64| counts[(place as usize).min(bins - 1)] += 1;
    if t.dtype() == DType::F64 {
        for &x in slice::<f64>(&copy::dense(t, DType::F64)?) {
            if x >= lo && x <= hi {
                count(((x - lo) * bins as f64 / (hi - lo)) as i64);
            }
        }
    } else if t.dtype() == DType::F32 {
        let (lo, hi, all) = (lo as f32, hi as f32, bins as f32);
        let width = hi - lo;
        for &x in slice::<f32>(&copy::dense(t, DType::F32)?) {
            if x >= lo && x <= hi {
                count(((x - lo) * all / width) as i64);
            }
        }
    } else {
        // 16-bit numbers have every step rounded.
        let r = halves::rounding(t.dtype());
        let (lo, hi, all) = (r(lo as f32), r(hi as f32), r(bins as f32));
        let width = r(hi - lo);
        for &x in slice::<f32>(&copy::dense(t, DType::F32)?) {
            if x >= lo && x <= hi {
                count(r(r(r(x - lo) * all) / width) as i64);
            }
        }
    }
    Ok(())
}

/// The smallest and the largest element; NaN if there is one.
///
/// # Errors
/// If memory cannot be had.
pub fn range(t: &Tensor) -> Result<(f64, f64)> {
    let t = copy::dense(t, DType::F64)?;
    Ok(span(slice::<f64>(&t)))
}

simd_fn! { wide
    fn span(all: &[f64]) -> (f64, f64) {
        let (mut lo, mut hi) = ([f64::INFINITY; LANES], [f64::NEG_INFINITY; LANES]);
        let mut numbers = true;
        let mut each = |l: usize, x: f64| {
            lo[l] = if x < lo[l] { x } else { lo[l] };
            hi[l] = if x > hi[l] { x } else { hi[l] };
            numbers &= !x.is_nan();
        };
        let (whole, rest) = all.as_chunks::<LANES>();
        for x in whole {
            for l in 0..LANES {
                each(l, x[l]);
            }
        }
        rest.iter().for_each(|&x| each(0, x));
        if !numbers {
            return (f64::NAN, f64::NAN);
        }
        (lo.into_iter().fold(lo[0], f64::min), hi.into_iter().fold(hi[0], f64::max))
    }
}

/// The edges of `bins` equal bins: the numbers that linspace gives in the dtype of the input.
#[must_use]
pub fn even_edges(bins: usize, (lo, hi): (f64, f64), dtype: DType) -> Vec<f64> {
    let n = bins + 1;
    if dtype == DType::F32 {
        let ends = [lo as f32, hi as f32];
        let step = (ends[1] - ends[0]) / bins as f32;
        let mut edges = vec![0f32; n];
        ramp::singles(&mut edges, 0, Between { n, ends, step });
        return edges.into_iter().map(f64::from).collect();
    }
    let (ends, step) = ([lo, hi], (hi - lo) / bins as f64);
    let mut edges = vec![0f64; n];
    ramp::doubles(&mut edges, 0, Between { n, ends, step });
    edges
}

/// The weights (1 if there are none) of the elements between neighbouring edges, divided by the total and the width of the
/// bin for a density.
///
/// # Errors
/// If memory cannot be had.
pub fn sums(
    t: &Tensor,
    edges: &[f64],
    weights: Option<&Tensor>,
    density: bool,
) -> Result<Vec<f64>> {
    let bins = edges.len() - 1;
    let x = copy::dense(t, DType::F64)?;
    let weights = weights.map(|w| copy::dense(w, DType::F64)).transpose()?;
    let weights = weights.as_ref().map(slice::<f64>);
    let mut sums = vec![0f64; bins];
    let each = bins as f64 / (edges[bins] - edges[0]);
    // Even bins are where they are expected, or next to it.
    let place_of = |x: f64| {
        let guess = (((x - edges[0]) * each) as usize).min(bins - 1);
        if edges[guess] <= x && x < edges[guess + 1] {
            return guess;
        }
        (search::search(edges, None, x, true) as usize - 1).min(bins - 1)
    };
    for (i, &x) in slice::<f64>(&x).iter().enumerate() {
        if bins > 0 && x >= edges[0] && x <= edges[bins] {
            let place = place_of(x);
            sums[place] += weights.map_or(1.0, |w| w[i]);
        }
    }
    if density {
        let total: f64 = sums.iter().sum();
        for (s, e) in sums.iter_mut().zip(edges.windows(2)) {
            *s /= total * (e[1] - e[0]);
        }
    }
    Ok(sums)
}

/// The smallest and the largest of integers and 0.
///
/// # Errors
/// If memory cannot be had.
pub fn ends(t: &Tensor) -> Result<(i64, i64)> {
    let t = copy::dense(t, t.dtype())?;
    with_dtype!(t.dtype(), [int] => T, {
        let (lo, hi) = ends_of(slice::<T>(&t));
        return Ok((i64::from(lo), i64::from(hi)));
    }, else {
        Err(t.dtype().no_kernel("bincount_cpu"))
    })
}

simd_fn! { wide
    fn ends_of<T: Integer>(all: &[T]) -> (T, T) {
        let (mut lo, mut hi) = (T::zero(), T::zero());
        for &x in all {
            lo = if x < lo { x } else { lo };
            hi = if x > hi { x } else { hi };
        }
        (lo, hi)
    }
}

/// How often each of the first `size` integers occurs, or the sum of the weights of its occurrences.
///
/// # Errors
/// If memory cannot be had.
pub fn occurrences(t: &Tensor, weights: Option<&Tensor>, size: usize) -> Result<Tensor> {
    let Some(w) = weights else {
        let t = copy::dense(t, t.dtype())?;
        with_dtype!(t.dtype(), [int] => T, {
            let counts = groups::tally(slice::<T>(&t), |&p| p as usize, size);
            return Tensor::from_slice(&counts, &[size as i64]);
        }, else {
            return Err(t.dtype().no_kernel("bincount_cpu"));
        });
    };
    let t = copy::dense(t, DType::I64)?;
    let places = slice::<i64>(&t);
    let w = copy::dense(w, DType::F64)?;
    let mut sums = vec![0f64; size];
    for (&p, w) in places.iter().zip(slice::<f64>(&w)) {
        sums[p as usize] += w;
    }
    Tensor::from_slice(&sums, &[size as i64])
}
