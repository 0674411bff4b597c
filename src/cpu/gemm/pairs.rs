//! Products of bf16 on tile registers whose operands are read where the caller has them: rows of A in tiles or apart, and of B
//! rows of pairs of elements, which may overlap, as the windows of an image do. The sums stay in single precision.

#![allow(unsafe_code, reason = "matrices are passed by pointer")]

use crate::cpu::simd::simd_fn;
use half::bf16;

/// Two elements along k, side by side.
pub type Pair = [bf16; 2];

/// Rows of a tile of A and columns of one of B; twice as many are computed at a time.
pub const SIDE: usize = 16;
/// Elements along k of a step: the pairs of a tile of B.
pub const STEP: usize = 32;

/// Whether this machine has tile registers that this process may use.
#[must_use]
pub fn on_tiles() -> bool {
    #[cfg(target_arch = "x86_64")]
    return super::amx::available();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Rows of A, 32 at a time; distances in elements.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The first element.
    pub at: *const bf16,
    /// From one row of a tile to the next.
    pub row: usize,
    /// From one step along k to the next.
    pub step: usize,
    /// From the first sixteen rows to the others.
    pub second: usize,
    /// From 32 rows to the next.
    pub both: usize,
}

impl Rows {
    /// Tiles of sixteen rows, two of each step side by side.
    #[must_use]
    pub fn packed(at: *const bf16, steps: usize) -> Self {
        Self {
            at,
            row: STEP,
            step: 2 * SIDE * STEP,
            second: SIDE * STEP,
            both: steps * 2 * SIDE * STEP,
        }
    }

    /// Rows of neighbours, `row` elements apart.
    #[must_use]
    pub fn apart(at: *const bf16, row: usize) -> Self {
        Self {
            at,
            row,
            step: STEP,
            second: SIDE * row,
            both: 2 * SIDE * row,
        }
    }
}

/// `C = A B`, or `C += A B`, in single precision; C is row-major.
#[derive(Clone, Copy, Debug)]
pub struct Pairs<'a> {
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// A.
    pub a: Rows,
    /// Where the table counts from.
    pub b: *const Pair,
    /// For every step along k where the first of its sixteen rows of B begins.
    pub places: &'a [usize],
    /// From one of the sixteen rows to the next.
    pub lane: usize,
    /// Steps between which sums are stored: their tiles of A stay in the first cache while all columns pass by.
    pub part: usize,
    /// The first element of C.
    pub c: *mut f32,
    /// From one row of C to the next.
    pub pitch: usize,
    /// Whether the product is added to what is there.
    pub add: bool,
}

impl Pairs<'_> {
    /// The product, on this thread.
    ///
    /// # Safety
    /// [`on_tiles`] is true. A has whole tiles, of which `m` rows count; rows of B are readable, and those of C writable, up
    /// to a multiple of 32 columns, and C has rows up to a multiple of 16.
    pub unsafe fn run(&self) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the caller's.
        unsafe {
            super::amx::pairs::run(self);
        }
    }
}

simd_fn! { stream
    /// The elements of two rows side by side.
    pub fn pair_up(a: &[bf16], b: &[bf16], to: &mut [Pair]) {
        for ((to, &a), &b) in to.iter_mut().zip(a).zip(b) {
            *to = [a, b];
        }
    }
}
