//! Which instruction set this machine has, asked once.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// The instruction sets that kernels are compiled for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// What every machine of the architecture has.
    Base,
    /// AVX2 with fused multiply-add.
    Avx2,
    /// AVX-512 F, BW, DQ, VL, CD.
    Avx512,
}

static LEVEL: AtomicU8 = AtomicU8::new(0);

/// The best set that this machine has.
#[inline]
#[must_use]
pub fn level() -> Level {
    match LEVEL.load(Relaxed) {
        0 => detect(),
        1 => Level::Base,
        2 => Level::Avx2,
        _ => Level::Avx512,
    }
}

#[cold]
fn detect() -> Level {
    let mut level = Level::Base;
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx2") && has!("fma") && has!("f16c") {
            level = Level::Avx2;
            if has!("avx512f") && has!("avx512bw") && has!("avx512dq") && has!("avx512vl") && has!("avx512cd") {
                level = Level::Avx512;
            }
        }
    }
    LEVEL.store(1 + level as u8, Relaxed);
    level
}
