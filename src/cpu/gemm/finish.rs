//! The way of a tile's sums into C: factor, what is there, bias, and one rounding.

#![allow(unsafe_code, reason = "sums are read and tiles written by pointer")]

use super::MatMut;
use super::kernel::Block;
use super::policy::{Policy, Real, Task};
use super::tile::At;

/// Brings the sums of a tile into C.
pub(super) struct Finish<'a, P: Policy> {
    pub block: &'a Block<P>,
    pub sums: *mut P::Acc,
    pub rows: usize,
    pub width: usize,
    pub at: At<P>,
}

impl<P: Policy> Task for Finish<'_, P> {
    #[inline(always)]
    unsafe fn run(self) {
        let (block, At { r0, j0, w, .. }) = (self.block, self.at);
        // SAFETY: the tile lies within C.
        let c = unsafe { block.c.at(r0, j0) };
        let plain_bias = block.plainly_biased();
        let alone =
            block.alpha == P::Acc::ONE && block.beta == P::Acc::ZERO && block.bias.is_none();
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
                    block.vectors(sums, w, row, j0);
                    continue;
                }
                for j in 0..w {
                    let at = row.offset(j as isize * c.cs);
                    let mut v = *sums.add(j) * block.alpha;
                    if block.beta != P::Acc::ZERO {
                        v = P::mac(P::widen(*at), block.beta, v);
                    }
                    if let Some((bias, rs, cs)) = block.bias {
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

impl<P: Policy> Block<P> {
    /// What brings sums into C that were made elsewhere.
    pub(super) fn of_sums(
        (mb, nb): (usize, usize),
        (alpha, beta): (P::Acc, P::Acc),
        c: MatMut<P::T>,
        bias: Option<(*const P::T, isize, isize)>,
    ) -> Self {
        let none = std::ptr::null();
        Self {
            mb,
            nb,
            ks: 0,
            alpha,
            beta,
            a: none,
            a_strides: None,
            b: None,
            pb: none,
            c,
            bias,
        }
    }

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
