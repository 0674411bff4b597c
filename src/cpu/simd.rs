//! One source, several instruction sets: which one this machine has, and the macro that compiles a loop for each.

use std::mem::transmute_copy;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The vector instruction sets that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Level {
    /// What the target guarantees.
    Baseline = 1,
    /// AVX2 with fused multiply-add.
    Avx2 = 2,
    /// AVX-512 F, BW, DQ and VL, with all of `Avx2`.
    Avx512 = 3,
}

static LEVEL: AtomicU8 = AtomicU8::new(0);

/// The best level of this machine, detected once.
#[inline]
#[must_use]
pub fn level() -> Level {
    match LEVEL.load(Relaxed) {
        1 => Level::Baseline,
        2 => Level::Avx2,
        3 => Level::Avx512,
        _ => detect(),
    }
}

#[cold]
fn detect() -> Level {
    #[cfg(target_arch = "x86_64")]
    let found = {
        use std::is_x86_feature_detected as has;
        let avx2 = has!("avx2") && has!("fma") && has!("f16c");
        let avx512 = has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl");
        if avx2 && avx512 {
            Level::Avx512
        } else if avx2 {
            Level::Avx2
        } else {
            Level::Baseline
        }
    };
    #[cfg(not(target_arch = "x86_64"))]
    let found = Level::Baseline;
    LEVEL.store(found as u8, Relaxed);
    found
}

/// Bytes of a core's second cache, asked once: one megabyte where the machine does not say.
#[must_use]
pub fn second_cache() -> usize {
    static BYTES: OnceLock<usize> = OnceLock::new();
    *BYTES.get_or_init(|| {
        // AMD's leaf of that cache, which Intel has too.
        const LEAF: u32 = 0x8000_0006;
        let kilobytes = if cpuid(0x8000_0000)[0] >= LEAF {
            cpuid(LEAF)[2] >> 16
        } else {
            0
        };
        match kilobytes as usize {
            0 => 1 << 20,
            found => found << 10,
        }
    })
}

/// Whether AMD made this machine's processor.
#[must_use]
pub fn is_amd() -> bool {
    static AMD: OnceLock<bool> = OnceLock::new();
    *AMD.get_or_init(|| {
        let [_, b, c, d] = cpuid(0);
        [b, d, c].map(u32::to_le_bytes).concat() == b"AuthenticAMD"
    })
}

/// What the processor says of itself in one of its leaves: registers A to D, zero on others than x86-64.
pub(in crate::cpu) fn cpuid(leaf: u32) -> [u32; 4] {
    #[cfg(target_arch = "x86_64")]
    #[allow(
        unsafe_code,
        unused_unsafe,
        reason = "unsafe before Rust 1.94; every x86-64 has the instruction"
    )]
    {
        // SAFETY: the instruction is always there.
        let found = unsafe { std::arch::x86_64::__cpuid(leaf) };
        [found.eax, found.ebx, found.ecx, found.edx]
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let _ = leaf;
        [0; 4]
    }
}

/// Hides that an operand comes from the result's place. Where an operator gives its operand back, the compiler would store
/// the others alone, by masks, which there are for 32 bits and more: ten times slower on AMD.
pub struct Veil(u64);

impl Veil {
    /// For one loop.
    #[inline(always)]
    #[must_use]
    #[allow(
        clippy::new_without_default,
        reason = "made for a loop, not a value of its own"
    )]
    pub fn new() -> Self {
        Self(std::hint::black_box(0))
    }

    /// The same element. Nothing is hidden of complex ones, whose parts would not be vectors.
    #[inline(always)]
    #[allow(unsafe_code, reason = "bits of any type")]
    pub fn over<A: crate::Element>(&self, v: A) -> A {
        if A::DTYPE.is_complex() {
            return v;
        }
        // SAFETY: numbers of the size of `A`, whose bits are its own.
        unsafe {
            match size_of::<A>() {
                4 => transmute_copy(&(transmute_copy::<A, u32>(&v) | self.0 as u32)),
                8 => transmute_copy(&(transmute_copy::<A, u64>(&v) | self.0)),
                _ => v,
            }
        }
    }
}

/// Compiles a function's body for several instruction sets and picks one at run time.
///
/// `wide` uses AVX-512 where present (arithmetic-bound loops); `stream` stops at 256 bits (loops bound by memory, which
/// 512-bit code slows down on Zen 4); `once` compiles it for the target alone. Everything the body calls must be
/// `#[inline(always)]` or a closure, so that it is compiled with the body's features. Type parameters may carry one bound
/// each. `stream else plain,` has machines without AVX2 call the function `plain`, where the body is large and in many copies.
///
/// ```ignore
/// simd_fn! { stream pub fn add(out: &mut [f32], a: &[f32], b: &[f32]) { ... } }
/// ```
macro_rules! simd_fn {
    (once $(#[$m:meta])* $vis:vis fn $($rest:tt)*) => {
        $(#[$m])*
        #[inline(never)]
        $vis fn $($rest)*
    };
    ($kind:ident else $plain:ident, $($rest:tt)*) => { $crate::cpu::simd::simd_fn! { @of $kind [$plain] $($rest)* } };
    (@of $kind:ident [$($plain:ident)?] $(#[$m:meta])* $vis:vis fn $name:ident $(<$($g:ident : $b:path),+>)? ($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block) => {
        $(#[$m])*
        #[inline]
        #[allow(unsafe_code, reason = "the compiled copies are called where the machine has their instructions")]
        $vis fn $name $(<$($g: $b),+>)? ($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body $(<$($g: $b),+>)? ($($arg: $ty),*) $(-> $ret)? $body
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma,f16c")]
                fn avx2 $(<$($g: $b),+>)? ($($arg: $ty),*) $(-> $ret)? { body $(::<$($g),+>)? ($($arg),*) }
                let level = $crate::cpu::simd::level();
                $crate::cpu::simd::simd_fn!(@$kind level, ($($arg),*), [$(<$($g: $b),+>)?], [$(::<$($g),+>)?], ($($arg: $ty),*), ($($ret)?));
                if level >= $crate::cpu::simd::Level::Avx2 {
                    // SAFETY: `level` says that the machine has these features.
                    return unsafe { avx2 $(::<$($g),+>)? ($($arg),*) };
                }
            }
            $crate::cpu::simd::simd_fn!(@plain [$($plain)?] body, [$(<$($g: $b),+>)?], [$(::<$($g),+>)?], ($($arg: $ty),*), ($($ret)?))
        }
    };
    // On x86-64 for few machines: in a function of its own it is not put where others choose among instruction sets.
    (@plain [] $body:ident, [$($params:tt)*], [$($fish:tt)*], ($($arg:ident : $ty:ty),*), ($($ret:ty)?)) => {{
        #[cfg_attr(target_arch = "x86_64", cold, inline(never))]
        #[cfg_attr(not(target_arch = "x86_64"), inline(always))]
        fn plain $($params)* ($($arg: $ty),*) $(-> $ret)? { $body $($fish)* ($($arg),*) }
        plain $($fish)* ($($arg),*)
    }};
    (@plain [$plain:ident] $body:ident, [$($params:tt)*], [$($fish:tt)*], ($($arg:ident : $ty:ty),*), ($($ret:ty)?)) => {{
        #[cfg(target_arch = "x86_64")]
        let found = $plain $($fish)* ($($arg),*);
        #[cfg(not(target_arch = "x86_64"))]
        let found = $body $($fish)* ($($arg),*);
        found
    }};
    (@stream $($rest:tt)*) => {};
    (@wide $level:ident, ($($arg:ident),*), [$($params:tt)*], [$($fish:tt)*], ($($a:ident : $ty:ty),*), ($($ret:ty)?)) => {
        #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
        fn avx512 $($params)* ($($a: $ty),*) $(-> $ret)? { body $($fish)* ($($a),*) }
        if $level >= $crate::cpu::simd::Level::Avx512 {
            // SAFETY: `level` says that the machine has these features.
            return unsafe { avx512 $($fish)* ($($arg),*) };
        }
    };
    ($kind:ident $($rest:tt)*) => { $crate::cpu::simd::simd_fn! { @of $kind [] $($rest)* } };
}

pub(crate) use simd_fn;

#[cfg(test)]
mod tests {
    simd_fn! { stream
        /// Doubles a slice.
        fn double(x: &mut [f32]) { for v in x { *v *= 2.0; } }
    }
    simd_fn! { wide fn sum<T: Into<f64>>(x: Vec<T>) -> f64 { x.into_iter().map(Into::into).sum() } }

    #[test]
    fn bodies_run_at_every_level() {
        let mut x = [1.0, 2.0, 3.0];
        double(&mut x);
        assert_eq!(sum(x.to_vec()), 12.0);
    }
}
