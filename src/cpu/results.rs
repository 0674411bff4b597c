//! What folds come to, and how it is stored.

#![allow(unsafe_code, reason = "stores results through raw, checked pointers")]

use super::halves::{self, Half};
use super::reduce::Post;
use crate::DType;
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};

/// What a fold comes to: as wide as sums need, or as narrow as an extreme's element.
pub trait Number: Copy + Send + Sync {
    /// The number that is stored for this result.
    #[must_use]
    fn post(self, post: Post) -> Self;
    /// Stores results as elements of `dtype`, `step` bytes apart.
    ///
    /// # Safety
    /// There are so many at the address.
    unsafe fn put(all: &[Self], to: *mut u8, step: isize, dtype: DType);
}

/// Writes what a function makes of results, `step` bytes apart.
///
/// # Safety
/// There are so many elements at the address.
#[inline(always)]
unsafe fn write<A: Copy, T>(all: &[A], to: *mut u8, step: isize, f: impl Fn(A) -> T) {
    // SAFETY: as the caller promises.
    unsafe {
        if step == size_of::<T>() as isize {
            for (j, &a) in all.iter().enumerate() {
                to.cast::<T>().add(j).write(f(a));
            }
        } else {
            for (j, &a) in all.iter().enumerate() {
                to.offset(j as isize * step).cast::<T>().write(f(a));
            }
        }
    }
}

/// The same in a 16-bit type, of results in single precision.
///
/// # Safety
/// As for [`write`].
#[inline(always)]
unsafe fn write_halves<A: Copy, H: Half + Copy + Default>(
    all: &[A],
    to: *mut u8,
    step: isize,
    single: impl Fn(A) -> f32,
) {
    const TOGETHER: usize = 64;
    const FEW: usize = 8;
    if all.len() < FEW {
        // SAFETY: as the caller promises.
        return unsafe { write(all, to, step, |a| H::narrow(single(a))) };
    }
    let mut room = [0f32; TOGETHER];
    for (k, some) in all.chunks(TOGETHER).enumerate() {
        room.iter_mut()
            .zip(some)
            .for_each(|(to, &a)| *to = single(a));
        let (at, n) = (
            to.wrapping_offset((k * TOGETHER) as isize * step),
            some.len(),
        );
        // SAFETY: as the caller promises; the room holds as many.
        unsafe {
            if step == size_of::<H>() as isize {
                halves::narrow_row(room.as_ptr(), at.cast::<H>(), n);
            } else {
                let mut made = [H::default(); TOGETHER];
                halves::narrow_row(room.as_ptr(), made.as_mut_ptr(), n);
                write(&made[..n], at, step, |h| h);
            }
        }
    }
}

impl Number for i64 {
    fn post(self, _: Post) -> Self {
        self
    }
    unsafe fn put(all: &[Self], to: *mut u8, step: isize, dtype: DType) {
        // SAFETY: as the caller promises.
        unsafe {
            match dtype {
                DType::I64 | DType::U64 => write(all, to, step, |a| a),
                DType::I32 | DType::U32 => write(all, to, step, |a| a as i32),
                DType::I16 | DType::U16 => write(all, to, step, |a| a as i16),
                DType::Bool => write(all, to, step, |a| u8::from(a != 0)),
                DType::F32 => write(all, to, step, |a| a as f32),
                DType::F64 => write(all, to, step, |a| a as f64),
                DType::F16 => write_halves::<_, f16>(all, to, step, |a| a as f32),
                DType::BF16 => write_halves::<_, bf16>(all, to, step, |a| a as f32),
                _ => write(all, to, step, |a| a as u8),
            }
        }
    }
}
impl Number for f64 {
    #[inline(always)]
    fn post(self, post: Post) -> Self {
        match post {
            Post::None => self,
            Post::Over(n) => self / n,
            Post::Sqrt => self.sqrt(),
            Post::Pow(e) => self.powf(e),
        }
    }
    unsafe fn put(all: &[Self], to: *mut u8, step: isize, dtype: DType) {
        // SAFETY: as the caller promises.
        unsafe {
            match dtype {
                DType::F32 => write(all, to, step, |a| a as f32),
                DType::F16 => write_halves::<_, f16>(all, to, step, |a| a as f32),
                DType::BF16 => write_halves::<_, bf16>(all, to, step, |a| a as f32),
                // Of what is counted.
                DType::I64 => write(all, to, step, |a| a as i64),
                _ => write(all, to, step, |a| a),
            }
        }
    }
}
impl Number for Complex64 {
    fn post(self, post: Post) -> Self {
        match post {
            // Divided by the complex number n + 0i: an infinite part makes the other one no number, as in PyTorch.
            Post::Over(n) => {
                Self::new((self.re + self.im * 0.0) / n, (self.im - self.re * 0.0) / n)
            }
            _ => self,
        }
    }
    unsafe fn put(all: &[Self], to: *mut u8, step: isize, dtype: DType) {
        let narrow = |a: Self| Complex32::new(a.re as f32, a.im as f32);
        // SAFETY: as the caller promises.
        unsafe {
            match dtype {
                DType::C64 => write(all, to, step, narrow),
                _ => write(all, to, step, |a| a),
            }
        }
    }
}

impl Number for f32 {
    #[inline(always)]
    fn post(self, post: Post) -> Self {
        match post {
            Post::None => self,
            _ => f64::from(self).post(post) as f32,
        }
    }
    unsafe fn put(all: &[Self], to: *mut u8, step: isize, dtype: DType) {
        // SAFETY: as the caller promises.
        unsafe {
            match dtype {
                DType::F64 => write(all, to, step, f64::from),
                DType::F16 => write_halves::<_, f16>(all, to, step, |a| a),
                DType::BF16 => write_halves::<_, bf16>(all, to, step, |a| a),
                _ => write(all, to, step, |a| a),
            }
        }
    }
}

/// Extremes and truths, which are as narrow as elements: stored as they are, or as a wide integer is.
macro_rules! narrow {
    ($($t:ty: $own:ident;)+) => { $(impl Number for $t {
        fn post(self, _: Post) -> Self {
            self
        }
        unsafe fn put(all: &[Self], to: *mut u8, step: isize, dtype: DType) {
            // SAFETY: as the caller promises.
            unsafe {
                if dtype == DType::$own {
                    return write(all, to, step, |a| a);
                }
                if dtype == DType::Bool {
                    return write(all, to, step, |a| u8::from(a != 0));
                }
                let mut wide = [0i64; 64];
                for (k, some) in all.chunks(wide.len()).enumerate() {
                    wide.iter_mut().zip(some).for_each(|(w, &a)| *w = i64::from(a));
                    let at = to.wrapping_offset((k * wide.len()) as isize * step);
                    Number::put(&wide[..some.len()], at, step, dtype);
                }
            }
        }
    })+ };
}
narrow!(u8: U8; i8: I8; i16: I16; i32: I32;);
