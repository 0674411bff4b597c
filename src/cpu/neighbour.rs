//! The numbers next to a number, of types that single precision stands in for.

/// What f16 has on its own: the least numbers have a spacing of their own, and infinity is not where its bits lead.
const SPACING: f32 = 1.0 / 16_777_216.0;
const NORMAL: f32 = 1.0 / 16_384.0;
const LARGEST: f32 = 65504.0;
/// How many bits fewer f16 has than f32.
const HALF: f64 = 13.0;

/// Floats that have neighbours. `cut`: how many bits of the float the type computed with has not (16 of bf16, 13 of f16).
pub trait Stepped: Copy {
    /// The least number above zero.
    fn least(cut: f64) -> Self;
    /// The next number away from zero, or towards it, of one that is neither zero nor NaN.
    #[must_use]
    fn neighbour(self, away: bool, cut: f64) -> Self;
}

impl Stepped for f64 {
    #[inline(always)]
    fn least(_: f64) -> Self {
        Self::from_bits(1)
    }
    #[inline(always)]
    fn neighbour(self, away: bool, _: f64) -> Self {
        let bits = self.to_bits();
        Self::from_bits(if away { bits + 1 } else { bits - 1 })
    }
}

impl Stepped for f32 {
    #[inline(always)]
    fn least(cut: f64) -> Self {
        if cut == HALF {
            SPACING
        } else {
            Self::from_bits(1 << cut as u32)
        }
    }
    #[inline(always)]
    fn neighbour(self, away: bool, cut: f64) -> Self {
        if cut == HALF {
            let size = self.abs();
            if size.is_infinite() {
                return LARGEST.copysign(self);
            }
            if size < NORMAL || size == NORMAL && !away {
                return (size + if away { SPACING } else { -SPACING }).copysign(self);
            }
        }
        let (bits, step) = (self.to_bits(), 1u32 << cut as u32);
        Self::from_bits(if away { bits + step } else { bits - step })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn neighbours_of_all_numbers_of_16_bits() {
        for bits in 1..0x7c00u16 {
            let (v, up) = (f16::from_bits(bits), f16::from_bits(bits + 1));
            let down = f16::from_bits(bits - 1);
            let made = |away| f16::from_f32(v.to_f32().neighbour(away, HALF));
            assert_eq!((made(true), made(false)), (up, down), "{v}");
            assert_eq!(f16::from_f32((-v).to_f32().neighbour(true, HALF)), -up);
        }
        for bits in 1..0x7f80u16 {
            let (v, up) = (bf16::from_bits(bits), bf16::from_bits(bits + 1));
            let down = bf16::from_bits(bits - 1);
            let made = |away| bf16::from_f32(v.to_f32().neighbour(away, 16.0));
            assert_eq!((made(true), made(false)), (up, down), "{v}");
        }
        assert_eq!(f32::INFINITY.neighbour(false, HALF), LARGEST);
        assert_eq!(f16::from_f32(f32::least(HALF)), f16::from_bits(1));
        assert_eq!(bf16::from_f32(f32::least(16.0)), bf16::from_bits(1));
        assert_eq!(1.0f32.neighbour(true, 0.0), 1.0 + f32::EPSILON);
    }
}
