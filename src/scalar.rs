//! A number without a tensor: what Python numbers become, and what `item()` gives back.

#![allow(unsafe_code, reason = "elements are read from memory")]

use crate::dtype::DType;
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};

/// A Python number. Integers are kept exact; unsigned 64-bit values beyond `i64` have their own case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// True or false.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// An integer above `i64::MAX`.
    UInt(u64),
    /// A real number.
    Float(f64),
    /// A complex number.
    Complex(Complex64),
}

impl Scalar {
    /// The dtype that a tensor made of this number alone would have, given the default float dtype.
    #[must_use]
    pub fn dtype(self, default_float: DType) -> DType {
        match self {
            Self::Bool(_) => DType::Bool,
            Self::Int(_) | Self::UInt(_) => DType::I64,
            Self::Float(_) => default_float,
            Self::Complex(_) => default_float.to_complex(),
        }
    }

    /// As a double; the real part of a complex number.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Bool(b) => f64::from(u8::from(b)),
            Self::Int(i) => i as f64,
            Self::UInt(u) => u as f64,
            Self::Float(f) => f,
            Self::Complex(c) => c.re,
        }
    }

    /// As a signed integer; fractions are cut off, and what lies out of range is the lowest one.
    #[must_use]
    pub fn to_i64(self) -> i64 {
        match self {
            Self::Bool(b) => i64::from(b),
            Self::Int(i) => i,
            Self::UInt(u) => u as i64,
            Self::Float(f) => truncated(f),
            Self::Complex(c) => truncated(c.re),
        }
    }

    /// As a complex number.
    #[must_use]
    pub fn to_c64(self) -> Complex64 {
        match self {
            Self::Complex(c) => c,
            other => Complex64::new(other.to_f64(), 0.0),
        }
    }

    /// True unless the number is zero.
    #[must_use]
    pub fn to_bool(self) -> bool {
        match self {
            Self::Bool(b) => b,
            Self::Int(i) => i != 0,
            Self::UInt(u) => u != 0,
            Self::Float(f) => f != 0.0,
            Self::Complex(c) => c.re != 0.0 || c.im != 0.0,
        }
    }

    /// True for a real or complex floating point number.
    #[must_use]
    pub fn is_floating(self) -> bool {
        matches!(self, Self::Float(_) | Self::Complex(_))
    }
}

/// A real number as a register of 64 bits has it on x86: NaN and what lies beyond are its lowest number.
fn truncated(f: f64) -> i64 {
    const LOW: f64 = i64::MIN as f64;
    match (LOW..-LOW).contains(&f) {
        true => f as i64,
        false => i64::MIN,
    }
}

macro_rules! from_number {
    ($($t:ty => $variant:ident as $as:ty;)+) => {
        $(impl From<$t> for Scalar {
            fn from(v: $t) -> Self { Self::$variant(v as $as) }
        })+
    };
}
from_number! { i64 => Int as i64; i32 => Int as i64; usize => Int as i64; f64 => Float as f64; f32 => Float as f64; }

impl From<bool> for Scalar {
    fn from(v: bool) -> Self {
        Self::Bool(v)
    }
}

impl From<Complex64> for Scalar {
    fn from(v: Complex64) -> Self {
        Self::Complex(v)
    }
}

/// A Rust type that can be the element of a tensor we compute with.
pub trait Element: Copy + Send + Sync + Default + PartialEq + 'static {
    /// The dtype whose elements have this type.
    const DTYPE: DType;
    /// From a number, as a C cast does it: integers wrap, floats round to nearest.
    fn from_scalar(s: Scalar) -> Self;
    /// To a number, exactly.
    fn to_scalar(self) -> Scalar;
    /// Reads an element from memory. A truth value may be any byte there: all but 0 are true.
    ///
    /// # Safety
    /// `p` points to an element that may be read.
    #[inline(always)]
    unsafe fn load(p: *const Self) -> Self {
        // SAFETY: as the caller promises; every bit pattern is a number.
        unsafe { p.read_unaligned() }
    }
}

macro_rules! int_elements {
    ($($t:ty => $d:ident;)+) => {
        $(impl Element for $t {
            const DTYPE: DType = DType::$d;
            #[inline]
            fn from_scalar(s: Scalar) -> Self {
                match s {
                    Scalar::Int(i) => i as $t,
                    Scalar::UInt(u) => u as $t,
                    // Through i64, so that out-of-range values wrap as they do in C on x86.
                    Scalar::Float(f) => truncated(f) as $t,
                    other => other.to_i64() as $t,
                }
            }
            #[inline]
            fn to_scalar(self) -> Scalar { Scalar::Int(self as i64) }
        })+
    };
}
int_elements! { u8 => U8; i8 => I8; i16 => I16; i32 => I32; i64 => I64; u16 => U16; u32 => U32; }

impl Element for u64 {
    const DTYPE: DType = DType::U64;
    fn from_scalar(s: Scalar) -> Self {
        match s {
            Scalar::UInt(u) => u,
            Scalar::Float(f) if f > i64::MAX as f64 => f as u64,
            other => other.to_i64() as u64,
        }
    }
    fn to_scalar(self) -> Scalar {
        i64::try_from(self).map_or(Scalar::UInt(self), Scalar::Int)
    }
}

impl Element for bool {
    const DTYPE: DType = DType::Bool;
    fn from_scalar(s: Scalar) -> Self {
        s.to_bool()
    }
    fn to_scalar(self) -> Scalar {
        Scalar::Bool(self)
    }
    #[inline(always)]
    unsafe fn load(p: *const Self) -> Self {
        // SAFETY: as the caller promises.
        unsafe { p.cast::<u8>().read() != 0 }
    }
}

macro_rules! float_elements {
    ($($t:ty => $d:ident, $from:expr, $to:expr;)+) => {
        $(impl Element for $t {
            const DTYPE: DType = DType::$d;
            #[inline]
            fn from_scalar(s: Scalar) -> Self { $from(s.to_f64()) }
            #[inline]
            fn to_scalar(self) -> Scalar { Scalar::Float($to(self)) }
        })+
    };
}
float_elements! {
    // 16-bit types go through f32, as PyTorch's casts from double do.
    f16 => F16, |v: f64| f16::from_f32(v as f32), f64::from;
    bf16 => BF16, |v: f64| bf16::from_f32(v as f32), f64::from;
    f32 => F32, |v: f64| v as f32, f64::from;
    f64 => F64, |v: f64| v, |v: f64| v;
}

impl Element for Complex32 {
    const DTYPE: DType = DType::C64;
    fn from_scalar(s: Scalar) -> Self {
        let c = s.to_c64();
        Self::new(c.re as f32, c.im as f32)
    }
    fn to_scalar(self) -> Scalar {
        Scalar::Complex(Complex64::new(f64::from(self.re), f64::from(self.im)))
    }
}

impl Element for Complex64 {
    const DTYPE: DType = DType::C128;
    fn from_scalar(s: Scalar) -> Self {
        s.to_c64()
    }
    fn to_scalar(self) -> Scalar {
        Scalar::Complex(self)
    }
}
