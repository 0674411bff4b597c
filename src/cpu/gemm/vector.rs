//! Products with few rows: limited by memory, so B is read once, in order, and never packed.

#![allow(unsafe_code, reason = "rows are read by pointer, in vectors")]

use super::kernel::Product;
use super::policy::{Policy, Real, Task};
use super::turn::LANES;

/// Sums that stay in the innermost cache.
const SUMS: usize = 6 << 10;
/// Rows of B that are added at a time.
const DEEP: usize = 8;

/// Columns `j0..j1` of a product whose B is contiguous along rows or columns.
pub(super) struct Few<P: Policy> {
    pub p: Product<P>,
    pub j0: usize,
    pub j1: usize,
}

impl<P: Policy> Few<P> {
    /// Dot products of `M` rows of A and `C` columns of B, both contiguous along k, with `U` accumulators each.
    #[inline(always)]
    unsafe fn dots<const M: usize, const C: usize, const U: usize>(
        &self,
        x: *const P::X,
        i: usize,
        j: usize,
    ) {
        let p = &self.p;
        // SAFETY: reads stay below m, k and n.
        unsafe {
            let mut acc = [[[P::zero(); U]; C]; M];
            let x = x.add(i * p.k);
            let base = p.b.ptr.offset(j as isize * p.b.cs);
            let mut at = 0;
            while at + U * P::DOT <= p.k {
                for u in 0..U {
                    let from = at + u * P::DOT;
                    for c in 0..C {
                        let b = base.offset(c as isize * p.b.cs).add(from);
                        for m in 0..M {
                            acc[m][c][u] = P::dot(acc[m][c][u], x.add(m * p.k + from), b);
                        }
                    }
                }
                at += U * P::DOT;
            }
            // Lanes are summed for a vector of results at a time.
            let one = P::splat(P::Acc::ONE);
            let mut sums = [P::Acc::ZERO; 2 * LANES];
            for g in (0..M * C).step_by(P::W) {
                let mut square = [P::zero(); LANES];
                for l in 0..P::W {
                    if g + l < M * C {
                        let parts = acc[(g + l) / C][(g + l) % C];
                        square[l] = parts[0];
                        for u in 1..U {
                            square[l] = P::muladd(parts[u], one, square[l]);
                        }
                    }
                }
                P::turn(&mut square);
                let mut width = P::W / 2;
                while width > 0 {
                    for l in 0..width {
                        square[l] = P::muladd(square[l + width], one, square[l]);
                    }
                    width /= 2;
                }
                P::store(sums.as_mut_ptr().add(g), square[0]);
            }
            for m in 0..M {
                for c in 0..C {
                    let mut sum = sums[m * C + c];
                    let column = base.offset(c as isize * p.b.cs);
                    for k in at..p.k {
                        sum = P::mac(P::kept(*x.add(m * p.k + k)), P::widen(*column.add(k)), sum);
                    }
                    self.p.put(i + m, j + c, sum);
                }
            }
        }
    }

    /// `C` columns, all rows: a few rows at a time, while the columns are in a cache.
    #[inline(always)]
    unsafe fn columns<const C: usize>(&self, x: *const P::X, j: usize) {
        let mut i = 0;
        // SAFETY: the caller's.
        unsafe {
            while i + 4 <= self.p.m {
                self.dots::<4, C, 1>(x, i, j);
                i += 4;
            }
            match self.p.m - i {
                3 => self.dots::<3, C, 1>(x, i, j),
                2 => self.dots::<2, C, 1>(x, i, j),
                1 => self.dots::<1, C, 1>(x, i, j),
                _ => {}
            }
        }
    }

    /// The one row of a result with `N` elements, fewer than fill vectors: rows of B follow each other in sums that do not wait
    /// for each other.
    #[inline(always)]
    unsafe fn slim<const N: usize>(&self, x: *const P::Acc) {
        const APART: usize = 4;
        let p = &self.p;
        // SAFETY: reads stay below k and n.
        unsafe {
            let mut acc = [[P::Acc::ZERO; N]; APART];
            let mut row = p.b.ptr;
            let mut add = |sums: &mut [P::Acc; N], k: usize| {
                for q in 0..N {
                    sums[q] = P::mac(*x.add(k), P::widen(*row.add(q)), sums[q]);
                }
                row = row.wrapping_offset(p.b.rs);
            };
            let whole = p.k - p.k % APART;
            for k in (0..whole).step_by(APART) {
                for u in 0..APART {
                    add(&mut acc[u], k + u);
                }
            }
            for k in whole..p.k {
                add(&mut acc[0], k);
            }
            for q in 0..N {
                p.put(0, q, (acc[0][q] + acc[1][q]) + (acc[2][q] + acc[3][q]));
            }
        }
    }

    /// Computes such a result; says whether it is one.
    #[inline(always)]
    unsafe fn run_slim(&self, x: *const P::Acc) -> bool {
        if self.p.m != 1 || self.p.b.cs != 1 {
            return false;
        }
        // SAFETY: the caller's.
        unsafe {
            match self.p.n {
                2 => self.slim::<2>(x),
                3 => self.slim::<3>(x),
                4 => self.slim::<4>(x),
                5 => self.slim::<5>(x),
                6 => self.slim::<6>(x),
                7 => self.slim::<7>(x),
                _ => return false,
            }
        }
        true
    }

    /// Adds 8 rows of B, times their factors (`k` apart for the rows of A), to `m` rows of `width` sums.
    #[inline(always)]
    unsafe fn add_rows(
        &self,
        x: *const P::Acc,
        rows: [*const P::T; DEEP],
        sums: *mut P::Acc,
        width: usize,
    ) {
        let p = &self.p;
        // SAFETY: the caller's rows are as long as those of the sums.
        unsafe {
            let mut q = 0;
            while q + P::W <= width {
                let mut b = [P::zero(); DEEP];
                for r in 0..DEEP {
                    b[r] = P::load_wide(rows[r].add(q));
                }
                for m in 0..p.m {
                    let to = sums.add(m * width + q);
                    let x = x.add(m * p.k);
                    let mut v = P::load(to);
                    for r in 0..DEEP {
                        v = P::muladd(P::splat(*x.add(r)), b[r], v);
                    }
                    P::store(to, v);
                }
                q += P::W;
            }
            for q in q..width {
                for m in 0..p.m {
                    let to = sums.add(m * width + q);
                    for r in 0..DEEP {
                        *to = P::mac(*x.add(m * p.k + r), P::widen(*rows[r].add(q)), *to);
                    }
                }
            }
        }
    }
}

impl<P: Policy> Task for Few<P> {
    #[inline(always)]
    unsafe fn run(self) {
        let p = &self.p;
        // SAFETY: reads stay within A and B.
        unsafe {
            // A once, contiguous along k.
            macro_rules! rows {
                ($f:path) => {{
                    let mut x = Vec::with_capacity(p.m * p.k);
                    for i in 0..p.m {
                        if p.a.cs == 1 {
                            let row = std::slice::from_raw_parts(p.a.at(i, 0).ptr, p.k);
                            x.extend(row.iter().map(|&v| $f(v)));
                        } else {
                            x.extend((0..p.k).map(|k| $f(*p.a.at(i, k).ptr)));
                        }
                    }
                    x
                }};
            }
            if p.b.rs == 1 {
                let x: Vec<P::X> = rows!(P::keep);
                let x = x.as_ptr();
                let mut j = self.j0;
                if p.m == 1 {
                    while j + 8 <= self.j1 {
                        self.dots::<1, 8, 1>(x, 0, j);
                        j += 8;
                    }
                    while j < self.j1 {
                        self.dots::<1, 1, 4>(x, 0, j);
                        j += 1;
                    }
                }
                if p.m == 2 {
                    while j + 8 <= self.j1 {
                        self.dots::<2, 8, 1>(x, 0, j);
                        j += 8;
                    }
                }
                while j + 4 <= self.j1 {
                    self.columns::<4>(x, j);
                    j += 4;
                }
                while j < self.j1 {
                    self.columns::<1>(x, j);
                    j += 1;
                }
                return;
            }
            let x: Vec<P::Acc> = rows!(P::widen);
            let x = x.as_ptr();
            if self.run_slim(x) {
                return;
            }
            let width = SUMS / p.m.max(3);
            let mut sums = vec![P::Acc::ZERO; width.min(self.j1 - self.j0) * p.m];
            for j in (self.j0..self.j1).step_by(width) {
                let w = width.min(self.j1 - j);
                let sums = &mut sums[..w * p.m];
                sums.fill(P::Acc::ZERO);
                let mut k = 0;
                if p.b.cs == 1 {
                    while k + DEEP <= p.k {
                        let mut rows = [p.b.ptr; DEEP];
                        for r in 0..DEEP {
                            rows[r] = p.b.at(k + r, j).ptr;
                        }
                        self.add_rows(x.add(k), rows, sums.as_mut_ptr(), w);
                        k += DEEP;
                    }
                }
                for k in k..p.k {
                    for m in 0..p.m {
                        for q in 0..w {
                            let b = P::widen(*p.b.at(k, j + q).ptr);
                            sums[m * w + q] = P::mac(*x.add(m * p.k + k), b, sums[m * w + q]);
                        }
                    }
                }
                for m in 0..p.m {
                    for q in 0..w {
                        self.p.put(m, j + q, sums[m * w + q]);
                    }
                }
            }
        }
    }
}
