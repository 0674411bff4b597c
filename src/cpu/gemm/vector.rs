//! Products with one row: limited by memory, so B is read once, in order, and never packed.

use super::kernel::Product;
use super::policy::{Policy, Real, Task};

/// Lanes of the widest vector of any policy.
const L: usize = 16;

/// Columns `j0..j1` of a product with `m == 1`.
pub(super) struct Row<P: Policy> {
    pub p: Product<P>,
    pub j0: usize,
    pub j1: usize,
}

impl<P: Policy> Row<P> {
    #[inline(always)]
    unsafe fn put(&self, j: usize, sum: P::Acc) {
        let p = &self.p;
        // SAFETY: `j` is below n.
        unsafe {
            let at = p.c.ptr.offset(j as isize * p.c.cs);
            let mut v = sum * p.alpha;
            if p.beta != P::Acc::ZERO {
                v = P::mac(P::widen(*at), p.beta, v);
            }
            if let Some((bias, _, cs)) = p.bias {
                v = v + P::widen(*bias.offset(j as isize * cs));
            }
            *at = P::narrow(v);
        }
    }

    /// Dot products of `R` columns that are contiguous along k, with `U` accumulators each.
    #[inline(always)]
    unsafe fn dots<const R: usize, const U: usize>(&self, x: *const P::Acc, j: usize) {
        let p = &self.p;
        // SAFETY: reads stay below k and n.
        unsafe {
            let mut acc = [[P::zero(); U]; R];
            let base = p.b.ptr.offset(j as isize * p.b.cs);
            let mut i = 0;
            while i + U * P::W <= p.k {
                for u in 0..U {
                    let at = i + u * P::W;
                    let v = P::load(x.add(at));
                    for (r, acc) in acc.iter_mut().enumerate() {
                        let row = base.offset(r as isize * p.b.cs).add(at);
                        acc[u] = P::muladd(P::load_wide(row), v, acc[u]);
                    }
                }
                i += U * P::W;
            }
            for (r, acc) in acc.iter().enumerate() {
                let row = base.offset(r as isize * p.b.cs);
                let one = P::splat(P::Acc::ONE);
                let mut all = acc[0];
                for more in &acc[1..] {
                    all = P::muladd(*more, one, all);
                }
                let mut lanes = [P::Acc::ZERO; L];
                P::store(lanes.as_mut_ptr(), all);
                let mut width = L / 2;
                while width > 0 {
                    for l in 0..width {
                        lanes[l] = lanes[l] + lanes[l + width];
                    }
                    width /= 2;
                }
                let mut sum = lanes[0];
                for i in i..p.k {
                    sum = P::mac(*x.add(i), P::widen(*row.add(i)), sum);
                }
                self.put(j + r, sum);
            }
        }
    }

    /// Adds 8 rows of B, times their factors, to the sums.
    #[inline(always)]
    unsafe fn add_rows(&self, xs: [P::Acc; 8], rows: [*const P::T; 8], sums: &mut [P::Acc]) {
        // SAFETY: the caller's rows have as many elements as there are sums.
        unsafe {
            let factors: [P::V; 8] = std::array::from_fn(|r| P::splat(xs[r]));
            let to = sums.as_mut_ptr();
            let mut q = 0;
            while q + P::W <= sums.len() {
                let mut v = P::load(to.add(q));
                for r in 0..8 {
                    v = P::muladd(factors[r], P::load_wide(rows[r].add(q)), v);
                }
                P::store(to.add(q), v);
                q += P::W;
            }
            for q in q..sums.len() {
                for r in 0..8 {
                    sums[q] = P::mac(xs[r], P::widen(*rows[r].add(q)), sums[q]);
                }
            }
        }
    }
}

impl<P: Policy> Task for Row<P> {
    #[inline(always)]
    unsafe fn run(self) {
        let p = &self.p;
        // The row of A once, contiguous and wide; short rows would not use this path for long.
        // SAFETY: reads stay within A and B.
        unsafe {
            let x: Vec<P::Acc> = (0..p.k)
                .map(|i| P::widen(*p.a.ptr.offset(i as isize * p.a.cs)))
                .collect();
            if p.b.rs == 1 {
                let mut j = self.j0;
                while j + 8 <= self.j1 {
                    self.dots::<8, 1>(x.as_ptr(), j);
                    j += 8;
                }
                while j < self.j1 {
                    self.dots::<1, 4>(x.as_ptr(), j);
                    j += 1;
                }
                return;
            }
            const WIDTH: usize = 2048;
            let mut sums = [P::Acc::ZERO; WIDTH];
            for j in (self.j0..self.j1).step_by(WIDTH) {
                let w = WIDTH.min(self.j1 - j);
                let sums = &mut sums[..w];
                sums.fill(P::Acc::ZERO);
                let at = |i: usize| p.b.ptr.offset(i as isize * p.b.rs + j as isize * p.b.cs);
                let mut i = 0;
                if p.b.cs == 1 {
                    while i + 8 <= p.k {
                        let rows = std::array::from_fn(|r| at(i + r));
                        self.add_rows(std::array::from_fn(|r| x[i + r]), rows, sums);
                        i += 8;
                    }
                }
                while i < p.k {
                    for (q, s) in sums.iter_mut().enumerate() {
                        *s = P::mac(x[i], P::widen(*at(i).offset(q as isize * p.b.cs)), *s);
                    }
                    i += 1;
                }
                for (q, &s) in sums.iter().enumerate() {
                    self.put(j + q, s);
                }
            }
        }
    }
}
