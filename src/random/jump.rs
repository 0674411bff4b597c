//! Jumping the Mersenne Twister ahead without generating what lies between.

use super::mt19937::{N, next_block};

/// Advances `key` by `blocks` whole blocks.
pub(super) fn jump_blocks(key: &mut [u32; N], blocks: u64) {
    for _ in 0..blocks {
        next_block(key);
    }
}
