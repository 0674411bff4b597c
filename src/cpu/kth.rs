//! The key that is the k-th of a line in order, found by counting: digits of what sets keys apart, the highest first.

#![allow(unsafe_code, reason = "copies of loops per instruction set")]

use super::sort::Key;
use crate::cpu::simd::simd_fn;
use smallvec::SmallVec;

/// So few keys are put in order instead.
const FEW: usize = 64;
/// Lines from this length on are counted by long digits.
const LONG: usize = 4096;
const LONG_DIGIT: u32 = 11;
const DIGIT: u32 = 8;

simd_fn! { stream
    /// The least and the largest key of a line.
    fn range<T: Key>(line: &[T]) -> (u64, u64) {
        line.iter().fold((u64::MAX, 0), |(lo, hi), x| (lo.min(x.key()), hi.max(x.key())))
    }
}

/// The key of the element that is the `k`-th in order, and how many elements have smaller ones. Takes no memory.
///
/// # Panics
/// If there are no more than `k` elements.
pub(super) fn kth_key<T: Key>(line: &[T], k: usize) -> (u64, usize) {
    assert!(k < line.len());
    if line.len() <= FEW {
        return few(line.iter().map(|x| x.key()), k, 0);
    }
    if line.len() < LONG {
        return counted::<T, { 1 << DIGIT }>(line, k, DIGIT);
    }
    counted::<T, { 1 << LONG_DIGIT }>(line, k, LONG_DIGIT)
}

/// The same of the few elements that are left, before which there are others.
fn few(keys: impl Iterator<Item = u64>, k: usize, before: usize) -> (u64, usize) {
    let mut keys: SmallVec<[u64; FEW]> = keys.collect();
    let key = *keys.select_nth_unstable(k - before).1;
    let smaller = keys.iter().filter(|&&other| other < key).count();
    (key, before + smaller)
}

fn counted<T: Key, const DIGITS: usize>(line: &[T], k: usize, digit: u32) -> (u64, usize) {
    let (mut lo, hi) = range(line);
    // How many of the last bits tell the keys apart that are left: those whose others are `lo`'s.
    let mut bits = u64::BITS - (hi - lo).leading_zeros();
    let (mut before, mut left) = (0, line.len());
    while bits > 0 {
        let shift = bits.saturating_sub(digit);
        let most = (u64::MAX >> (u64::BITS - bits)) >> shift;
        let mut counts = [0usize; DIGITS];
        let all = left == line.len();
        for x in line {
            let at = x.key().wrapping_sub(lo) >> shift;
            if all || at <= most {
                counts[at as usize % DIGITS] += 1;
            }
        }
        let mut at = 0;
        while before + counts[at] <= k {
            before += counts[at];
            at += 1;
        }
        left = counts[at];
        lo += (at as u64) << shift;
        bits = shift;
        if left <= FEW && bits > 0 {
            let keys = line.iter().map(|x| x.key());
            return few(
                keys.filter(|key| key.wrapping_sub(lo) >> shift == 0),
                k,
                before,
            );
        }
    }
    (lo, before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_and_what_is_before_it() {
        let mut seed = 1u64;
        let mut draw = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            seed >> 11
        };
        for n in [1usize, 2, 64, 65, 300, 4095, 4096, 9000] {
            for bound in [1u64, 3, 200, 70_000, u64::MAX] {
                let line: Vec<u64> = (0..n).map(|_| (draw() << 11) % bound).collect();
                let mut sorted = line.clone();
                sorted.sort_unstable();
                for k in [0, n / 3, n / 2, n - 1] {
                    let smaller = sorted.partition_point(|&x| x < sorted[k]);
                    assert_eq!(kth_key(&line, k), (sorted[k], smaller), "{n} {bound} {k}");
                }
            }
        }
        let line: Vec<f32> = (0..500).map(|i| (i * 37 % 500) as f32 - 250.0).collect();
        assert_eq!(kth_key(&line, 250), (0f32.key(), 250));
    }
}
