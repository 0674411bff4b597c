//! Pointwise loops: one generic body, instantiated for an operator, an element type and an instruction set.
//!
//! An operator is a zero-sized type that implements [`Op`] for the types it supports; a [`Loop`] is its body for one
//! of them. Bodies only see dense blocks that do not overlap: `rows` brings every other operand into that form.

mod blocks;
mod ctx;
mod tiles;

use crate::cpu::halves::Half;
use crate::cpu::simd::{self, Level};
use crate::{DType, Element};
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};
use std::marker::PhantomData;

pub use blocks::Block;
use blocks::{
    beside_numbers, beside_over_numbers, light_dense, light_numbers, light_over,
    light_over_numbers, plain, plain_numbers, wide,
};
pub use ctx::{Ctx, FromCtx, Swaps};
use tiles::{Halving, bf16_block, f16_block};

/// An operator on elements of type `A`.
pub trait Op<A> {
    /// The result's element type.
    type Out: Element;
    /// How many operands it has.
    const OPERANDS: usize;
    /// When its two operands may change places.
    const SWAPS: Swaps = Swaps::Never;
    /// The result for one element of each operand; those beyond the operator's own are to be ignored.
    fn f(x: [A; 3], c: &Ctx) -> Self::Out;
    /// Whether a branch-free `f` may not have reached this result's operands.
    #[inline(always)]
    fn missed(_made: Self::Out) -> bool {
        false
    }
    /// What is computed in its place.
    #[inline(always)]
    fn again(x: [A; 3], c: &Ctx) -> Self::Out {
        Self::f(x, c)
    }
}

/// Elements that loops of [`Loop::unit`] above 1 take at a time.
pub(super) const UNIT: usize = 64;

/// What a block function is given of its operands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// As many elements of each as of the result.
    Dense,
    /// One element of the second and the third.
    Numbers,
    /// The first operand is the result's own memory.
    Over,
    /// Both.
    OverNumbers,
}

impl Form {
    /// The form for a first operand in the result's place, and for others of one element.
    #[must_use]
    pub fn of(over: bool, numbers: bool) -> Self {
        match (over, numbers) {
            (false, false) => Self::Dense,
            (false, true) => Self::Numbers,
            (true, false) => Self::Over,
            (true, true) => Self::OverNumbers,
        }
    }

    /// Whether the second and the third operand are one element.
    #[must_use]
    pub fn has_numbers(self) -> bool {
        matches!(self, Self::Numbers | Self::OverNumbers)
    }

    /// Elements of each operand for `n` of the result.
    fn lengths(self, n: usize) -> [usize; 3] {
        match self {
            Self::Dense => [n, n, n],
            Self::Numbers => [n, 1, 1],
            Self::Over => [0, n, n],
            Self::OverNumbers => [0, 1, 1],
        }
    }
}

/// The loop of an operator for one element type. Made from the operator's own types, so that what it reads and writes
/// cannot be told wrongly.
#[derive(Clone, Copy)]
pub struct Loop {
    block: fn(Form, Level) -> Option<Block>,
    unit: usize,
    swaps: Swaps,
    reads: DType,
    /// What numbers beside the operands are read as.
    numbers: DType,
    writes: DType,
    /// The same in 16-bit types, where these have bodies of their own.
    halves: Option<&'static Halves>,
}

/// Loops over 16-bit floats, bf16 first: of operands of that type, and of one beside numbers in single precision.
struct Halves {
    alike: [Loop; 2],
    beside: [Loop; 2],
}

impl Loop {
    const fn of<O: Op<A>, A: Element>(
        block: fn(Form, Level) -> Option<Block>,
        unit: usize,
    ) -> Self {
        Self {
            block,
            unit,
            swaps: O::SWAPS,
            reads: A::DTYPE,
            numbers: A::DTYPE,
            writes: O::Out::DTYPE,
            halves: None,
        }
    }

    /// The same for operands and a result in a 16-bit type, each rounded once, if there is one.
    #[must_use]
    pub fn halves(&self, d: DType) -> Option<&'static Self> {
        let found = &self.halves?.alike[usize::from(d == DType::F16)];
        found.block(Form::Dense).map(|_| found)
    }

    /// The same for a first operand and a result in a 16-bit type, the others being numbers in single precision: a loop for
    /// [`Form::Numbers`] and [`Form::OverNumbers`] alone.
    #[must_use]
    pub fn beside(&self, d: DType) -> Option<&'static Self> {
        let found = &self.halves?.beside[usize::from(d == DType::F16)];
        found.block(Form::Numbers).map(|_| found)
    }

    /// The type of the second and the third operand where these are numbers.
    #[must_use]
    pub fn numbers(&self) -> DType {
        self.numbers
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

    /// Whether memory is its limit by far: stores past the caches, which arithmetic has to wait for, cost the others more
    /// than they save.
    #[must_use]
    pub fn is_brief(&self) -> bool {
        self.unit == 1 && !self.reads.is_reduced_float()
    }

    /// Whether its two operands may change places beside these numbers.
    #[must_use]
    pub fn swaps(&self, c: &Ctx) -> bool {
        self.swaps.beside(c)
    }

    /// Counts of elements are multiples of this, a power of two.
    #[must_use]
    pub fn unit(&self) -> usize {
        self.unit
    }

    /// The code of this machine for operands in a form; that for dense ones is always there, but for [`Loop::beside`].
    ///
    /// It may be called with room for elements of [`Loop::writes`], a multiple of the unit. Each operand (of those that the
    /// operator ignores: any other again) holds as many elements of [`Loop::reads`] as the form says, numbers being of
    /// [`Loop::numbers`]; but for a first one in its place, the result overlaps none.
    #[inline]
    #[must_use]
    pub fn block(&self, form: Form) -> Option<Block> {
        (self.block)(form, simd::level())
    }
}

/// `x && y`. Of the conjunction itself the compiler makes loads that depend on the first operand, five times slower.
#[inline(always)]
#[must_use]
pub fn both(x: bool, y: bool) -> bool {
    u8::from(x) + u8::from(y) == 2
}

/// An operator on truth values, which may be any byte in memory.
struct Truths<O>(PhantomData<O>);

impl<O: Op<bool>> Op<u8> for Truths<O> {
    type Out = O::Out;
    const OPERANDS: usize = O::OPERANDS;
    const SWAPS: Swaps = O::SWAPS;
    #[inline(always)]
    fn f(x: [u8; 3], c: &Ctx) -> O::Out {
        O::f([x[0] != 0, x[1] != 0, x[2] != 0], c)
    }
}

/// An operator in single precision on 16-bit floats.
struct Rounded<O>(PhantomData<O>);

/// The same for an operator whose results have no more digits than its operands: there is nothing to round.
struct Exact<O>(PhantomData<O>);

impl<O: Op<f32, Out = f32>> Op<bf16> for Exact<O> {
    type Out = bf16;
    const OPERANDS: usize = O::OPERANDS;
    const SWAPS: Swaps = O::SWAPS;
    #[inline(always)]
    fn f(x: [bf16; 3], c: &Ctx) -> bf16 {
        bf16::from_bits(
            (O::f([x[0].widen(), x[1].widen(), x[2].widen()], c).to_bits() >> 16) as u16,
        )
    }
}

impl<O: Op<f32, Out = f32>, H: Half + Element> Op<H> for Rounded<O> {
    type Out = H;
    const OPERANDS: usize = O::OPERANDS;
    const SWAPS: Swaps = O::SWAPS;
    #[inline(always)]
    fn f(x: [H; 3], c: &Ctx) -> H {
        H::narrow(O::f([x[0].widen(), x[1].widen(), x[2].widen()], c))
    }
}

/// An operator on the bits of 16-bit floats, which are as many whatever their type.
struct Bits<O>(PhantomData<O>);

macro_rules! bits {
    ($($t:ty)+) => { $(
        impl<O: Op<u16, Out = u16>> Op<$t> for Bits<O> {
            type Out = $t;
            const OPERANDS: usize = O::OPERANDS;
            const SWAPS: Swaps = O::SWAPS;
            #[inline(always)]
            fn f(x: [$t; 3], c: &Ctx) -> $t {
                <$t>::from_bits(O::f(x.map(<$t>::to_bits), c))
            }
        }
    )+ };
}
bits!(bf16 f16);

/// An operator on elements that are narrower than the numbers beside them.
trait Beside<A>: Op<A> {
    /// The result for one element and two numbers; those beyond the operator's own are to be ignored.
    fn beside(x: A, y: f32, z: f32, c: &Ctx) -> Self::Out;
}

impl<O: Op<f32, Out = f32>> Beside<bf16> for Rounded<O> {
    #[inline(always)]
    fn beside(x: bf16, y: f32, z: f32, c: &Ctx) -> bf16 {
        bf16::narrow(O::f([x.widen(), y, z], c))
    }
}

/// One body for every machine: what calls a library for each element gains nothing from vectors.
const fn plain_loop<O: Op<A>, A: Element>() -> &'static Loop {
    const {
        &Loop::of::<O, A>(
            |form, level| plain::<O, A>(level).filter(|_| form == Form::Dense),
            1,
        )
    }
}
/// The same with a body for numbers, about which there is much to ask that need not be asked for each element.
const fn divisor_loop<O: Op<A>, A: Element>() -> &'static Loop {
    const { &Loop::of::<O, A>(divisor_block::<O, A>, 1) }
}
fn divisor_block<O: Op<A>, A: Element>(form: Form, level: Level) -> Option<Block> {
    match form {
        Form::Dense => plain::<O, A>(level),
        Form::Numbers => plain_numbers::<O, A>(level),
        _ => None,
    }
}
/// Bodies for AVX2 and the baseline, and for operands in every form: memory is the limit, so none goes by way of a block.
const fn light_loop<O: Op<A>, A: Element>() -> &'static Loop {
    const { &Loop::of::<O, A>(light_block::<O, A>, 1) }
}
fn light_block<O: Op<A>, A: Element>(form: Form, level: Level) -> Option<Block> {
    let same = A::DTYPE as u8 == O::Out::DTYPE as u8;
    match form {
        Form::Dense => light_dense::<O, A>(level),
        Form::Numbers => light_numbers::<O, A>(level),
        // In place an operator of one operand has no others to read.
        Form::Over if same && O::OPERANDS > 1 => light_over::<O, A>(level),
        Form::OverNumbers if same => light_over_numbers::<O, A>(level),
        _ => None,
    }
}
/// The same, and for 16-bit floats, bf16 being rounded by `R` or not at all: three passes over blocks for what takes one cost
/// as much as the memory. Those of float16 by AVX2 only if `TILED`.
const fn halved_loop<O: Op<f32, Out = f32>, R: Halving<O>, const TILED: bool>() -> &'static Loop {
    const {
        &Loop {
            halves: Some(&Halves {
                alike: [
                    Loop::of::<R, bf16>(bf16_block::<O, R>, 1),
                    Loop::of::<Rounded<O>, f16>(f16_block::<O, f16, TILED>, 1),
                ],
                beside: beside_loops::<O, TILED>(),
            }),
            ..*light_loop::<O, f32>()
        }
    }
}
/// Loops of 16-bit floats beside numbers in single precision.
const fn beside_loops<O: Op<f32, Out = f32>, const TILED: bool>() -> [Loop; 2] {
    [
        Loop {
            numbers: DType::F32,
            ..Loop::of::<Rounded<O>, bf16>(beside_block::<O>, 1)
        },
        Loop {
            numbers: DType::F32,
            ..Loop::of::<Rounded<O>, f16>(f16_block::<O, f32, TILED>, 1)
        },
    ]
}
/// The same for an operator on bits.
const fn signed_loop<O: Op<f32, Out = f32> + Op<u16, Out = u16>>() -> &'static Loop {
    const {
        &Loop {
            halves: Some(&Halves {
                alike: [
                    Loop::of::<Bits<O>, bf16>(light_block::<Bits<O>, bf16>, 1),
                    Loop::of::<Bits<O>, f16>(light_block::<Bits<O>, f16>, 1),
                ],
                beside: beside_loops::<O, true>(),
            }),
            ..*light_loop::<O, f32>()
        }
    }
}
fn beside_block<O: Op<f32, Out = f32>>(form: Form, level: Level) -> Option<Block> {
    match form {
        Form::Numbers if O::OPERANDS > 1 => beside_numbers::<Rounded<O>, bf16>(level),
        Form::OverNumbers if O::OPERANDS > 1 => beside_over_numbers::<Rounded<O>, bf16>(level),
        _ => None,
    }
}
/// Bodies for every instruction set.
const fn wide_loop<O: Op<A>, A: Element>() -> &'static Loop {
    const {
        &Loop::of::<O, A>(
            |form, level| wide::<O, A>(level).filter(|_| form == Form::Dense),
            UNIT,
        )
    }
}

/// The loop for a real floating type; the 16-bit ones get that for single precision.
fn reals(
    d: DType,
    single: fn() -> &'static Loop,
    double: fn() -> &'static Loop,
) -> Option<&'static Loop> {
    match d {
        DType::F32 | DType::F16 | DType::BF16 => Some(single()),
        DType::F64 => Some(double()),
        _ => None,
    }
}

/// Loops for the integer types.
#[must_use]
pub fn int<O: Op<u8> + Op<i8> + Op<i16> + Op<i32> + Op<i64>>(d: DType) -> Option<&'static Loop> {
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
pub fn int_heavy<O: Op<u8> + Op<i8> + Op<i16> + Op<i32> + Op<i64>>(
    d: DType,
) -> Option<&'static Loop> {
    Some(match d {
        DType::U8 => divisor_loop::<O, u8>(),
        DType::I8 => divisor_loop::<O, i8>(),
        DType::I16 => divisor_loop::<O, i16>(),
        DType::I32 => divisor_loop::<O, i32>(),
        DType::I64 => divisor_loop::<O, i64>(),
        _ => return None,
    })
}
/// Loops for the unsigned types beyond 8 bits.
#[must_use]
pub fn uint<O: Op<u16> + Op<u32> + Op<u64>>(d: DType) -> Option<&'static Loop> {
    Some(match d {
        DType::U16 => plain_loop::<O, u16>(),
        DType::U32 => plain_loop::<O, u32>(),
        DType::U64 => plain_loop::<O, u64>(),
        _ => return None,
    })
}
/// Loops for the real floating types.
#[must_use]
pub fn float<O: Op<f32> + Op<f64>>(d: DType) -> Option<&'static Loop> {
    reals(d, wide_loop::<O, f32>, wide_loop::<O, f64>)
}
/// The same where there is no branch-free form: a library's function for each element.
#[must_use]
pub fn heavy<O: Op<f32> + Op<f64>>(d: DType) -> Option<&'static Loop> {
    reals(d, plain_loop::<O, f32>, plain_loop::<O, f64>)
}
/// The same where memory is the limit: 512-bit vectors would only slow it down (a tenth on Zen 4, beyond L2).
#[must_use]
pub fn light<O: Op<f32> + Op<f64>>(d: DType) -> Option<&'static Loop> {
    reals(d, light_loop::<O, f32>, light_loop::<O, f64>)
}
/// The same for operators that models are full of: bf16 has bodies of its own.
#[must_use]
pub fn common<O: Op<f32, Out = f32> + Op<f64>>(d: DType) -> Option<&'static Loop> {
    reals(d, halved_loop::<O, Rounded<O>, true>, light_loop::<O, f64>)
}
/// The same for those of them whose results have no more digits than their operands.
#[must_use]
pub fn exact<O: Op<f32, Out = f32> + Op<f64>>(d: DType) -> Option<&'static Loop> {
    reals(d, halved_loop::<O, Exact<O>, true>, light_loop::<O, f64>)
}
/// The same for those that change signs alone: of 16-bit floats by [`bits`].
#[must_use]
pub fn signed<O: Op<f32, Out = f32> + Op<f64> + Op<u16, Out = u16>>(
    d: DType,
) -> Option<&'static Loop> {
    reals(d, signed_loop::<O>, light_loop::<O, f64>)
}
/// What [`signed`] does to the bits of 16-bit floats, which have no loop but that.
#[must_use]
pub fn bits<O: Op<u16, Out = u16>>(_: DType) -> Option<&'static Loop> {
    None
}
/// The same for those of which the compiler makes vectors by AVX2 in long loops alone: that give whole numbers, or choose among many.
#[must_use]
pub fn whole<O: Op<f32, Out = f32> + Op<f64>>(d: DType) -> Option<&'static Loop> {
    reals(d, halved_loop::<O, Exact<O>, false>, light_loop::<O, f64>)
}
/// Loops for the complex types; complex of halves gets that for single precision.
#[must_use]
pub fn complex<O: Op<Complex32> + Op<Complex64>>(d: DType) -> Option<&'static Loop> {
    Some(match d {
        DType::C32 | DType::C64 => plain_loop::<O, Complex32>(),
        DType::C128 => plain_loop::<O, Complex64>(),
        _ => return None,
    })
}
/// The same where memory is the limit.
#[must_use]
pub fn plainly<O: Op<Complex32> + Op<Complex64>>(d: DType) -> Option<&'static Loop> {
    Some(match d {
        DType::C32 | DType::C64 => light_loop::<O, Complex32>(),
        DType::C128 => light_loop::<O, Complex64>(),
        _ => return None,
    })
}
/// The same where the parts are made without branches.
#[must_use]
pub fn paired<O: Op<Complex32> + Op<Complex64>>(d: DType) -> Option<&'static Loop> {
    Some(match d {
        DType::C32 | DType::C64 => wide_loop::<O, Complex32>(),
        DType::C128 => wide_loop::<O, Complex64>(),
        _ => return None,
    })
}
/// The loop for truth values.
#[must_use]
pub fn boolean<O: Op<bool>>(d: DType) -> Option<&'static Loop> {
    let made = const {
        &Loop {
            reads: DType::Bool,
            numbers: DType::Bool,
            ..*light_loop::<Truths<O>, u8>()
        }
    };
    (d == DType::Bool).then_some(made)
}
