//! Real numbers and the integers that stand for them.
//!
//! Sources: Jacob and others, "Quantization and training of neural networks for efficient integer-arithmetic-only inference" (2018).

#![allow(unsafe_code, reason = "walks checked layouts by pointer")]

use super::iter::{GRAIN, Walk};
use super::simd::simd_fn;
use crate::{DType, Element, Result, Tensor, bail};

/// An integer type that quantised numbers are stored in.
pub trait Stored: Element + Copy + Sync {
    /// The smallest and largest, as real numbers.
    const ENDS: [f32; 2];
    /// The integer that a whole number is, but for `low` where it is less, or no number, and the ends for what lies beyond them.
    fn of(v: f32, low: f32) -> Self;
    /// As a real number.
    fn real(self) -> f32;
    /// In double precision, which has all of them.
    fn double(self) -> f64;
}
macro_rules! stored {
    ($($t:ty: $v:ident => $e:expr;)+) => { $(
        impl Stored for $t {
            const ENDS: [f32; 2] = [<$t>::MIN as f32, <$t>::MAX as f32];
            #[inline(always)]
            fn of(v: f32, low: f32) -> Self {
                let $v = v.max(low).max(Self::ENDS[0]).min(Self::ENDS[1]);
                $e
            }
            #[inline(always)]
            fn real(self) -> f32 { self as f32 }
            #[inline(always)]
            fn double(self) -> f64 { self as f64 }
        }
    )+ };
}
// A conversion that checks makes no vectors.
stored! {
    i8: v => {
        // SAFETY: between the ends, and no NaN, which `max` leaves out.
        unsafe { v.to_int_unchecked::<i32>() as i8 }
    };
    u8: v => {
        // SAFETY: as above.
        unsafe { v.to_int_unchecked::<i32>() as u8 }
    };
    i32: v => v as i32;
}

/// What is done to each element, with two numbers of its channel.
trait Step: Copy + Sync {
    type In: Copy;
    type Out: Copy;
    type By: Copy;
    fn of(self, x: Self::In, a: Self::By, b: Self::By) -> Self::Out;
}

/// The nearest integer, so many steps from zero: `a` is the inverse of the scale, `b` the zero point.
#[derive(Clone, Copy)]
struct Nearest<T>(std::marker::PhantomData<T>);
impl<T: Stored> Step for Nearest<T> {
    type In = f32;
    type Out = T;
    type By = f32;
    #[inline(always)]
    fn of(self, x: f32, a: f32, b: f32) -> T {
        let v = if size_of::<T>() == 1 {
            x.mul_add(a, b)
        } else {
            x * a + b
        };
        T::of(v.round_ties_even(), T::ENDS[0])
    }
}

/// The real number: `a` is the scale, `b` the zero point.
#[derive(Clone, Copy)]
struct Real<T>(std::marker::PhantomData<T>);
impl<T: Stored> Step for Real<T> {
    type In = T;
    type Out = f32;
    type By = f32;
    #[inline(always)]
    fn of(self, x: T, a: f32, b: f32) -> f32 {
        (x.real() - b) * a
    }
}

/// The real number by way of double precision: `a` is the scale, `b` the zero point.
#[derive(Clone, Copy)]
struct RealOfDoubles<T>(std::marker::PhantomData<T>);
impl<T: Stored> Step for RealOfDoubles<T> {
    type In = T;
    type Out = f32;
    type By = f64;
    #[inline(always)]
    fn of(self, x: T, a: f64, b: f64) -> f32 {
        ((x.double() - b) * a) as f32
    }
}

/// The real number, rounded once: `a` is the scale, `b` the negative product of scale and zero point.
#[derive(Clone, Copy)]
struct RealOnce<T>(std::marker::PhantomData<T>);
impl<T: Stored> Step for RealOnce<T> {
    type In = T;
    type Out = f32;
    type By = f32;
    #[inline(always)]
    fn of(self, x: T, a: f32, b: f32) -> f32 {
        x.real().mul_add(a, b)
    }
}

/// A sum as an integer of another scale: `a` is the factor, `b` is added to the sum first. It is rounded before the zero point is
/// added.
#[derive(Clone, Copy)]
struct Rescaled<S, T> {
    zero: f32,
    low: f32,
    of: std::marker::PhantomData<(S, T)>,
}
impl<S, T> Rescaled<S, T> {
    fn new((zero, low): (f32, f32)) -> Self {
        let of = std::marker::PhantomData;
        Self { zero, low, of }
    }
}
impl<S: Sum, T: Stored> Step for Rescaled<S, T> {
    type In = S;
    type Out = T;
    type By = f32;
    #[inline(always)]
    fn of(self, x: S, a: f32, b: f32) -> T {
        let v = ((x.single() + b) * a).round_ties_even() + self.zero;
        T::of(v, self.low)
    }
}

/// What is done to the sums of some columns.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    /// What is taken from each.
    pub own: &'a [i32],
    /// Factors, and what is added before.
    pub factors: &'a [f32],
    pub biases: &'a [f32],
    /// The result's zero point, and what it is at least.
    pub ends: (f32, f32),
}

simd_fn! { wide
    /// Rows of sums, `pitch` apart, as bytes of another scale, `step` apart: as [`rescaled`]. There is room for all.
    pub(super) fn rescaled_rows(to: *mut u8, step: usize, sums: &[i32], pitch: usize, c: Columns) {
        let n = c.own.len();
        let rescaled = Rescaled::<i32, u8>::new(c.ends);
        let (factors, biases) = (&c.factors[..n], &c.biases[..n]);
        for (row, sums) in sums.chunks(pitch).enumerate() {
            // SAFETY: the caller's.
            let to = unsafe { std::slice::from_raw_parts_mut(to.add(row * step), n) };
            let numbers = c.own.iter().zip(factors).zip(biases);
            for ((to, &sum), ((&own, &a), &b)) in to.iter_mut().zip(sums).zip(numbers) {
                *to = rescaled.of(sum.wrapping_sub(own), a, b);
            }
        }
    }
}

/// What exact sums are kept in.
trait Sum: Copy + Sync {
    fn single(self) -> f32;
}
impl Sum for f32 {
    #[inline(always)]
    fn single(self) -> f32 {
        self
    }
}
impl Sum for f64 {
    #[inline(always)]
    fn single(self) -> f32 {
        self as f32
    }
}
impl Sum for i32 {
    #[inline(always)]
    fn single(self) -> f32 {
        self as f32
    }
}

simd_fn! { wide
    /// A run of neighbours that share both numbers.
    fn alike<S: Step>(s: S, out: &mut [S::Out], x: &[S::In], a: S::By, b: S::By) {
        for (to, &x) in out.iter_mut().zip(x) {
            *to = s.of(x, a, b);
        }
    }
}

simd_fn! { wide
    /// A run of neighbours that have numbers of their own.
    fn apart<S: Step>(s: S, out: &mut [S::Out], x: &[S::In], a: &[S::By], b: &[S::By]) {
        for (((to, &x), &a), &b) in out.iter_mut().zip(x).zip(a).zip(b) {
            *to = s.of(x, a, b);
        }
    }
}

/// Elements that a number is written out for.
const RUN: usize = 64;

/// Does a step for every element of `x`; both numbers broadcast.
fn each<S: Step>(s: S, out: &Tensor, x: &Tensor, a: &Tensor, b: &Tensor) {
    let (a, b) = (a.expand_to(out.shape()), b.expand_to(out.shape()));
    let by = size_of::<S::By>();
    let sizes = [size_of::<S::Out>(), size_of::<S::In>(), by, by];
    let by = by as isize;
    let walk = Walk::<4>::new(
        out.shape(),
        [out.data_ptr(), x.data_ptr(), a.data_ptr(), b.data_ptr()],
        [out.strides(), x.strides(), a.strides(), b.strides()],
        sizes,
    );
    walk.run(GRAIN, |p, s4, n| {
        // SAFETY: a run of the walk has `n` elements of each operand at these steps, and runs of the result do not overlap.
        unsafe {
            let dense = s4[0] == sizes[0] as isize && s4[1] == sizes[1] as isize;
            let (pa, pb) = (p[2].cast::<S::By>(), p[3].cast::<S::By>());
            if dense && s4[2..].iter().all(|&s| s == 0 || s == by) {
                let to = std::slice::from_raw_parts_mut(p[0].cast::<S::Out>(), n);
                let from = std::slice::from_raw_parts(p[1].cast::<S::In>(), n);
                if s4[2] | s4[3] == 0 {
                    return alike(s, to, from, *pa, *pb);
                }
                // A number that all share is written out beside those of the other.
                let shared = [[*pa; RUN], [*pb; RUN]];
                let m = if s4[2] == s4[3] { n } else { RUN.min(n) };
                for (k, (to, from)) in to.chunks_mut(m).zip(from.chunks(m)).enumerate() {
                    let numbers = |i: usize| match s4[2 + i] {
                        0 => &shared[i][..to.len()],
                        _ => {
                            let first = p[2 + i].cast::<S::By>().add(k * m);
                            std::slice::from_raw_parts(first, to.len())
                        }
                    };
                    let (a, b) = (numbers(0), numbers(1));
                    apart(s, to, from, a, b);
                }
                return;
            }
            for i in 0..n as isize {
                let [to, from, a, b] = std::array::from_fn(|k| p[k].offset(s4[k] * i));
                let (from, a, b) = (*from.cast::<S::In>(), *a.cast(), *b.cast());
                *to.cast::<S::Out>() = s.of(from, a, b);
            }
        }
    });
}

macro_rules! by_stored {
    ($dtype:expr, $T:ident => $e:expr) => {
        match $dtype {
            DType::I8 => { type $T = i8; $e }
            DType::U8 => { type $T = u8; $e }
            DType::I32 => { type $T = i32; $e }
            other => bail!(Runtime, "{other} does not store quantized numbers"),
        }
    };
}

/// The integers nearest to the real numbers of `x`, in steps of the inverse of `inverse` from `zero`.
///
/// # Errors
/// If `out` is of no type that stores quantised numbers.
pub fn nearest(out: &Tensor, x: &Tensor, inverse: &Tensor, zero: &Tensor) -> Result<()> {
    by_stored!(out.dtype(), T => each(Nearest::<T>(std::marker::PhantomData), out, x, inverse, zero));
    Ok(())
}

/// The real numbers that integers stand for; with `once`, `zero` is the product of scale and zero point with its sign changed. Numbers
/// in double precision make products of it, which are rounded.
///
/// # Errors
/// If `x` is of no type that stores quantised numbers.
pub fn real(out: &Tensor, x: &Tensor, scale: &Tensor, zero: &Tensor, once: bool) -> Result<()> {
    by_stored!(x.dtype(), T => if scale.dtype() == DType::F64 {
        each(RealOfDoubles::<T>(std::marker::PhantomData), out, x, scale, zero)
    } else if once {
        each(RealOnce::<T>(std::marker::PhantomData), out, x, scale, zero)
    } else {
        each(Real::<T>(std::marker::PhantomData), out, x, scale, zero)
    });
    Ok(())
}

/// Sums, and `bias`, times a factor, as integers of another scale that are at least `low`.
///
/// # Errors
/// If `out` is of no type that stores quantised numbers, or `sums` of none that sums are kept in.
pub fn rescaled(
    out: &Tensor,
    sums: &Tensor,
    factor: &Tensor,
    bias: &Tensor,
    zero: i64,
    low: i64,
) -> Result<()> {
    let ends = (zero as f32, low as f32);
    by_stored!(out.dtype(), T => match sums.dtype() {
        DType::F32 => each(Rescaled::<f32, T>::new(ends), out, sums, factor, bias),
        DType::F64 => each(Rescaled::<f64, T>::new(ends), out, sums, factor, bias),
        _ => each(Rescaled::<i32, T>::new(ends), out, sums, factor, bias),
    });
    Ok(())
}

/// What a table of 256 bytes has for each byte: of signed ones the smallest first.
pub fn looked_up(out: &Tensor, x: &Tensor, table: &Tensor) {
    let flip = if x.dtype() == DType::I8 { 0x80 } else { 0 };
    let mut all = [0u8; 256];
    let step = table.strides()[0] as isize;
    for (i, to) in all.iter_mut().enumerate() {
        // SAFETY: the rule has the table with 256 elements of a byte, so far apart.
        *to = unsafe { *table.data_ptr().offset((i ^ flip) as isize * step) };
    }
    let walk = Walk::<2>::new(
        out.shape(),
        [out.data_ptr(), x.data_ptr()],
        [out.strides(), x.strides()],
        [1, 1],
    );
    walk.run(GRAIN, |p, s, n| {
        for i in 0..n as isize {
            // SAFETY: a run of the walk has `n` elements of each operand at these steps.
            unsafe { *p[0].offset(s[0] * i) = all[usize::from(*p[1].offset(s[1] * i))] };
        }
    });
}

/// How the integers of two tensors meet: both become real numbers (a scale, and its product with the zero point, its sign changed),
/// and what they give becomes an integer of another scale.
#[derive(Clone, Copy, Debug)]
pub struct Meeting {
    /// Whether they are multiplied, or added.
    pub product: bool,
    /// What the result is at least.
    pub low: f32,
    /// Scale and shift of the first.
    pub a: [f32; 2],
    /// Scale and shift of the second.
    pub b: [f32; 2],
    /// The inverse of the result's scale.
    pub inverse: f32,
    /// The result's zero point.
    pub zero: f32,
}

impl Meeting {
    #[inline(always)]
    fn of<T: Stored>(self, x: T, y: T) -> T {
        let x = x.real().mul_add(self.a[0], self.a[1]);
        let y = y.real().mul_add(self.b[0], self.b[1]);
        let v = if self.product { x * y } else { x + y };
        T::of((v * self.inverse).round_ties_even() + self.zero, self.low)
    }
}

simd_fn! { wide
    /// A run of neighbours.
    fn meet<T: Stored>(m: Meeting, out: &mut [T], x: &[T], y: &[T]) {
        for ((to, &x), &y) in out.iter_mut().zip(x).zip(y) {
            *to = m.of(x, y);
        }
    }
}

fn meetings<T: Stored>(m: Meeting, out: &Tensor, x: &Tensor, y: &Tensor) {
    let (x, y) = (x.expand_to(out.shape()), y.expand_to(out.shape()));
    let walk = Walk::<3>::new(
        out.shape(),
        [out.data_ptr(), x.data_ptr(), y.data_ptr()],
        [out.strides(), x.strides(), y.strides()],
        [size_of::<T>(); 3],
    );
    walk.run(GRAIN, |p, s, n| {
        // SAFETY: a run of the walk has `n` elements of each operand at these steps, and runs of the result do not overlap.
        unsafe {
            if s.iter().all(|&s| s == size_of::<T>() as isize) {
                let [x, y] = [p[1], p[2]].map(|p| std::slice::from_raw_parts(p.cast::<T>(), n));
                return meet(m, std::slice::from_raw_parts_mut(p[0].cast::<T>(), n), x, y);
            }
            for i in 0..n as isize {
                let [to, x, y] = std::array::from_fn(|k| p[k].offset(s[k] * i).cast::<T>());
                *to = m.of(*x, *y);
            }
        }
    });
}

/// The integers that those of two tensors give.
///
/// # Errors
/// If they are of no type that stores quantised numbers.
pub fn met(out: &Tensor, x: &Tensor, y: &Tensor, m: Meeting) -> Result<()> {
    by_stored!(out.dtype(), T => meetings::<T>(m, out, x, y));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Device;

    #[test]
    fn numbers_of_all_stand_beside_those_of_a_channel() {
        for n in [1i64, 63, 64, 65, 300] {
            let v: Vec<f32> = (0..3 * n).map(|i| (i * 37 % 101) as f32 - 40.0).collect();
            let sums = Tensor::from_slice(&v, &[3, n]).unwrap();
            let own: Vec<f32> = (0..n).map(|i| 0.5 + i as f32 / 64.0).collect();
            let (own, one) = (
                Tensor::from_slice(&own, &[n]).unwrap(),
                Tensor::from_slice(&[0.75f32], &[1]).unwrap(),
            );
            let made = |factor: &Tensor, bias: &Tensor| {
                let out = Tensor::empty(&[3, n], DType::U8, Device::CPU).unwrap();
                rescaled(&out, &sums, factor, bias, 7, 3).unwrap();
                out.to_vec::<u8>().unwrap()
            };
            let spread =
                |t: &Tensor| crate::cpu::copy::dense(&t.expand_to(&[3, n]), DType::F32).unwrap();
            for (factor, bias) in [(&own, &one), (&one, &own)] {
                assert_eq!(
                    made(factor, bias),
                    made(&spread(factor), &spread(bias)),
                    "{n}"
                );
            }
        }
    }
}
