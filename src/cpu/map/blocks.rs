//! The bodies of pointwise loops: what a block of elements comes to, for each form of the operands and instruction set.

#![allow(unsafe_code, reason = "loops over raw, checked memory")]

use super::{Beside, Ctx, Form, Op, UNIT};
use crate::Element;
use crate::cpu::simd::{Level, Veil};
use std::mem::MaybeUninit;

/// Computes the elements of a result: its memory, operands, numbers. That the result is a reference tells the compiler that
/// no store changes an operand or a number.
pub type Block = unsafe fn(&mut [MaybeUninit<u8>], [*const u8; 3], &Ctx);

type Sides<'a, O, A> = (&'a mut [MaybeUninit<<O as Op<A>>::Out>], [&'a [A]; 3]);

/// The sides of a block as slices.
///
/// # Safety
/// As for [`Loop::block`].
#[inline(always)]
unsafe fn sides<'a, O: Op<A>, A>(
    form: Form,
    out: &'a mut [MaybeUninit<u8>],
    operands: [*const u8; 3],
) -> Sides<'a, O, A> {
    let n = out.len() / size_of::<O::Out>();
    let lengths = form.lengths(n);
    let operand = |k: usize| {
        if lengths[k] == 0 {
            return &[][..];
        }
        // SAFETY: as the caller promises.
        unsafe { std::slice::from_raw_parts(operands[k].cast::<A>(), lengths[k]) }
    };
    // SAFETY: as the caller promises.
    let out = unsafe { std::slice::from_raw_parts_mut(out.as_mut_ptr().cast(), n) };
    (out, [operand(0), operand(1), operand(2)])
}

/// A block function, compiled as [`simd_fn!`](crate::cpu::simd::simd_fn) says; gives that for a level. One that is `spare` is
/// left out on machines without AVX2, which are too few for more code than does; the others go by single elements there.
macro_rules! block_fn {
    ($name:ident, $kind:ident, $form:expr, |$out:ident, $x:ident, $c:ident| $body:block) => {
        block_fn!($name: Op, $kind, |out, operands, $c| {
            // SAFETY: as the caller promises.
            let ($out, $x) = unsafe { sides::<O, A>($form, out, operands) };
            $body
        });
    };
    ($name:ident: $bound:ident, $kind:ident, |$out:ident, $x:ident, $c:ident| $body:block) => {
        pub(super) fn $name<O: $bound<A>, A: Element>(level: Level) -> Option<Block> {
            #[inline(always)]
            unsafe fn body<O: $bound<A>, A: Element>($out: &mut [MaybeUninit<u8>], $x: [*const u8; 3], $c: &Ctx) {
                $body
            }
            block_fn!(@$kind $bound level)
        }
    };
    (@baseline $bound:ident) => {{
        unsafe fn baseline<O: $bound<A>, A: Element>(out: &mut [MaybeUninit<u8>], x: [*const u8; 3], c: &Ctx) {
            // SAFETY: as the caller promises.
            unsafe { body::<O, A>(out, x, c) }
        }
        Some(baseline::<O, A>)
    }};
    (@once $bound:ident $level:ident) => {{ let _ = $level; block_fn!(@baseline $bound) }};
    (@stream $bound:ident $level:ident) => {{
        block_fn!(@set $bound $level, Avx2, "avx2,fma,f16c");
        #[cfg(not(target_arch = "x86_64"))]
        let found = block_fn!(@baseline $bound);
        #[cfg(target_arch = "x86_64")]
        let found = in_turn::<O, A>($level);
        found
    }};
    (@both $bound:ident $level:ident) => {{
        block_fn!(@set $bound $level, Avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c");
        light_dense::<O, A>($level)
    }};
    (@spare $bound:ident $level:ident) => {{
        block_fn!(@set $bound $level, Avx2, "avx2,fma,f16c");
        #[cfg(not(target_arch = "x86_64"))]
        let found = block_fn!(@baseline $bound);
        #[cfg(target_arch = "x86_64")]
        let found = None;
        found
    }};
    (@wide $bound:ident $level:ident) => {{
        block_fn!(@set $bound $level, Avx512, "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c");
        block_fn!(@set $bound $level, Avx2, "avx2,fma,f16c");
        #[cfg(not(target_arch = "x86_64"))]
        let found = block_fn!(@baseline $bound);
        #[cfg(target_arch = "x86_64")]
        let found = by_one::<O, A>($level);
        found
    }};
    (@set $bound:ident $level:ident, $set:ident, $features:literal) => {
        #[cfg(target_arch = "x86_64")]
        if $level >= Level::$set {
            #[target_feature(enable = $features)]
            unsafe fn with<O: $bound<A>, A: Element>(out: &mut [MaybeUninit<u8>], x: [*const u8; 3], c: &Ctx) {
                // SAFETY: as the caller promises.
                unsafe { body::<O, A>(out, x, c) }
            }
            return Some(with::<O, A>);
        }
    };
}
block_fn!(plain, once, Form::Dense, |out, x, c| {
    each::<O, A>(out, x, c);
});
block_fn!(plain_numbers, once, Form::Numbers, |out, x, c| {
    each_with_numbers::<O, A>(out, x, c);
});
#[cfg(target_arch = "x86_64")]
block_fn!(by_one, once, Form::Dense, |out, x, c| {
    for (i, o) in out.iter_mut().enumerate() {
        o.write(one::<O, A>([x[0][i], x[1][i], x[2][i]], c));
    }
});
#[cfg(target_arch = "x86_64")]
block_fn!(in_turn, once, Form::Dense, |out, x, c| {
    let n = out.len();
    let [x, y, z] = x.map(|x| &x[..n]);
    for i in 0..n {
        // Something happens between elements, so that they are not taken together.
        std::hint::black_box(());
        out[i].write(O::f([x[i], y[i], z[i]], c));
    }
});
block_fn!(light_dense, stream, Form::Dense, |out, x, c| {
    each::<O, A>(out, x, c);
});
block_fn!(wide_dense, both, Form::Dense, |out, x, c| {
    each::<O, A>(out, x, c);
});
block_fn!(light_numbers, spare, Form::Numbers, |out, x, c| {
    each_with_numbers::<O, A>(out, x, c);
});
block_fn!(light_over, spare, Form::Over, |out, x, c| {
    let n = out.len();
    let (y, z) = (&x[1][..n], &x[2][..n]);
    let veil = Veil::new();
    for i in 0..n {
        out[i].write(O::f([veil.over(taken(&out[i])), y[i], z[i]], c));
    }
});
block_fn!(light_over_numbers, spare, Form::OverNumbers, |out, x, c| {
    let (y, z) = (x[1][0], x[2][0]);
    let veil = Veil::new();
    for o in out {
        o.write(O::f([veil.over(taken(o)), y, z], c));
    }
});
block_fn!(beside_numbers: Beside, spare, |out, x, c| {
    // SAFETY: as the caller promises; the numbers are of single precision.
    let ((out, [x, ..]), [y, z]) =
        unsafe { (sides::<O, A>(Form::Dense, out, [x[0]; 3]), singles(x)) };
    for (o, &x) in out.iter_mut().zip(x) {
        o.write(O::beside(x, y, z, c));
    }
});
block_fn!(beside_over_numbers: Beside, spare, |out, x, c| {
    // SAFETY: as above.
    let ((out, _), [y, z]) = unsafe { (sides::<O, A>(Form::OverNumbers, out, x), singles(x)) };
    let veil = Veil::new();
    for o in out {
        o.write(O::beside(veil.over(taken(o)), y, z, c));
    }
});

/// The numbers beside an operand.
///
/// # Safety
/// The second and the third operand are numbers in single precision.
#[inline(always)]
unsafe fn singles(operands: [*const u8; 3]) -> [f32; 2] {
    // SAFETY: as the caller promises.
    [1, 2].map(|k| unsafe { operands[k].cast::<f32>().read_unaligned() })
}

// Chunks of a known length need no code for what is left over.
block_fn!(wide, wide, Form::Dense, |out, x, c| {
    let (out, _) = out.as_chunks_mut::<UNIT>();
    let [x, y, z] = x.map(|x| x.as_chunks::<UNIT>().0);
    for (((out, x), y), z) in out.iter_mut().zip(x).zip(y).zip(z) {
        ask_ahead(&raw const *out);
        ask_ahead(x);
        if O::OPERANDS > 1 {
            ask_ahead(y);
        }
        let mut missed = false;
        for i in 0..UNIT {
            missed |= O::missed(*out[i].write(O::f([x[i], y[i], z[i]], c)));
        }
        if missed {
            mend::<O, A>(out, [x, y, z], c);
        }
    }
});

/// Asks for what lies some lines behind a chunk: long arithmetic leaves a processor no room to look so far ahead by itself.
#[inline(always)]
fn ask_ahead<T>(chunk: *const [T; UNIT]) {
    let _ = chunk;
    #[cfg(target_arch = "x86_64")]
    for at in (2048..2048 + size_of::<[T; UNIT]>()).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, whatever lies there.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(chunk.cast::<i8>().wrapping_add(at)) };
    }
}

/// An element alone: a function of its own, of which no vectors are made.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn one<O: Op<A>, A: Copy>(x: [A; 3], c: &Ctx) -> O::Out {
    let made = O::f(x, c);
    if O::missed(made) {
        O::again(x, c)
    } else {
        made
    }
}

/// Computes what a branch-free body, which has written all results, missed.
#[cold]
#[inline(never)]
fn mend<O: Op<A>, A: Copy>(out: &mut [MaybeUninit<O::Out>; UNIT], x: [&[A; UNIT]; 3], c: &Ctx) {
    for (i, o) in out.iter_mut().enumerate() {
        if O::missed(taken(o)) {
            o.write(O::again(x.map(|x| x[i]), c));
        }
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

#[inline(always)]
fn each_with_numbers<O: Op<A>, A: Copy>(out: &mut [MaybeUninit<O::Out>], x: [&[A]; 3], c: &Ctx) {
    let (n, y, z) = (out.len(), x[1][0], x[2][0]);
    let x = &x[0][..n];
    for i in 0..n {
        out[i].write(O::f([x[i], y, z], c));
    }
}

/// What lies in a result's place: an operand, or the result itself.
#[inline(always)]
fn taken<B, A: Copy>(place: &MaybeUninit<B>) -> A {
    debug_assert_eq!(size_of::<A>(), size_of::<B>());
    // SAFETY: only for forms whose first operand, an `A`, lies there.
    unsafe { place.as_ptr().cast::<A>().read() }
}
