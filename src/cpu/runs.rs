//! Dense runs and columns of floating numbers, folded by AVX2 instructions written out.
//!
//! The compiler vectorises the long loops of [`sweep`](super::sweep) by itself, but not the end of a run, where lanes
//! join: a third of the time of rows of a thousand elements. Nor can it look for NaN beside an extreme.

#![allow(unsafe_code, reason = "vector instructions over raw, checked memory")]

use std::arch::x86_64::*;

/// Numbers that vectors hold. What is done with vectors needs AVX2.
pub trait Lane: Copy {
    /// Of 32 bytes.
    type Vector: Copy;
    /// Elements of a vector.
    const WIDE: usize;
    /// No number.
    const NAN: Self;
    /// Nothing.
    const ZERO: Self;
    /// One.
    const ONE: Self;
    /// Larger than all others.
    const INFINITY: Self;
    /// Less than all others.
    const NEG_INFINITY: Self;
    /// All elements the same.
    unsafe fn splat(x: Self) -> Self::Vector;
    /// The elements at an address.
    unsafe fn load(q: *const Self) -> Self::Vector;
    /// The first `n`, and `rest` in place of the others.
    unsafe fn load_part(q: *const Self, n: usize, rest: Self) -> Self::Vector;
    /// Writes the elements.
    unsafe fn store(q: *mut Self, x: Self::Vector);
    /// Sums.
    unsafe fn add(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Products.
    unsafe fn mul(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The larger of each two; the second if one is NaN.
    unsafe fn max(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The lesser of each two; the second if one is NaN.
    unsafe fn min(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Absolute values.
    unsafe fn abs(x: Self::Vector) -> Self::Vector;
    /// All bits set, which is NaN, where one of the two is that.
    unsafe fn unordered(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// The bits of both.
    unsafe fn or(a: Self::Vector, b: Self::Vector) -> Self::Vector;
    /// Whether a sign is set.
    unsafe fn any(x: Self::Vector) -> bool;
    /// All elements joined to one.
    unsafe fn all<S: Step<Self>>(x: Self::Vector) -> Self;
}

macro_rules! lanes {
    ($t:ty, $vector:ty, $wide:literal, $splat:ident $load:ident $store:ident $add:ident $mul:ident $max:ident
     $min:ident $andnot:ident $cmp:ident $or:ident $movemask:ident, |$q:ident, $n:ident, $rest:ident| $part:expr,
     |$x:ident, $steps:ident| $all:expr) => {
        impl Lane for $t {
            type Vector = $vector;
            const WIDE: usize = $wide;
            const NAN: Self = <$t>::NAN;
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const INFINITY: Self = <$t>::INFINITY;
            const NEG_INFINITY: Self = <$t>::NEG_INFINITY;
            lanes! { @
                fn splat(x: Self) -> $vector { $splat(x) }
                fn load(q: *const Self) -> $vector { $load(q) }
                fn load_part($q: *const Self, $n: usize, $rest: Self) -> $vector { $part }
                fn store(q: *mut Self, x: $vector) -> () { $store(q, x) }
                fn add(a: $vector, b: $vector) -> $vector { $add(a, b) }
                fn mul(a: $vector, b: $vector) -> $vector { $mul(a, b) }
                fn max(a: $vector, b: $vector) -> $vector { $max(a, b) }
                fn min(a: $vector, b: $vector) -> $vector { $min(a, b) }
                fn abs(x: $vector) -> $vector { $andnot($splat(-0.0), x) }
                fn unordered(a: $vector, b: $vector) -> $vector { $cmp::<_CMP_UNORD_Q>(a, b) }
                fn or(a: $vector, b: $vector) -> $vector { $or(a, b) }
                fn any(x: $vector) -> bool { $movemask(x) != 0 }
            }
            #[inline(always)]
            unsafe fn all<$steps: Step<Self>>($x: $vector) -> Self {
                // SAFETY: as above.
                unsafe { $all }
            }
        }
    };
    (@ $(fn $name:ident($($arg:ident: $of:ty),*) -> $to:ty { $e:expr })+) => { $(
        #[inline(always)]
        unsafe fn $name($($arg: $of),*) -> $to {
            // SAFETY: only the folds below call it, which have these instructions and say what is there.
            unsafe { $e }
        }
    )+ };
}
lanes! {
    f32, __m256, 8, _mm256_set1_ps _mm256_loadu_ps _mm256_storeu_ps _mm256_add_ps _mm256_mul_ps
    _mm256_max_ps _mm256_min_ps _mm256_andnot_ps _mm256_cmp_ps _mm256_or_ps _mm256_movemask_ps,
    |q, n, rest| {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), lanes);
        let there = _mm256_maskload_ps(q, mask);
        _mm256_blendv_ps(_mm256_set1_ps(rest), there, _mm256_castsi256_ps(mask))
    },
    |x, S| {
        let x = S::join(x, _mm256_permute2f128_ps::<1>(x, x));
        let x = S::join(x, _mm256_permute_ps::<0b01_00_11_10>(x));
        _mm256_cvtss_f32(S::join(x, _mm256_permute_ps::<0b10_11_00_01>(x)))
    }
}
lanes! {
    f64, __m256d, 4, _mm256_set1_pd _mm256_loadu_pd _mm256_storeu_pd _mm256_add_pd _mm256_mul_pd
    _mm256_max_pd _mm256_min_pd _mm256_andnot_pd _mm256_cmp_pd _mm256_or_pd _mm256_movemask_pd,
    |q, n, rest| {
        let lanes = _mm256_setr_epi64x(0, 1, 2, 3);
        let mask = _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), lanes);
        let there = _mm256_maskload_pd(q, mask);
        _mm256_blendv_pd(_mm256_set1_pd(rest), there, _mm256_castsi256_pd(mask))
    },
    |x, S| {
        let x = S::join(x, _mm256_permute2f128_pd::<1>(x, x));
        _mm256_cvtsd_f64(S::join(x, _mm256_permute_pd::<0b0101>(x)))
    }
}

/// How a vector joins a partial result.
pub trait Step<L: Lane> {
    /// The partial result of nothing.
    const START: L;
    /// True if `step` overlooks NaN, which is then looked for beside it.
    const BLIND: bool = false;
    /// The elements of one vector more.
    ///
    /// # Safety
    /// The machine has AVX2, here and below.
    unsafe fn step(part: L::Vector, x: L::Vector) -> L::Vector;
    /// Two partial results as one.
    ///
    /// # Safety
    /// As above.
    unsafe fn join(a: L::Vector, b: L::Vector) -> L::Vector;
}

macro_rules! steps {
    ($($name:ident, $start:ident, |$p:ident, $x:ident| $step:expr, $join:ident $(, $blind:literal)?;)+) => { $(
        #[doc = concat!("The steps of [`folds::", stringify!($name), "`](super::folds::", stringify!($name), ").")]
        pub struct $name;
        impl<L: Lane> Step<L> for $name {
            const START: L = L::$start;
            $(const BLIND: bool = $blind;)?
            #[inline(always)]
            unsafe fn step($p: L::Vector, $x: L::Vector) -> L::Vector {
                // SAFETY: only the folds below call it, which have these instructions.
                unsafe { $step }
            }
            #[inline(always)]
            unsafe fn join(a: L::Vector, b: L::Vector) -> L::Vector {
                // SAFETY: as above.
                unsafe { L::$join(a, b) }
            }
        }
    )+ };
}
// Of two operands of which one is NaN, minimum and maximum give the second.
steps! {
    Sum, ZERO, |p, x| L::add(p, x), add;
    AbsSum, ZERO, |p, x| L::add(p, L::abs(x)), add;
    SqSum, ZERO, |p, x| L::add(p, L::mul(x, x)), add;
    Prod, ONE, |p, x| L::mul(p, x), mul;
    Max, NEG_INFINITY, |p, x| L::max(x, p), max, true;
    Min, INFINITY, |p, x| L::min(x, p), min, true;
    AbsMax, ZERO, |p, x| L::max(L::abs(x), p), max, true;
    AbsMin, INFINITY, |p, x| L::min(L::abs(x), p), min, true;
}

/// Independent partial results: they hide an addition's latency.
const PARTS: usize = 8;
/// Groups of as many vectors that are folded before partial results join the others: longer sums in one go would lose digits.
const DEEP: usize = 16;

/// Partial results, and where a NaN was overlooked.
struct Partial<L: Lane> {
    parts: [L::Vector; PARTS],
    nan: L::Vector,
}

/// Folds `n` elements, a multiple of those of [`PARTS`] vectors.
#[inline(always)]
unsafe fn groups<L: Lane, S: Step<L>>(q: *const L, n: usize) -> Partial<L> {
    // SAFETY: the caller gives n elements and is compiled for these instructions.
    unsafe {
        let mut all = Partial {
            parts: [L::splat(S::START); PARTS],
            nan: L::splat(L::ZERO),
        };
        let mut i = 0;
        while i < n {
            for k in (0..PARTS).step_by(2) {
                let (x, y) = (
                    L::load(q.add(i + L::WIDE * k)),
                    L::load(q.add(i + L::WIDE * (k + 1))),
                );
                all.parts[k] = S::step(all.parts[k], x);
                all.parts[k + 1] = S::step(all.parts[k + 1], y);
                if S::BLIND {
                    all.nan = L::or(all.nan, L::unordered(x, y));
                }
            }
            i += PARTS * L::WIDE;
        }
        all
    }
}

/// Folds `n` elements.
///
/// # Safety
/// There are so many at `q`, and the machine has AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn fold<L: Lane, S: Step<L>>(q: *const L, n: usize) -> L {
    // SAFETY: every address is below n.
    unsafe {
        let group = PARTS * L::WIDE;
        let whole = n - n % group;
        // Extremes lose nothing in long runs.
        let deep = if S::BLIND { whole } else { DEEP * group };
        let mut i = whole.min(deep);
        let Partial {
            parts: mut total,
            mut nan,
        } = groups::<L, S>(q, i);
        while i < whole {
            let m = deep.min(whole - i);
            let more = groups::<L, S>(q.add(i), m);
            for k in 0..PARTS {
                total[k] = S::join(total[k], more.parts[k]);
            }
            nan = L::or(nan, more.nan);
            i += m;
        }
        for width in [4, 2] {
            for k in 0..width {
                total[k] = S::join(total[k], total[k + width]);
            }
        }
        let [mut a, mut b, ..] = total;
        while i + L::WIDE <= n {
            let x = L::load(q.add(i));
            (a, b) = (b, S::step(a, x));
            if S::BLIND {
                nan = L::or(nan, L::unordered(x, x));
            }
            i += L::WIDE;
        }
        if i < n {
            let x = L::load_part(q.add(i), n - i, S::START);
            a = S::step(a, x);
            if S::BLIND {
                nan = L::or(nan, L::unordered(x, x));
            }
        }
        if S::BLIND && L::any(nan) {
            return L::NAN;
        }
        L::all::<S>(S::join(a, b))
    }
}

/// Folds `rows` rows, `stride` bytes apart, into the partial results of `columns` columns.
///
/// # Safety
/// There are so many at `q` and `parts`, `rows` is even and `columns` a multiple of 8, and the machine has AVX2.
#[target_feature(enable = "avx2,fma,f16c")]
pub unsafe fn columns<L: Lane, S: Step<L>>(
    parts: *mut L,
    columns: usize,
    q: *const u8,
    stride: isize,
    rows: usize,
) {
    let mut j = 0;
    // SAFETY: as the caller promises.
    unsafe {
        while j + 4 * L::WIDE <= columns {
            few_columns::<L, S, 4>(parts.add(j), q.add(size_of::<L>() * j), stride, rows);
            j += 4 * L::WIDE;
        }
        while j + L::WIDE <= columns {
            few_columns::<L, S, 1>(parts.add(j), q.add(size_of::<L>() * j), stride, rows);
            j += L::WIDE;
        }
    }
}

/// As many neighbouring columns as `V` vectors hold.
#[inline(always)]
unsafe fn few_columns<L: Lane, S: Step<L>, const V: usize>(
    parts: *mut L,
    q: *const u8,
    stride: isize,
    rows: usize,
) {
    // SAFETY: as the caller of `columns` promises.
    unsafe {
        let mut part = [L::splat(S::START); V];
        let mut nan = [L::splat(L::ZERO); V];
        for r in (0..rows as isize).step_by(2) {
            let (a, b) = (
                q.offset(r * stride).cast::<L>(),
                q.offset((r + 1) * stride).cast::<L>(),
            );
            for v in 0..V {
                let (x, y) = (L::load(a.add(L::WIDE * v)), L::load(b.add(L::WIDE * v)));
                part[v] = S::step(S::step(part[v], x), y);
                if S::BLIND {
                    nan[v] = L::or(nan[v], L::unordered(x, y));
                }
            }
        }
        for v in 0..V {
            let to = parts.add(L::WIDE * v);
            let before = L::load(to);
            let mut all = S::join(before, part[v]);
            if S::BLIND {
                nan[v] = L::or(nan[v], L::unordered(before, before));
                all = L::or(all, nan[v]);
            }
            L::store(to, all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::simd::{Level, level};
    use super::*;
    use num_traits::Float;

    fn number<L: Float>(i: usize) -> L {
        L::from(i).unwrap()
    }

    fn folded<L: Lane + Float>() {
        for n in (0..200).chain(990..3100usize) {
            let x: Vec<L> = (0..n)
                .map(|i| number::<L>(i * 37 % 101) - number(50))
                .collect();
            // SAFETY: n elements; the level was asked.
            let f = |fold: unsafe fn(*const L, usize) -> L| unsafe { fold(x.as_ptr(), n) };
            let sum = |f: fn(L) -> L| x.iter().fold(L::zero(), |sum, &x| sum + f(x));
            assert!(f(fold::<L, Sum>) == sum(|x| x));
            assert!(f(fold::<L, AbsSum>) == sum(Float::abs));
            assert!(f(fold::<L, SqSum>) == sum(|x| x * x));
            let most = x.iter().copied().fold(L::neg_infinity(), Float::max);
            assert!(f(fold::<L, Max>) == most);
            let least = x.iter().map(|x| x.abs()).fold(L::infinity(), Float::min);
            assert!(f(fold::<L, AbsMin>) == least);
        }
    }

    fn extremes<L: Lane + Float>() {
        const N: usize = 2150;
        for at in (0..150).chain(N - 1100..N) {
            let mut x = [L::one(); N];
            x[at] = L::nan();
            // SAFETY: as many elements; the level was asked.
            unsafe {
                assert!(fold::<L, Max>(x.as_ptr(), N).is_nan());
                assert!(fold::<L, AbsMin>(x.as_ptr(), N).is_nan());
                let before = fold::<L, Min>(x.as_ptr(), at);
                assert!(before == if at == 0 { L::infinity() } else { L::one() });
            }
        }
    }

    fn by_columns<L: Lane + Float>() {
        let (rows, width) = (6, 48);
        let mut x: Vec<L> = (0..rows * width).map(|i| number(i * 37 % 101)).collect();
        x[3 * width + 7] = L::nan();
        let mut most = [number::<L>(50); 40];
        most[33] = L::nan();
        let stride = (size_of::<L>() * width) as isize;
        // SAFETY: six rows of at least 40 columns; the level was asked.
        unsafe { columns::<L, Max>(most.as_mut_ptr(), 40, x.as_ptr().cast(), stride, rows) };
        for (j, most) in most.iter().enumerate() {
            let all = (0..rows).map(|r| x[r * width + j]);
            assert_eq!(most.is_nan(), j == 7 || j == 33);
            assert!(
                most.is_nan() || *most == all.fold(number(50), Float::max),
                "column {j}"
            );
        }
    }

    #[test]
    fn runs_of_any_length_are_folded_whole() {
        if level() > Level::Baseline {
            folded::<f32>();
            folded::<f64>();
        }
    }

    #[test]
    fn a_nan_anywhere_is_the_extreme() {
        if level() > Level::Baseline {
            extremes::<f32>();
            extremes::<f64>();
        }
    }

    #[test]
    fn columns_are_folded_each_by_itself() {
        if level() > Level::Baseline {
            by_columns::<f32>();
            by_columns::<f64>();
        }
    }
}
