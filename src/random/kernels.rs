//! The fill loops: words in, values out, in memory order.
//!
//! Each body exists twice: fused, compiled for AVX2 and FMA (what PyTorch's vectorised builds compute), and
//! unfused for machines without fused multiply-add (its "default" build).

#![allow(
    unsafe_code,
    reason = "functions compiled for a machine's instructions are called where it has them"
)]

use super::generator::{Generator, d53, f24};
use crate::Element;
use crate::cpu::halves;
use half::{bf16, f16};
use std::f64::consts::PI;

/// A type that distributions can fill.
pub trait RandomElement: Element {
    /// From a double, as PyTorch casts it (16-bit types through f32).
    fn from_f64(v: f64) -> Self;
    /// From an integer, wrapping or rounding.
    fn from_i64(v: i64) -> Self;
    /// Loops of its own, if it has them.
    const OWN: Option<Own<Self>> = None;
}

/// Loops that draw in a type itself; the numbers are the parameters.
pub struct Own<T> {
    /// Uniform on [from, to).
    pub uniform: Fill<T>,
    /// Normals of the block algorithm, at least 16.
    pub normal: Fill<T>,
}

type Fill<T> = fn(&mut Generator, &mut [T], f64, f64);

macro_rules! int_random {
    ($($t:ty)+) => { $(impl RandomElement for $t {
        #[inline(always)]
        fn from_f64(v: f64) -> Self { v as i64 as $t }
        #[inline(always)]
        fn from_i64(v: i64) -> Self { v as $t }
    })+ };
}
int_random! { u8 i8 i16 i32 i64 u16 u32 u64 }

impl RandomElement for bool {
    #[inline(always)]
    fn from_f64(v: f64) -> Self {
        v != 0.0
    }
    #[inline(always)]
    fn from_i64(v: i64) -> Self {
        v != 0
    }
}

/// Instantiates an always-inlined `body::<FUSED>` for FMA machines and for the rest, chosen at run time.
macro_rules! fused_or_not {
    ($(#[$m:meta])* $vis:vis fn $name:ident $(<$t:ident: $b:path>)? ($($arg:ident: $ty:ty),*) = $body:ident) => {
        $(#[$m])*
        $vis fn $name $(<$t: $b>)? ($($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2,fma")]
                fn fused $(<$t: $b>)? ($($arg: $ty),*) { $body::<true $(, $t)?>($($arg),*) }
                if std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma") {
                    // SAFETY: the features that the function needs have just been detected.
                    return unsafe { fused($($arg),*) };
                }
            }
            $body::<{ cfg!(target_arch = "aarch64") } $(, $t)?>($($arg),*)
        }
    };
}

#[inline(always)]
fn fma32<const F: bool>(a: f32, b: f32, c: f32) -> f32 {
    if F { a.mul_add(b, c) } else { a * b + c }
}

#[inline(always)]
fn fma64<const F: bool>(a: f64, b: f64, c: f64) -> f64 {
    if F { a.mul_add(b, c) } else { a * b + c }
}

/// Numbers that are drawn at a time before they become elements.
pub(super) const BLOCK: usize = 128;

/// Fills `out` with what becomes of numbers, which are drawn alike for all types.
pub(super) fn fill_by<V: Copy, T>(
    out: &mut [T],
    room: &mut [V; BLOCK],
    draw: &mut dyn FnMut(&mut [V]),
    f: impl Fn(V) -> T,
) {
    for part in out.chunks_mut(BLOCK) {
        let room = &mut room[..part.len()];
        draw(room);
        for (to, &v) in part.iter_mut().zip(&*room) {
            *to = f(v);
        }
    }
}

/// Fills a slice with f24 uniforms, a run of words at a time.
#[inline(always)]
fn fill_f24(g: &mut Generator, out: &mut [f32]) {
    let mut rest = out;
    while !rest.is_empty() {
        let words = g.mt.take(rest.len());
        let (now, later) = rest.split_at_mut(words.len());
        for (o, &w) in now.iter_mut().zip(words) {
            *o = f24(w);
        }
        rest = later;
    }
}

/// Fills a slice with d53 uniforms.
#[inline(always)]
fn fill_d53(g: &mut Generator, out: &mut [f64]) {
    for o in out {
        *o = d53(g.u64());
    }
}

const CHUNK: usize = 1024;

/// So many need a room that is cleared sooner than they are drawn.
const FEW: usize = 64;

#[inline(always)]
fn uniform32_body<const F: bool, T: Float32Like>(
    g: &mut Generator,
    out: &mut [T],
    from: f64,
    to: f64,
) {
    let (a, b) = (from as f32, to as f32);
    let (low, high) = (T::from_f64(from), T::from_f64(to));
    let (mut few, mut many);
    let u: &mut [f32] = if out.len() <= FEW {
        few = [0f32; FEW];
        &mut few
    } else {
        many = [0f32; CHUNK];
        &mut many
    };
    for part in out.chunks_mut(CHUNK) {
        let u = &mut u[..part.len()];
        fill_f24(g, u);
        u.iter_mut().for_each(|u| *u = fma32::<F>(*u, b - a, a));
        T::round(u, part);
        for o in part {
            // Rounding can reach the excluded end.
            *o = if *o == high { low } else { *o };
        }
    }
}

#[inline(always)]
fn uniform64_body<const F: bool>(g: &mut Generator, out: &mut [f64], from: f64, to: f64) {
    for o in out {
        let v = fma64::<F>(g.d53(), to - from, from);
        *o = if v == to { from } else { v };
    }
}

/// `log(x)` in single precision for positive normal `x` (Cephes' polynomial, fused).
#[inline(always)]
fn log_cephes(x: f32) -> f32 {
    let bits = x.to_bits();
    let mut e = ((bits >> 23) as i32 - 126) as f32;
    let mut m = f32::from_bits((bits & 0x007f_ffff) | 0x3f00_0000);
    let small = m < std::f32::consts::FRAC_1_SQRT_2;
    e -= if small { 1.0 } else { 0.0 };
    m = (m - 1.0) + if small { m } else { 0.0 };
    let z = m * m;
    let mut y = 7.037_683_6e-2f32;
    for c in [
        -1.151_461_031_0e-1f32,
        1.167_699_874_0e-1,
        -1.242_014_084_6e-1,
        1.424_932_278_7e-1,
        -1.666_805_766_5e-1,
        2.000_071_476_5e-1,
        -2.499_999_399_3e-1,
        3.333_333_117_4e-1,
    ] {
        y = y.mul_add(m, c);
    }
    y *= m;
    y = y.mul_add(z, e * -2.121_944_40e-4);
    y = (-z).mul_add(0.5, y);
    e.mul_add(0.693_359_375, m + y)
}

/// `(sin x, cos x)` in single precision for `0 <= x < 8192` (Cephes' polynomials, fused).
#[inline(always)]
fn sin_cos_cephes(x: f32) -> (f32, f32) {
    // SAFETY: callers pass angles in [0, 2 pi], so that the quotient fits.
    let j = unsafe { (x * 1.273_239_544_735_16f32).to_int_unchecked::<i32>() };
    let j = (j + 1) & !1;
    let k = j as f32;
    let x = k.mul_add(-0.785_156_25, x);
    let x = k.mul_add(-2.418_756_484_985_351_562_5e-4, x);
    let x = k.mul_add(-3.774_894_977_445_941_08e-8, x);
    let z = x * x;
    let c = 2.443_315_711_809_948e-5f32
        .mul_add(z, -1.388_731_625_493_765e-3)
        .mul_add(z, 4.166_664_568_298_827e-2)
        * z;
    let c = c.mul_add(z, -(z * 0.5)) + 1.0;
    let s = (-1.951_529_589_1e-4f32)
        .mul_add(z, 8.332_160_873_6e-3)
        .mul_add(z, -1.666_665_461_1e-1)
        * z;
    let s = s.mul_add(x, x);
    let swap = j & 2 != 0;
    let sin = if swap { c } else { s };
    let cos = if swap { s } else { c };
    let sin_sign = ((j & 4) as u32) << 29;
    let cos_sign = (!(j - 2) as u32 & 4) << 29;
    (
        f32::from_bits(sin.to_bits() ^ sin_sign),
        f32::from_bits(cos.to_bits() ^ cos_sign),
    )
}

/// Turns 16 uniforms into 16 normals, in place.
#[inline(always)]
fn normal16<const F: bool>(b: &mut [f32; 16], mean: f32, std: f32) {
    let (mut lo, mut hi) = ([0f32; 8], [0f32; 8]);
    for j in 0..8 {
        let u1 = 1.0 - b[j];
        let (r, s, c);
        if F {
            r = (-2.0 * log_cephes(u1)).sqrt();
            (s, c) = sin_cos_cephes((2.0 * PI) as f32 * b[j + 8]);
        } else {
            r = (-2.0 * u1.ln()).sqrt();
            let t = (2.0 * PI * f64::from(b[j + 8])) as f32;
            (s, c) = (t.sin(), t.cos());
        }
        lo[j] = fma32::<F>(r * c, std, mean);
        hi[j] = fma32::<F>(r * s, std, mean);
    }
    b[..8].copy_from_slice(&lo);
    b[8..].copy_from_slice(&hi);
}

#[inline(always)]
fn normal_f32_body<const F: bool>(g: &mut Generator, out: &mut [f32], mean: f64, std: f64) {
    let (mean, std) = (mean as f32, std as f32);
    for part in out.chunks_mut(CHUNK) {
        fill_f24(g, part);
        for b in part.as_chunks_mut::<16>().0 {
            normal16::<F>(b, mean, std);
        }
    }
    if out.len() % 16 != 0
        && let Some(last) = out.last_chunk_mut::<16>()
    {
        fill_f24(g, last);
        normal16::<F>(last, mean, std);
    }
}

#[inline(always)]
fn normal_half_body<const F: bool, T: Float32Like>(
    g: &mut Generator,
    out: &mut [T],
    mean: f64,
    std: f64,
) {
    let (mean, std) = (mean as f32, std as f32);
    let whole = out.len() / 16 * 16;
    for part in out[..whole].chunks_mut(CHUNK) {
        normal_rounded::<F, T>(g, part, mean, std);
    }
    if whole < out.len()
        && let Some(last) = out.last_chunk_mut::<16>()
    {
        normal_rounded::<F, T>(g, last, mean, std);
    }
}

/// Normals of a multiple of 16 elements, at most [`CHUNK`].
#[inline(always)]
fn normal_rounded<const F: bool, T: Float32Like>(
    g: &mut Generator,
    out: &mut [T],
    mean: f32,
    std: f32,
) {
    let mut room = [0f32; CHUNK];
    let room = &mut room[..out.len()];
    fill_f24(g, room);
    for b in room.as_chunks_mut::<16>().0 {
        normal16::<F>(b, mean, std);
    }
    T::round(room, out);
}

#[inline(always)]
fn normal_f64_body<const F: bool>(g: &mut Generator, out: &mut [f64], mean: f64, std: f64) {
    let sixteen = |b: &mut [f64; 16]| {
        for j in 0..8 {
            let r = (-2.0 * (1.0 - b[j]).ln()).sqrt();
            let t = 2.0 * PI * b[j + 8];
            b[j] = fma64::<F>(r * t.cos(), std, mean);
            b[j + 8] = fma64::<F>(r * t.sin(), std, mean);
        }
    };
    for part in out.chunks_mut(CHUNK) {
        fill_d53(g, part);
        part.as_chunks_mut::<16>().0.iter_mut().for_each(sixteen);
    }
    if out.len() % 16 != 0
        && let Some(last) = out.last_chunk_mut::<16>()
    {
        fill_d53(g, last);
        sixteen(last);
    }
}

/// One standard normal in double precision; uses and fills the generator's cache.
#[inline(always)]
pub(super) fn serial_normal(g: &mut Generator) -> f64 {
    if let Some(z) = g.cached_normal.take() {
        return z;
    }
    let (u1, u2) = (g.d53(), g.d53());
    let r = (-2.0 * (-u2).ln_1p()).sqrt();
    let t = 2.0 * PI * u1;
    g.cached_normal = Some(r * t.sin());
    r * t.cos()
}

#[inline(always)]
fn normal_serial_body<const F: bool>(g: &mut Generator, out: &mut [f64], mean: f64, std: f64) {
    out.fill_with(|| fma64::<F>(serial_normal(g), std, mean));
}

#[inline(always)]
fn log_normal_body<const F: bool>(g: &mut Generator, out: &mut [f64], mean: f64, std: f64) {
    out.fill_with(|| fma64::<F>(serial_normal(g), std, mean).exp());
}

#[inline(always)]
fn cauchy_body<const F: bool>(g: &mut Generator, out: &mut [f64], median: f64, sigma: f64) {
    out.fill_with(|| fma64::<F>(sigma, (PI * (g.d53() - 0.5)).tan(), median));
}

fused_or_not! { fn uniform32<T: Float32Like>(g: &mut Generator, out: &mut [T], from: f64, to: f64) = uniform32_body }
fused_or_not! { fn uniform64(g: &mut Generator, out: &mut [f64], from: f64, to: f64) = uniform64_body }
fused_or_not! { fn normal_f32(g: &mut Generator, out: &mut [f32], mean: f64, std: f64) = normal_f32_body }
fused_or_not! { fn normal_half<T: Float32Like>(g: &mut Generator, out: &mut [T], mean: f64, std: f64) = normal_half_body }
fused_or_not! { fn normal_f64(g: &mut Generator, out: &mut [f64], mean: f64, std: f64) = normal_f64_body }
fused_or_not! {
    /// Normals one after the other in double precision, sharing the generator's cache.
    pub(super) fn fill_normal_serial(g: &mut Generator, out: &mut [f64], mean: f64, std: f64) = normal_serial_body
}
fused_or_not! {
    /// The exponentials of serial normals.
    pub(super) fn fill_log_normal(g: &mut Generator, out: &mut [f64], mean: f64, std: f64) = log_normal_body
}
fused_or_not! {
    /// Cauchy variates by inversion.
    pub(super) fn fill_cauchy(g: &mut Generator, out: &mut [f64], median: f64, sigma: f64) = cauchy_body
}

/// Moves the generator as `n` serial normals would, cache included.
pub(super) fn advance_normal_serial(g: &mut Generator, mut n: u64) {
    if n > 0 && g.cached_normal.take().is_some() {
        n -= 1;
    }
    g.skip(n / 2 * 4);
    if n % 2 == 1 {
        // The cache is left with this pair's second value, so it has to be computed.
        serial_normal(g);
    }
}

/// Element types whose arithmetic is f32's.
pub(super) trait Float32Like: RandomElement {
    /// Rounds numbers into a row as long.
    fn round(from: &[f32], to: &mut [Self]);
}

macro_rules! float_random {
    ($($t:ty, $of:expr, $uniform:ident, $normal:ident;)+) => { $(impl RandomElement for $t {
        #[inline(always)]
        fn from_f64(v: f64) -> Self { $of(v) }
        #[inline(always)]
        fn from_i64(v: i64) -> Self { $of(v as f64) }
        const OWN: Option<Own<Self>> = Some(Own { uniform: $uniform, normal: $normal });
    })+ };
}
float_random! {
    f64, |v: f64| v, uniform64, normal_f64;
    f32, |v: f64| v as f32, uniform32, normal_f32;
    f16, |v: f64| f16::from_f32(v as f32), uniform32, normal_half;
    bf16, |v: f64| bf16::from_f32(v as f32), uniform32, normal_half;
}

impl Float32Like for f32 {
    #[inline(always)]
    fn round(from: &[f32], to: &mut [Self]) {
        to.copy_from_slice(from);
    }
}
impl Float32Like for f16 {
    fn round(from: &[f32], to: &mut [Self]) {
        halves::narrowed(from, to);
    }
}
impl Float32Like for bf16 {
    fn round(from: &[f32], to: &mut [Self]) {
        halves::narrowed(from, to);
    }
}
