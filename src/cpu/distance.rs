//! Distances of rows: one to the other, or where many are compared in the usual ways, of a row to as many as there are lanes.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::alloc::Noted;
use super::lanes::Real;
use super::lines::{self, Shared};
use super::norm::{by_type, compute_type};
use super::room::Room;
use super::simd::simd_fn;
use super::{copy, pool, room, slice, slice_mut};
use crate::{DType, Dims, Result, Tensor};

/// The distances between all pairs of rows of a matrix.
///
/// # Errors
/// If memory cannot be had.
pub fn pairs(out: &Tensor, x: &Tensor, p: f64) -> Result<()> {
    let (n, m) = (x.shape()[0] as usize, x.shape()[1] as usize);
    if out.numel() == 0 {
        return Ok(());
    }
    distances(out, x, x, [n, n, m], p, true)
}

/// The distances of all rows of a batch of matrices to all rows of another; `out` is (batch..., rows, rows), and both
/// batches broadcast to its own.
///
/// # Errors
/// If memory cannot be had.
pub fn cross(out: &Tensor, x: &Tensor, y: &Tensor, p: f64) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let (spread, sizes) = (spread(out), sizes(out, x));
    distances(out, &spread(x), &spread(y), sizes, p, false)
}

/// What [`pairs`] takes.
///
/// # Errors
/// If a size overflows.
pub fn pairs_room(room: &mut Room, out: &Tensor, x: &Tensor, p: f64) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let (n, m) = (x.shape()[0] as usize, x.shape()[1] as usize);
    room_of(room, out, [x, x], [n, n, m], p)
}

/// What [`cross`] takes.
///
/// # Errors
/// If a size overflows.
pub fn cross_room(room: &mut Room, out: &Tensor, x: &Tensor, y: &Tensor, p: f64) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let (spread, sizes) = (spread(out), sizes(out, x));
    room_of(room, out, [&spread(x), &spread(y)], sizes, p)
}

fn room_of(
    room: &mut Room,
    out: &Tensor,
    [x, y]: [&Tensor; 2],
    sizes: [usize; 3],
    p: f64,
) -> Result<()> {
    let compute = compute_type(out.dtype());
    room.operands([Some(x), Some(y)], std::slice::from_ref(out), compute)?;
    let turned = turned_length(y.numel() as usize, sizes, p).unwrap_or(0);
    room.lists(1, turned * compute.size())
}

/// Matrices repeated to the batch of distances.
fn spread(out: &Tensor) -> impl Fn(&Tensor) -> Tensor + use<> {
    let batch = Dims::new(&out.shape()[..out.ndim() - 2]);
    move |t| t.expand_to(&batch.concat(&t.shape()[t.ndim() - 2..]))
}

/// Rows, rows that they are compared with, and the numbers of a row.
fn sizes(out: &Tensor, x: &Tensor) -> [usize; 3] {
    let n = out.ndim();
    [
        out.shape()[n - 2],
        out.shape()[n - 1],
        x.shape()[x.ndim() - 1],
    ]
    .map(|s| s as usize)
}

/// `x` is (batch, p, m), `y` (batch, r, m), and the sizes are p, r, m; of `pairs` those above the diagonal.
fn distances(
    out: &Tensor,
    x: &Tensor,
    y: &Tensor,
    sizes: [usize; 3],
    p: f64,
    pairs: bool,
) -> Result<()> {
    let compute = compute_type(out.dtype());
    let (x, y) = (copy::dense(x, compute)?, copy::dense(y, compute)?);
    let result = lines::results(out, compute)?;
    by_type!(compute, T => distances_of::<T>(&result, &x, &y, sizes, p, pairs));
    lines::put(out, &result)
}

fn distances_of<T: Real>(
    out: &Tensor,
    x: &Tensor,
    y: &Tensor,
    [p_rows, r_rows, m]: [usize; 3],
    p: f64,
    pairs: bool,
) {
    let rows = if pairs {
        p_rows
    } else {
        out.numel() as usize / r_rows
    };
    let (x, y) = (slice::<T>(x), slice::<T>(y));
    let to = Shared::new(slice_mut::<T>(out));
    let turned = Turned::of(y, [p_rows, r_rows, m], p);
    pool::parallel_for(rows, (16384 / (r_rows * m).max(1)).max(1), |range| {
        for i in range {
            // Of pairs, a row has those with the rows behind it.
            let (first, at) = if pairs {
                (i + 1, i * r_rows - i * (i + 1) / 2)
            } else {
                (0, i * r_rows)
            };
            // SAFETY: every row has its own part.
            let row = unsafe { to.part(at, r_rows - first) };
            let (x, batch) = (&x[i * m..][..m], i / p_rows);
            if let Some(turned) = &turned {
                turned.row(x, batch, first, row);
                continue;
            }
            for (j, o) in (batch * r_rows + first..).zip(row) {
                distance(x, &y[j * m..][..m], p, o);
            }
        }
    });
}

/// Rows that one is compared with at once, each in a lane.
const WIDE: usize = 64;

/// As many numbers as the rows of a batch of so many have side by side. None: it would not pay to turn them, or there is no sum
/// for this exponent without powers.
fn turned_length(numbers: usize, [times, rows, length]: [usize; 3], p: f64) -> Option<usize> {
    /// Rows that have to be compared with these for turning them to be worth its time.
    const TIMES: usize = 8;
    if times < TIMES || rows < WIDE / 2 || ![0.0, 1.0, 2.0].contains(&p) {
        return None;
    }
    let batches = numbers / (rows * length).max(1);
    Some(batches * length * rows.next_multiple_of(WIDE))
}

/// A batch of matrices with their rows side by side.
struct Turned<T> {
    numbers: Vec<T>,
    rows: usize,
    /// Numbers of a row.
    length: usize,
    /// From a number to the next one of the same row: the rows, and zeros up to whole lanes.
    step: usize,
    p: f64,
    /// Its numbers count as memory of tensors does.
    _held: Noted,
}

impl<T: Real> Turned<T> {
    /// None: it would not pay.
    fn of(y: &[T], [times, rows, length]: [usize; 3], p: f64) -> Option<Self> {
        let all = turned_length(y.len(), [times, rows, length], p)?;
        let step = rows.next_multiple_of(WIDE);
        let held = room::lists(1, all * size_of::<T>());
        let mut numbers = vec![T::of(0.0); all];
        for (i, row) in y.chunks_exact(length.max(1)).enumerate() {
            let start = i / rows * length * step + i % rows;
            for (to, &v) in numbers[start..].iter_mut().step_by(step).zip(row) {
                *to = v;
            }
        }
        Some(Self {
            numbers,
            rows,
            length,
            step,
            p,
            _held: held,
        })
    }

    /// The distances of a row to those of a matrix from `first` on.
    fn row(&self, x: &[T], batch: usize, first: usize, to: &mut [T]) {
        let matrix = &self.numbers[batch * self.length * self.step..];
        let mut made = [T::of(0.0); WIDE];
        for start in (first / WIDE * WIDE..self.rows).step_by(WIDE) {
            let (from, end) = (first.max(start), self.rows.min(start + WIDE));
            let lanes = matrix.get(start..).unwrap_or(&[]);
            lanes_of(x, lanes, self.step, self.p, &mut made);
            to[from - first..end - first].copy_from_slice(&made[from - start..end - start]);
        }
    }
}

simd_fn! { wide
    /// The distances of a row to those of which a matrix has a number in each lane, `step` apart.
    fn lanes_of<T: Real>(x: &[T], matrix: &[T], step: usize, p: f64, to: &mut [T; WIDE]) {
        /// Terms that are summed before partial sums join the others.
        const DEEP: usize = 64;
        let zero = T::of(0.0);
        let mut sums = [zero; WIDE];
        macro_rules! summed {
            (|$a:ident, $b:ident| $term:expr) => {
                for (x, rows) in x.chunks(DEEP).zip(matrix.chunks(DEEP * step)) {
                    let mut part = [zero; WIDE];
                    for (&$a, row) in x.iter().zip(rows.chunks(step)) {
                        let Some(row) = row.first_chunk::<WIDE>() else {
                            break;
                        };
                        for l in 0..WIDE {
                            let $b = row[l];
                            part[l] += $term;
                        }
                    }
                    for l in 0..WIDE {
                        sums[l] += part[l];
                    }
                }
            };
        }
        if p == 2.0 {
            summed!(|a, b| (a - b) * (a - b));
            for sum in &mut sums {
                *sum = sum.sqrt_();
            }
        } else if p == 1.0 {
            summed!(|a, b| if a < b { b - a } else { a - b });
        } else {
            summed!(|a, b| if a == b { zero } else { T::of(1.0) });
        }
        *to = sums;
    }
}

/// Elements whose powers are computed together.
const TOGETHER: usize = 128;

/// [`distance`] for machines without AVX2: one number after the other.
#[cfg(target_arch = "x86_64")]
fn plain<T: Real>(x: &[T], y: &[T], p: f64, out: &mut T) {
    let zero = T::of(0.0);
    let (mut sum, mut powers, mut most) = (zero, 0f64, zero);
    for (&a, &b) in x.iter().zip(y) {
        // Something happens between numbers, so that they are not taken together.
        std::hint::black_box(());
        let gap = if a < b { b - a } else { a - b };
        if p == 2.0 {
            sum += gap * gap;
        } else if p == 0.0 {
            sum += if a == b { zero } else { T::of(1.0) };
        } else {
            sum += gap;
            most = if gap > most { gap } else { most };
            if p != 1.0 && p != f64::INFINITY {
                powers += gap.f64_().powf(p);
            }
        }
    }
    *out = if p == 2.0 {
        sum.sqrt_()
    } else if p == 0.0 || p == 1.0 {
        sum
    } else if p == f64::INFINITY {
        // Of no numbers but these is the sum none.
        if sum != sum { sum } else { most }
    } else {
        T::of(powers.powf(1.0 / p))
    };
}

simd_fn! { wide else plain,
    fn distance<T: Real>(x: &[T], y: &[T], p: f64, out: &mut T) {
        use super::lanes::{max_of, sum2_by};
        use super::vmath64::pow;
        let gap = |a: T, b: T| if a < b { b - a } else { a - b };
        *out = if p == 2.0 {
            sum2_by(x, y, |a, b| (a - b) * (a - b)).sqrt_()
        } else if p == 1.0 {
            sum2_by(x, y, gap)
        } else if p == 0.0 {
            sum2_by(x, y, |a, b| if a == b { T::of(0.0) } else { T::of(1.0) })
        } else if p == f64::INFINITY {
            let mut gaps = [T::of(0.0); TOGETHER];
            let mut most = T::of(0.0);
            for (x, y) in x.chunks(TOGETHER).zip(y.chunks(TOGETHER)) {
                let gaps = &mut gaps[..x.len()];
                gaps.iter_mut().zip(x).zip(y).for_each(|((to, &a), &b)| *to = gap(a, b));
                let here = max_of(gaps);
                most = if here > most { here } else { most };
            }
            // Of no numbers but these is the sum none.
            let all = sum2_by(x, y, gap);
            if all != all { all } else { most }
        } else {
            let mut powers = [0f64; TOGETHER];
            let mut sum = 0f64;
            for (x, y) in x.chunks(TOGETHER).zip(y.chunks(TOGETHER)) {
                let powers = &mut powers[..x.len()];
                for ((to, &a), &b) in powers.iter_mut().zip(x).zip(y) {
                    *to = pow(gap(a, b).f64_(), p);
                }
                powers.iter().for_each(|v| sum += v);
            }
            T::of(sum.powf(1.0 / p))
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Device};

    fn numbers(rows: i64, m: i64, seed: i64) -> Tensor {
        let v: Vec<f64> = (0..rows * m)
            .map(|i| ((i * 37 + seed) % 101) as f64 / 8.0)
            .collect();
        Tensor::from_slice(&v, &[rows, m]).unwrap()
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn every_machine_has_the_same_distances() {
        for m in [0usize, 1, 130] {
            let x: Vec<f64> = (0..m).map(|i| (i * 37 % 11) as f64).collect();
            let y: Vec<f64> = (0..m).map(|i| (i * 29 % 13) as f64).collect();
            for p in [0.0, 0.7, 1.0, 2.0, 3.0, f64::INFINITY] {
                let (mut got, mut want) = (0.0, 0.0);
                plain(&x, &y, p, &mut got);
                distance(&x, &y, p, &mut want);
                assert!((got - want).abs() <= 1e-12 * want, "{m} {p}");
            }
        }
    }

    #[test]
    fn lanes_and_single_rows_agree() {
        for (rows, m) in [(32, 3), (63, 1), (64, 300), (65, 0), (130, 7)] {
            let (x, y) = (numbers(9, m, 5), numbers(rows, m, 2));
            for p in [0.0, 1.0, 2.0] {
                let out = Tensor::empty(&[9, rows], DType::F64, Device::CPU).unwrap();
                cross(&out, &x, &y, p).unwrap();
                let own = Tensor::empty(&[rows * (rows - 1) / 2], DType::F64, Device::CPU).unwrap();
                pairs(&own, &y, p).unwrap();
                let (xs, ys) = (slice::<f64>(&x), slice::<f64>(&y));
                let m = m as usize;
                let check = |x: &[f64], j: usize, got: f64| {
                    let mut want = 0.0;
                    distance(x, &ys[j * m..][..m], p, &mut want);
                    assert!((got - want).abs() <= 1e-12 * want, "{rows} {m} {p} {j}");
                };
                for (k, &got) in slice::<f64>(&out).iter().enumerate() {
                    let (i, j) = (k / rows as usize, k % rows as usize);
                    check(&xs[i * m..][..m], j, got);
                }
                let mut own = slice::<f64>(&own).iter();
                for i in 0..rows as usize {
                    for j in i + 1..rows as usize {
                        check(&ys[i * m..][..m], j, *own.next().unwrap());
                    }
                }
            }
        }
    }
}
