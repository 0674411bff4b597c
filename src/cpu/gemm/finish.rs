//! The way of a tile's sums into C: factor, what is there, bias, and one rounding.

#![allow(unsafe_code, reason = "sums are read and tiles written by pointer")]

use super::MatMut;
use super::policy::{Policy, Real, Task};

/// What becomes of sums: their factor, what in C stays with which factor, and a bias of each row or column.
pub(super) struct Ends<P: Policy> {
    pub alpha: P::Acc,
    pub beta: P::Acc,
    pub c: MatMut<P::T>,
    pub bias: Option<(*const P::T, isize, isize)>,
}

/// Brings the sums of a tile into C.
pub(super) struct Finish<'a, P: Policy> {
    pub ends: &'a Ends<P>,
    pub sums: *mut P::Acc,
    pub rows: usize,
    pub width: usize,
    /// The first row and column in C.
    pub at: (usize, usize),
    /// Columns that are there.
    pub w: usize,
}

impl<P: Policy> Task for Finish<'_, P> {
    #[inline(always)]
    unsafe fn run(self) {
        let (ends, (r0, j0), w) = (self.ends, self.at, self.w);
        // SAFETY: the tile lies within C.
        let c = unsafe { ends.c.at(r0, j0) };
        let plain_bias = ends.plainly_biased();
        let alone = ends.alpha == P::Acc::ONE && ends.beta == P::Acc::ZERO && ends.bias.is_none();
        if P::ROUNDS && alone && c.cs == 1 && w == 2 * P::W && w == self.width {
            for i in 0..self.rows {
                // SAFETY: the tile lies within C, and its sums were written.
                unsafe {
                    let sums = self.sums.add(i * w);
                    let row = c.ptr.offset(i as isize * c.rs);
                    P::put_two(row, P::load(sums), P::load(sums.add(P::W)));
                }
            }
            return;
        }
        for i in 0..self.rows {
            // SAFETY: as above; rows of sums were written, and the bias has a value for each row or column.
            unsafe {
                let sums = self.sums.add(i * self.width);
                let row = c.ptr.offset(i as isize * c.rs);
                if c.cs == 1 && plain_bias {
                    ends.vectors(sums, w, row, j0);
                    continue;
                }
                for j in 0..w {
                    let at = row.offset(j as isize * c.cs);
                    let mut v = *sums.add(j) * ends.alpha;
                    if ends.beta != P::Acc::ZERO {
                        v = P::mac(P::widen(*at), ends.beta, v);
                    }
                    if let Some((bias, rs, cs)) = ends.bias {
                        let place = (r0 + i) as isize * rs + (j0 + j) as isize * cs;
                        v = v + P::widen(*bias.offset(place));
                    }
                    *at = P::narrow(v);
                }
            }
        }
    }
}

/// The first `n` elements of a vector, and zeros.
#[inline(always)]
unsafe fn widened<P: Policy>(x: *const P::T, n: usize) -> P::V {
    // SAFETY: the caller's: so many elements are there.
    unsafe {
        if n == P::W {
            P::load_wide(x)
        } else {
            P::load_part(x, n)
        }
    }
}

impl<P: Policy> Ends<P> {
    /// Whether all rows have the same bias, whose values are neighbours, or none.
    #[inline(always)]
    pub(super) fn plainly_biased(&self) -> bool {
        self.bias.is_none_or(|(_, rs, cs)| rs == 0 && cs == 1)
    }

    /// `n` neighbouring sums with their factor, what is in C at `at`, and their bias.
    #[inline(always)]
    pub(super) unsafe fn completed(
        &self,
        sum: P::V,
        at: *const P::T,
        bias: Option<*const P::T>,
        n: usize,
    ) -> P::V {
        // SAFETY: the caller's: so many elements are there.
        unsafe {
            let mut v = sum;
            if self.alpha != P::Acc::ONE {
                v = P::muladd(v, P::splat(self.alpha), P::zero());
            }
            if self.beta != P::Acc::ZERO {
                v = P::muladd(widened::<P>(at, n), P::splat(self.beta), v);
            }
            if let Some(bias) = bias {
                v = P::muladd(widened::<P>(bias, n), P::splat(P::Acc::ONE), v);
            }
            v
        }
    }

    /// A row of `w` sums into a contiguous row of C, with its part of the bias.
    #[inline(always)]
    unsafe fn vectors(&self, sums: *mut P::Acc, w: usize, row: *mut P::T, j0: usize) {
        // SAFETY: the caller's; sums end with a whole vector.
        unsafe {
            let mut rounded = 0;
            for j in (0..w).step_by(P::W) {
                let (at, n) = (row.add(j), P::W.min(w - j));
                let bias = self.bias.map(|(b, _, _)| b.add(j0 + j));
                let v = self.completed(P::load(sums.add(j)), at, bias, n);
                if P::IN_PLACE {
                    P::store_part(at.cast(), v, n);
                } else if P::ROUNDS && n == P::W {
                    P::put(at, v);
                    rounded = j + n;
                } else {
                    P::store(sums.add(j), v);
                }
            }
            if !P::IN_PLACE {
                P::narrow_row(sums.add(rounded), row.add(rounded), w - rounded);
            }
        }
    }
}
