//! softmax, log_softmax and log-sum-exp along one dimension.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::lanes::{Real, Term, map_by, max_of, scale_by, sum_by};
use super::lines::{self, Shared};
use super::math::{Elementary, RealFns};
use super::stored::{Stored, each_line, each_piece};
use super::turned::{LONGEST, Tile, WIDTH, returned, turned};
use super::{pool, slice, slice_mut};
use crate::cpu::room::Room;
use crate::cpu::simd::simd_fn;
use crate::{Result, Tensor, with_dtype};

/// Writes the softmax of `x` along `dim`, or its logarithm, into `out`, whose dtype decides that of the arithmetic.
///
/// # Errors
/// If memory cannot be had.
pub fn softmax(out: &Tensor, x: &Tensor, dim: usize, log: bool) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let x = super::copy::dense(x, out.dtype())?;
    let n = x.shape().get(dim).map_or(1, |&n| n as usize);
    let inner: usize = x
        .shape()
        .iter()
        .skip(dim + 1)
        .map(|&d| d as usize)
        .product();
    let result = lines::results(out, out.dtype())?;
    with_dtype!(out.dtype(), [half float] => E, {
        let (x, out) = (slice::<E>(&x), slice_mut::<E>(&result));
        if inner > 1 {
            columns_of(x, out, n, inner, log);
        } else if (1..=LONGEST).contains(&n) {
            each_piece([x], out, n, |[x], _, out| beside(x, out, n, log));
        } else {
            each_line(x, out, [x.len() / n, n], |_, x, out| {
                if log { log_row(x, out) } else { row(x, out) }
            });
        }
    }, else {});
    lines::put(out, &result)
}

/// Follows what [`softmax`] takes.
///
/// # Errors
/// If a size overflows.
pub fn scratch(room: &mut Room, out: &Tensor, x: &Tensor) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    room.all_dense([Some(x), Some(out)], out.dtype())
}

/// Of matrices of `n` rows, some columns a task.
fn columns_of<E: Stored>(x: &[E], out: &mut [E], n: usize, inner: usize, log: bool) {
    let strips = inner.div_ceil(WIDTH);
    let tasks = x.len() / (n * inner) * strips;
    let grain = (8192 / (n * WIDTH.min(inner))).max(1);
    let shared = Shared::new(out);
    pool::parallel_for(tasks, grain, |range| {
        let mut rooms = [Vec::new(), Vec::new()];
        for task in range {
            let start = task % strips * WIDTH;
            let at = task / strips * n * inner + start;
            let width = WIDTH.min(inner - start);
            let x = &x[at..][..(n - 1) * inner + width];
            strip(x, shared, at, [n, inner, width], &mut rooms, log);
        }
    });
}

/// Columns of a matrix, whose part of the result begins at `at`: by way of tiles where elements have to be converted.
fn strip<E: Stored>(
    x: &[E],
    out: Shared<E>,
    at: usize,
    [n, inner, width]: [usize; 3],
    [tile, made]: &mut [Vec<E::Wide>; 2],
    log: bool,
) {
    if let Some(out) = E::shared(out) {
        return columns(E::wide(x, tile), out, [at, inner], [inner, width], log);
    }
    let zero = <E::Wide as RealFns>::of(0.0);
    tile.resize(n * width, zero);
    made.resize(n * width, zero);
    for (row, to) in x.chunks(inner).zip(tile.chunks_exact_mut(width)) {
        E::widen(&row[..width], to);
    }
    columns(tile, Shared::new(made), [0, width], [width, width], log);
    for (r, row) in made.chunks_exact(width).enumerate() {
        // SAFETY: every strip has its own columns of each row.
        E::store(row, unsafe { out.part(at + r * inner, width) });
    }
}

simd_fn! { wide
    fn row<T: Real>(x: &[T], out: &mut [T]) {
        map_by(x, out, ExpBelow(max_of(x)));
        let scale = T::of(1.0) / sum_by(out, |v| v);
        scale_by(out, scale);
    }
}

/// The exponential of the difference to a number.
#[derive(Clone, Copy)]
struct ExpBelow<T>(T);

impl<T: Real> Term<T> for ExpBelow<T> {
    #[inline(always)]
    fn term(self, v: T) -> T {
        (v - self.0).exp_()
    }
}

simd_fn! { wide
    fn log_row<T: Real>(x: &[T], out: &mut [T]) {
        let m = max_of(x);
        let log_sum = sum_by(x, ExpBelow(m)).log_();
        for (o, &v) in out.iter_mut().zip(x) {
            *o = (v - m) - log_sum;
        }
    }
}

simd_fn! { wide
    /// Lines of up to [`LONGEST`] elements, as columns.
    fn beside<T: Real>(x: &[T], out: &mut [T], n: usize, log: bool) {
        let mut tiles: [Tile<T>; 2] = [[T::of(0.0); LONGEST * WIDTH]; 2];
        let [tile, made] = &mut tiles;
        for (x, out) in x.chunks(n * WIDTH).zip(out.chunks_mut(n * WIDTH)) {
            let width = turned(x, n, tile);
            columns(&tile[..n * width], Shared::new(made), [0, width], [width, width], log);
            returned(made, [n, width], out);
        }
    }
}

simd_fn! { wide
    /// Of columns: where the results begin and the step between their rows; that of the elements, and how many columns there are.
    fn columns<T: Real>(x: &[T], out: Shared<T>, place: [usize; 2], shape: [usize; 2], log: bool) {
        let ([at, to_step], [step, width]) = (place, shape);
        let (mut m, mut s) = ([T::LOWEST; WIDTH], [T::of(0.0); WIDTH]);
        let rows = || x.chunks(step).map(|row| &row[..width]);
        // SAFETY: nobody else has these columns of the results.
        let to = |r: usize| unsafe { out.part(at + r * to_step, width) };
        for row in rows() {
            for (m, &v) in m.iter_mut().zip(row) {
                *m = if v > *m { v } else { *m };
            }
        }
        for (r, row) in rows().enumerate() {
            for (((o, &v), &m), s) in to(r).iter_mut().zip(row).zip(&m).zip(&mut s) {
                let e = (v - m).exp_();
                *s += e;
                *o = if log { v - m } else { e };
            }
        }
        for s in &mut s[..width] {
            *s = if log { s.log_() } else { T::of(1.0) / *s };
        }
        for r in 0..x.len().div_ceil(step) {
            for (o, &s) in to(r).iter_mut().zip(&s) {
                *o = if log { *o - s } else { *o * s };
            }
        }
    }
}

/// Elements of a line that are summed in one go.
const PART: usize = 8192;

simd_fn! { wide
    /// The largest element, and the sum of the exponentials of the differences to it (to 0 if it is infinite).
    fn exp_part<T: Real>(x: &[T], out: &mut (T, T)) {
        let top = max_of(x);
        let shift = shift_of(top);
        *out = (top, sum_by(x, ExpBelow(shift)));
    }
}

/// The number that is subtracted before the exponential.
#[inline(always)]
fn shift_of<T: Real>(top: T) -> T {
    if top - top == T::of(0.0) {
        top
    } else {
        T::of(0.0)
    }
}

simd_fn! { wide
    /// The same of each of up to [`WIDTH`] columns.
    fn exp_columns<T: Real>(x: &[T], stride: usize, sums: &mut [(T, T)]) {
        let w = sums.len();
        let (mut top, mut sum) = ([T::LOWEST; WIDTH], [T::of(0.0); WIDTH]);
        for row in x.chunks(stride) {
            for (m, &v) in top.iter_mut().zip(&row[..w]) {
                *m = if v > *m { v } else { *m };
            }
        }
        let shift = top.map(shift_of);
        for row in x.chunks(stride) {
            for ((s, &m), &v) in sum.iter_mut().zip(&shift).zip(&row[..w]) {
                *s += (v - m).exp_();
            }
        }
        for (to, from) in sums.iter_mut().zip(top.into_iter().zip(sum)) {
            *to = from;
        }
    }
}

simd_fn! { wide
    /// Logarithms of sums of exponentials.
    fn logs<T: Real>(sums: &[(T, T)], out: &mut [T]) {
        for (o, &(top, sum)) in out.iter_mut().zip(sums) {
            *o = T::of(sum.f64_().log_() + shift_of(top).f64_());
        }
    }
}

/// The logarithm of the sum of exponentials of each line of `n` elements, or (if `inner` is above 1) of each column of
/// matrices of `n` rows of as many elements.
pub fn log_sum_exp<T: Real>(x: &[T], [n, inner]: [usize; 2], out: &mut [T]) {
    if n > PART && inner == 1 {
        return long_log_sum_exp(x, n, out);
    }
    let zero = (T::of(0.0), T::of(0.0));
    let shared = Shared::new(out);
    let across = inner.div_ceil(WIDTH);
    // A task is a block of lines, or of columns.
    let tasks = if inner == 1 {
        x.len().div_ceil(n * WIDTH)
    } else {
        x.len() / (n * inner) * across
    };
    let grain = (super::iter::GRAIN / (n * WIDTH.min(x.len() / n)).max(1)).max(1);
    pool::parallel_for(tasks, grain, |range| {
        let mut tile: Tile<T> = [T::of(0.0); LONGEST * WIDTH];
        for k in range {
            let mut sums = [zero; WIDTH];
            let (first, count) = if inner == 1 {
                let x = &x[k * n * WIDTH..x.len().min((k + 1) * n * WIDTH)];
                if n <= LONGEST {
                    let width = turned(x, n, &mut tile);
                    exp_columns(&tile[..n * width], width, &mut sums[..width]);
                } else {
                    for (line, sum) in x.chunks_exact(n).zip(&mut sums) {
                        exp_part(line, sum);
                    }
                }
                (k * WIDTH, x.len() / n)
            } else {
                let (block, j) = (k / across, k % across * WIDTH);
                let w = WIDTH.min(inner - j);
                let x = &x[block * n * inner + j..(block + 1) * n * inner];
                exp_columns(x, inner, &mut sums[..w]);
                (block * inner + j, w)
            };
            // SAFETY: every task has its own results.
            logs(&sums[..count], unsafe { shared.part(first, count) });
        }
    });
}

/// Lines that are summed in parts, which are then joined.
fn long_log_sum_exp<T: Real>(x: &[T], n: usize, out: &mut [T]) {
    let parts = n.div_ceil(PART);
    let mut all = vec![(T::of(0.0), T::of(0.0)); parts * out.len()];
    let shared = Shared::new(&mut all);
    pool::parallel_for(parts * out.len(), 1, |range| {
        for k in range {
            let (line, at) = (k / parts * n, k % parts * PART);
            let part = &x[line + at..line + n.min(at + PART)];
            // SAFETY: every task has its own element.
            exp_part(part, unsafe { &mut shared.part(k, 1)[0] });
        }
    });
    for (o, parts) in out.iter_mut().zip(all.chunks_exact(parts)) {
        let top = parts
            .iter()
            .fold(T::LOWEST, |m, p| if p.0 > m { p.0 } else { m });
        let shift = shift_of(top).f64_();
        let mut sum = 0.0;
        for &(top, s) in parts {
            // A part without a finite element adds nothing, whatever the scale.
            if s != T::of(0.0) {
                sum += s.f64_() * (shift_of(top).f64_() - shift).exp();
            }
        }
        *o = T::of(sum.ln() + shift);
    }
}

#[cfg(test)]
mod tests {
    use super::{LONGEST, beside, log_sum_exp, row};

    #[test]
    fn long_lines_are_summed_in_parts() {
        let n = 20_000;
        let mut x = vec![0.5f32; 4 * n];
        x[3] = 90.0;
        x[n..2 * n].fill(f32::NEG_INFINITY);
        x[2 * n + 5] = f32::INFINITY;
        x[3 * n + 19_999] = f32::NAN;
        let mut out = [0f32; 4];
        log_sum_exp(&x, [n, 1], &mut out);
        assert!((out[0] - 90.0).abs() < 1e-5);
        assert_eq!(out[1], f32::NEG_INFINITY);
        assert_eq!(out[2], f32::INFINITY);
        assert!(out[3].is_nan());
        log_sum_exp(&x[4..n], [n - 4, 1], &mut out[..1]);
        assert!((f64::from(out[0]) - (0.5 + (n as f64 - 4.0).ln())).abs() < 1e-5);
    }

    #[test]
    fn lines_and_columns_of_any_length_agree() {
        for n in [1usize, 2, 7, 8, 9, 24, 25, 31, 43, 64, 100] {
            for lines in [1usize, 3, 63, 64, 65, 130] {
                let x: Vec<f32> = (0..n * lines)
                    .map(|i| ((i * 37) % 29) as f32 / 4.0)
                    .collect();
                let mut columns = vec![0f32; n * lines];
                let (mut along, mut down) = (vec![0f32; lines], vec![0f32; lines]);
                let mut soft = vec![0f32; n * lines];
                for (l, line) in x.chunks(n).enumerate() {
                    line.iter()
                        .enumerate()
                        .for_each(|(j, &v)| columns[j * lines + l] = v);
                }
                log_sum_exp(&x, [n, 1], &mut along);
                log_sum_exp(&columns, [n, lines], &mut down);
                beside_or_rows(&x, &mut soft, n);
                for (l, line) in x.chunks(n).enumerate() {
                    let sum: f64 = line.iter().map(|&v| f64::from(v).exp()).sum();
                    assert!((f64::from(along[l]) - sum.ln()).abs() < 2e-6, "{n} {lines}");
                    assert!((along[l] - down[l]).abs() < 2e-6);
                    for (&v, &s) in line.iter().zip(&soft[l * n..]) {
                        assert!((f64::from(s) - f64::from(v).exp() / sum).abs() < 1e-6);
                    }
                }
            }
        }
    }

    fn beside_or_rows(x: &[f32], out: &mut [f32], n: usize) {
        if n <= LONGEST {
            return beside(x, out, n, false);
        }
        x.chunks(n)
            .zip(out.chunks_mut(n))
            .for_each(|(x, out)| row(x, out));
    }
}
