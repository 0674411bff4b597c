//! Numbers beside the operands of a pointwise loop.

use num_complex::{Complex32, Complex64};

/// Numbers that an operator gets besides its elements (alpha, bounds, ...).
#[derive(Clone, Copy, Default)]
pub struct Ctx {
    /// As doubles.
    pub f: [f64; 3],
    /// As integers.
    pub i: [i64; 3],
    /// As complex numbers.
    pub c: [Complex64; 2],
    /// Numbers beside 16-bit tensors keep single precision.
    pub wide_numbers: bool,
}

/// When the operands of an operator may change places.
#[derive(Clone, Copy)]
pub enum Swaps {
    /// Never.
    Never,
    /// Always.
    Always,
    /// Where the factor of the second is 1.
    Unscaled,
}

impl Swaps {
    /// Whether they may beside these numbers.
    pub(super) fn beside(self, c: &Ctx) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Unscaled => c.c[0] == Complex64::new(1.0, 0.0),
        }
    }
}

/// A number from the context in an element's own type.
pub trait FromCtx: Copy {
    /// Number `k` of the context.
    fn ctx(c: &Ctx, k: usize) -> Self;
}
macro_rules! from_ctx {
    ($($t:ty => |$c:ident, $k:ident| $e:expr;)+) => { $(impl FromCtx for $t {
        #[inline(always)]
        fn ctx($c: &Ctx, $k: usize) -> Self { $e }
    })+ };
}
from_ctx! {
    u8 => |c, k| c.i[k] as u8; i8 => |c, k| c.i[k] as i8; i16 => |c, k| c.i[k] as i16; i32 => |c, k| c.i[k] as i32;
    i64 => |c, k| c.i[k]; u16 => |c, k| c.i[k] as u16; u32 => |c, k| c.i[k] as u32; u64 => |c, k| c.i[k] as u64;
    bool => |c, k| c.i[k] != 0; f32 => |c, k| c.f[k] as f32; f64 => |c, k| c.f[k];
    Complex32 => |c, k| Complex32::new(c.c[k].re as f32, c.c[k].im as f32); Complex64 => |c, k| c.c[k];
}
