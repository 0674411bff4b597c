//! Extremes of what was seen so far along lines, and where they were.

#![allow(unsafe_code, reason = "copies of loops per instruction set")]

use super::casts::{PIECE, Piece, Reader, Writer};
use super::extreme::{Ranked, by_type, compare_type};
use super::lines;
use super::scan::inner;
use super::simd::simd_fn;
use crate::{DType, Result, Tensor, bail};
use std::hint::select_unpredictable;
use std::ops::Range;

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

/// The extremes of a line so far and their places, from what was seen of it before on. Mostly they stay what they are for
/// long.
fn running<T: Ranked>(
    line: &[T],
    start: usize,
    seen: &mut Option<(T, i64)>,
    values: &mut [T],
    places: &mut [i64],
    max: bool,
) {
    const PART: usize = 32;
    let Some(&first) = line.first() else {
        return;
    };
    let (mut best, mut place) = seen.unwrap_or((first, 0));
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
            place = select_unpredictable(wins, (start + part * PART + k) as i64, place);
            (*v, *at) = (best, place);
        }
    }
    *seen = Some((best, place));
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
    if lines::are_single(input, dim) {
        return lines::of_one(values, indices, input);
    }
    let d = running_type(input.dtype());
    let n = input.shape().get(dim).map_or(1, |&n| n as usize);
    if run_beside([values, indices, input], dim) {
        let inner = inner(input, dim);
        return match d {
            DType::U8 => columns::<u8>([values, indices, input], [n, inner], max),
            d => by_type!(d, T => columns::<T>([values, indices, input], [n, inner], max)),
        };
    }
    let from = lines::read(input, &[dim], input.dtype())?;
    let v = lines::target(values, dim, values.dtype())?;
    let at = lines::target(indices, dim, DType::I64)?;
    match d {
        DType::U8 => running_lines::<u8>([&v, &at, &from], n, max)?,
        d => by_type!(d, T => running_lines::<T>([&v, &at, &from], n, max)?),
    }
    lines::finish(values, dim, &v)?;
    lines::finish(indices, dim, &at)
}

/// Whether neighbouring lines are run down as they lie.
pub(super) fn run_beside(tensors: [&Tensor; 3], dim: usize) -> bool {
    let dense = |t: &Tensor| t.is_contiguous() && !t.is_lazy();
    inner(tensors[2], dim) >= 8 && tensors.into_iter().all(dense)
}

/// The running extremes of all lines of `n` elements.
fn running_lines<T: Ranked>([values, at, from]: [&Tensor; 3], n: usize, max: bool) -> Result<()> {
    let (from, v) = (Reader::<T>::new(from)?, Writer::<T>::new(values)?);
    let at = super::slice_mut::<i64>(at);
    let lines = at.len().checked_div(n).unwrap_or(0);
    let plain = from.is_plain() && v.is_plain();
    let two = if max {
        running_two::<T, true>
    } else {
        running_two::<T, false>
    };
    let paired = !T::DTYPE.is_float() && (plain || 2 * n <= PIECE);
    let shared = lines::Shared::new(at);
    super::pool::parallel_for(lines, (super::iter::GRAIN / n.max(1)).max(1), |range| {
        let (mut read, mut write) = (Piece::new(), Piece::new());
        // SAFETY: every task has its own lines.
        let mut run = |at: Range<usize>, f: &mut dyn FnMut(&[T], &mut [T], &mut [i64])| unsafe {
            let x = from.get(at.clone(), &mut read);
            let places = shared.part(at.start, at.len());
            v.fill(at, &mut write, |v| f(x, v, places));
        };
        let mut line = range.start;
        while paired && line + 2 <= range.end {
            run(line * n..(line + 2) * n, &mut |x, v, at| two(x, v, at));
            line += 2;
        }
        let each = if plain { n } else { PIECE };
        for line in line..range.end {
            let (mut seen, first, end) = (None, line * n, (line + 1) * n);
            for start in (first..end).step_by(each) {
                run(start..end.min(start + each), &mut |x, v, at| {
                    running(x, start - first, &mut seen, v, at, max);
                });
            }
        }
    });
    Ok(())
}

simd_fn! { stream
    /// A row of columns that run on: what each has seen, and where.
    fn row<T: Ranked>(x: &[T], k: i64, best: &mut [T], place: &mut [i64], max: bool) {
        for ((&x, best), place) in x.iter().zip(best).zip(place) {
            let wins = beats(x, *best, max);
            *best = if wins { x } else { *best };
            *place = if wins { k } else { *place };
        }
    }
}

/// The running extremes down the columns of `[n, inner]` blocks.
fn columns<T: Ranked>(
    [values, at, from]: [&Tensor; 3],
    [n, inner]: [usize; 2],
    max: bool,
) -> Result<()> {
    const WIDTH: usize = 256;
    let (from, v) = (Reader::<T>::new(from)?, Writer::<T>::new(values)?);
    let at = super::slice_mut::<i64>(at);
    let chunks = inner.div_ceil(WIDTH);
    let blocks = at.len().checked_div(n * inner).unwrap_or(0);
    let shared = lines::Shared::new(at);
    let grain = (super::iter::GRAIN / (n * inner.min(WIDTH)).max(1)).max(1);
    super::pool::parallel_for(blocks * chunks, grain, |range| {
        let (mut read, mut write) = (Piece::new(), Piece::new());
        for k in range {
            let j = k % chunks * WIDTH;
            let w = WIDTH.min(inner - j);
            let (mut best, mut place) = ([T::default(); WIDTH], [0; WIDTH]);
            for r in 0..n {
                let at = (k / chunks * n + r) * inner + j;
                let at = at..at + w;
                let x = from.get(at.clone(), &mut read);
                if r == 0 {
                    best[..w].copy_from_slice(x);
                }
                row(x, r as i64, &mut best[..w], &mut place[..w], max);
                // SAFETY: every task has its own columns.
                unsafe {
                    shared.part(at.start, w).copy_from_slice(&place[..w]);
                    v.fill(at, &mut write, |v| v.copy_from_slice(&best[..w]));
                }
            }
        }
    });
    Ok(())
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
                    running(&line, 0, &mut None, &mut values, &mut places, max);
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
