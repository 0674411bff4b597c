//! The key that is the k-th of a line in order, found by counting: digits of what sets keys apart, the highest first.

use super::sort::Key;
use crate::cpu::simd::simd_fn;
use smallvec::SmallVec;

/// So few keys are put in order instead.
const FEW: usize = 64;
/// Lines from this length on are counted by long digits.
const LONG: usize = 4096;
const LONG_DIGIT: u32 = 11;
const DIGIT: u32 = 8;

/// Elements whose keys are looked at together.
const BLOCK: usize = 512;

simd_fn! { stream
    /// The least and the largest key of a line.
    fn range<T: Key>(line: &[T]) -> (u64, u64) {
        line.iter().fold((u64::MAX, 0), |(lo, hi), x| (lo.min(x.key()), hi.max(x.key())))
    }
}

simd_fn! { stream
    /// The keys of a line.
    fn keys<T: Key>(line: &[T], to: &mut [u64]) {
        for (to, x) in to.iter_mut().zip(line) {
            *to = x.key();
        }
    }
}

simd_fn! { stream
    fn count<T: Key>(line: &[T], key: u64) -> usize {
        line.iter().map(|x| u32::from(x.key() == key)).sum::<u32>() as usize
    }
}

/// Where the elements with a key are, after so many of them: the first two.
pub(super) fn places<T: Key>(line: &[T], key: u64, mut skipped: usize) -> [Option<usize>; 2] {
    let mut found = [None; 2];
    for (block, start) in line.chunks(BLOCK).zip((0..).step_by(BLOCK)) {
        let here = count(block, key);
        if here <= skipped {
            skipped -= here;
            continue;
        }
        let equals = (0..block.len()).filter(|&i| block[i].key() == key);
        for at in equals.skip(skipped).map(|i| start + i) {
            match found {
                [None, _] => found[0] = Some(at),
                _ => return [found[0], Some(at)],
            }
        }
        skipped = 0;
    }
    found
}

/// Lines of so few elements are ranked, each against all others.
pub(super) const FEWEST: usize = 16;

/// Where the `k`-th element of a line of few is, equals in the order they came, and whether there are others like it.
///
/// # Panics
/// If there are more elements.
pub(super) fn ranked<T: Key>(line: &[T], k: usize) -> (usize, bool) {
    let mut room = [0; FEWEST];
    let keys = &mut room[..line.len()];
    for (key, x) in keys.iter_mut().zip(line) {
        *key = x.key();
    }
    for (i, &key) in keys.iter().enumerate() {
        let (first, rest) = keys.split_at(i);
        let mut before = rest.iter().map(|&x| usize::from(x < key)).sum::<usize>();
        before += first.iter().map(|&x| usize::from(x <= key)).sum::<usize>();
        if before == k {
            return (i, keys.iter().filter(|&&x| x == key).count() > 1);
        }
    }
    (0, false)
}

/// A line with its least and largest key, found once.
pub(super) struct Line<'a, T> {
    elements: &'a [T],
    lo: u64,
    hi: u64,
}

impl<'a, T: Key> Line<'a, T> {
    pub(super) fn new(elements: &'a [T]) -> Self {
        let (lo, hi) = range(elements);
        Self { elements, lo, hi }
    }

    /// Whether some element equals nothing.
    pub(super) fn has_odd(&self) -> bool {
        T::ODD == Some(self.hi)
    }

    /// The key of the element that is the `k`-th in order, and how many elements have smaller ones. Takes no memory.
    ///
    /// # Panics
    /// If there are no more than `k` elements.
    pub(super) fn kth(&self, k: usize) -> (u64, usize) {
        let n = self.elements.len();
        assert!(k < n);
        if n <= FEW {
            return few(self.elements.iter().map(|x| x.key()), k, 0);
        }
        if n < LONG {
            return self.counted::<{ 1 << DIGIT }>(k, DIGIT);
        }
        self.counted::<{ 1 << LONG_DIGIT }>(k, LONG_DIGIT)
    }

    fn counted<const DIGITS: usize>(&self, k: usize, digit: u32) -> (u64, usize) {
        let mut lo = self.lo;
        // How many of the last bits tell the keys apart that are left: those whose others are `lo`'s.
        let mut bits = u64::BITS - (self.hi - lo).leading_zeros();
        let (mut before, mut left) = (0, self.elements.len());
        let mut room = [0; BLOCK];
        while bits > 0 {
            let shift = bits.saturating_sub(digit);
            let most = (u64::MAX >> (u64::BITS - bits)) >> shift;
            let mut counts = [0usize; DIGITS];
            let all = left == self.elements.len();
            for block in self.elements.chunks(BLOCK) {
                let room = &mut room[..block.len()];
                keys(block, room);
                for key in room {
                    let at = key.wrapping_sub(lo) >> shift;
                    if all || at <= most {
                        counts[at as usize % DIGITS] += 1;
                    }
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
                let keys = self.elements.iter().map(|x| x.key());
                return few(
                    keys.filter(|key| key.wrapping_sub(lo) >> shift == 0),
                    k,
                    before,
                );
            }
        }
        (lo, before)
    }
}

/// The same of the few elements that are left, before which there are others.
fn few(keys: impl Iterator<Item = u64>, k: usize, before: usize) -> (u64, usize) {
    let mut keys: SmallVec<[u64; FEW]> = keys.collect();
    let key = *keys.select_nth_unstable(k - before).1;
    let smaller = keys.iter().filter(|&&other| other < key).count();
    (key, before + smaller)
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
                    assert_eq!(
                        Line::new(&line).kth(k),
                        (sorted[k], smaller),
                        "{n} {bound} {k}"
                    );
                }
            }
        }
        let line: Vec<f32> = (0..500).map(|i| (i * 37 % 500) as f32 - 250.0).collect();
        assert_eq!(Line::new(&line).kth(250), (0f32.key(), 250));
        let line: Vec<u8> = (0..3000).map(|i| u8::from(i % 1000 == 7)).collect();
        assert_eq!(places(&line, 1, 1), [Some(1007), Some(2007)]);
        assert_eq!(places(&line, 1, 2), [Some(2007), None]);
        assert_eq!(
            [0, 1, 2, 3].map(|k| ranked(&[7i32, -1, 7, 3], k)),
            [(1, false), (3, false), (0, true), (2, true)]
        );
    }
}
