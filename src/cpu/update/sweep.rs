//! The loops of a step: in single or double precision; 16-bit floats go by way of blocks.

use super::number::{Number, Rounding, Short, Stored};
use super::{Elements, Rounds, States, Step, Stepped, Update};
use crate::cpu::simd::simd_fn;

/// Elements of a block: parameters, gradients and state of one stay in the first cache.
const BLOCK: usize = 512;

/// Halves, block by block.
pub(super) fn in_blocks<H: Short>(by: &dyn Step, elements: Elements<'_, H>, rounds: Rounds) {
    let Elements { p, g, mut s } = elements;
    let each = (rounds == Rounds::Each).then_some(H::DTYPE);
    let mut room = [[0.0f32; BLOCK]; 5];
    for at in (0..p.len()).step_by(BLOCK) {
        let here = at..p.len().min(at + BLOCK);
        let n = here.len();
        H::load_row(&p[here.clone()], &mut room[0][..n]);
        H::load_row(&g[here.clone()], &mut room[1][..n]);
        for (wide, s) in room[2..].iter_mut().zip(&s).take(by.states()) {
            H::load_row(&s[here.clone()], &mut wide[..n]);
        }
        let [wide_p, wide_g, a, b, c] = room.each_mut().map(|x| &mut x[..n]);
        let wide = Elements {
            p: wide_p,
            g: wide_g,
            s: [a, b, c],
        };
        by.single(wide, each);
        H::store_row(&room[0][..n], &mut p[here.clone()]);
        for (wide, s) in room[2..].iter().zip(&mut s).take(by.states()) {
            H::store_row(&wide[..n], &mut s[here.clone()]);
        }
    }
}

simd_fn! { stream else singly,
    /// One step of these elements, rounded as `S` where `R` says so; what is left over from the state is ignored.
    pub(super) fn sweep<S: Stored, U: Update, R: Rounding>(update: U, elements: Elements<'_, S::In>) {
        each::<S, U, R, false>(update, elements);
    }
}

/// The same for machines without AVX2, which are too few for vectors of every rule.
#[cfg(target_arch = "x86_64")]
fn singly<S: Stored, U: Update, R: Rounding>(update: U, elements: Elements<'_, S::In>) {
    each::<S, U, R, true>(update, elements);
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
fn each<S: Stored, U: Update, R: Rounding, const APART: bool>(
    update: U,
    elements: Elements<'_, S::In>,
) {
    let n = elements.p.len();
    let Elements { p, g, s: [a, b, c] } = elements;
    let has = |k: usize| if U::STATES > k { n } else { 0 };
    let (p, g) = (&mut p[..n], &g[..n]);
    let (a, b, c) = (&mut a[..has(0)], &mut b[..has(1)], &mut c[..has(2)]);
    let zero = S::In::of(0.0);
    for i in 0..n {
        let old = [
            if U::STATES > 0 { a[i] } else { zero },
            if U::STATES > 1 { b[i] } else { zero },
            if U::STATES > 2 { c[i] } else { zero },
        ];
        let (new, s) = if APART {
            apart::<S, U, R>(&update, p[i], g[i], old)
        } else {
            update.step::<S, R>(p[i], g[i], old)
        };
        p[i] = new;
        if U::STATES > 0 {
            a[i] = s[0];
        }
        if U::STATES > 1 {
            b[i] = s[1];
        }
        if U::STATES > 2 {
            c[i] = s[2];
        }
    }
}
