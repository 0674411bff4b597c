//! The numbers that updates are computed in, and how they are rounded.

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
}

macro_rules! plain {
    ($t:ty) => {
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
        }
    };
}
plain!(f32);
plain!(f64);

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
}

/// When results are rounded to the type that is stored.
pub(crate) trait Rounding {
    /// After every operation.
    const EACH: bool;
    /// A result that could be stored.
    fn r<S: Stored>(v: S::In) -> S::In;
}

/// After every operation, as where each is a call of its own.
pub(crate) struct Each;

impl Rounding for Each {
    const EACH: bool = true;
    #[inline(always)]
    fn r<S: Stored>(v: S::In) -> S::In {
        S::store(v).load()
    }
}

/// When it is stored.
pub(crate) struct Last;

impl Rounding for Last {
    const EACH: bool = false;
    #[inline(always)]
    fn r<S: Stored>(v: S::In) -> S::In {
        v
    }
}
