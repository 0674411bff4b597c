//! Products of many rows with few, short columns (points and what turns them): tiles would be mostly empty, so each row is
//! summed by itself, and vectors reach over its end into the next, which is written after it.

#![allow(
    unsafe_code,
    reason = "matrices are read by pointer, and rows written in vectors"
)]

use super::kernel::Product;
use super::policy::{Policy, Real, Task};
use super::turn::LANES;
use super::{PARALLEL_FROM, Shared};
use crate::cpu::pool;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Rows from which it pays to lay B aside.
const ROWS: usize = 64;
/// Steps of sums above which tiles are better: they sum several rows at a time.
const DEPTH: usize = 16;
/// Columns above which tiles are filled well enough.
const COLUMNS: usize = 64;
/// Rows that are summed side by side.
const ABREAST: usize = 4;
/// Rows that are summed before they are rounded.
const BLOCK: usize = 64;

/// Whether a product has so many rows of so few sums: fewer than fill two vectors of 64 bytes, or, of elements that tiles have
/// to widen first, some that do.
pub(super) fn fits<P: Policy>(m: usize, n: usize, k: usize) -> bool {
    let width = 64 / size_of::<P::Acc>();
    let few = match n % width {
        0 => !P::IN_PLACE && n <= COLUMNS,
        _ => n < if P::IN_PLACE { 2 * width } else { width },
    };
    m >= ROWS && n > 1 && few && (1..=DEPTH).contains(&k)
}

/// Some rows of a product that [`fits`], with factors of one and none, whose C has no gaps.
pub(super) struct Tall<P: Policy> {
    p: Product<P>,
    rows: Range<usize>,
}

/// All rows, shared out.
///
/// # Safety
/// As [`gemm`](super::gemm), and the machine has the policy's instructions.
pub(super) unsafe fn run<P: Policy>(p: Product<P>) {
    let grain = (PARALLEL_FROM / 4).div_ceil(p.n * p.k).max(BLOCK);
    let each = Shared(move |rows: Range<usize>| {
        // SAFETY: the caller's; rows of different shares are different.
        unsafe { P::with(Tall { p, rows }) }
    });
    let each = &each;
    pool::parallel_for(p.m, grain, |rows| each.call(rows));
}

impl<P: Policy> Task for Tall<P> {
    #[inline(always)]
    unsafe fn run(self) {
        let (p, n) = (&self.p, self.p.n);
        let mut b = [P::Acc::ZERO; DEPTH * COLUMNS + LANES];
        let mut bias = [P::Acc::ZERO; COLUMNS + LANES];
        let mut sums = MaybeUninit::<[P::Acc; BLOCK * COLUMNS + LANES]>::uninit();
        let sums = sums.as_mut_ptr().cast::<P::Acc>();
        // SAFETY: elements of B and the bias.
        unsafe {
            for (l, row) in b.chunks_exact_mut(n).take(p.k).enumerate() {
                for (j, to) in row.iter_mut().enumerate() {
                    *to = P::widen(*p.b.at(l, j).ptr);
                }
            }
            if let Some((from, _, step)) = p.bias {
                for (j, to) in bias[..n].iter_mut().enumerate() {
                    *to = P::widen(*from.offset(j as isize * step));
                }
            }
        }
        for i in self.rows.clone().step_by(BLOCK) {
            let count = BLOCK.min(self.rows.end - i);
            let behind = (self.rows.end - i - count) * n;
            // SAFETY: rows of A and C; what reaches beyond the last row of a share goes aside.
            unsafe {
                let to = p.c.at(i, 0).ptr;
                if P::IN_PLACE && behind >= LANES {
                    self.sums(i, count, &b, &bias, to.cast());
                    continue;
                }
                self.sums(i, count, &b, &bias, sums);
                if P::IN_PLACE {
                    std::ptr::copy_nonoverlapping(sums, to.cast(), count * n);
                } else {
                    P::narrow_row(sums, to, count * n);
                }
            }
        }
    }
}

impl<P: Policy> Tall<P> {
    /// The sums of some rows, one behind the other and a vector beyond.
    #[inline(always)]
    unsafe fn sums(
        &self,
        first: usize,
        count: usize,
        b: &[P::Acc],
        bias: &[P::Acc],
        to: *mut P::Acc,
    ) {
        let abreast = count / ABREAST * ABREAST;
        // SAFETY: the caller's.
        unsafe {
            for i in (0..abreast).step_by(ABREAST) {
                let to = to.add(i * self.p.n);
                let n = self.p.n;
                match n.div_ceil(P::W) {
                    1 => self.some::<ABREAST, 1>(first + i, b, bias, to),
                    2 => self.some::<ABREAST, 2>(first + i, b, bias, to),
                    _ if n % (2 * P::W) == 0 => {
                        // Nothing reaches beyond a row.
                        for j in (0..n).step_by(2 * P::W) {
                            self.some::<ABREAST, 2>(first + i, &b[j..], &bias[j..], to.add(j));
                        }
                    }
                    _ => {
                        for r in 0..ABREAST {
                            self.row(first + i + r, b, bias, to.add(r * n));
                        }
                    }
                }
            }
            for i in abreast..count {
                self.row(first + i, b, bias, to.add(i * self.p.n));
            }
        }
    }

    /// The sums of a row.
    #[inline(always)]
    unsafe fn row(&self, i: usize, b: &[P::Acc], bias: &[P::Acc], to: *mut P::Acc) {
        for j in (0..self.p.n).step_by(P::W) {
            // SAFETY: the caller's; B and the bias have a vector to spare.
            unsafe { self.some::<1, 1>(i, &b[j..], &bias[j..], to.add(j)) };
        }
    }

    /// The sums of `R` rows of `NV` vectors, which are written in order.
    #[inline(always)]
    unsafe fn some<const R: usize, const NV: usize>(
        &self,
        i: usize,
        b: &[P::Acc],
        bias: &[P::Acc],
        to: *mut P::Acc,
    ) {
        let (p, n) = (&self.p, self.p.n);
        // SAFETY: rows of A; B and the bias lie aside and have a vector to spare.
        unsafe {
            let mut acc = [[P::zero(); NV]; R];
            let mut a = p.a.at(i, 0).ptr;
            let mut b = b.as_ptr();
            for _ in 0..p.k {
                for r in 0..R {
                    let x = P::splat(P::widen(*a.wrapping_offset(r as isize * p.a.rs)));
                    for v in 0..NV {
                        acc[r][v] = P::muladd(x, P::load(b.add(v * P::W)), acc[r][v]);
                    }
                }
                a = a.wrapping_offset(p.a.cs);
                b = b.wrapping_add(n);
            }
            for r in 0..R {
                for v in 0..NV {
                    let mut sum = acc[r][v];
                    if p.bias.is_some() {
                        let more = P::load(bias.as_ptr().add(v * P::W));
                        sum = P::muladd(sum, P::splat(P::Acc::ONE), more);
                    }
                    P::store(to.add(r * n + v * P::W), sum);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::cpu::gemm::{GemmElement, Mat, MatMut, gemm};

    /// Whole numbers, which every order of summation sums alike.
    fn value(i: usize) -> f32 {
        (i * 7919 % 5) as f32 - 2.0
    }

    fn check<T: GemmElement>(make: fn(f32) -> T, read: fn(T) -> f32, scale: fn(f32) -> T::Scale) {
        let depths = [1, 3, 16];
        let widths = [2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65];
        let sizes = [64, 65, 66, 131].iter();
        let sizes = sizes.flat_map(|m| widths.map(|n| (*m, n)));
        for ((m, n), k) in sizes.flat_map(|s| depths.map(|k| (s, k))) {
            for layout in 0..8 {
                let (turned, gap, biased) = (layout & 1 != 0, layout & 2, layout & 4 != 0);
                let (x, y): (Vec<f32>, Vec<f32>) = (
                    (0..m * (k + gap)).map(value).collect(),
                    (0..k * n).map(|i| value(i + 3)).collect(),
                );
                let bias: Vec<f32> = (0..n).map(|j| value(j + 1)).collect();
                let typed = |v: &[f32]| -> Vec<T> { v.iter().map(|&v| make(v)).collect() };
                let (tx, ty, tb) = (typed(&x), typed(&y), typed(&bias));
                let mut z = vec![make(9.0); m * n + 64];
                let (rs, cs) = if turned { (1, k) } else { (n, 1) };
                let b = Mat::new(ty.as_ptr(), rs as isize, cs as isize);
                // SAFETY: the buffers are as long as the layouts say.
                unsafe {
                    gemm(
                        m,
                        n,
                        k,
                        scale(1.0),
                        Mat::new(tx.as_ptr(), (k + gap) as isize, 1),
                        b,
                        scale(0.0),
                        MatMut::new(z.as_mut_ptr(), n as isize, 1),
                        biased.then_some(tb.as_ptr()),
                    );
                }
                for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
                    let product = |l: usize| x[i * (k + gap) + l] * y[l * rs + j * cs];
                    let more = if biased { bias[j] } else { 0.0 };
                    let want = (0..k).map(product).sum::<f32>() + more;
                    assert_eq!(read(z[i * n + j]), want, "{m} {n} {k} {layout} {i} {j}");
                }
                let beyond = z[m * n..].iter().all(|&v| read(v) == 9.0);
                assert!(beyond, "written beyond the end: {m} {n} {k}");
            }
        }
    }

    #[test]
    fn points_of_every_layout() {
        check::<f32>(|v| v, |v| v, |v| v);
        check::<f64>(f64::from, |v| v as f32, f64::from);
        check::<half::f16>(half::f16::from_f32, half::f16::to_f32, |v| v);
        check::<half::bf16>(half::bf16::from_f32, half::bf16::to_f32, |v| v);
    }
}
