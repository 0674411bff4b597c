//! Extremes of what was seen so far along lines, and where they were.

#![allow(unsafe_code, reason = "copies of loops per instruction set")]

use super::extreme::{Ranked, by_type, compare_type};
use super::lines;
use super::simd::simd_fn;
use crate::{DType, Result, Tensor, bail};
use std::hint::select_unpredictable;

simd_fn! { stream
    /// Whether an element takes the place of an extreme before it.
    fn any_beats<T: Ranked>(part: &[T], best: T, max: bool) -> bool {
        let mut found = false;
        for &x in part {
            found |= beats(x, best, max);
        }
        found
    }
}

#[inline(always)]
fn beats<T: Ranked>(x: T, best: T, max: bool) -> bool {
    x.nan() | if max { x >= best } else { x <= best }
}

/// The extremes of a line so far and their places. Mostly they stay what they are for long.
fn running<T: Ranked>(line: &[T], values: &mut [T], places: &mut [i64], max: bool) {
    const PART: usize = 32;
    let Some(&(mut best)) = line.first() else {
        return;
    };
    let mut place = 0;
    let parts = line.chunks(PART).zip(values.chunks_mut(PART));
    for ((part, (x, v)), at) in parts.enumerate().zip(places.chunks_mut(PART)) {
        if !any_beats(x, best, max) {
            v.fill(best);
            at.fill(place);
            continue;
        }
        for ((k, &x), (v, at)) in x.iter().enumerate().zip(v.iter_mut().zip(at)) {
            // Without a branch, as which elements win may be anything.
            let wins = beats(x, best, max);
            best = select_unpredictable(wins, x, best);
            place = select_unpredictable(wins, (part * PART + k) as i64, place);
            (*v, *at) = (best, place);
        }
    }
}

/// The same of two lines at once, as steps of one wait for each other: of integers, among which equals are frequent.
fn running_two<T: Ranked, const MAX: bool>(lines: &[T], values: &mut [T], places: &mut [i64]) {
    let n = lines.len() / 2;
    let (x, y) = lines.split_at(n);
    let ((v, w), (at, to)) = (values.split_at_mut(n), places.split_at_mut(n));
    let y = &y[..n];
    let (v, w, at, to) = (&mut v[..n], &mut w[..n], &mut at[..n], &mut to[..n]);
    if n == 0 {
        return;
    }
    let (mut best, mut place) = ([x[0], y[0]], [0i64; 2]);
    for k in 0..n {
        let next = [x[k], y[k]];
        for l in 0..2 {
            let wins = beats(next[l], best[l], MAX);
            best[l] = select_unpredictable(wins, next[l], best[l]);
            place[l] = select_unpredictable(wins, k as i64, place[l]);
        }
        (v[k], w[k]) = (best[0], best[1]);
        (at[k], to[k]) = (place[0], place[1]);
    }
}

/// The type whose elements are compared in place of some dtype's where each may be a result.
pub fn running_type(d: DType) -> DType {
    match d {
        DType::Bool | DType::U8 => DType::U8,
        d => compare_type(d),
    }
}

/// The extreme of each line's elements so far, and where it was (the last of equals).
///
/// # Errors
/// If memory cannot be had.
pub fn running_extreme(
    values: &Tensor,
    indices: &Tensor,
    input: &Tensor,
    dim: usize,
    max: bool,
) -> Result<()> {
    let d = running_type(input.dtype());
    let from = lines::read(input, &[dim], d)?;
    let (v, at) = (
        lines::target(values, dim, d)?,
        lines::target(indices, dim, DType::I64)?,
    );
    if d == DType::U8 {
        running_lines::<u8>(&from, &v, &at, max);
    } else {
        by_type!(d, T => running_lines::<T>(&from, &v, &at, max));
    }
    lines::finish(values, dim, &v)?;
    lines::finish(indices, dim, &at)
}

/// The running extremes of all lines.
fn running_lines<T: Ranked>(from: &Tensor, values: &Tensor, at: &Tensor, max: bool) {
    let n = from.shape()[1] as usize;
    let (data, v) = (super::slice::<T>(from), super::slice_mut::<T>(values));
    let at = super::slice_mut::<i64>(at);
    let pairs = if T::DTYPE.is_float() {
        0
    } else {
        data.len() / (2 * n).max(1) * 2 * n
    };
    let ((two, one), (to_two, to_one)) = (data.split_at(pairs), at.split_at_mut(pairs));
    let (v, rest) = v.split_at_mut(pairs);
    let (v, rest) = (lines::Shared::new(v), lines::Shared::new(rest));
    lines::for_each(two, 2 * n, to_two, 2 * n, |i, x, at| {
        // SAFETY: every two lines have their own part.
        let v = unsafe { v.part(2 * i * n, 2 * n) };
        if max {
            running_two::<T, true>(x, v, at);
        } else {
            running_two::<T, false>(x, v, at);
        }
    });
    lines::for_each(one, n, to_one, n, |i, line, at| {
        // SAFETY: every line has its own part.
        running(line, unsafe { rest.part(i * n, n) }, at, max);
    });
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_extremes_are_the_last_of_equals() {
        for n in [1usize, 31, 32, 33, 200] {
            for nan in [n, n / 2] {
                let line: Vec<f32> = (0..n)
                    .map(|i| {
                        if i == nan {
                            f32::NAN
                        } else {
                            ((i * 37) % 11) as f32
                        }
                    })
                    .collect();
                for max in [false, true] {
                    let (mut values, mut places) = (vec![0f32; 2 * n], vec![0i64; 2 * n]);
                    let two = if max {
                        running_two::<f32, true>
                    } else {
                        running_two::<f32, false>
                    };
                    two(&line.repeat(2), &mut values, &mut places);
                    let both = (values.split_off(n), places.split_off(n));
                    let bits = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!((bits(&both.0), &both.1), (bits(&values), &places));
                    running(&line, &mut values, &mut places, max);
                    assert_eq!((bits(&both.0), &both.1), (bits(&values), &places));
                    let mut best = 0;
                    for (k, &x) in line.iter().enumerate() {
                        let b = line[best];
                        if x.is_nan() || !b.is_nan() && if max { x >= b } else { x <= b } {
                            best = k;
                        }
                        assert_eq!(places[k], best as i64);
                        assert_eq!(values[k].to_bits(), line[best].to_bits());
                    }
                }
            }
        }
    }
}
