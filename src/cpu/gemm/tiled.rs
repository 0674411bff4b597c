//! Products on tile registers whose operands are read where the caller has them: rows of A in tiles or apart, and of B rows of
//! words, which may overlap, as the windows of an image do. A word holds neighbours along k: two of bf16, or four bytes.

#![allow(unsafe_code, reason = "matrices are passed by pointer")]

use crate::cpu::simd::simd_fn;
use half::bf16;

/// Two elements along k, side by side.
pub type Pair = [bf16; 2];

/// Rows of a tile of A and columns of one of B; twice as many are computed at a time.
pub const SIDE: usize = 16;
/// Words along k of a step.
pub const WORDS: usize = 16;
/// Elements of bf16 along k of a step.
pub const STEP: usize = 2 * WORDS;

/// Whether this machine has tile registers that this process may use.
#[must_use]
pub fn on_tiles() -> bool {
    #[cfg(target_arch = "x86_64")]
    return super::amx::available();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Whether this machine has instructions for words of four bytes.
#[must_use]
pub fn has_bytes() -> bool {
    on_tiles() || super::bytes::has_vectors()
}

/// What words are made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Two numbers of bf16; sums have single precision.
    Halves,
    /// Four bytes with a sign; sums are integers of 32 bits, as those of the other kinds of bytes.
    Bytes,
    /// Bytes without a sign in A, and with one in B.
    Unsigned,
    /// Bytes with a sign in A, and without one in B.
    Signed,
}

/// Where the steps along k of a row begin, in words from its first.
#[derive(Clone, Copy, Debug)]
pub enum Steps<'a> {
    /// So far apart.
    Even(usize),
    /// Anywhere.
    At(&'a [usize]),
}

impl Steps<'_> {
    /// The first word of a step.
    #[inline(always)]
    #[must_use]
    pub fn start(self, step: usize) -> usize {
        match self {
            Self::Even(each) => step * each,
            Self::At(places) => places[step],
        }
    }
}

/// Rows of A, 32 at a time; distances in words.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// The first word.
    pub at: *const u32,
    /// From one row of a tile to the next.
    pub row: usize,
    /// Its steps along k.
    pub steps: Steps<'a>,
    /// From the first sixteen rows to the others.
    pub second: usize,
    /// From 32 rows to the next.
    pub both: usize,
}

impl<'a> Rows<'a> {
    /// Tiles of sixteen rows, two of each step side by side.
    #[must_use]
    pub fn packed(at: *const u32, steps: usize) -> Self {
        Self {
            at,
            row: WORDS,
            steps: Steps::Even(2 * SIDE * WORDS),
            second: SIDE * WORDS,
            both: steps * 2 * SIDE * WORDS,
        }
    }

    /// Rows of neighbours, `row` words apart.
    #[must_use]
    pub fn apart(at: *const u32, row: usize) -> Self {
        Self {
            at,
            row,
            steps: Steps::Even(WORDS),
            second: SIDE * row,
            both: 2 * SIDE * row,
        }
    }

    /// Runs of words that overlap, `row` words apart, of which each row has those that begin at `places`.
    #[must_use]
    pub fn windows(at: *const u32, row: usize, places: &'a [usize]) -> Self {
        Self {
            steps: Steps::At(places),
            ..Self::apart(at, row)
        }
    }
}

/// `C = A B`, or `C += A B`; C is row-major, of sums.
#[derive(Clone, Copy, Debug)]
pub struct Tiled<'a> {
    /// What words are made of.
    pub kind: Kind,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C.
    pub n: usize,
    /// A.
    pub a: Rows<'a>,
    /// Where the table counts from.
    pub b: *const u32,
    /// For every step along k where the first of its sixteen rows of B begins.
    pub places: &'a [usize],
    /// From one of the sixteen rows to the next.
    pub lane: usize,
    /// Steps between which sums are stored: their tiles of A stay in the first cache while all columns pass by.
    pub part: usize,
    /// The first sum of C.
    pub c: *mut u32,
    /// From one row of C to the next.
    pub pitch: usize,
    /// Whether the product is added to what is there.
    pub add: bool,
}

impl Tiled<'_> {
    /// The product, on this thread.
    ///
    /// # Safety
    /// [`on_tiles`] is true, if words are of bf16. A has whole tiles, of which `m` rows count; rows of B are readable, and those of C writable, up
    /// to a multiple of 32 columns, and C has rows up to a multiple of 16.
    pub unsafe fn run(&self) {
        #[cfg(target_arch = "x86_64")]
        if on_tiles() {
            // SAFETY: the caller's.
            return unsafe { super::amx::tiled::run(self) };
        }
        // SAFETY: the caller's.
        unsafe { super::bytes::run(self) };
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
