//! The error function, its complement and its inverse.

use super::{LN2_HI, LN2_LO, exp_of_sum, log, log_tail, parts, poly, poly_sum};
use std::f64::consts::FRAC_2_SQRT_PI;

/// Below this the error function is a polynomial, above it its complement.
const NEAR: f64 = 0.5;

/// `erf(x) / x - 1` for |x| <= [`NEAR`].
#[inline(always)]
fn near(x: f64) -> f64 {
    poly(
        x * x,
        [
            -1.462_111_292_338_623_8e-7,
            1.637_126_100_812_168_4e-6,
            -1.492_300_480_836_197_2e-5,
            1.205_528_624_332_591_9e-4,
            -8.548_326_511_406_058e-4,
            5.223_977_622_023_461e-3,
            -2.686_617_064_500_007e-2,
            0.112_837_916_709_548_7,
            -0.376_126_389_031_837_5,
            0.128_379_167_095_512_6,
        ],
    )
}

/// erfc(a) for a >= [`NEAR`]: exp(-a^2) times a polynomial in 1 / (a + 3).
#[inline(always)]
fn complement(a: f64) -> f64 {
    // Here it is 0.
    let a = if a > 27.3 { 27.3 } else { a };
    let d = a + 3.0;
    let t = 1.0 / d;
    let (p, p_low) = poly_sum(
        t - 0.16,
        [
            131_277_572.517_723_93,
            -30_797_259.797_938_738,
            -26_158_879.163_192_656,
            8_513_502.191_842_277,
            3_107_474.105_821_29,
            -1_559_657.716_226_233_6,
            -323_670.912_529_368_3,
            256_800.669_731_293_7,
            39_813.531_944_810_74,
            -42_470.421_020_831_396,
            -7_795.502_033_738_760_5,
            7_196.217_519_058_262,
            2_331.296_550_808_197,
            -1_074.798_071_934_754_7,
            -796.001_039_049_552_6,
            -18.143_226_138_923_108,
            210.094_469_697_103_2,
            147.925_324_562_826_06,
            63.023_041_251_481_93,
            19.947_691_535_666_26,
            5.025_817_034_394_256,
        ],
        1.039_595_927_667_636_8,
    );
    // exp(a^2) erfc(a), for an a that t is the inverse of; by how much the true one is greater; and the change by that.
    let y = p * t;
    let lost = if a > 3.0 {
        3.0 - (d - a)
    } else {
        a - (d - 3.0)
    };
    let more = -d * (-t).mul_add(lost, (-t).mul_add(d, 1.0));
    let change = more * (2.0 * a).mul_add(y, -FRAC_2_SQRT_PI);
    let low = p_low.mul_add(t, p.mul_add(t, -y)) + change;
    let square = a * a;
    let e = exp_of_sum(-square, -a.mul_add(a, -square));
    e.mul_add(y, e * low)
}

/// The error function.
#[inline(always)]
#[must_use]
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    let small = a.mul_add(near(a), a);
    (if a < NEAR { small } else { 1.0 - complement(a) }).copysign(x)
}

/// One minus the error function.
#[inline(always)]
#[must_use]
pub fn erfc(x: f64) -> f64 {
    let one = 1.0 - x;
    let small = one + (x.mul_add(-near(x), (1.0 - one) - x));
    let far = complement(x.abs());
    let far = if x < 0.0 { 2.0 - far } else { far };
    if x.abs() < NEAR { small } else { far }
}

/// The inverse error function: x times a polynomial in w = -log(1 - x^2), or, far out, in 1 / (1 + sqrt(w)), times 1 + sqrt(w).
#[inline(always)]
#[must_use]
pub fn erfinv(x: f64) -> f64 {
    let square = (1.0 - x) * (1.0 + x);
    let w = -log(square);
    let (near, near_low) = poly_sum(
        w - 3.5,
        [
            1.441_599_853_793_819_4e-23,
            -2.405_762_257_568_009_6e-22,
            -5.331_420_001_298_086e-22,
            2.749_674_547_415_004e-20,
            -1.028_395_909_767_536_1e-19,
            -1.116_591_956_483_928_1e-18,
            1.193_818_449_932_836e-17,
            -1.806_521_169_656_856_2e-17,
            -4.926_616_510_930_707e-16,
            4.460_916_509_250_489e-15,
            -5.672_059_068_520_665e-15,
            -2.033_159_836_326_684_5e-13,
            1.799_864_741_561_323_4e-12,
            -1.920_412_147_292_334e-12,
            -8.611_697_392_813_59e-11,
            7.447_500_972_011_128e-10,
            -7.043_956_764_197_528e-10,
            -3.687_230_510_464_282e-8,
            3.216_821_894_563_101_5e-7,
            -3.823_684_577_238_176e-7,
            -1.579_845_366_048_765_5e-5,
            1.585_623_150_195_293e-4,
            -4.812_834_633_225_85e-4,
            -6.717_066_587_673_182e-3,
            0.235_358_409_207_878_98,
        ],
        1.742_829_922_065_944,
    );
    let root = w.sqrt();
    let (p, p_low) = poly_sum(
        1.0 / (1.0 + root) - 0.2,
        [
            -9.377_639_448_491_155e19,
            7.669_899_592_193_178e18,
            5.024_127_576_702_582e18,
            -6.049_803_311_584_353e17,
            -9.709_851_127_886_715e16,
            1.660_800_190_047_437_2e16,
            1_026_016_862_629_491.0,
            -284_835_101_316_025.5,
            -6_645_228_463_681.293,
            3_871_987_790_210.688_5,
            34_743_094_310.170_07,
            -47_367_284_037.207_344,
            -714_196_508.569_891_3,
            533_815_822.227_895_86,
            23_987_327.665_249_266,
            -4_748_759.075_234_674,
            -528_101.586_134_712,
            8_384.858_239_523_08,
            5_972.330_018_094_416,
            616.227_833_504_495_8,
            38.070_317_404_477_33,
            1.855_641_619_267_653,
            1.928_194_849_207_489,
            0.157_480_908_386_513_9,
            -1.207_682_468_815_565_8,
        ],
        0.767_956_759_482_310_7,
    );
    let far = root.mul_add(p, p);
    // What is missing of the root, with what is missing of the logarithm.
    let (e, f) = parts(square);
    let w_low = LN2_HI.mul_add(-e, -w) - (f + log_tail(f, e * LN2_LO));
    let root_low = ((-root).mul_add(root, w) + w_low) * 0.5 / root;
    let far_low = root.mul_add(p, p - far) + (root * p_low + root_low * p);
    let (y, low) = if w < 7.0 {
        (near, near_low)
    } else {
        (far, far_low)
    };
    let y = if x == 0.0 { x } else { x.mul_add(y, x * low) };
    let y = if x.abs() == 1.0 { x * f64::INFINITY } else { y };
    if x.abs() > 1.0 { f64::NAN } else { y }
}
