//! Elements of images copied with steps between them.

#![allow(unsafe_code, reason = "copies from images through checked layouts")]

use super::gather::copy_line;
use crate::cpu::simd::simd_fn;
use crate::cpu::transpose::{four_words, plane};

/// Elements of a line in every channel.
pub(super) struct Run<T> {
    pub from: *const T,
    pub step: usize,
    pub pixel: usize,
    pub n: usize,
}

impl<T: Copy> Run<T> {
    /// # Safety
    /// All elements exist on both sides.
    pub(super) unsafe fn copy(&self, channels: usize, to: *mut T, each: usize) {
        // SAFETY: the caller's.
        unsafe {
            if self.step == 1 && self.pixel != 1 {
                return turn(self.from, self.pixel, to, each, self.n, channels);
            }
            for c in 0..channels {
                let (from, to) = (self.from.add(c * self.step), to.add(c * each));
                match self.pixel {
                    1 => copy_line(from, to, self.n),
                    2 if size_of::<T>() == 4 => {
                        every_second(from.cast(), to.cast(), [0; 2], 1, self.n);
                    }
                    2 if size_of::<T>() == 2 => {
                        lower_halves(from.cast(), to.cast(), self.n);
                    }
                    pixel => {
                        for i in 0..self.n {
                            *to.add(i) = *from.add(pixel * i);
                        }
                    }
                }
            }
        }
    }
}

/// Words of a vector, of which every machine has some.
const FOUR: usize = 4;

/// Every second word: four of seven.
///
/// # Safety
/// The words exist on both sides.
#[inline(always)]
unsafe fn four_of_seven(from: *const u32, to: *mut u32) {
    // SAFETY: the caller's.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::x86_64::{_mm_loadu_ps, _mm_shuffle_ps, _mm_storeu_ps};
            let (low, high) = (_mm_loadu_ps(from.cast()), _mm_loadu_ps(from.add(3).cast()));
            _mm_storeu_ps(to.cast(), _mm_shuffle_ps::<0b11_01_10_00>(low, high));
        }
        #[cfg(not(target_arch = "x86_64"))]
        for k in 0..FOUR {
            *to.add(k) = *from.add(2 * k);
        }
    }
}

/// Every second one of the words of some lines, `n` of each line.
///
/// # Safety
/// All words up to the last that is taken exist, and room for those taken.
pub(super) unsafe fn every_second(
    from: *const u32,
    to: *mut u32,
    steps: [usize; 2],
    rows: usize,
    n: usize,
) {
    for row in 0..rows {
        // SAFETY: the caller's. The last vector takes some again.
        unsafe {
            let (from, to) = (from.add(row * steps[0]), to.add(row * steps[1]));
            if n < FOUR {
                for i in 0..n {
                    *to.add(i) = *from.add(2 * i);
                }
            } else {
                for i in (0..n).step_by(FOUR) {
                    let i = i.min(n - FOUR);
                    four_of_seven(from.add(2 * i), to.add(i));
                }
            }
        }
    }
}

simd_fn! { stream
    /// Every second one of some halves of words. All up to the last that is taken exist, and room for those taken.
    fn lower_halves(from: *const u16, to: *mut u16, n: usize) {
        // SAFETY: nothing is read behind the last that is taken.
        unsafe {
            for i in 0..n.saturating_sub(1) {
                let word = from.add(2 * i).cast::<u32>().read_unaligned();
                *to.add(i) = u32::from_le(word) as u16;
            }
            if n > 0 {
                *to.add(n - 1) = *from.add(2 * (n - 1));
            }
        }
    }
}

/// # Safety
/// `n` elements exist.
#[inline(always)]
pub(super) unsafe fn zero<T: Default>(to: *mut T, n: usize) {
    // SAFETY: the caller's. Most runs are shorter than a call.
    unsafe {
        match n {
            0 => {}
            1 => to.write(T::default()),
            2 => {
                to.write(T::default());
                to.add(1).write(T::default());
            }
            _ => (0..n).for_each(|i| to.add(i).write(T::default())),
        }
    }
}

/// `to[j * to_step + i] = from[i * from_step + j]` for `i < n` and `j < m`.
///
/// # Safety
/// All these elements exist, and the two sides do not overlap.
pub(super) unsafe fn turn<T: Copy>(
    from: *const T,
    from_step: usize,
    to: *mut T,
    to_step: usize,
    n: usize,
    m: usize,
) {
    if size_of::<T>() == 2 {
        let (to, from) = ((to.cast(), to_step), (from.cast(), from_step));
        // SAFETY: the caller's.
        return unsafe { plane(2, to, from, [n, m]) };
    }
    let words = size_of::<T>() == 4;
    let (n4, m4) = if words {
        (n / 4 * 4, m / 4 * 4)
    } else {
        (0, 0)
    };
    // SAFETY: the caller's.
    unsafe {
        // A cache line of each run at a time.
        for j0 in (0..m4).step_by(16) {
            for i in (0..n4).step_by(4) {
                for j in (j0..m4.min(j0 + 16)).step_by(4) {
                    let from = from.add(i * from_step + j).cast::<u8>();
                    let to = to.add(j * to_step + i).cast::<u32>();
                    four_words(from, from_step as isize * 4, to, to_step as isize);
                }
            }
        }
        for i in 0..n {
            for j in if i < n4 { m4 } else { 0 }..m {
                *to.add(j * to_step + i) = *from.add(i * from_step + j);
            }
        }
    }
}
