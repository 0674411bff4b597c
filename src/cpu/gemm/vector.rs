//! Products with one row: limited by memory, so B is read once, in order, and never packed.

use super::kernel::Product;
use super::policy::{Policy, Real, Task};

/// Lanes of an accumulator: whole vectors of every policy.
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

    /// Dot products of `R` columns that are contiguous along k, one accumulator each.
    #[inline(always)]
    unsafe fn dots<const R: usize>(&self, x: *const P::Acc, j: usize) {
        let p = &self.p;
        let mut acc = [[P::Acc::ZERO; L]; R];
        let whole = p.k / L * L;
        // SAFETY: reads stay below k and n.
        unsafe {
            let base = p.b.ptr.offset(j as isize * p.b.cs);
            let mut i = 0;
            while i < whole {
                for (r, acc) in acc.iter_mut().enumerate() {
                    let row = base.offset(r as isize * p.b.cs).add(i);
                    for l in 0..L {
                        acc[l] = P::mac(*x.add(i + l), P::widen(*row.add(l)), acc[l]);
                    }
                }
                i += L;
            }
            for (r, acc) in acc.iter_mut().enumerate() {
                let row = base.offset(r as isize * p.b.cs);
                let mut width = L / 2;
                while width > 0 {
                    for l in 0..width {
                        acc[l] = acc[l] + acc[l + width];
                    }
                    width /= 2;
                }
                let mut sum = acc[0];
                for i in whole..p.k {
                    sum = P::mac(*x.add(i), P::widen(*row.add(i)), sum);
                }
                self.put(j + r, sum);
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
                    self.dots::<8>(x.as_ptr(), j);
                    j += 8;
                }
                while j < self.j1 {
                    self.dots::<1>(x.as_ptr(), j);
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
                        let rows: [_; 8] = std::array::from_fn(|r| at(i + r));
                        let xs: [_; 8] = std::array::from_fn(|r| x[i + r]);
                        for (q, s) in sums.iter_mut().enumerate() {
                            let mut v = *s;
                            for r in 0..8 {
                                v = P::mac(xs[r], P::widen(*rows[r].add(q)), v);
                            }
                            *s = v;
                        }
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
