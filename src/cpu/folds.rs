//! How elements join a result: one [`Fold`] a kind of reduction and element type.

#![allow(unsafe_code, reason = "stores results through raw, checked pointers")]

use super::math::RealFns;
use super::results::Number;
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};
use std::marker::PhantomData;

/// How elements are folded.
pub trait Fold {
    /// An element.
    type In: Widen;
    /// A partial result within a block.
    type Part: Copy;
    /// A result over blocks.
    type Acc: Number;
    /// The partial result of nothing.
    const ZERO: Self::Part;
    /// One element more; `p` is an exponent.
    fn step(part: Self::Part, x: <Self::In as Widen>::Wide, p: f64) -> Self::Part;
    /// Two partial results as one.
    fn join(a: Self::Part, b: Self::Part) -> Self::Part;
    /// A partial result made wide.
    fn lift(part: Self::Part) -> Self::Acc;
    /// Two wide results as one.
    fn merge(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// True where the order of elements cannot matter: the compiler then finds the lanes by itself.
    const EXACT: bool = false;
    /// AVX2 instructions for dense memory, where they are written out.
    const AVX2: Option<WrittenOut<Self>> = None;
    /// True if no further element can change the result.
    #[inline(always)]
    fn done(_: Self::Part) -> bool {
        false
    }
}

/// The functions of [`runs`](super::runs) for a fold.
pub struct WrittenOut<F: Fold + ?Sized> {
    /// Folds so many elements.
    pub run: unsafe fn(*const F::In, usize) -> F::Part,
    /// Folds into the partial results of so many columns the rows at an address, so many bytes apart, so many.
    pub columns: unsafe fn(*mut F::Part, usize, *const u8, isize, usize),
}

/// A fold whose steps are functions of their own, so that loops of them are short: for machines without AVX2.
#[cfg(target_arch = "x86_64")]
pub struct Apart<F>(PhantomData<F>);

#[cfg(target_arch = "x86_64")]
impl<F: Fold> Fold for Apart<F> {
    type In = F::In;
    type Part = F::Part;
    type Acc = F::Acc;
    const ZERO: F::Part = F::ZERO;
    #[inline(never)]
    fn step(part: F::Part, x: <F::In as Widen>::Wide, p: f64) -> F::Part {
        F::step(part, x, p)
    }
    #[inline(never)]
    fn join(a: F::Part, b: F::Part) -> F::Part {
        F::join(a, b)
    }
    #[inline(always)]
    fn lift(part: F::Part) -> F::Acc {
        F::lift(part)
    }
    #[inline(always)]
    fn merge(a: F::Acc, b: F::Acc) -> F::Acc {
        F::merge(a, b)
    }
    #[inline(always)]
    fn done(part: F::Part) -> bool {
        F::done(part)
    }
}
/// What machines without vectors of their own fold by.
#[cfg(target_arch = "x86_64")]
pub type Plain<F> = Apart<F>;
/// The same.
#[cfg(not(target_arch = "x86_64"))]
pub type Plain<F> = F;

/// An element in the type it is folded in.
pub trait Widen: Copy {
    /// That type.
    type Wide: Copy;
    /// The element in it.
    fn widen(self) -> Self::Wide;
    /// The `N` elements at `q`, by the instructions of a [`simd::Level`](super::simd::Level).
    ///
    /// # Safety
    /// There are so many elements, and the caller is compiled for that level.
    unsafe fn group<const N: usize, const LEVEL: u8>(q: *const Self) -> [Self::Wide; N];
}
macro_rules! same {
    ($($t:ty)+) => { $(impl Widen for $t {
        type Wide = $t;
        #[inline(always)]
        fn widen(self) -> $t { self }
        #[inline(always)]
        unsafe fn group<const N: usize, const LEVEL: u8>(q: *const Self) -> [$t; N] {
            // SAFETY: as the caller promises.
            unsafe { q.cast::<[$t; N]>().read_unaligned() }
        }
    })+ };
}
same!(u8 i8 i16 i32 i64 u16 u32 u64 f32 f64 Complex32 Complex64);

/// 16-bit floats; `$load` makes eight of them wide.
macro_rules! halves {
    ($t:ty, |$x:ident| $widen:expr, |$q:ident| $load:expr) => {
        impl Widen for $t {
            type Wide = f32;
            #[inline(always)]
            fn widen(self) -> f32 {
                let $x = self;
                $widen
            }
            #[inline(always)]
            unsafe fn group<const N: usize, const LEVEL: u8>(q: *const Self) -> [f32; N] {
                let mut out = [0f32; N];
                let mut i = 0;
                // SAFETY: the caller gives N elements; AVX2 and F16C belong to the level.
                unsafe {
                    #[cfg(target_arch = "x86_64")]
                    if LEVEL >= super::simd::Level::Avx2 as u8 {
                        use std::arch::x86_64::*;
                        while i + 8 <= N {
                            let $q = _mm_loadu_si128(q.add(i).cast());
                            _mm256_storeu_ps(out.as_mut_ptr().add(i), $load);
                            i += 8;
                        }
                    }
                    while i < N {
                        out[i] = (*q.add(i)).widen();
                        i += 1;
                    }
                }
                out
            }
        }
    };
}
halves!(f16, |x| widen_f16(x), |q| _mm256_cvtph_ps(q));
halves!(
    bf16,
    |x| f32::from_bits(u32::from(x.to_bits()) << 16),
    |q| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(q)))
);

/// A half in single precision, branch-free, so that loops over halves vectorise.
#[inline(always)]
#[must_use]
pub fn widen_f16(x: f16) -> f32 {
    let bits = u32::from(x.to_bits());
    let small = f32::from_bits((bits & 0x7fff) << 13) * f32::from_bits((254 - 15) << 23);
    let special = if bits & 0x7c00 == 0x7c00 {
        0x7f80_0000
    } else {
        0
    };
    f32::from_bits(small.to_bits() | special | (bits & 0x8000) << 16)
}

macro_rules! fold {
    ($name:ident, $t:ty, $part:ty, $acc:ty, $zero:expr, |$p:ident, $x:ident, $e:ident| $step:expr, |$a:ident, $b:ident| $join:expr, |$l:ident| $lift:expr, |$c:ident, $d:ident| $merge:expr $(, $exact:literal)? $(; $dense:ident $by:ident)?) => {
        impl Fold for $name<$t> {
            type In = $t;
            type Part = $part;
            type Acc = $acc;
            const ZERO: $part = $zero;
            $(const EXACT: bool = $exact;)?
            $(const AVX2: Option<WrittenOut<Self>> = written_out!($dense $by);)?
            #[inline(always)]
            #[allow(unused_variables)]
            fn step($p: $part, $x: <$t as Widen>::Wide, $e: f64) -> $part { $step }
            #[inline(always)]
            fn join($a: $part, $b: $part) -> $part { $join }
            #[inline(always)]
            fn lift($l: $part) -> $acc { $lift }
            #[inline(always)]
            fn merge($c: $acc, $d: $acc) -> $acc { $merge }
        }
    };
}
macro_rules! folds {
    ($($name:ident)+) => { $(
        #[doc = concat!("Folds by the kind of reduction called `", stringify!($name), "`.")]
        pub struct $name<T>(PhantomData<T>);
    )+ };
}
folds!(Sum NanSum Prod Max Min AbsSum SqSum AbsMax AbsMin PowSum NonZero Any All);

macro_rules! int_sums {
    ($($t:ty, $part:ty;)+) => { $(fold!(Sum, $t, $part, i64, 0, |p, x, e| p.wrapping_add(x as $part), |a, b| a.wrapping_add(b), |l| l as i64, |c, d| c.wrapping_add(d), true);)+ };
}
// A block's sum of short integers fits 32 bits: at most 16384 terms.
int_sums!(u8, u32; i8, i32; i16, i32; u16, u32; i32, i64; u32, i64; i64, i64; u64, i64;);
macro_rules! int_counts {
    ($($t:ty, $part:ty;)+) => { $(fold!(NonZero, $t, $part, i64, 0, |p, x, e| p.wrapping_add(<$part>::from(x != 0)), |a, b| a.wrapping_add(b), |l| l as i64, |c, d| c.wrapping_add(d), true);)+ };
}
// Truth values may be any byte in memory.
int_counts!(u8, u32; i32, u32; i64, i64;);
/// Which functions of [`runs`](super::runs) there are.
#[cfg(target_arch = "x86_64")]
macro_rules! written_out {
    (none $step:ident) => {
        None
    };
    (avx2 $step:ident) => {
        Some(WrittenOut {
            run: super::runs::fold::<_, super::runs::$step>,
            columns: super::runs::columns::<_, super::runs::$step>,
        })
    };
}
#[cfg(not(target_arch = "x86_64"))]
macro_rules! written_out {
    ($dense:ident $step:ident) => {
        None
    };
}
macro_rules! float_folds {
    ($w:ty, $dense:ident: $($t:ty)+) => { $(
        fold!(Sum, $t, $w, f64, 0.0, |p, x, e| p + x, |a, b| a + b, |l| l as f64, |c, d| c + d; $dense Sum);
        fold!(NanSum, $t, $w, f64, 0.0, |p, x, e| p + if x.is_nan() { 0.0 } else { x }, |a, b| a + b, |l| l as f64, |c, d| c + d);
        fold!(AbsSum, $t, $w, f64, 0.0, |p, x, e| p + x.abs(), |a, b| a + b, |l| l as f64, |c, d| c + d; $dense AbsSum);
        fold!(SqSum, $t, $w, f64, 0.0, |p, x, e| p + x * x, |a, b| a + b, |l| l as f64, |c, d| c + d; $dense SqSum);
        fold!(NonZero, $t, $w, f64, 0.0, |p, x, e| p + if x == 0.0 { 0.0 } else { 1.0 }, |a, b| a + b, |l| l as f64, |c, d| c + d);
        fold!(PowSum, $t, f64, f64, 0.0, |p, x, e| p + (x as f64).abs().pow_(e), |a, b| a + b, |l| l, |c, d| c + d);
        fold!(Prod, $t, $w, f64, 1.0, |p, x, e| p * x, |a, b| a * b, |l| l as f64, |c, d| c * d; $dense Prod);
        fold!(Max, $t, $w, $w, <$w>::NEG_INFINITY, |p, x, e| if (p > x) | p.is_nan() { p } else { x }, |a, b| if (a > b) | a.is_nan() { a } else { b }, |l| l, |c, d| if (c > d) | c.is_nan() { c } else { d }; $dense Max);
        fold!(Min, $t, $w, $w, <$w>::INFINITY, |p, x, e| if (p < x) | p.is_nan() { p } else { x }, |a, b| if (a < b) | a.is_nan() { a } else { b }, |l| l, |c, d| if (c < d) | c.is_nan() { c } else { d }; $dense Min);
        fold!(AbsMax, $t, $w, $w, 0.0, |p, x, e| { let x = x.abs(); if (p > x) | p.is_nan() { p } else { x } }, |a, b| if (a > b) | a.is_nan() { a } else { b }, |l| l, |c, d| if (c > d) | c.is_nan() { c } else { d }; $dense AbsMax);
        fold!(AbsMin, $t, $w, $w, <$w>::INFINITY, |p, x, e| { let x = x.abs(); if (p < x) | p.is_nan() { p } else { x } }, |a, b| if (a < b) | a.is_nan() { a } else { b }, |l| l, |c, d| if (c < d) | c.is_nan() { c } else { d }; $dense AbsMin);
    )+ };
}
float_folds!(f32, none: f16 bf16);
float_folds!(f32, avx2: f32);
float_folds!(f64, avx2: f64);
fold!(
    Sum,
    Complex32,
    Complex32,
    Complex64,
    Complex32::new(0.0, 0.0),
    |p, x, e| p + x,
    |a, b| a + b,
    |l| Complex64::new(f64::from(l.re), f64::from(l.im)),
    |c, d| c + d
);
fold!(
    Sum,
    Complex64,
    Complex64,
    Complex64,
    Complex64::new(0.0, 0.0),
    |p, x, e| p + x,
    |a, b| a + b,
    |l| l,
    |c, d| c + d
);
fold!(
    Prod,
    Complex32,
    Complex32,
    Complex64,
    Complex32::new(1.0, 0.0),
    |p, x, e| p * x,
    |a, b| a * b,
    |l| Complex64::new(f64::from(l.re), f64::from(l.im)),
    |c, d| c * d
);
fold!(
    Prod,
    Complex64,
    Complex64,
    Complex64,
    Complex64::new(1.0, 0.0),
    |p, x, e| p * x,
    |a, b| a * b,
    |l| l,
    |c, d| c * d
);
fold!(
    Prod,
    i64,
    i64,
    i64,
    1,
    |p, x, e| p.wrapping_mul(x),
    |a, b| a.wrapping_mul(b),
    |l| l,
    |c, d| c.wrapping_mul(d),
    true
);
/// Extremes keep integers in their own type, which holds more to a vector.
macro_rules! int_extremes {
    ($($t:ty)+) => { $(
        impl Fold for Max<$t> {
            type In = $t; type Part = $t; type Acc = $t;
            const ZERO: $t = <$t>::MIN;
            const EXACT: bool = true;
            #[inline(always)] fn step(p: $t, x: $t, _: f64) -> $t { p.max(x) }
            #[inline(always)] fn join(a: $t, b: $t) -> $t { a.max(b) }
            #[inline(always)] fn lift(p: $t) -> $t { p }
            #[inline(always)] fn merge(a: $t, b: $t) -> $t { a.max(b) }
        }
        impl Fold for Min<$t> {
            type In = $t; type Part = $t; type Acc = $t;
            const ZERO: $t = <$t>::MAX;
            const EXACT: bool = true;
            #[inline(always)] fn step(p: $t, x: $t, _: f64) -> $t { p.min(x) }
            #[inline(always)] fn join(a: $t, b: $t) -> $t { a.min(b) }
            #[inline(always)] fn lift(p: $t) -> $t { p }
            #[inline(always)] fn merge(a: $t, b: $t) -> $t { a.min(b) }
        }
    )+ };
}
int_extremes!(u8 i8 i16 i32 i64);

/// Truth: flags as wide as the elements, so that comparisons need no narrowing.
macro_rules! truths {
    ($($t:ty, $part:ty, |$x:ident| $is:expr;)+) => { $(
        impl Fold for Any<$t> {
            type In = $t; type Part = $part; type Acc = u8;
            const ZERO: $part = 0;
            const EXACT: bool = true;
            #[inline(always)] fn step(p: $part, $x: <$t as Widen>::Wide, _: f64) -> $part { if $is { 1 } else { p } }
            #[inline(always)] fn join(a: $part, b: $part) -> $part { a | b }
            #[inline(always)] fn lift(p: $part) -> u8 { p as u8 }
            #[inline(always)] fn merge(a: u8, b: u8) -> u8 { a | b }
            #[inline(always)] fn done(p: $part) -> bool { p != 0 }
        }
        impl Fold for All<$t> {
            type In = $t; type Part = $part; type Acc = u8;
            const ZERO: $part = 1;
            const EXACT: bool = true;
            #[inline(always)] fn step(p: $part, $x: <$t as Widen>::Wide, _: f64) -> $part { if $is { p } else { 0 } }
            #[inline(always)] fn join(a: $part, b: $part) -> $part { a & b }
            #[inline(always)] fn lift(p: $part) -> u8 { p as u8 }
            #[inline(always)] fn merge(a: u8, b: u8) -> u8 { a & b }
            #[inline(always)] fn done(p: $part) -> bool { p == 0 }
        }
    )+ };
}
truths! {
    u8, u8, |x| x != 0; i8, u8, |x| x != 0; i16, u16, |x| x != 0; i32, u32, |x| x != 0; i64, u64, |x| x != 0;
    f32, u32, |x| x != 0.0; f64, u64, |x| x != 0.0; bf16, u32, |x| x != 0.0; f16, u32, |x| x != 0.0;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_widen_exactly() {
        for bits in 0..=u16::MAX {
            let h = f16::from_bits(bits);
            let w = widen_f16(h);
            assert!(w == h.to_f32() || (w.is_nan() && h.is_nan()), "{bits:#x}");
        }
    }
}
