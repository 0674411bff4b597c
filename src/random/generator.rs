//! A CPU generator: the bit source, its seed, and the normal that a draw of two leaves over.

use super::mt19937::{Mt19937, N};
use crate::{Result, ensure};
use std::hash::{BuildHasher, Hasher};

/// The seed of a fresh generator; those that calls draw from by themselves begin with [`entropy`].
pub const DEFAULT_SEED: u64 = 67_280_421_310_721;

/// Bytes of a saved state.
pub const STATE_SIZE: usize = 5056;

const KEY_AT: usize = 24;
const NORMAL_AT: usize = KEY_AT + N * 8 + 8;

/// A CPU random generator with PyTorch's streams and state format.
#[derive(Clone)]
pub struct Generator {
    seed: u64,
    /// The words; most callers want [`Generator::u32`] and its relatives.
    pub mt: Mt19937,
    /// The second double-precision normal of a pair, waiting to be used.
    pub cached_normal: Option<f64>,
}

/// A seed from the operating system's entropy.
pub fn entropy() -> u64 {
    // The standard library keys each hasher from the system's entropy; the clock separates calls of one process.
    let mut h = std::collections::hash_map::RandomState::new().build_hasher();
    h.write_u128(
        std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |d| d.as_nanos()),
    );
    h.write_u32(std::process::id());
    h.finish()
}

impl Default for Generator {
    fn default() -> Self {
        Self::new(DEFAULT_SEED)
    }
}

impl Generator {
    /// A generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        // Only the low half seeds the key; the whole seed is remembered.
        Self {
            seed,
            mt: Mt19937::new(seed as u32),
            cached_normal: None,
        }
    }

    /// The seed last set.
    #[must_use]
    pub fn initial_seed(&self) -> u64 {
        self.seed
    }

    /// Starts again from `seed`; forgets the cached normal.
    pub fn manual_seed(&mut self, seed: u64) {
        *self = Self::new(seed);
    }

    /// One word.
    #[inline]
    pub fn u32(&mut self) -> u32 {
        self.mt.next_u32()
    }

    /// Two words, the first one high.
    #[inline]
    pub fn u64(&mut self) -> u64 {
        let high = u64::from(self.mt.next_u32());
        high << 32 | u64::from(self.mt.next_u32())
    }

    /// A uniform in [0, 1) of 24 bits, from one word.
    #[inline]
    pub fn f24(&mut self) -> f32 {
        f24(self.mt.next_u32())
    }

    /// A uniform in [0, 1) of 53 bits, from two words.
    #[inline]
    pub fn d53(&mut self) -> f64 {
        d53(self.u64())
    }

    /// Skips exactly `n` words.
    pub fn skip(&mut self, n: u64) {
        self.mt.skip(n);
    }

    /// The state in PyTorch's layout.
    #[must_use]
    pub fn get_state(&self) -> [u8; STATE_SIZE] {
        let mut b = [0; STATE_SIZE];
        let (key, left, next) = self.mt.parts();
        b[0..8].copy_from_slice(&self.seed.to_le_bytes());
        b[8..12].copy_from_slice(&left.to_le_bytes());
        b[12] = 1;
        b[16..24].copy_from_slice(&next.to_le_bytes());
        for (slot, &k) in b[KEY_AT..].chunks_exact_mut(8).zip(key) {
            slot.copy_from_slice(&u64::from(k).to_le_bytes());
        }
        if let Some(z) = self.cached_normal {
            b[NORMAL_AT..NORMAL_AT + 8].copy_from_slice(&z.to_le_bytes());
            b[NORMAL_AT + 16] = 1;
        }
        b
    }

    /// Brings a saved state back, the initial seed included; changes nothing where it fails.
    pub fn set_state(&mut self, state: &[u8]) -> Result<()> {
        ensure!(
            state.len() == STATE_SIZE,
            Runtime,
            "Expected a CPUGeneratorImplState of size {STATE_SIZE} but found the input RNG state size to be {}",
            state.len()
        );
        let u64_at = |at: usize| {
            state[at..at + 8]
                .iter()
                .rev()
                .fold(0u64, |v, &b| v << 8 | u64::from(b))
        };
        let i32_at = |at: usize| u64_at(at) as u32 as i32;
        let key = std::array::from_fn(|j| u64_at(KEY_AT + 8 * j) as u32);
        ensure!(i32_at(12) != 0, Runtime, "Invalid mt19937 state");
        let mt = Mt19937::from_parts(key, i32_at(8), u64_at(16))?;
        let cached_normal =
            (i32_at(NORMAL_AT + 16) != 0).then(|| f64::from_bits(u64_at(NORMAL_AT)));
        *self = Self {
            seed: u64_at(0),
            mt,
            cached_normal,
        };
        Ok(())
    }
}

/// The low 24 bits of a word as a fraction.
#[inline(always)]
pub(super) fn f24(word: u32) -> f32 {
    // Through a signed integer, whose conversion is one instruction.
    (word & 0x00ff_ffff) as i32 as f32 * (1.0 / 16_777_216.0)
}

/// The low 53 bits of a double word as a fraction.
#[inline(always)]
pub(super) fn d53(word: u64) -> f64 {
    (word & ((1 << 53) - 1)) as i64 as f64 * (1.0 / 9_007_199_254_740_992.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_round_trip() {
        let mut g = Generator::new(u64::MAX - 5);
        for _ in 0..700 {
            g.u32();
        }
        g.cached_normal = Some(-1.25);
        let state = g.get_state();
        let mut h = Generator::default();
        h.set_state(&state).unwrap();
        assert_eq!(h.initial_seed(), u64::MAX - 5);
        assert_eq!(h.cached_normal, Some(-1.25));
        assert_eq!(h.get_state(), state);
        assert_eq!(g.u64(), h.u64());
    }

    #[test]
    fn bad_states_are_errors_and_change_nothing() {
        let mut g = Generator::default();
        let before = g.get_state();
        assert!(
            g.set_state(&[0; 10])
                .unwrap_err()
                .message()
                .contains("5056")
        );
        assert!(g.set_state(&[0; STATE_SIZE]).is_err());
        let mut bad = before;
        bad[16] = 0xff;
        bad[17] = 0xff;
        assert_eq!(
            g.set_state(&bad).unwrap_err().message(),
            "Invalid mt19937 state"
        );
        assert_eq!(g.get_state(), before);
    }
}
