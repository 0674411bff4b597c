//! The numbers that updates are computed in, and how they are rounded.

use super::sweep::in_blocks;
use super::{Elements, Rounds, Step};
use crate::Element;
use half::{bf16, f16};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A float of single or double precision.
pub(crate) trait Number:
    Copy
    + PartialOrd
    + Send
    + Sync
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
{
    /// From a double.
    fn of(v: f64) -> Self;
    /// `self * a + b`, rounded once.
    fn fma(self, a: Self, b: Self) -> Self;
    /// The square root.
    fn root(self) -> Self;
    /// The absolute value.
    fn size(self) -> Self;
}

macro_rules! number {
    ($t:ty) => {
        impl Number for $t {
            #[inline(always)]
            fn of(v: f64) -> Self {
                v as $t
            }
            #[inline(always)]
            fn fma(self, a: Self, b: Self) -> Self {
                self.mul_add(a, b)
            }
            #[inline(always)]
            fn root(self) -> Self {
                self.sqrt()
            }
            #[inline(always)]
            fn size(self) -> Self {
                self.abs()
            }
        }
    };
}
number!(f32);
number!(f64);

/// An element as it lies in memory.
pub(crate) trait Stored: Element + Send + Sync {
    /// What is computed in.
    type In: Number;
    /// As a number.
    fn load(self) -> Self::In;
    /// Rounded from a number.
    fn store(v: Self::In) -> Self;
    /// A number that could be stored.
    #[inline(always)]
    fn rounded(v: Self::In) -> Self::In {
        Self::store(v).load()
    }
    /// One step of these elements.
    fn step(by: &dyn Step, elements: Elements<'_, Self>, rounds: Rounds);
}

macro_rules! plain {
    ($t:ty, $step:ident $($halves:literal)?) => {
        impl Stored for $t {
            type In = Self;
            #[inline(always)]
            fn load(self) -> Self {
                self
            }
            #[inline(always)]
            fn store(v: Self) -> Self {
                v
            }
            fn step(by: &dyn Step, elements: Elements<'_, Self>, _: Rounds) {
                by.$step(elements $(, $halves)?);
            }
        }
    };
}
plain!(f32, single false);
plain!(f64, double);

impl Stored for bf16 {
    type In = f32;
    #[inline(always)]
    fn load(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
    /// To the nearest, ties to even, without a branch, so that loops of it vectorise.
    #[inline(always)]
    fn store(v: f32) -> Self {
        let bits = v.to_bits();
        let nearest = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        let nan = bits >> 16 | 0x40;
        Self::from_bits(if v.is_nan() { nan } else { nearest } as u16)
    }
    fn step(by: &dyn Step, elements: Elements<'_, Self>, rounds: Rounds) {
        by.short(elements, rounds);
    }
}

impl Stored for f16 {
    type In = f32;
    #[inline(always)]
    fn load(self) -> f32 {
        crate::cpu::folds::widen_f16(self)
    }
    #[inline(always)]
    fn store(v: f32) -> Self {
        Self::from_f32(v)
    }
    #[inline(always)]
    fn rounded(v: f32) -> f32 {
        rounded_f16(v)
    }
    fn step(by: &dyn Step, elements: Elements<'_, Self>, rounds: Rounds) {
        in_blocks(by, elements, rounds);
    }
}

/// The half next to a number, without a branch, so that loops of it vectorise: what is added has a last place as large as
/// that of the half.
#[inline(always)]
fn rounded_f16(v: f32) -> f32 {
    const SIGN: u32 = 1 << 31;
    const LEAST: u32 = (127 - 14) << 23;
    let bits = v.to_bits();
    let exponent = bits & 0x7f80_0000;
    let step = if exponent < LEAST { LEAST } else { exponent };
    // Three halves of a power of two: the sum has the same exponent for both signs.
    let large = f32::from_bits(step.wrapping_add(13 << 23) | 0x40_0000);
    let near = (v + large) - large;
    let size = f32::from_bits(near.to_bits() & !SIGN);
    let size = if size >= 65520.0 { f32::INFINITY } else { size };
    let special = exponent >= (127 + 16) << 23;
    let all = f32::from_bits(bits & !SIGN);
    let all = if all < f32::INFINITY {
        f32::INFINITY
    } else {
        all
    };
    f32::from_bits(if special { all } else { size }.to_bits() | bits & SIGN)
}

/// When results are rounded to the type that is stored.
pub(crate) trait Rounding {
    /// A result that could be stored.
    fn r<S: Stored>(v: S::In) -> S::In;
}

/// After every operation, as where each is a call of its own.
pub(crate) struct Each;

impl Rounding for Each {
    #[inline(always)]
    fn r<S: Stored>(v: S::In) -> S::In {
        S::rounded(v)
    }
}

/// When it is stored.
pub(crate) struct Last;

impl Rounding for Last {
    #[inline(always)]
    fn r<S: Stored>(v: S::In) -> S::In {
        v
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_rounded_as_by_conversion() {
        let edges = [0u32, 1, 0x7f7f_ffff, 0x7f80_0000, 0x7f80_0001, 0x7fff_ffff];
        let dense = (0..1 << 20).map(|i| i << 12 | 0xfff);
        let halfway = (0..1 << 18).flat_map(|i| [0x0fff, 0x1000, 0x1001].map(|low| i << 13 | low));
        let near = |v: f32| v.to_bits() - 3000..v.to_bits() + 3000;
        let limits = near(65520.0)
            .chain(near(6.1e-5))
            .chain(near(5.96e-8))
            .chain(near(2.98e-8));
        for bits in edges.into_iter().chain(dense).chain(halfway).chain(limits) {
            for bits in [bits, bits | 1 << 31] {
                let v = f32::from_bits(bits);
                let want = f16::from_f32(v).load();
                let got = f16::from_f32(rounded_f16(v)).load();
                assert_eq!(got.to_bits(), want.to_bits(), "{bits:#x}");
                assert!(
                    v.is_nan() || rounded_f16(v).to_bits() == want.to_bits(),
                    "{bits:#x}"
                );
            }
        }
    }
}
