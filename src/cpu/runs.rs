//! Dense runs and columns of single precision, folded by AVX2 instructions written out.
//!
//! The compiler vectorises the long loops of [`sweep`](super::sweep) by itself, but not the end of a run, where lanes
//! join: a third of the time of rows of a thousand elements. Nor can it look for NaN beside an extreme.

#![allow(unsafe_code, reason = "vector instructions over raw, checked memory")]

use std::arch::x86_64::*;

/// How a vector joins a partial result.
pub trait Step {
    /// The partial result of nothing.
    const START: f32;
    /// True if `step` overlooks NaN, which is then looked for beside it.
    const BLIND: bool = false;
    /// Eight elements more.
    fn step(part: __m256, x: __m256) -> __m256;
    /// Two partial results as one.
    fn join(a: __m256, b: __m256) -> __m256;
}

macro_rules! steps {
    ($($name:ident, $start:expr, |$p:ident, $x:ident| $step:expr, $join:ident $(, $blind:literal)?;)+) => { $(
        #[doc = concat!("The steps of [`folds::", stringify!($name), "`](super::folds::", stringify!($name), ").")]
        pub struct $name;
        impl Step for $name {
            const START: f32 = $start;
            $(const BLIND: bool = $blind;)?
            #[inline(always)]
            fn step($p: __m256, $x: __m256) -> __m256 {
                // SAFETY: only the folds below call it, which have these instructions.
                unsafe { $step }
            }
            #[inline(always)]
            fn join(a: __m256, b: __m256) -> __m256 {
                // SAFETY: as above.
                unsafe { $join(a, b) }
            }
        }
    )+ };
}
// Of two operands of which one is NaN, minimum and maximum give the second.
steps! {
    Sum, 0.0, |p, x| _mm256_add_ps(p, x), _mm256_add_ps;
    AbsSum, 0.0, |p, x| _mm256_add_ps(p, magnitude(x)), _mm256_add_ps;
    SqSum, 0.0, |p, x| _mm256_add_ps(p, _mm256_mul_ps(x, x)), _mm256_add_ps;
    Prod, 1.0, |p, x| _mm256_mul_ps(p, x), _mm256_mul_ps;
    Max, f32::NEG_INFINITY, |p, x| _mm256_max_ps(x, p), _mm256_max_ps, true;
    Min, f32::INFINITY, |p, x| _mm256_min_ps(x, p), _mm256_min_ps, true;
    AbsMax, 0.0, |p, x| _mm256_max_ps(magnitude(x), p), _mm256_max_ps, true;
    AbsMin, f32::INFINITY, |p, x| _mm256_min_ps(magnitude(x), p), _mm256_min_ps, true;
}

#[inline(always)]
fn magnitude(x: __m256) -> __m256 {
    // SAFETY: only steps call it.
    unsafe { _mm256_andnot_ps(_mm256_set1_ps(-0.0), x) }
}

/// Elements of a vector.
const WIDE: usize = 8;
/// Independent partial results: they hide an addition's latency.
const PARTS: usize = 8;
/// Elements that are folded at a time.
const GROUP: usize = WIDE * PARTS;
/// Elements that are folded before partial results join the others: longer sums in one go would lose digits.
const DEEP: usize = 16 * GROUP;

/// Partial results, and whether a NaN was overlooked.
struct Partial {
    parts: [__m256; PARTS],
    nan: __m256,
}

/// Folds `n` elements, a multiple of [`GROUP`].
#[inline(always)]
unsafe fn groups<S: Step>(q: *const f32, n: usize) -> Partial {
    // SAFETY: the caller gives n elements and is compiled for these instructions.
    unsafe {
        let mut all = Partial {
            parts: [_mm256_set1_ps(S::START); PARTS],
            nan: _mm256_setzero_ps(),
        };
        let mut i = 0;
        while i < n {
            for k in (0..PARTS).step_by(2) {
                let (x, y) = (
                    _mm256_loadu_ps(q.add(i + WIDE * k)),
                    _mm256_loadu_ps(q.add(i + WIDE * (k + 1))),
                );
                all.parts[k] = S::step(all.parts[k], x);
                all.parts[k + 1] = S::step(all.parts[k + 1], y);
                if S::BLIND {
                    all.nan = _mm256_or_ps(all.nan, _mm256_cmp_ps::<_CMP_UNORD_Q>(x, y));
                }
            }
            i += GROUP;
        }
        all
    }
}

/// Folds `n` elements.
///
/// # Safety
/// There are so many at `q`, and the machine has AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn fold<S: Step>(q: *const f32, n: usize) -> f32 {
    // SAFETY: every address is below n.
    unsafe {
        let whole = n - n % GROUP;
        // Extremes lose nothing in long runs.
        let deep = if S::BLIND { whole } else { DEEP };
        let mut i = whole.min(deep);
        let Partial {
            parts: mut total,
            mut nan,
        } = groups::<S>(q, i);
        while i < whole {
            let m = deep.min(whole - i);
            let more = groups::<S>(q.add(i), m);
            for k in 0..PARTS {
                total[k] = S::join(total[k], more.parts[k]);
            }
            nan = _mm256_or_ps(nan, more.nan);
            i += m;
        }
        for width in [4, 2] {
            for k in 0..width {
                total[k] = S::join(total[k], total[k + width]);
            }
        }
        let [mut a, mut b, ..] = total;
        while i + WIDE <= n {
            let x = _mm256_loadu_ps(q.add(i));
            (a, b) = (b, S::step(a, x));
            if S::BLIND {
                nan = _mm256_or_ps(nan, _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
            }
            i += WIDE;
        }
        if i < n {
            let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            let mask = _mm256_cmpgt_epi32(_mm256_set1_epi32((n - i) as i32), lanes);
            let there = _mm256_maskload_ps(q.add(i), mask);
            let x = _mm256_blendv_ps(_mm256_set1_ps(S::START), there, _mm256_castsi256_ps(mask));
            a = S::step(a, x);
            if S::BLIND {
                nan = _mm256_or_ps(nan, _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x));
            }
        }
        if S::BLIND && _mm256_movemask_ps(nan) != 0 {
            return f32::NAN;
        }
        let all = S::join(a, b);
        let all = S::join(all, _mm256_permute2f128_ps::<1>(all, all));
        let all = S::join(all, _mm256_permute_ps::<0b01_00_11_10>(all));
        _mm256_cvtss_f32(S::join(all, _mm256_permute_ps::<0b10_11_00_01>(all)))
    }
}

/// Folds `rows` rows, `stride` bytes apart, into the partial results of `columns` columns.
///
/// # Safety
/// There are so many at `q` and `parts`, `rows` is even and `columns` a multiple of 8, and the machine has AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn columns<S: Step>(
    parts: *mut f32,
    columns: usize,
    q: *const u8,
    stride: isize,
    rows: usize,
) {
    let mut j = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while j + 4 * WIDE <= columns {
            few_columns::<S, 4>(parts.add(j), q.add(4 * j), stride, rows);
            j += 4 * WIDE;
        }
        while j + WIDE <= columns {
            few_columns::<S, 1>(parts.add(j), q.add(4 * j), stride, rows);
            j += WIDE;
        }
    }
}

/// As many neighbouring columns as `V` vectors hold.
#[inline(always)]
unsafe fn few_columns<S: Step, const V: usize>(
    parts: *mut f32,
    q: *const u8,
    stride: isize,
    rows: usize,
) {
    // SAFETY: as the caller of `columns` promises.
    unsafe {
        let mut part = [_mm256_set1_ps(S::START); V];
        let mut nan = [_mm256_setzero_ps(); V];
        for r in (0..rows as isize).step_by(2) {
            let (a, b) = (
                q.offset(r * stride).cast::<f32>(),
                q.offset((r + 1) * stride).cast::<f32>(),
            );
            for v in 0..V {
                let (x, y) = (
                    _mm256_loadu_ps(a.add(WIDE * v)),
                    _mm256_loadu_ps(b.add(WIDE * v)),
                );
                part[v] = S::step(S::step(part[v], x), y);
                if S::BLIND {
                    nan[v] = _mm256_or_ps(nan[v], _mm256_cmp_ps::<_CMP_UNORD_Q>(x, y));
                }
            }
        }
        for v in 0..V {
            let to = parts.add(WIDE * v);
            let before = _mm256_loadu_ps(to);
            let mut all = S::join(before, part[v]);
            if S::BLIND {
                nan[v] = _mm256_or_ps(nan[v], _mm256_cmp_ps::<_CMP_UNORD_Q>(before, before));
                // All bits set are NaN.
                all = _mm256_or_ps(all, nan[v]);
            }
            _mm256_storeu_ps(to, all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_any_length_are_folded_whole() {
        if super::super::simd::level() == super::super::simd::Level::Baseline {
            return;
        }
        for n in (0..200).chain(990..3100usize) {
            let x: Vec<f32> = (0..n).map(|i| ((i * 37) % 101) as f32 - 50.0).collect();
            // SAFETY: n elements; the level was asked.
            let f = |fold: unsafe fn(*const f32, usize) -> f32| unsafe { fold(x.as_ptr(), n) };
            assert_eq!(f(fold::<Sum>), x.iter().sum::<f32>());
            assert_eq!(f(fold::<AbsSum>), x.iter().map(|x| x.abs()).sum::<f32>());
            assert_eq!(
                f(fold::<Max>),
                x.iter().copied().fold(f32::NEG_INFINITY, f32::max)
            );
            assert_eq!(
                f(fold::<AbsMin>),
                x.iter().map(|x| x.abs()).fold(f32::INFINITY, f32::min)
            );
        }
    }

    #[test]
    fn a_nan_anywhere_is_the_extreme() {
        if super::super::simd::level() == super::super::simd::Level::Baseline {
            return;
        }
        const N: usize = 2150;
        for at in (0..150).chain(N - 1100..N) {
            let mut x = [1.0f32; N];
            x[at] = f32::NAN;
            // SAFETY: as many elements; the level was asked.
            unsafe {
                assert!(fold::<Max>(x.as_ptr(), N).is_nan());
                assert!(fold::<AbsMin>(x.as_ptr(), N).is_nan());
                assert_eq!(
                    fold::<Min>(x.as_ptr(), at),
                    if at == 0 { f32::INFINITY } else { 1.0 }
                );
            }
        }
    }

    #[test]
    fn columns_are_folded_each_by_itself() {
        if super::super::simd::level() == super::super::simd::Level::Baseline {
            return;
        }
        let (rows, width) = (6, 48);
        let mut x: Vec<f32> = (0..rows * width).map(|i| ((i * 37) % 101) as f32).collect();
        x[3 * width + 7] = f32::NAN;
        let mut most = [50.0f32; 40];
        most[33] = f32::NAN;
        // SAFETY: six rows of at least 40 columns; the level was asked.
        unsafe {
            columns::<Max>(
                most.as_mut_ptr(),
                40,
                x.as_ptr().cast(),
                4 * width as isize,
                rows,
            )
        };
        for (j, most) in most.iter().enumerate() {
            let right = (0..rows).map(|r| x[r * width + j]).fold(50.0, f32::max);
            assert_eq!(most.is_nan(), j == 7 || j == 33);
            assert!(most.is_nan() || *most == right, "column {j}");
        }
    }
}
