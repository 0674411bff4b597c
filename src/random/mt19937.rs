//! The Mersenne Twister MT19937 (Matsumoto and Nishimura, 1998), a block of 624 words at a time.

use super::jump;
use crate::{Result, ensure};

/// Words of state, and words in a block.
pub(super) const N: usize = 624;
/// The word that a word is made from beside its neighbours.
pub(super) const M: usize = 397;
/// What is added to a word that leaves a bit behind.
pub(super) const TWIST: u32 = 0x9908_b0df;
/// From so many blocks on, a jump takes less time than generating them.
const FAR: u64 = 1 << 14;

/// A 32-bit Mersenne Twister with PyTorch's bookkeeping of its position in the block.
#[derive(Clone)]
pub struct Mt19937 {
    key: [u32; N],
    /// Output words of the current block; valid where `tempered`.
    out: [u32; N],
    tempered: bool,
    left: u32,
    next: u32,
}

#[inline(always)]
pub(super) fn twist(hi: u32, lo: u32) -> u32 {
    let y = (hi & 0x8000_0000) | (lo & 0x7fff_ffff);
    (y >> 1) ^ ((lo & 1).wrapping_neg() & TWIST)
}

/// Advances the key by one block. The three ranges never read a word that they wrote less than 227 words ago,
/// so each loop vectorises.
fn next_block(key: &mut [u32; N]) {
    for i in 0..N - M {
        key[i] = key[i + M] ^ twist(key[i], key[i + 1]);
    }
    for i in N - M..N - 1 {
        key[i] = key[i + M - N] ^ twist(key[i], key[i + 1]);
    }
    // Word 623 pairs with the *new* word 0.
    key[N - 1] = key[M - 1] ^ twist(key[N - 1], key[0]);
}

#[inline(always)]
fn temper(mut y: u32) -> u32 {
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c_5680;
    y ^= (y << 15) & 0xefc6_0000;
    y ^ (y >> 18)
}

impl Mt19937 {
    /// A generator seeded with one word.
    #[must_use]
    pub fn new(seed: u32) -> Self {
        let mut key = [0; N];
        key[0] = seed;
        for j in 1..N {
            let prev = key[j - 1];
            key[j] = 1_812_433_253u32
                .wrapping_mul(prev ^ (prev >> 30))
                .wrapping_add(j as u32);
        }
        Self {
            key,
            out: [0; N],
            tempered: false,
            left: 1,
            next: 0,
        }
    }

    /// A generator with this key and position; fails where the position does not lie inside a block.
    pub fn from_parts(key: [u32; N], left: i32, next: u64) -> Result<Self> {
        // The last condition is ours: PyTorch accepts such states and then reads past its key.
        ensure!(
            (1..=N as i32).contains(&left)
                && next <= N as u64
                && left as u64 + next <= N as u64 + 1,
            Runtime,
            "Invalid mt19937 state"
        );
        Ok(Self {
            key,
            out: [0; N],
            tempered: false,
            left: left as u32,
            next: next as u32,
        })
    }

    /// The key words, the draws left before the next block (counting from 1) and the position in the block.
    #[must_use]
    pub fn parts(&self) -> (&[u32; N], i32, u64) {
        (&self.key, self.left as i32, u64::from(self.next))
    }

    fn refill(&mut self) {
        next_block(&mut self.key);
        self.tempered = false;
        self.left = N as u32 + 1;
        self.next = 0;
    }

    #[cold]
    fn temper_block(&mut self) {
        for (o, &k) in self.out.iter_mut().zip(&self.key) {
            *o = temper(k);
        }
        self.tempered = true;
    }

    /// The next word.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.left == 1 {
            self.refill();
        }
        if !self.tempered {
            self.temper_block();
        }
        self.left -= 1;
        let word = self.out[self.next as usize];
        self.next += 1;
        word
    }

    /// The next words, at least one and at most `max`, as far as the current block reaches (none if `max` is 0).
    #[inline]
    pub fn take(&mut self, max: usize) -> &[u32] {
        if max == 0 {
            return &[];
        }
        if self.left == 1 {
            self.refill();
        }
        if !self.tempered {
            self.temper_block();
        }
        let n = max.min(self.left as usize - 1);
        let start = self.next as usize;
        self.left -= n as u32;
        self.next += n as u32;
        &self.out[start..start + n]
    }

    /// Fills `out` with the next words.
    pub fn fill(&mut self, out: &mut [u32]) {
        let mut done = 0;
        while done < out.len() {
            let words = self.take(out.len() - done);
            out[done..done + words.len()].copy_from_slice(words);
            done += words.len();
        }
    }

    /// Skips exactly `n` words, by generating untempered blocks (about a quarter of a nanosecond a word) or by one jump.
    pub fn skip(&mut self, n: u64) {
        let here = u64::from(self.left - 1);
        if n <= here {
            self.left -= n as u32;
            self.next += n as u32;
            return;
        }
        let rest = n - here;
        // The word numbered `rest` from here is the last one skipped; stand just behind it in its block.
        let blocks = rest.div_ceil(N as u64);
        if blocks < FAR {
            (0..blocks).for_each(|_| next_block(&mut self.key));
        } else {
            jump::key(&mut self.key, blocks * N as u64);
        }
        let used = (rest - (blocks - 1) * N as u64) as u32;
        self.tempered = false;
        self.left = N as u32 + 1 - used;
        self.next = used;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_words() {
        // The 10000th output of the default-seeded std::mt19937 is fixed by the C++ standard.
        let mut g = Mt19937::new(5489);
        g.skip(9999);
        assert_eq!(g.next_u32(), 4_123_659_995);
    }

    #[test]
    fn skip_equals_drawing() {
        for n in [
            0u64, 1, 5, 622, 623, 624, 625, 1247, 1248, 1249, 5000, 62_400,
        ] {
            for before in [0, 1, 100, 623, 624, 625] {
                let mut a = Mt19937::new(7);
                for _ in 0..before {
                    a.next_u32();
                }
                let mut b = a.clone();
                for _ in 0..n {
                    a.next_u32();
                }
                b.skip(n);
                assert_eq!(a.parts(), b.parts(), "n {n} before {before}");
                assert_eq!(a.next_u32(), b.next_u32());
            }
        }
    }

    #[test]
    fn jumps_arrive_where_blocks_do() {
        for blocks in [1u64, 2, 31, 32, 33, 1000] {
            let (mut near, mut far) = (Mt19937::new(7).key, Mt19937::new(7).key);
            (0..blocks).for_each(|_| next_block(&mut near));
            jump::key(&mut far, blocks * N as u64);
            assert_eq!(near, far, "{blocks} blocks");
        }
        let (mut once, mut twice) = (Mt19937::new(3), Mt19937::new(3));
        once.skip(u64::MAX / 8);
        (0..2).for_each(|_| twice.skip(u64::MAX / 16));
        twice.skip(1);
        assert_eq!(once.parts(), twice.parts());
    }

    #[test]
    fn positions_outside_the_block_are_refused() {
        let key = [1; N];
        assert!(Mt19937::from_parts(key, 0, 0).is_err());
        assert!(Mt19937::from_parts(key, 625, 0).is_err());
        assert!(Mt19937::from_parts(key, 1, 625).is_err());
        assert!(Mt19937::from_parts(key, 624, 624).is_err());
        assert!(Mt19937::from_parts(key, 1, 624).is_ok());
    }
}
