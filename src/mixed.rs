//! Maps and sets by numbers that this program made itself, as addresses: their hash is quick, and withstands nobody's choice of keys.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are numbers of our own.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixed>>;

/// A set of numbers of our own.
pub type Set<K> = HashSet<K, BuildHasherDefault<Mixed>>;

/// A hash that turns and multiplies.
#[derive(Default, Clone, Copy)]
pub struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        words
            .iter()
            .for_each(|word| self.write_u64(u64::from_le_bytes(*word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(5) ^ n).wrapping_mul(0x517c_c1b7_2722_0a95);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn finish(&self) -> u64 {
        // Low bits choose the place, and are those that a product mixes least.
        self.0.rotate_left(26)
    }
}
