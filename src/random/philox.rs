//! A device's generator: the key of Philox 4x32-10, and how far its subsequences are.

use crate::{Result, ensure};

/// A generator of a device, with PyTorch's state format.
#[derive(Clone, Copy, Debug)]
pub struct Philox {
    /// The key.
    pub seed: u64,
    /// How many 32-bit numbers each subsequence has given.
    pub offset: u64,
}

impl Philox {
    /// A generator with this seed, nothing drawn.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, offset: 0 }
    }

    /// The generator as it was, which moves on by so many numbers of each subsequence.
    pub fn take(&mut self, numbers: u64) -> Self {
        let before = *self;
        self.offset = self.offset.wrapping_add(numbers);
        before
    }

    /// Seed and offset, 8 bytes each, the lowest first.
    #[must_use]
    pub fn get_state(&self) -> [u8; 16] {
        let mut state = [0; 16];
        state[..8].copy_from_slice(&self.seed.to_le_bytes());
        state[8..].copy_from_slice(&self.offset.to_le_bytes());
        state
    }

    /// Takes a state that [`Philox::get_state`] gave, or a seed alone.
    ///
    /// # Errors
    /// If the state has another size, or an offset within a block of four numbers.
    pub fn set_state(&mut self, state: &[u8]) -> Result<()> {
        let word = |at: usize| {
            state[at..at + 8]
                .iter()
                .rev()
                .fold(0u64, |word, &byte| word << 8 | u64::from(byte))
        };
        ensure!(
            matches!(state.len(), 8 | 16),
            Runtime,
            "RNG state is wrong size"
        );
        let offset = if state.len() == 16 { word(8) } else { 0 };
        ensure!(offset % 4 == 0, Runtime, "offset must be a multiple of 4");
        *self = Self {
            seed: word(0),
            offset,
        };
        Ok(())
    }
}
