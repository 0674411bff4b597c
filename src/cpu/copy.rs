//! Copies between layouts and dtypes.

#![allow(unsafe_code, reason = "reads and writes tensor memory of any layout")]

use super::halves::{self, Half};
use super::iter::{GRAIN, Walk};
use super::steps::{row_copy, same_row};
use super::{lines, planes};
use crate::{DType, Device, Element, Result, Tensor, dims};
use half::{bf16, f16};
use num_complex::{Complex, Complex32, Complex64};

/// Copies `src` (broadcast) into `dst`, converting; both on the host.
///
/// # Errors
/// If there is no conversion between the dtypes.
pub fn copy(dst: &Tensor, src: &Tensor) -> Result<()> {
    let n = dst.numel() as usize;
    if n == 0 {
        return Ok(());
    }
    let strides = src.strides_for(dst.shape());
    let same_type = dst.dtype() == src.dtype();
    let plain = dst.is_conj() == src.is_conj() && dst.is_neg() == src.is_neg();
    let runs = dst.is_contiguous() && src.is_contiguous() && src.shape() == dst.shape();
    if same_type && plain && runs {
        // SAFETY: two dense tensors of n elements; the kernel is the only writer of its result.
        unsafe { copy_bytes(dst.data_ptr(), src.data_ptr(), n * dst.dtype().size()) };
        return Ok(());
    }
    if same_type && plain && super::transpose::copy(dst, src) {
        return Ok(());
    }
    if !same_type && !plain && src.dtype().is_integral(false) {
        // Negative numbers of unsigned types are large ones, so the sign is turned before the conversion.
        return copy(dst, &dense(src, src.dtype())?);
    }
    let row = if same_type {
        row_copy(dst.dtype().size())
    } else {
        converter(src.dtype(), dst.dtype())?
    };
    let walk = Walk::<2>::new(
        dst.shape(),
        [dst.data_ptr(), src.data_ptr()],
        [dst.strides(), &strides],
        [dst.dtype().size(), src.dtype().size()],
    );
    let short = walk.inner().filter(|([row, next], [n, _])| {
        let few = planes::takes(*row, *n, dst.dtype().size());
        few && planes::are_apart(row[0], next[0], *n) && same_type && !dst.shares_storage(src)
    });
    let turned = walk.inner().filter(|([row, next], [n, _])| {
        let to = dst.dtype().size() as isize;
        let run = row[0] == to && next[0] == to * *n as isize;
        run && *n <= planes::SHORT && !same_type && !dst.shares_storage(src)
    });
    if let Some(([row_step, next], [n, _])) = turned {
        let sizes = [src.dtype().size(), dst.dtype().size()];
        planes::convert(&walk, row, sizes, n, [row_step[1], next[1]]);
    } else if let Some(([row_step, next], [n, _])) = short {
        let plane = planes::copier(dst.dtype().size());
        let steps = |k: usize| [row_step[k], next[k]];
        walk.run_groups(
            1,
            1024 / n,
            || (),
            |(), p, rows| {
                // SAFETY: the walk stays within both layouts, which lie apart.
                unsafe { plane(p[0], steps(0), p[1], steps(1), [n, rows]) };
            },
        );
    } else {
        // SAFETY: the walk stays within both layouts, and the row function is made for these two dtypes.
        walk.run(GRAIN, |p, s, n| unsafe { row(p[0], s[0], p[1], s[1], n) });
    }
    if !plain {
        flip(
            dst,
            dst.is_conj() != src.is_conj(),
            dst.is_neg() != src.is_neg(),
        );
    }
    Ok(())
}

/// Copies bytes, on all threads if there are many.
///
/// # Safety
/// Both sides hold n bytes, which nobody else writes (or, of the first, reads) meanwhile.
pub unsafe fn copy_bytes(dst: *mut u8, src: *const u8, n: usize) {
    let (dst, src) = (lines::Shared::at(dst), lines::Shared::at(src.cast_mut()));
    super::pool::parallel_for(n, 1 << 17, |r| {
        // SAFETY: both sides hold n bytes, of which tasks copy disjoint ranges.
        unsafe { copy_run(dst.get().add(r.start), src.get().add(r.start), r.len()) };
    });
}

/// Copies bytes on this thread; they may overlap.
///
/// # Safety
/// As for [`copy_bytes`].
#[inline]
pub unsafe fn copy_run(dst: *mut u8, src: *const u8, n: usize) {
    // The string moves that the C library uses from 2 KB on take AMD ten times as long where they write just ahead, within a
    // page, of what they read.
    const PIECE: usize = 1024;
    let ahead = dst.addr().wrapping_sub(src.addr());
    // SAFETY: as the caller promises.
    unsafe {
        if n <= PIECE || ahead < n || !(1..32).contains(&(ahead % 4096)) {
            return std::ptr::copy(src, dst, n);
        }
        for at in (0..n).step_by(PIECE) {
            std::ptr::copy(src.add(at), dst.add(at), PIECE.min(n - at));
        }
    }
}

/// Conjugates and negates in place what lies in memory.
fn flip(t: &Tensor, conj: bool, neg: bool) {
    let sign = |on: bool| if on { -1.0f64 } else { 1.0 };
    let re = sign(neg);
    let im = re * sign(conj);
    match t.dtype() {
        DType::C64 => super::for_each_mut::<Complex32>(t, |z| {
            *z = Complex32::new(z.re * re as f32, z.im * im as f32)
        }),
        DType::C128 => {
            super::for_each_mut::<Complex64>(t, |z| *z = Complex64::new(z.re * re, z.im * im))
        }
        DType::C32 => {
            // two half floats: the low half of the word is the real part
            let bits = if neg { 0x8000u32 } else { 0 } | if neg != conj { 0x8000_0000 } else { 0 };
            super::for_each_mut::<u32>(t, |z| *z ^= bits);
        }
        DType::F32 => super::for_each_mut::<f32>(t, |x| *x *= re as f32),
        DType::F64 => super::for_each_mut::<f64>(t, |x| *x *= re),
        _ if !neg => {}
        DType::F16 | DType::BF16 => super::for_each_mut::<u16>(t, |x| *x ^= 0x8000),
        d if d.is_integral(false) => match d.size() {
            1 => super::for_each_mut::<u8>(t, |x| *x = x.wrapping_neg()),
            2 => super::for_each_mut::<u16>(t, |x| *x = x.wrapping_neg()),
            4 => super::for_each_mut::<u32>(t, |x| *x = x.wrapping_neg()),
            _ => super::for_each_mut::<u64>(t, |x| *x = x.wrapping_neg()),
        },
        _ => {}
    }
}

/// A row-major host copy in another dtype.
///
/// # Errors
/// If there is no conversion.
pub fn converted(t: &Tensor, dtype: DType) -> Result<Tensor> {
    let strides = dims::preserved_strides(t.shape(), t.strides());
    let out = Tensor::empty_strided(t.shape().clone(), strides, dtype, Device::CPU)?;
    copy(&out, t)?;
    Ok(out)
}

/// A row-major tensor of `dtype` with the values of `t`: itself if it is that already.
///
/// # Errors
/// If there is no conversion.
pub fn dense(t: &Tensor, dtype: DType) -> Result<Tensor> {
    if t.dtype() == dtype && t.is_contiguous() && !t.is_lazy() {
        return Ok(t.clone());
    }
    let out = Tensor::empty(t.shape(), dtype, Device::CPU)?;
    copy(&out, t)?;
    Ok(out)
}

/// Copies a row of n elements: destination, its step in bytes, source, its step, n.
pub(super) type Row = unsafe fn(*mut u8, isize, *const u8, isize, usize);

/// A conversion of one element as C would do it.
pub(super) trait Cast<T> {
    /// The element as the other type.
    fn cast(self) -> T;
}

unsafe fn cast_row<A: Element + Cast<B>, B: Copy>(
    dst: *mut u8,
    sd: isize,
    src: *const u8,
    ss: isize,
    n: usize,
) {
    // SAFETY: as the caller promises.
    unsafe { cast_row_body::<A, B>(dst, sd, src, ss, n) }
}

#[inline(always)]
unsafe fn cast_row_body<A: Element + Cast<B>, B: Copy>(
    dst: *mut u8,
    sd: isize,
    src: *const u8,
    ss: isize,
    n: usize,
) {
    // SAFETY: the caller gives n elements on both sides.
    unsafe {
        if sd == size_of::<B>() as isize && ss == size_of::<A>() as isize {
            let (dst, src) = (dst.cast::<B>(), src.cast::<A>());
            for i in 0..n {
                *dst.add(i) = A::load(src.add(i)).cast();
            }
        } else {
            for i in 0..n as isize {
                *dst.offset(i * sd).cast::<B>() = A::load(src.offset(i * ss).cast::<A>()).cast();
            }
        }
    }
}

macro_rules! int_casts {
    ($($a:ty),+) => { $(
        int_casts!(@to $a => u8 i8 i16 i32 i64 u16 u32 u64 f32 f64);
        impl Cast<bool> for $a { #[inline(always)] fn cast(self) -> bool { self != 0 } }
        complex_casts!(@from_num $a);
    )+ };
    (@to $a:ty => $($b:ty)+) => { $(impl Cast<$b> for $a { #[inline(always)] fn cast(self) -> $b { self as $b } })+ };
}
macro_rules! float_casts {
    ($($a:ident $byte:ident),+) => { $(
        float_casts!(@wrap $a, i32 => i8 i16 u16 i32);
        float_casts!(@wrap $a, i64 => i64); float_casts!(@wrap $a, $byte => u8);
        float_casts!(@direct $a => f32 f64);
        float_casts!(@unsigned $a, i32 => u32);
        float_casts!(@unsigned $a, i64 => u64);
        impl Cast<bool> for $a { #[inline(always)] fn cast(self) -> bool { self != 0.0 } }
        complex_casts!(@from_num $a);
    )+ };
    // As x86 converts: to a register of 32 or 64 bits, NaN and what lies beyond it becoming the register's lowest
    // number, then cut to the type's bits.
    (@wrap $a:ty, $reg:ty => $($b:ty)+) => { $(impl Cast<$b> for $a { #[inline(always)] fn cast(self) -> $b {
        const LOW: $a = <$reg>::MIN as $a;
        let inside = if (LOW..-LOW).contains(&self) { self } else { LOW };
        // SAFETY: not NaN, and within the register's range; without the checks of `as` the loops vectorise.
        (unsafe { inside.to_int_unchecked::<$reg>() }) as $b
    } })+ };
    // Numbers beyond the signed register are converted less its range, which then is added as the top bit.
    (@unsigned $a:ty, $reg:ty => $b:ty) => { impl Cast<$b> for $a { #[inline(always)] fn cast(self) -> $b {
        const TOP: $a = -(<$reg>::MIN as $a);
        let high = self >= TOP;
        let v: $reg = <$a as Cast<$reg>>::cast(if high { self - TOP } else { self });
        v as $b ^ (<$b>::from(high) << (<$b>::BITS - 1))
    } } };
    (@direct $a:ty => $($b:ty)+) => { $(impl Cast<$b> for $a { #[inline(always)] fn cast(self) -> $b { self as $b } })+ };
}
macro_rules! half_casts {
    ($($h:ty)+) => { $(
        impl Cast<f32> for $h { #[inline(always)] fn cast(self) -> f32 { self.widen() } }
        impl Cast<$h> for f32 { #[inline(always)] fn cast(self) -> $h { <$h>::narrow(self) } }
        impl Cast<$h> for Complex64 { #[inline(always)] fn cast(self) -> $h { <$h>::narrow(self.re as f32) } }
    )+ };
}
macro_rules! complex_casts {
    (@from_num $a:ty) => {
        impl Cast<Complex32> for $a { #[inline(always)] fn cast(self) -> Complex32 { Complex32::new(self as f32, 0.0) } }
        impl Cast<Complex64> for $a { #[inline(always)] fn cast(self) -> Complex64 { Complex64::new(self as f64, 0.0) } }
    };
    (@from_complex $t:ty => $($b:ty)+) => { $(
        impl Cast<$b> for Complex<$t> { #[inline(always)] fn cast(self) -> $b { self.re.cast() } }
    )+
        impl Cast<bool> for Complex<$t> { #[inline(always)] fn cast(self) -> bool { self.re != 0.0 || self.im != 0.0 } }
        impl Cast<Complex32> for Complex<$t> { #[inline(always)] fn cast(self) -> Complex32 { Complex32::new(self.re as f32, self.im as f32) } }
        impl Cast<Complex64> for Complex<$t> { #[inline(always)] fn cast(self) -> Complex64 { Complex64::new(self.re as f64, self.im as f64) } }
    };
}
int_casts!(u8, i8, i16, i32, i64, u16, u32, u64);
float_casts!(f32 i32, f64 i64);
half_casts!(f16 bf16);
complex_casts!(@from_complex f32 => u8 i8 i16 i32 i64 u16 u32 u64 f32 f64);
complex_casts!(@from_complex f64 => u8 i8 i16 i32 i64 u16 u32 u64 f32 f64);

macro_rules! bool_casts {
    ($($b:ty)+) => { $(impl Cast<$b> for bool { #[inline(always)] fn cast(self) -> $b { <u8 as Cast<$b>>::cast(u8::from(self)) } })+ };
}
bool_casts!(u8 i8 i16 i32 i64 u16 u32 u64 f32 f64 Complex32 Complex64);
impl Cast<bool> for bool {
    fn cast(self) -> bool {
        self
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512dq,avx512bw,avx512vl")]
unsafe fn cast_row_avx512<A: Element + Cast<B>, B: Copy>(
    dst: *mut u8,
    sd: isize,
    src: *const u8,
    ss: isize,
    n: usize,
) {
    // SAFETY: as the caller promises.
    unsafe { cast_row_body::<A, B>(dst, sd, src, ss, n) }
}

/// Fewer elements that lie apart are converted one by one.
const FEWEST: usize = 16;

unsafe fn widen_halves<H: Half + Element + Cast<f32>>(
    dst: *mut u8,
    sd: isize,
    src: *const u8,
    ss: isize,
    n: usize,
) {
    // SAFETY: as the caller promises; conversions never run in place.
    unsafe {
        if sd == 4 && ss == 2 {
            return halves::widen_row::<H>(src.cast(), dst.cast(), n);
        }
        if sd != 4 || n < FEWEST {
            return cast_row_body::<H, f32>(dst, sd, src, ss, n);
        }
        // Elements that lie apart are brought together, and then widened by vector instructions.
        let mut room = [0u16; 256];
        let room = room.as_mut_ptr();
        for at in (0..n).step_by(256) {
            let m = (n - at).min(256);
            same_row::<u16>(room.cast(), 2, src.offset(at as isize * ss), ss, m);
            halves::widen_row::<H>(room.cast(), dst.cast::<f32>().add(at), m);
        }
    }
}

unsafe fn narrow_to_halves<H: Half>(dst: *mut u8, sd: isize, src: *const u8, ss: isize, n: usize)
where
    f32: Cast<H>,
{
    // SAFETY: as the caller promises; conversions never run in place.
    unsafe {
        if sd == 2 && ss == 4 {
            halves::narrow_row::<H>(src.cast(), dst.cast(), n);
        } else {
            cast_row_body::<f32, H>(dst, sd, src, ss, n);
        }
    }
}

/// The frequent conversions, by vector instructions.
fn frequent(from: DType, to: DType) -> Option<Row> {
    use DType::*;
    match (from, to) {
        (F16, F32) => return Some(widen_halves::<f16>),
        (BF16, F32) => return Some(widen_halves::<bf16>),
        (F32, F16) => return Some(narrow_to_halves::<f16>),
        (F32, BF16) => return Some(narrow_to_halves::<bf16>),
        _ => {}
    }
    #[cfg(target_arch = "x86_64")]
    if super::simd::level() == super::simd::Level::Avx512 {
        return with_avx512(from, to);
    }
    None
}

#[cfg(target_arch = "x86_64")]
fn with_avx512(from: DType, to: DType) -> Option<Row> {
    use DType::*;
    Some(match (from, to) {
        (F32, F64) => cast_row_avx512::<f32, f64>,
        (F64, F32) => cast_row_avx512::<f64, f32>,
        (I64, F32) => cast_row_avx512::<i64, f32>,
        (I32, F32) => cast_row_avx512::<i32, f32>,
        (U8, F32) => cast_row_avx512::<u8, f32>,
        (Bool, F32) => cast_row_avx512::<bool, f32>,
        (I64, F64) => cast_row_avx512::<i64, f64>,
        (F32, I64) => cast_row_avx512::<f32, i64>,
        (F64, I64) => cast_row_avx512::<f64, i64>,
        (F32, I32) => cast_row_avx512::<f32, i32>,
        (I64, I32) => cast_row_avx512::<i64, i32>,
        (I32, I64) => cast_row_avx512::<i32, i64>,
        (Bool, I64) => cast_row_avx512::<bool, i64>,
        (F32, Bool) => cast_row_avx512::<f32, bool>,
        (I64, Bool) => cast_row_avx512::<i64, bool>,
        (Bool, F64) => cast_row_avx512::<bool, f64>,
        (U8, F64) => cast_row_avx512::<u8, f64>,
        (I32, F64) => cast_row_avx512::<i32, f64>,
        (U8, I64) => cast_row_avx512::<u8, i64>,
        (I64, U8) => cast_row_avx512::<i64, u8>,
        (I32, Bool) => cast_row_avx512::<i32, bool>,
        (F64, Bool) => cast_row_avx512::<f64, bool>,
        (C64, Bool) => cast_row_avx512::<Complex32, bool>,
        (C64, I64) => cast_row_avx512::<Complex32, i64>,
        (F64, I32) => cast_row_avx512::<f64, i32>,
        (F64, U8) => cast_row_avx512::<f64, u8>,
        (I32, U8) => cast_row_avx512::<i32, u8>,
        _ => return None,
    })
}

/// Halves become other types, and are made of such, by way of single precision.
unsafe fn through_single<A: Element, B: Element>(
    dst: *mut u8,
    sd: isize,
    src: *const u8,
    ss: isize,
    n: usize,
) {
    const BLOCK: usize = 512;
    let (Ok(widen), Ok(narrow)) = (
        converter(A::DTYPE, DType::F32),
        converter(DType::F32, B::DTYPE),
    ) else {
        return;
    };
    let mut room = [std::mem::MaybeUninit::<f32>::uninit(); BLOCK];
    let room = room.as_mut_ptr().cast::<u8>();
    for at in (0..n).step_by(BLOCK) {
        let m = BLOCK.min(n - at);
        // SAFETY: the caller gives n elements on both sides; the room holds a block.
        unsafe {
            widen(room, 4, src.offset(at as isize * ss), ss, m);
            narrow(dst.offset(at as isize * sd), sd, room, 4, m);
        }
    }
}

/// The row function from one dtype to another.
///
/// # Errors
/// If there is no conversion.
pub(super) fn converter(from: DType, to: DType) -> Result<Row> {
    if let Some(row) = frequent(from, to) {
        return Ok(row);
    }
    crate::with_dtype!(from, [bool int uint float complex] => A, {
        crate::with_dtype!(to, [bool int uint float complex] => B, {
            return Ok(cast_row::<A, B>);
        }, else {});
        crate::with_dtype!(to, [half] => B, { return Ok(through_single::<A, B>); }, else {});
    }, else {});
    crate::with_dtype!(from, [half] => A, {
        crate::with_dtype!(to, [bool int uint half float complex] => B, {
            return Ok(through_single::<A, B>);
        }, else {});
    }, else {});
    super::narrow::converter(from, to)
}
