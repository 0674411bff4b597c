//! Far jumps of the Mersenne Twister: the state after `n` words is a polynomial of the step, applied to the state.
//!
//! Steps are linear over bits, so `x^n` may be taken modulo their characteristic polynomial, which has a formula (Matsumoto and
//! Nishimura 1998, appendix). A jump costs some milliseconds, however far it goes.

use super::mt19937::{M, N, TWIST, twist};

/// The degree of the characteristic polynomial: the bits of a state that count.
const DEGREE: usize = 19937;
/// Words of a polynomial whose degree is below `DEGREE`.
const WORDS: usize = DEGREE.div_ceil(64);

/// The exponents of a polynomial over bits; equal ones cancel.
type Terms = std::collections::BTreeSet<usize>;

fn add(sum: &mut Terms, term: usize) {
    if !sum.remove(&term) {
        sum.insert(term);
    }
}

/// `p * (x^a + x^b)`.
fn times(p: &Terms, a: usize, b: usize) -> Terms {
    let mut product = Terms::new();
    for &term in p {
        add(&mut product, term + a);
        add(&mut product, term + b);
    }
    product
}

/// The characteristic polynomial but for its first term: in the paper's words `w` = 32, `r` = 31.
fn characteristic() -> Vec<usize> {
    // Powers of the second factor, from the 0th to the 31st.
    let mut powers = vec![Terms::from([0])];
    for i in 0..31 {
        powers.push(times(&powers[i], N - 1, M - 1));
    }
    let mut sum = times(&powers[31], N, M);
    for bit in 0..32 {
        if TWIST >> bit & 1 == 1 {
            let part = match bit {
                31 => Terms::from([0]),
                _ => times(&powers[30 - bit], N, M),
            };
            part.into_iter().for_each(|term| add(&mut sum, term));
        }
    }
    debug_assert_eq!(sum.last(), Some(&DEGREE));
    sum.remove(&DEGREE);
    sum.into_iter().collect()
}

/// `bits ^= word << at`, in bits.
fn put(bits: &mut [u64], at: usize, word: u64) {
    bits[at / 64] ^= word << (at % 64);
    if at % 64 > 0 {
        bits[at / 64 + 1] ^= word >> (64 - at % 64);
    }
}

/// The rest of a long polynomial.
fn reduce(long: &mut [u64], terms: &[usize]) {
    for i in (WORDS - 1..long.len() - 1).rev() {
        // Terms lie far below the first, so that a word's rest never meets the word itself again.
        let low = if i == WORDS - 1 { DEGREE % 64 } else { 0 };
        let word = long[i] >> low << low;
        long[i] ^= word;
        let by = 64 * i;
        for &term in terms {
            let at = by + term;
            match at.checked_sub(DEGREE) {
                Some(at) => put(long, at, word),
                None => long[0] ^= word >> (DEGREE - at),
            }
        }
    }
}

/// `x^n` modulo the characteristic polynomial.
fn power(n: u64) -> Vec<u64> {
    let terms = characteristic();
    let mut p = vec![0u64; WORDS];
    p[0] = 1;
    for bit in (0..64 - n.leading_zeros()).rev() {
        let mut long = vec![0u64; 2 * WORDS + 1];
        for (i, &word) in p.iter().enumerate() {
            let [mut low, mut high] = [word & 0xFFFF_FFFF, word >> 32];
            for part in [&mut low, &mut high] {
                // The square has each bit at twice its place.
                for (by, mask) in [
                    (16, 0x0000_FFFF_0000_FFFF),
                    (8, 0x00FF_00FF_00FF_00FF),
                    (4, 0x0F0F_0F0F_0F0F_0F0F),
                    (2, 0x3333_3333_3333_3333),
                    (1, 0x5555_5555_5555_5555),
                ] {
                    *part = (*part | *part << by) & mask;
                }
            }
            (long[2 * i], long[2 * i + 1]) = (low, high);
        }
        if n >> bit & 1 == 1 {
            for i in (1..long.len()).rev() {
                long[i] = long[i] << 1 | long[i - 1] >> 63;
            }
            long[0] <<= 1;
        }
        reduce(&mut long, &terms);
        p.copy_from_slice(&long[..WORDS]);
    }
    p
}

/// The key `n` words further on, of which there is at least one.
pub(super) fn key(key: &mut [u32; N], n: u64) {
    // The last step is made apart: it alone forgets the bits of the first word that no step reads, which are no part of the
    // polynomial's space.
    let p = power(n - 1);
    let start = *key;
    // Horner's rule, on a ring of words: a step writes one word and moves the beginning.
    let (mut ring, mut at) = ([0u32; N], 0);
    let step = |ring: &mut [u32; N], at: &mut usize| {
        let next = |k: usize| (*at + k) % N;
        ring[*at] = ring[next(M)] ^ twist(ring[*at], ring[next(1)]);
        *at = next(1);
    };
    for i in (0..DEGREE).rev() {
        step(&mut ring, &mut at);
        if p[i / 64] >> (i % 64) & 1 == 1 {
            let (front, back) = ring.split_at_mut(at);
            let (first, last) = start.split_at(N - at);
            back.iter_mut()
                .zip(first)
                .for_each(|(to, word)| *to ^= word);
            front
                .iter_mut()
                .zip(last)
                .for_each(|(to, word)| *to ^= word);
        }
    }
    step(&mut ring, &mut at);
    ring.rotate_left(at);
    *key = ring;
}
