//! The complement of the error function, and its inverse.

use super::stepped::complement;
use super::{log_edges, log_of_parts, log_sum, one_more, parts, poly, poly_sum};
use std::f64::consts::{FRAC_1_SQRT_2, SQRT_2};

/// What the double next to the root of 2 leaves out.
const SQRT_2_LO: f64 = -9.667_293_313_452_913e-17;

/// Where w, as below, is near.
const NEAR_LOG: f64 = 7.0;
/// In w - 3.5, up to there.
const INVERSE_NEAR: [f64; 26] = [
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
    1.742_829_922_065_944,
];
/// In 1 / (1 + sqrt(w)) - 0.2, up to w = 36.8.
const INVERSE_FAR: [f64; 26] = [
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
    0.767_956_759_482_310_7,
];
/// In 1 / (2 + sqrt(w)) - 0.08, up to w = 746.
const INVERSE_TAIL: [f64; 23] = [
    -6.294_683_044_450_308e18,
    3.985_162_384_391_040_6e17,
    3.536_779_897_590_765_2e16,
    -1_304_616_872_632_667.5,
    -240_670_875_610_769.97,
    13_451_044_283_408.037,
    -254_864_042_419.529_6,
    50_974_202_185.254_4,
    -6_988_317_855.249_295,
    664_923_388.952_690_2,
    -66_542_904.307_695_985,
    7_103_219.686_184_089,
    -778_509.070_884_357_4,
    87_696.996_921_898_97,
    -10_471.775_384_184_16,
    1_330.900_375_138_688_3,
    -154.257_066_063_834_54,
    40.506_175_813_180_135,
    0.370_381_553_157_232_7,
    2.615_851_978_269_049,
    -0.630_667_042_455_273_4,
    -2.176_909_082_536_448_5,
    0.831_480_701_786_188_7,
];

/// One minus the error function.
#[inline(always)]
#[must_use]
pub fn erfc(x: f64) -> f64 {
    let y = complement(x.abs(), 0.0);
    if x < 0.0 { 2.0 - y } else { y }
}

/// x times a polynomial in w = -log(1 - x^2), or, further out, in 1 / (1 + sqrt(w)), times 1 + sqrt(w), as a sum; from `square`, which
/// is 1 - x^2. Beyond what numbers near 1 can say there is a third one if `tail`.
#[inline(always)]
fn inverse(x: f64, square: f64, tail: bool) -> (f64, f64) {
    let (log, log_low) = log_sum(square);
    let w = -log;
    let near = poly_sum(w - 3.5, INVERSE_NEAR);
    let root = w.sqrt();
    let (far, far_low) = poly_sum(1.0 / (1.0 + root) - 0.2, INVERSE_FAR);
    let (far, far_low, more) = if tail {
        let (p, p_low) = poly_sum(1.0 / (2.0 + root) - 0.08, INVERSE_TAIL);
        let beyond = w > 36.5;
        if beyond {
            (p, p_low, 2.0)
        } else {
            (far, far_low, 1.0)
        }
    } else {
        (far, far_low, 1.0)
    };
    let y = root.mul_add(far, more * far);
    // What is missing of the root, with what is missing of the logarithm.
    let root_low = ((-root).mul_add(root, w) - log_low) * 0.5 / root;
    let far_low = root.mul_add(far, more.mul_add(far, -y))
        + (root.mul_add(far_low, more * far_low) + root_low * far);
    times(x, if w < NEAR_LOG { near } else { (y, far_low) })
}

/// x times a sum, as a sum.
#[inline(always)]
fn times(x: f64, (y, low): (f64, f64)) -> (f64, f64) {
    let product = x * y;
    (product, x.mul_add(y, -product) + x * low)
}

/// The inverse error function up to 0.9995, beyond which it is NaN.
#[inline(always)]
#[must_use]
pub fn erfinv_near(x: f64) -> f64 {
    let w = -log_sum((1.0 - x) * (1.0 + x)).0;
    let (y, low) = times(x, poly_sum(w - 3.5, INVERSE_NEAR));
    let y = if x == 0.0 { x } else { y + low };
    if (w < NEAR_LOG) & (x.abs() < 1.0) {
        y
    } else {
        f64::NAN
    }
}

/// The inverse error function, one element at a time: at once where it is no number.
#[must_use]
pub fn erfinv(x: f64) -> f64 {
    let a = x.abs();
    if a >= 1.0 || a.is_nan() {
        return if a == 1.0 {
            x * f64::INFINITY
        } else {
            f64::NAN
        };
    }
    let (y, low) = inverse(x, (1.0 - x) * (1.0 + x), false);
    if x == 0.0 { x } else { y + low }
}

/// The complement of the error function at |x| over the root of 2, by whose square its last digits are.
#[inline(always)]
fn normal_tail(x: f64) -> f64 {
    let z = x.abs() * FRAC_1_SQRT_2;
    let low = x.abs().mul_add(FRAC_1_SQRT_2, -z) + x.abs() * (0.5 * SQRT_2_LO);
    complement(z, if z < 100.0 { low } else { 0.0 })
}

/// The normal distribution function.
#[inline(always)]
#[must_use]
pub fn ndtr(x: f64) -> f64 {
    let y = normal_tail(x);
    0.5 * if x < 0.0 { y } else { 2.0 - y }
}

/// Its logarithm; where the function is next to nothing by its asymptotic series (DLMF 7.12.1).
#[inline(always)]
#[must_use]
pub fn log_ndtr(x: f64) -> f64 {
    const ROOT_OF_TURN: f64 = 2.506_628_274_631_000_7;
    let y = 0.5 * normal_tail(x);
    let (w, c) = one_more(-y, 0.0);
    let (w, c) = if x < 0.0 { (y, 0.0) } else { (w, c) };
    let far = x < -30.0;
    let w = if far { x * -ROOT_OF_TURN } else { w };
    let (e, f) = parts(w);
    let log = log_edges(w, log_of_parts(e, f, c));
    let t = 1.0 / (x * x);
    let series = t * poly(t, [-945.0, 105.0, -15.0, 3.0, -1.0]);
    // Its own logarithm to the digits that are left of it.
    let series = series * poly(series, [0.2, -0.25, 1.0 / 3.0, -0.5, 1.0]);
    let beyond = (-0.5 * x).mul_add(x, series - log);
    (if far { beyond } else { log }).copysign(-1.0)
}

/// The inverse of the normal distribution function.
#[inline(always)]
#[must_use]
pub fn ndtri(p: f64) -> f64 {
    // Twice the smaller side, 1 - |x| for the inverse error function.
    let upper = p > 0.5;
    let q = if upper { 1.0 - p } else { p };
    let c = q + q;
    let (z, low) = inverse(1.0 - c, c * (2.0 - c), true);
    let y = SQRT_2 * z;
    let y = y + (SQRT_2.mul_add(z, -y) + (SQRT_2 * low + SQRT_2_LO * z));
    let y = if q == 0.0 { f64::INFINITY } else { y };
    let y = if q < 0.0 { f64::NAN } else { y };
    if upper | (q == 0.5) { y } else { -y }
}
