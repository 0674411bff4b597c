//! The loops of a step: in single or double precision; halves go by way of blocks, as single ones are slow to convert.

use super::number::{Number, Rounding, Stored};
use super::{Elements, Rounds, States, Step, Stepped, Update};
use crate::cpu::halves::{narrowed, widened};
use crate::cpu::simd::simd_fn;
use half::f16;

/// Elements of a block: parameters, gradients and state of one stay in the first cache.
const BLOCK: usize = 512;

/// Halves, block by block.
pub(super) fn in_blocks(by: &dyn Step, elements: Elements<'_, f16>, rounds: Rounds) {
    let Elements { p, g, mut s } = elements;
    let mut room = [[0.0f32; BLOCK]; 5];
    for at in (0..p.len()).step_by(BLOCK) {
        let here = at..p.len().min(at + BLOCK);
        let n = here.len();
        widened(&p[here.clone()], &mut room[0][..n]);
        widened(&g[here.clone()], &mut room[1][..n]);
        for (wide, s) in room[2..].iter_mut().zip(&s).take(by.states()) {
            widened(&s[here.clone()], &mut wide[..n]);
        }
        let [wide_p, wide_g, a, b, c] = room.each_mut().map(|x| &mut x[..n]);
        let wide = Elements {
            p: wide_p,
            g: wide_g,
            s: [a, b, c],
        };
        by.single(wide, rounds == Rounds::Each);
        narrowed(&room[0][..n], &mut p[here.clone()]);
        for (wide, s) in room[2..].iter().zip(&mut s).take(by.states()) {
            narrowed(&wide[..n], &mut s[here.clone()]);
        }
    }
}

simd_fn! { stream else singly,
    /// One step of these elements, rounded as `S` where `R` says so; what is left over from the state is ignored.
    pub(super) fn sweep<M: Stored, S: Stored<In = M::In>, U: Update, R: Rounding>(update: U, elements: Elements<'_, M>) {
        each::<M, S, U, R, false>(update, elements);
    }
}

/// The same for machines without AVX2, which are too few for vectors of every rule.
#[cfg(target_arch = "x86_64")]
fn singly<M: Stored, S: Stored<In = M::In>, U: Update, R: Rounding>(
    update: U,
    elements: Elements<'_, M>,
) {
    each::<M, S, U, R, true>(update, elements);
}

/// One element in a function of its own.
#[inline(never)]
fn apart<S: Stored, U: Update, R: Rounding>(
    update: &U,
    p: S::In,
    g: S::In,
    s: States<S>,
) -> Stepped<S> {
    update.step::<S, R>(p, g, s)
}

#[inline(always)]
fn each<M: Stored, S: Stored<In = M::In>, U: Update, R: Rounding, const APART: bool>(
    update: U,
    elements: Elements<'_, M>,
) {
    let n = elements.p.len();
    let Elements { p, g, s: [a, b, c] } = elements;
    let has = |k: usize| if U::STATES > k { n } else { 0 };
    let (p, g) = (&mut p[..n], &g[..n]);
    let (a, b, c) = (&mut a[..has(0)], &mut b[..has(1)], &mut c[..has(2)]);
    let zero = S::In::of(0.0);
    for i in 0..n {
        let old = [
            if U::STATES > 0 { a[i].load() } else { zero },
            if U::STATES > 1 { b[i].load() } else { zero },
            if U::STATES > 2 { c[i].load() } else { zero },
        ];
        let (new, s) = if APART {
            apart::<S, U, R>(&update, p[i].load(), g[i].load(), old)
        } else {
            update.step::<S, R>(p[i].load(), g[i].load(), old)
        };
        p[i] = M::store(new);
        if U::STATES > 0 {
            a[i] = M::store(s[0]);
        }
        if U::STATES > 1 {
            b[i] = M::store(s[1]);
        }
        if U::STATES > 2 {
            c[i] = M::store(s[2]);
        }
    }
}
