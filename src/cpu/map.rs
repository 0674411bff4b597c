//! Pointwise loops: one generic body, instantiated for an operator, an element type and an instruction set.
//!
//! An operator is a zero-sized type that implements [`Op`] for the types it supports; a [`Loop`] is its body for one
//! of them. Bodies only see dense blocks that do not overlap: `rows` brings every other operand into that form.

#![allow(unsafe_code, reason = "loops over raw, checked memory")]

use crate::{DType, Element, simd_fn};
use num_complex::{Complex32, Complex64};
use std::mem::MaybeUninit;

/// Numbers that an operator gets besides its elements (alpha, bounds, ...).
#[derive(Clone, Copy, Default)]
pub struct Ctx {
    /// As doubles.
    pub f: [f64; 3],
    /// As integers.
    pub i: [i64; 3],
    /// As complex numbers.
    pub c: [Complex64; 2],
    /// Numbers beside 16-bit tensors keep single precision.
    pub wide_numbers: bool,
}

/// A number from the context in an element's own type.
pub trait FromCtx: Copy {
    /// Number `k` of the context.
    fn ctx(c: &Ctx, k: usize) -> Self;
}
macro_rules! from_ctx {
    ($($t:ty => |$c:ident, $k:ident| $e:expr;)+) => { $(impl FromCtx for $t {
        #[inline(always)]
        fn ctx($c: &Ctx, $k: usize) -> Self { $e }
    })+ };
}
from_ctx! {
    u8 => |c, k| c.i[k] as u8; i8 => |c, k| c.i[k] as i8; i16 => |c, k| c.i[k] as i16; i32 => |c, k| c.i[k] as i32;
    i64 => |c, k| c.i[k]; u16 => |c, k| c.i[k] as u16; u32 => |c, k| c.i[k] as u32; u64 => |c, k| c.i[k] as u64;
    bool => |c, k| c.i[k] != 0; f32 => |c, k| c.f[k] as f32; f64 => |c, k| c.f[k];
    Complex32 => |c, k| Complex32::new(c.c[k].re as f32, c.c[k].im as f32); Complex64 => |c, k| c.c[k];
}

/// An operator on elements of type `A`.
pub trait Op<A> {
    /// The result's element type.
    type Out: Element;
    /// The result for one element of each operand; those beyond the operator's own are to be ignored.
    fn f(x: [A; 3], c: &Ctx) -> Self::Out;
}

/// Elements that loops of [`Loop::unit`] above 1 take at a time.
const UNIT: usize = 64;

/// Computes `n` elements: result, operands, n, numbers.
type Block = unsafe fn(*mut u8, [*const u8; 3], usize, &Ctx);

/// The loop of an operator for one element type. Made from the operator's own types, so that what it reads and writes
/// cannot be told wrongly.
#[derive(Clone, Copy)]
pub struct Loop {
    block: Block,
    unit: usize,
    reads: DType,
    writes: DType,
}

impl Loop {
    fn of<O: Op<A>, A: Element>(block: Block, unit: usize) -> Self {
        Self {
            block,
            unit,
            reads: A::DTYPE,
            writes: O::Out::DTYPE,
        }
    }

    /// The type of the operands' elements.
    #[must_use]
    pub fn reads(&self) -> DType {
        self.reads
    }

    /// The type of the result's elements.
    #[must_use]
    pub fn writes(&self) -> DType {
        self.writes
    }

    /// Counts of elements are multiples of this.
    #[must_use]
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// Computes `n` neighbours, `n` a multiple of the unit.
    ///
    /// # Safety
    /// `out` has room for n elements of [`Loop::writes`] and overlaps no operand; each operand (of those that the
    /// operator ignores: any other again) holds n elements of [`Loop::reads`].
    #[inline]
    pub unsafe fn run(&self, out: *mut u8, operands: [*const u8; 3], n: usize, ctx: &Ctx) {
        // SAFETY: as the caller promises.
        unsafe { (self.block)(out, operands, n, ctx) }
    }
}

type Sides<'a, O, A> = (&'a mut [MaybeUninit<<O as Op<A>>::Out>], [&'a [A]; 3]);

/// The sides of a block as slices.
///
/// # Safety
/// As for [`Loop::run`].
#[inline(always)]
unsafe fn sides<'a, O: Op<A>, A>(
    out: *mut u8,
    operands: [*const u8; 3],
    n: usize,
) -> Sides<'a, O, A> {
    // SAFETY: as the caller promises.
    unsafe {
        (
            std::slice::from_raw_parts_mut(out.cast(), n),
            operands.map(|p| std::slice::from_raw_parts(p.cast(), n)),
        )
    }
}

#[inline(always)]
fn each<O: Op<A>, A: Copy>(out: &mut [MaybeUninit<O::Out>], x: [&[A]; 3], c: &Ctx) {
    let n = out.len();
    let [x, y, z] = x.map(|x| &x[..n]);
    for i in 0..n {
        out[i].write(O::f([x[i], y[i], z[i]], c));
    }
}

/// A function that gives the loop whose body is compiled as [`simd_fn!`] says, for counts that are multiples of a unit.
macro_rules! loop_fn {
    ($(#[$m:meta])* $name:ident, $kind:ident, $unit:expr, |$out:ident, $x:ident, $c:ident| $body:block) => {
        $(#[$m])*
        fn $name<O: Op<A>, A: Element>() -> Loop {
            simd_fn! { $kind fn slices<O: Op<A>, A: Element>($out: &mut [MaybeUninit<O::Out>], $x: [&[A]; 3], $c: &Ctx) $body }
            unsafe fn block<O: Op<A>, A: Element>(out: *mut u8, operands: [*const u8; 3], n: usize, ctx: &Ctx) {
                // SAFETY: as the caller promises.
                let (out, x) = unsafe { sides::<O, A>(out, operands, n) };
                // A copy of the numbers, which no store can be thought to change.
                slices::<O, A>(out, x, &{ *ctx });
            }
            Loop::of::<O, A>(block::<O, A>, $unit)
        }
    };
}
loop_fn! {
    /// One body for every machine: what calls a library for each element gains nothing from vectors.
    plain_loop, once, 1, |out, x, c| { each::<O, A>(out, x, c); }
}
loop_fn! {
    /// Bodies for AVX2 and the baseline.
    light_loop, stream, 1, |out, x, c| { each::<O, A>(out, x, c); }
}
loop_fn! {
    /// Bodies for every instruction set, over chunks of a known length: there is no code for what is left over.
    wide_loop, wide, UNIT, |out, x, c| {
        let (out, _) = out.as_chunks_mut::<UNIT>();
        let [x, y, z] = x.map(|x| x.as_chunks::<UNIT>().0);
        for (((out, x), y), z) in out.iter_mut().zip(x).zip(y).zip(z) {
            for i in 0..UNIT {
                out[i].write(O::f([x[i], y[i], z[i]], c));
            }
        }
    }
}

/// The loop for a real floating type; the 16-bit ones get that for single precision.
fn reals(d: DType, single: fn() -> Loop, double: fn() -> Loop) -> Option<Loop> {
    match d {
        DType::F32 | DType::F16 | DType::BF16 => Some(single()),
        DType::F64 => Some(double()),
        _ => None,
    }
}

/// Loops for the integer types.
#[must_use]
pub fn int<O: Op<u8> + Op<i8> + Op<i16> + Op<i32> + Op<i64>>(d: DType) -> Option<Loop> {
    Some(match d {
        DType::U8 => light_loop::<O, u8>(),
        DType::I8 => plain_loop::<O, i8>(),
        DType::I16 => plain_loop::<O, i16>(),
        DType::I32 => light_loop::<O, i32>(),
        DType::I64 => light_loop::<O, i64>(),
        _ => return None,
    })
}
/// The same for what no instruction does to several integers at once (division).
#[must_use]
pub fn int_heavy<O: Op<u8> + Op<i8> + Op<i16> + Op<i32> + Op<i64>>(d: DType) -> Option<Loop> {
    Some(match d {
        DType::U8 => plain_loop::<O, u8>(),
        DType::I8 => plain_loop::<O, i8>(),
        DType::I16 => plain_loop::<O, i16>(),
        DType::I32 => plain_loop::<O, i32>(),
        DType::I64 => plain_loop::<O, i64>(),
        _ => return None,
    })
}
/// Loops for the unsigned types beyond 8 bits.
#[must_use]
pub fn uint<O: Op<u16> + Op<u32> + Op<u64>>(d: DType) -> Option<Loop> {
    Some(match d {
        DType::U16 => plain_loop::<O, u16>(),
        DType::U32 => plain_loop::<O, u32>(),
        DType::U64 => plain_loop::<O, u64>(),
        _ => return None,
    })
}
/// Loops for the real floating types.
#[must_use]
pub fn float<O: Op<f32> + Op<f64>>(d: DType) -> Option<Loop> {
    reals(d, wide_loop::<O, f32>, wide_loop::<O, f64>)
}
/// The same where only single precision has a branch-free form.
#[must_use]
pub fn single<O: Op<f32> + Op<f64>>(d: DType) -> Option<Loop> {
    reals(d, wide_loop::<O, f32>, plain_loop::<O, f64>)
}
/// The same where neither type has one: a library's function for each element.
#[must_use]
pub fn heavy<O: Op<f32> + Op<f64>>(d: DType) -> Option<Loop> {
    reals(d, plain_loop::<O, f32>, plain_loop::<O, f64>)
}
/// The same where memory is the limit: 512-bit vectors would only slow it down (a tenth on Zen 4, beyond L2).
#[must_use]
pub fn light<O: Op<f32> + Op<f64>>(d: DType) -> Option<Loop> {
    reals(d, light_loop::<O, f32>, light_loop::<O, f64>)
}
/// Loops for the complex types; complex of halves gets that for single precision.
#[must_use]
pub fn complex<O: Op<Complex32> + Op<Complex64>>(d: DType) -> Option<Loop> {
    Some(match d {
        DType::C32 | DType::C64 => plain_loop::<O, Complex32>(),
        DType::C128 => plain_loop::<O, Complex64>(),
        _ => return None,
    })
}
/// The loop for truth values.
#[must_use]
pub fn boolean<O: Op<bool>>(d: DType) -> Option<Loop> {
    (d == DType::Bool).then(plain_loop::<O, bool>)
}
