//! What needs each line as a whole: medians, order statistics, modes, log-sum-exp.

use super::extreme::{Ranked, compare_type};
use super::sort::Key;
use super::{kth, lines, room, ties};
use crate::{DType, Device, Result, Tensor, bail};
use num_complex::Complex64;
use std::cmp::Ordering;

/// The order of elements with NaN last.
pub fn rank<T: Ranked>(a: &T, b: &T) -> Ordering {
    a.partial_cmp(b).unwrap_or_else(|| a.nan().cmp(&b.nan()))
}

/// Which element of a line is wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pick {
    /// The k-th smallest, counted from 1; NaN is largest.
    Kth(usize),
    /// The lower median; NaN if there is any.
    Median,
    /// The lower median of what is not NaN.
    NanMedian,
    /// The most frequent, the smallest of those.
    Mode,
}

/// The position of the wanted element; lines are not empty.
fn pick<T: Key>(line: &[T], what: Pick) -> usize {
    let nan = |x: &T| Some(x.key()) == T::ODD;
    let is_kth = matches!(what, Pick::Kth(_));
    let k = match what {
        Pick::Kth(k) => k.clamp(1, line.len()) - 1,
        Pick::Mode => return most_frequent(line),
        Pick::Median | Pick::NanMedian => (line.len() - 1) / 2,
    };
    if is_kth && ties::are_sure(line) {
        return ties::kth(line, k);
    }
    let keys = (line.len() > kth::FEWEST).then(|| kth::Line::new(line));
    let any_odd = match &keys {
        Some(keys) => keys.has_odd(),
        None => T::ODD.is_some() && line.iter().any(nan),
    };
    let k = match what {
        Pick::Median if any_odd => return line.iter().position(nan).unwrap_or(k),
        Pick::NanMedian if any_odd => line.iter().filter(|x| !nan(x)).count().saturating_sub(1) / 2,
        _ => k,
    };
    // Medians are by position among equals.
    let (at, has_equals) = match keys {
        None => kth::ranked(line, k),
        Some(keys) => {
            let (key, before) = keys.kth(k);
            let [at, other] = kth::places(line, key, if is_kth { 0 } else { k - before });
            (at.unwrap_or(k), other.is_some())
        }
    };
    match is_kth && has_equals {
        true => ties::kth(line, k),
        false => at,
    }
}

impl Pick {
    /// Bytes of keys that finding an element among `n` takes.
    pub(super) fn keys(self, n: usize) -> usize {
        match self {
            Self::Kth(_) | Self::Mode => n * size_of::<(u64, u64)>(),
            Self::Median | Self::NanMedian => 0,
        }
    }
}

/// The last of the longest run of equal elements, were they in order as `std::sort` leaves them.
fn most_frequent<T: Key>(line: &[T]) -> usize {
    fn run<K: Copy + Ord + Into<u64>>(mut keys: Vec<K>) -> (u64, usize) {
        keys.sort_unstable();
        let (mut best, mut longest) = (keys[0], 1);
        for equal in keys.chunk_by(|a, b| a == b) {
            if equal.len() > longest {
                (best, longest) = (equal[0], equal.len());
            }
        }
        (best.into(), longest)
    }
    let keys = line.iter().map(|x| x.key());
    if keys.clone().any(|key| Some(key) == T::ODD) {
        return ties::most_frequent_beside_nan(line);
    }
    let (key, count) = if T::SHORT {
        run::<u32>(keys.map(|key| key as u32).collect())
    } else {
        run::<u64>(keys.collect())
    };
    match line.iter().position(|x| x.key() == key) {
        Some(at) if count == 1 => at,
        _ => ties::ends(line, key)[1],
    }
}

/// The wanted element of each line along `dims`, and where it is.
///
/// # Errors
/// If memory cannot be had.
pub fn choose(
    values: &Tensor,
    indices: Option<&Tensor>,
    input: &Tensor,
    dims: &[usize],
    what: Pick,
) -> Result<()> {
    let d = chosen_in(input.dtype());
    let from = lines::read(input, dims, d)?;
    let n = from.shape()[1] as usize;
    if n == 0 {
        return super::fill(values, median_of_nothing(input.dtype()));
    }
    crate::with_dtype!(d, [int half float] => T, {
        let data = super::slice::<T>(&from);
        let places = match indices {
            Some(indices) => lines::results(indices, DType::I64)?,
            None => Tensor::empty(values.shape(), DType::I64, Device::CPU)?,
        };
        let at = super::slice_mut::<i64>(&places);
        if n == 1 {
            at.fill(0);
        } else {
            let _keys = room::lists(at.len(), what.keys(n));
            lines::for_each(data, n, at, 1, |_, line, at| at[0] = pick(line, what) as i64);
        }
        let v = lines::results(values, d)?;
        for (i, (v, &k)) in super::slice_mut::<T>(&v).iter_mut().zip(&*at).enumerate() {
            *v = data[i * n + k as usize];
        }
        lines::put(values, &v)?;
        indices.map_or(Ok(()), |indices| lines::put(indices, &places))
    }, else { bail!(NotImplemented, "no order of {d}") })
}

/// The type whose elements are chosen from: others are converted.
pub(super) fn chosen_in(d: DType) -> DType {
    match d {
        DType::Bool | DType::U16 | DType::U32 | DType::U64 => compare_type(d),
        d => d,
    }
}

/// What PyTorch makes of NaN as an integer.
fn integer_nan(d: DType) -> f64 {
    match d {
        DType::I64 => i64::MIN as f64,
        DType::I32 => f64::from(i32::MIN),
        _ => 0.0,
    }
}

/// The type that real exponentials are summed in.
pub(super) fn summed_in(out: DType) -> DType {
    if out == DType::F64 {
        DType::F64
    } else {
        DType::F32
    }
}

/// The logarithm of the sum of exponentials over `dims`.
///
/// # Errors
/// If memory cannot be had.
pub fn logsumexp(out: &Tensor, input: &Tensor, dims: &[usize]) -> Result<()> {
    if out.dtype().is_complex() {
        return complex_logsumexp(out, input, dims);
    }
    let d = summed_in(out.dtype());
    let (from, sizes) = match columns_of(input, dims) {
        Some(sizes) => (super::copy::dense(input, d)?, sizes),
        None => {
            let from = lines::read(input, dims, d)?;
            let n = from.shape()[1] as usize;
            (from, [n, 1])
        }
    };
    let to = lines::results(out, d)?;
    if sizes[0] == 0 {
        super::fill(&to, crate::Scalar::Float(f64::NEG_INFINITY))?;
    } else if d == DType::F64 {
        super::softmax::log_sum_exp::<f64>(super::slice(&from), sizes, super::slice_mut(&to));
    } else {
        super::softmax::log_sum_exp::<f32>(super::slice(&from), sizes, super::slice_mut(&to));
    }
    lines::put(out, &to)
}

/// The elements along `dims` and those inside them, if several of these lie side by side as they are.
pub(super) fn columns_of(input: &Tensor, dims: &[usize]) -> Option<[usize; 2]> {
    let &[dim] = dims else { return None };
    let inner: i64 = input.shape().get(dim + 1..)?.iter().product();
    (input.is_contiguous() && inner >= 8).then(|| [input.shape()[dim] as usize, inner as usize])
}

/// NaN, or what stands for it among integers.
fn median_of_nothing(d: DType) -> crate::Scalar {
    crate::Scalar::Float(if d.is_float() {
        f64::NAN
    } else {
        integer_nan(d)
    })
}

fn complex_logsumexp(out: &Tensor, input: &Tensor, dims: &[usize]) -> Result<()> {
    let from = lines::read(input, dims, DType::C128)?;
    let n = from.shape()[1] as usize;
    let to = Tensor::empty(out.shape(), DType::C128, crate::Device::CPU)?;
    let data = super::slice::<Complex64>(&from);
    for (i, o) in super::slice_mut::<Complex64>(&to).iter_mut().enumerate() {
        let line = &data[i * n..(i + 1) * n];
        let top = line.iter().map(|z| z.re).fold(f64::NEG_INFINITY, f64::max);
        let top = if top.is_finite() { top } else { 0.0 };
        *o = line.iter().map(|z| (z - top).exp()).sum::<Complex64>().ln() + top;
    }
    super::copy::copy(out, &to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn picks_by_value_then_position() {
        let line = [3.0f32, 1.0, f32::NAN, 2.0, 3.0];
        assert_eq!(pick(&line, Pick::Kth(1)), 1);
        assert_eq!(pick(&line, Pick::Median), 2);
        assert_eq!(pick(&line, Pick::NanMedian), 3);
        // NaN stays where sorting meets it, so that equals behind it are not brought together.
        assert_eq!(pick(&line, Pick::Mode), 1);
        assert_eq!(pick(&[3.0f32, 1.0, 2.0, 3.0], Pick::Mode), 3);
    }
}
