//! The logarithm of the gamma function, and its derivative.

use super::{log, log_edges, log_of_parts, log_sum, parts, poly, tan};
use std::f64::consts::{FRAC_1_PI, PI};

/// The logarithm of the absolute gamma function: a polynomial with the roots at 1 and 2 up to 3, Stirling's formula beyond (DLMF
/// 5.11.1), and the reflection of that. On the negative axis the difference of two logarithms loses digits next to roots.
#[inline(always)]
#[must_use]
pub fn lgamma(x: f64) -> f64 {
    let a = x.abs();
    let (low, (l, l_low)) = (a < 1.0, log_sum(a));
    let l = log_edges(a, l);
    // From b = a, or from a + 1, by way of log(a).
    let less = if low { a } else { a - 1.0 };
    let near = less
        * (less - 1.0)
        * poly(
            less - 1.0,
            [
                -8.206_152_679_995_169e-10,
                1.584_274_247_614_095_2e-9,
                2.479_843_176_469_339_7e-9,
                -4.374_792_916_344_638_5e-9,
                -8.981_802_106_405_776e-9,
                1.637_287_032_736_517_7e-8,
                -7.365_577_396_929_478e-10,
                5.612_830_246_041_617e-9,
                -5.209_171_595_136_657e-8,
                1.045_243_378_210_308_3e-7,
                -1.860_932_693_011_820_7e-7,
                3.956_617_953_233_616e-7,
                -8.555_006_542_100_37e-7,
                1.811_506_261_721_063_1e-6,
                -3.846_507_837_736_064e-6,
                8.221_195_144_775_542e-6,
                -1.766_185_691_924_259e-5,
                3.816_908_554_357_487_5e-5,
                -8.309_509_973_866_046e-5,
                1.825_526_140_890_934_3e-4,
                -4.057_073_999_564_291e-4,
                9.153_769_241_524_02e-4,
                -2.108_130_833_828_366_3e-3,
                4.998_641_164_622_002_5e-3,
                -1.238_419_219_337_436_9e-2,
                3.296_500_062_115_7e-2,
                -0.100_317_301_674_353_9,
                0.422_784_335_098_467_13,
            ],
        );
    // log(2 pi) / 2 - 1 / 2.
    const HALF: f64 = 0.418_938_533_204_672_74;
    let j = poly(
        1.0 / (a * a),
        [
            7.035_281_634_695_713,
            -5.979_859_797_319_533,
            2.423_192_442_459_190_4,
            -0.647_230_953_431_661_4,
            0.137_402_263_744_557_86,
            -2.769_708_324_995_822e-2,
            6.350_598_221_845_43e-3,
            -1.916_185_857_170_884_6e-3,
            8.417_309_894_739_776e-4,
            -5.952_379_175_054_264e-4,
            7.936_507_928_158_672e-4,
            -2.777_777_777_776_228_3e-3,
            0.083_333_333_333_333_33,
        ],
    ) / a;
    let far = (a - 0.5).mul_add(l - 1.0, (a - 0.5).mul_add(l_low, HALF + j));
    // What log(a) has yet to be taken from, or added to.
    let y = if a < 3.0 { near } else { far };
    let above = if low { y - l } else { y };
    let r = x - x.round_ties_even();
    let s = r * poly(
        r * r,
        [
            7.694_652_221_298_025e-7,
            -2.190_317_949_738_136e-5,
            4.662_996_870_846_655e-4,
            -7.370_430_478_576_797e-3,
            0.082_145_886_569_893_94,
            -0.599_264_529_318_74,
            2.550_164_039_877_294,
            -5.167_712_780_049_969,
            3.141_592_653_589_793,
        ],
    );
    let below = -log(s.abs() * FRAC_1_PI) - if low { y } else { y + l };
    let below = if r == 0.0 { f64::INFINITY } else { below };
    let y = if x < 0.0 { below } else { above };
    if a == f64::INFINITY { a } else { y }
}

/// The digamma function: the asymptotic series from 10 on (DLMF 5.11.2), below that of what is greater by 10, less the inverses in
/// between, and the reflection of that. Next to its roots it is as near as the logarithm is.
#[inline(always)]
#[must_use]
pub fn digamma(x: f64) -> f64 {
    let a = if x < 0.0 { 1.0 - x } else { x };
    let few = a < 10.0;
    // The product of a, a + 1, ..., a + 9 in t = a (a + 9), and its derivative, which by the product is the sum of the inverses.
    let t = a * (a + 9.0);
    let (mut product, mut change) = (t, 1.0f64);
    for more in [8.0, 14.0, 18.0, 20.0] {
        let factor = t + more;
        (product, change) = (product * factor, change.mul_add(factor, product));
    }
    let change = (a + a + 9.0) * if few { change } else { 0.0 };
    let inverses = change / if few { product } else { 1.0 };
    let y = if few { a + 10.0 } else { a };
    let (e, f) = parts(y);
    let inverse = 1.0 / y;
    let z = inverse * inverse;
    let tail = z * poly(
        z,
        [
            8.333_333_333_333_333e-2,
            -2.109_279_609_279_609_3e-2,
            7.575_757_575_757_576e-3,
            -4.166_666_666_666_667e-3,
            3.968_253_968_253_968e-3,
            -8.333_333_333_333_333e-3,
            8.333_333_333_333_333e-2,
        ],
    );
    let above = log_of_parts(e, f, 0.0) - (0.5f64.mul_add(inverse, tail) + inverses);
    let above = if a < f64::INFINITY { above } else { a };
    let r = x - x.round_ties_even();
    let below = above - PI / tan(PI * r);
    let below = if r == 0.0 { f64::NAN } else { below };
    if x < 0.0 { below } else { above }
}
