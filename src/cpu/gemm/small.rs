//! Batches of products that are smaller than a tile: nothing is packed, and what a product needs besides its sums is found
//! once for all of them.

#![allow(unsafe_code, reason = "matrices are read by pointer, in vectors")]

use super::kernel::Product;
use super::policy::{Policy, Real, Task};
use super::turn::LANES;
use super::{Batch, GemmElement, Mat};

/// Products of one shape, each operand's matrices a step apart.
pub(super) struct Small<P: Policy> {
    /// The first of them.
    p: Product<P>,
    /// From matrix to matrix of A, B and C.
    steps: [isize; 3],
    count: usize,
}

impl<P: Policy> Small<P> {
    /// Of the transposes where rows of C are not contiguous and columns are, or where there is one column.
    pub(super) fn new<T: GemmElement<Scale = P::Acc>>(all: Batch<T>) -> Self
    where
        P: Policy<T = T>,
    {
        let [m, n, k] = all.size;
        let (mut steps, count) = (all.steps, all.count);
        let mut p = Product {
            m,
            n,
            k,
            alpha: all.alpha,
            a: all.a,
            b: all.b,
            beta: all.beta,
            c: all.c,
            bias: None,
        };
        if p.m > 1 && (p.n == 1 || p.c.cs != 1 && p.c.rs == 1) {
            (p.m, p.n) = (p.n, p.m);
            (p.a, p.b, p.c) = (p.b.t(), p.a.t(), p.c.t());
            steps.swap(0, 1);
        }
        Self { p, steps, count }
    }
}

impl<P: Policy> Product<P> {
    /// The sums of a vector of elements of a row, whose elements of B are neighbours.
    #[inline(always)]
    unsafe fn sums(&self, i: usize, j: usize) -> P::V {
        // SAFETY: `i` is below m, and B has a vector from column `j` on.
        unsafe {
            let mut acc = P::zero();
            for l in 0..self.k {
                let a = P::splat(P::widen(*self.a.at(i, l).ptr));
                acc = P::muladd(a, P::load_wide(self.b.at(l, j).ptr), acc);
            }
            acc
        }
    }

    /// One element, summed in order from `sum` on.
    #[inline(always)]
    unsafe fn rest(&self, i: usize, j: usize, from: usize, mut sum: P::Acc) {
        // SAFETY: as above, and `k` elements on both sides.
        unsafe {
            for l in from..self.k {
                let (a, b) = (*self.a.at(i, l).ptr, *self.b.at(l, j).ptr);
                sum = P::mac(P::widen(a), P::widen(b), sum);
            }
            self.put(i, j, sum);
        }
    }

    /// Rows of C, whose elements are neighbours as those of B are.
    #[inline(always)]
    unsafe fn by_rows(&self) {
        let whole = self.n / P::W * P::W;
        // SAFETY: vectors lie within the rows of B, and sums go to elements of C.
        unsafe {
            for i in 0..self.m {
                for j in (0..whole).step_by(P::W) {
                    let mut sums = [P::Acc::ZERO; LANES];
                    P::store(sums.as_mut_ptr(), self.sums(i, j));
                    for (l, sum) in sums[..P::W].iter().enumerate() {
                        self.put(i, j + l, *sum);
                    }
                }
                for j in whole..self.n {
                    self.rest(i, j, 0, P::Acc::ZERO);
                }
            }
        }
    }

    /// Rows of a C without gaps in whole vectors, whose last lanes the next row writes again.
    #[inline(always)]
    unsafe fn over_rows(&self) {
        // SAFETY: the caller's, who has as many elements behind B and C.
        unsafe {
            for i in 0..self.m {
                for j in (0..self.n).step_by(P::W) {
                    P::store(self.c.at(i, j).ptr.cast(), self.sums(i, j));
                }
            }
        }
    }

    /// Elements of C by themselves, whose row of A and column of B are neighbours each.
    #[inline(always)]
    unsafe fn by_dots(&self) {
        let whole = self.k / P::W * P::W;
        // SAFETY: vectors lie within the rows of A and the columns of B.
        unsafe {
            for i in 0..self.m {
                for j in 0..self.n {
                    let mut acc = P::zero();
                    for l in (0..whole).step_by(P::W) {
                        let a = P::load_wide(self.a.at(i, l).ptr);
                        acc = P::muladd(a, P::load_wide(self.b.at(l, j).ptr), acc);
                    }
                    let mut sums = [P::Acc::ZERO; LANES];
                    P::store(sums.as_mut_ptr(), acc);
                    let mut width = P::W / 2;
                    while width > 0 {
                        for l in 0..width {
                            sums[l] = sums[l] + sums[l + width];
                        }
                        width /= 2;
                    }
                    self.rest(i, j, whole, sums[0]);
                }
            }
        }
    }
}

impl<P: Policy> Small<P> {
    /// How many products may write whole vectors: C is without gaps, and so many elements lie behind its rows and those of B.
    fn over(&self, turned: bool) -> usize {
        let (p, [_, sb, sc]) = (&self.p, self.steps);
        let (m, n, k) = (p.m as isize, p.n as isize, p.k as isize);
        let plain = P::IN_PLACE && p.alpha == P::Acc::ONE && p.beta == P::Acc::ZERO;
        let dense = p.c.cs == 1 && (m == 1 || p.c.rs == n) && sc == m * n;
        let forward = turned || p.b.cs == 1 && (k == 1 || p.b.rs >= 0) && sb >= 0;
        if !(plain && dense && forward) {
            return 0;
        }
        let behind = p.n.next_multiple_of(P::W) as isize - n;
        // Steps of nothing lead nowhere: then one matrix of B is read by all, without anything behind it.
        let enough = |step: isize| match step {
            0 if behind > 0 => self.count,
            step => (behind as usize).div_ceil(step.max(1) as usize),
        };
        let of_b = if turned { 0 } else { enough(sb) };
        self.count.saturating_sub(of_b.max(enough(sc)))
    }
}

/// Elements of a B that is turned, so that its rows are neighbours.
const TURNED: usize = 1024;

impl<P: Policy> Task for Small<P> {
    #[inline(always)]
    unsafe fn run(self) {
        let first = self.p;
        // A vector is multiplied by lanes, as elsewhere, and a matrix in order, as on tiles.
        let lines = first.m == 1 && first.a.cs == 1 && first.b.rs == 1;
        let dots = lines && first.k >= P::W && first.n < P::W;
        let size = first.n * first.k;
        let turned = first.m > 1 && first.b.cs != 1 && first.n > 1 && size <= TURNED;
        let rows = first.c.cs == 1 && (turned || first.b.cs == 1);
        let over = if dots { 0 } else { self.over(turned) };
        let mut room;
        let mut aside: &mut [P::T] = &mut [];
        if turned {
            room = [P::narrow(P::Acc::ZERO); TURNED + LANES];
            aside = &mut room;
        }
        for i in 0..self.count as isize {
            let mut p = first;
            // SAFETY: the caller's, who has so many matrices.
            unsafe {
                p.a.ptr = p.a.ptr.offset(i * self.steps[0]);
                p.b.ptr = p.b.ptr.offset(i * self.steps[1]);
                p.c.ptr = p.c.ptr.offset(i * self.steps[2]);
                if turned {
                    if i == 0 || self.steps[1] != 0 {
                        for (l, row) in aside[..size].chunks_exact_mut(p.n).enumerate() {
                            for (j, to) in row.iter_mut().enumerate() {
                                *to = *p.b.at(l, j).ptr;
                            }
                        }
                    }
                    p.b = Mat::new(aside.as_ptr(), p.n as isize, 1);
                }
                if (i as usize) < over {
                    p.over_rows();
                } else if rows && p.n >= P::W {
                    p.by_rows();
                } else if lines && p.k >= P::W {
                    p.by_dots();
                } else {
                    for i in 0..p.m {
                        for j in 0..p.n {
                            p.rest(i, j, 0, P::Acc::ZERO);
                        }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::cpu::gemm::{GemmElement, Mat, MatMut, gemm_batch};

    const COUNT: usize = 5;

    /// Whole numbers, which every order of summation sums alike.
    fn value(i: usize) -> f32 {
        (i * 7919 % 5) as f32 - 2.0
    }

    /// Matrices of a shape: strides of rows and columns, from matrix to matrix, and how much all of them take.
    type Laid = ([isize; 3], usize);

    fn laid(rows: usize, columns: usize, turned: bool, gap: usize) -> Laid {
        let (r, c) = if turned {
            (1, rows + gap)
        } else {
            (columns + gap, 1)
        };
        let all = if turned { columns * c } else { rows * r };
        ([r, c, all].map(|s| s as isize), COUNT * all)
    }

    fn check<T: GemmElement>(make: fn(f32) -> T, read: fn(T) -> f32, scale: fn(f32) -> T::Scale) {
        let sizes = [1, 2, 3, 7, 8, 9, 17];
        let shapes = sizes
            .iter()
            .flat_map(|m| sizes.iter().map(move |n| (*m, *n)));
        for ((m, n), k) in shapes.flat_map(|s| [1, 3, 8, 19].map(|k| (s, k))) {
            for layout in 0..16 {
                let bit = |b: usize| layout >> b & 1 == 1;
                let (gap, by) = (
                    usize::from(bit(3)),
                    if bit(3) { (2.0, 1.0) } else { (1.0, 0.0) },
                );
                let (a, b, c) = (
                    laid(m, k, bit(0), gap),
                    laid(k, n, bit(1), gap),
                    laid(m, n, bit(2), gap),
                );
                let numbers = |of: Laid, from: usize| -> Vec<f32> {
                    (0..of.1).map(|i| value(i + from)).collect()
                };
                let (x, y, z) = (numbers(a, 0), numbers(b, 3), numbers(c, 1));
                let typed = |v: &[f32]| -> Vec<T> { v.iter().map(|&v| make(v)).collect() };
                let (tx, ty, mut tz) = (typed(&x), typed(&y), typed(&z));
                // SAFETY: the buffers are as long as the layouts say.
                unsafe {
                    gemm_batch(
                        COUNT,
                        m,
                        n,
                        k,
                        scale(by.0),
                        (Mat::new(tx.as_ptr(), a.0[0], a.0[1]), a.0[2]),
                        (Mat::new(ty.as_ptr(), b.0[0], b.0[1]), b.0[2]),
                        scale(by.1),
                        (MatMut::new(tz.as_mut_ptr(), c.0[0], c.0[1]), c.0[2]),
                    );
                }
                let mut want = z;
                let place = |of: Laid, at: [usize; 3]| -> usize {
                    at.iter()
                        .zip(of.0)
                        .map(|(&i, step)| i * step as usize)
                        .sum()
                };
                for (t, i, j) in (0..COUNT).flat_map(|t| (0..m * n).map(move |e| (t, e / n, e % n)))
                {
                    let product = |l: usize| x[place(a, [i, l, t])] * y[place(b, [l, j, t])];
                    let to = &mut want[place(c, [i, j, t])];
                    *to = by.0 * (0..k).map(product).sum::<f32>() + by.1 * *to;
                }
                let got: Vec<f32> = tz.into_iter().map(read).collect();
                assert_eq!(got, want, "{m} {n} {k} {layout}");
            }
        }
    }

    #[test]
    fn batches_of_every_layout() {
        check::<f32>(|v| v, |v| v, |v| v);
        check::<f64>(f64::from, |v| v as f32, f64::from);
        check::<half::f16>(half::f16::from_f32, half::f16::to_f32, |v| v);
        check::<half::bf16>(half::bf16::from_f32, half::bf16::to_f32, |v| v);
    }
}
