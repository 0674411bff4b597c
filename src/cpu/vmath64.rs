//! Elementary functions in double precision, branch-free so that loops over them vectorise; see [`super::vmath`].

/// Adding this to a double below 2^51 rounds it to an integer, which then sits in the low bits.
pub(super) const ROUND: f64 = 6_755_399_441_055_744.0;
const LN2_HI: f64 = 0.693_147_180_369_123_8;
const LN2_LO: f64 = 1.908_214_929_270_587_7e-10;

/// 2^n for n in -1023..=1023, with 0 for the first.
#[inline(always)]
fn pow2(n: i64) -> f64 {
    f64::from_bits((n.wrapping_add(1023) as u64) << 52)
}

/// e^x, within 1 ulp.
#[inline(always)]
#[must_use]
pub fn exp(x: f64) -> f64 {
    let x = if x > 710.0 { 710.0 } else { x };
    let x = if x < -746.0 { -746.0 } else { x };
    let t = x.mul_add(std::f64::consts::LOG2_E, ROUND);
    let n = t - ROUND;
    let i = (t.to_bits() as i64).wrapping_sub(ROUND.to_bits() as i64);
    let r = n.mul_add(-LN2_LO, n.mul_add(-LN2_HI, x));
    // The series of e^r - 1 - r, for |r| <= ln(2) / 2: the first term left out is below 2^-57 of the sum.
    let mut p = 1.0 / 6_227_020_800.0;
    for c in [
        1.0 / 479_001_600.0,
        1.0 / 39_916_800.0,
        1.0 / 3_628_800.0,
        1.0 / 362_880.0,
        1.0 / 40_320.0,
        1.0 / 5_040.0,
        1.0 / 720.0,
        1.0 / 120.0,
        1.0 / 24.0,
        1.0 / 6.0,
        0.5,
    ] {
        p = r.mul_add(p, c);
    }
    let y = 1.0 + (r * r).mul_add(p, r);
    // In two steps, as 2^n itself may be out of range; the halves of a small integer by way of its double.
    let half = (n * 0.5).mul_add(1.0, ROUND);
    let h = (half.to_bits() as i64).wrapping_sub(ROUND.to_bits() as i64);
    y * pow2(h) * pow2(i.wrapping_sub(h))
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn exp_is_accurate_everywhere() {
        for k in -75_000..72_000 {
            let x = f64::from(k) * 0.009_87;
            let (want, got) = (x.exp(), exp(x));
            if want.is_infinite() || want == 0.0 {
                assert_eq!(want, got, "{x}");
            } else {
                assert!(
                    (want - got).abs() <= want * 3e-16 + 5e-324,
                    "{x}: {want:e} {got:e}"
                );
            }
        }
        assert!(exp(f64::NAN).is_nan());
        assert_eq!(exp(f64::INFINITY), f64::INFINITY);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert_eq!(exp(0.0), 1.0);
    }
}
