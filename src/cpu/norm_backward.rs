//! Gradients of normalisations over rows and groups.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::lanes::Real;
use super::lines::{self, Shared};
use super::math::RealFns;
use super::norm::compute_type;
use super::stored::Stored;
use super::{copy, pool, slice, slice_mut};
use crate::cpu::simd::simd_fn;
use crate::{DType, Element, Result, Scalar, Tensor, with_dtype};
use std::ops::Range;

/// What a normalisation saved, and the gradient of its result.
#[derive(Clone, Copy)]
pub struct Saved<'a> {
    /// The gradient of the result.
    pub g: &'a Tensor,
    /// The input.
    pub x: &'a Tensor,
    /// The means, unless nothing was subtracted.
    pub mean: Option<&'a Tensor>,
    /// The inverse deviations.
    pub rstd: &'a Tensor,
    /// The factors.
    pub weight: Option<&'a Tensor>,
}

/// The results that are asked for: the gradients by input, weight and bias.
pub type Asked<'a> = [Option<&'a Tensor>; 3];

/// Memory to compute results in that are asked for.
pub(super) fn working(outs: Asked, compute: DType) -> Result<[Option<Tensor>; 3]> {
    let [x, w, b] = outs.map(|o| o.map(|o| lines::results(o, compute)).transpose());
    Ok([x?, w?, b?])
}

/// Brings results to their places.
pub(super) fn put(outs: Asked, made: &[Option<Tensor>; 3]) -> Result<()> {
    for (out, made) in outs.iter().zip(made) {
        if let (Some(out), Some(made)) = (out, made) {
            lines::put(out, made)?;
        }
    }
    Ok(())
}

/// The gradients of a normalisation of nothing.
pub(super) fn zeros(outs: Asked) -> Result<()> {
    let zero = |out: &Tensor| super::fill(out, Scalar::Int(0));
    outs.into_iter().flatten().try_for_each(zero)
}

/// A result's elements; none if it is not asked for.
pub(super) fn room<T: Element>(t: &Option<Tensor>) -> &mut [T] {
    t.as_ref().map_or(&mut [], slice_mut::<T>)
}

/// The gradients of a normalisation over the last `n` elements.
///
/// # Errors
/// If memory cannot be had.
pub fn rows(outs: Asked, s: &Saved, n: usize) -> Result<()> {
    if s.x.numel() == 0 {
        return zeros(outs);
    }
    let dtype = s.x.dtype();
    let c = compute_type(dtype);
    let (g, x) = (copy::dense(s.g, dtype)?, copy::dense(s.x, dtype)?);
    let dense = |t: &Tensor| copy::dense(t, c);
    let (rstd, mean) = (dense(s.rstd)?, s.mean.map(dense).transpose()?);
    let w = s.weight.map(dense).transpose()?;
    let mut made = working([None, outs[1], outs[2]], c)?;
    made[0] = outs[0].map(|o| lines::results(o, dtype)).transpose()?;
    with_dtype!(dtype, [half float] => E, {
        type T = <E as Stored>::Wide;
        let ones = vec![1.0; if w.is_some() { 0 } else { n }];
        let rows = Rows::<E> {
            g: slice::<E>(&g),
            x: slice::<E>(&x),
            stats: Stats {
                mean: mean.as_ref().map(slice::<T>),
                rstd: slice::<T>(&rstd),
                w: w.as_ref().map_or(&ones, slice::<T>),
                n,
            },
        };
        rows.all(room::<E>(&made[0]), [room::<T>(&made[1]), room::<T>(&made[2])]);
    }, else {});
    put(outs, &made)
}

/// What all rows share, and the statistics of each.
struct Stats<'a, T> {
    mean: Option<&'a [T]>,
    rstd: &'a [T],
    w: &'a [T],
    n: usize,
}

struct Rows<'a, E: Stored> {
    g: &'a [E],
    x: &'a [E],
    stats: Stats<'a, E::Wide>,
}

impl<E: Stored> Rows<'_, E> {
    /// The gradients by the input and by the parameters, each where there is room for it.
    fn all(&self, dx: &mut [E], [dw, db]: [&mut [E::Wide]; 2]) {
        let zero = <E::Wide as RealFns>::of(0.0);
        let (rows, n) = (self.stats.rstd.len(), self.stats.n);
        dw.fill(zero);
        db.fill(zero);
        let params = !dw.is_empty() || !db.is_empty();
        // Parts of the sums over rows; how many does not depend on the number of threads.
        let parts = (self.x.len() / 65536).clamp(1, 32).min((rows / 8).max(1));
        let each = rows.div_ceil(parts);
        let mut sums = vec![zero; if params { 2 * n * parts } else { 0 }];
        let (shared, out) = (Shared::new(&mut sums), Shared::new(dx));
        let wanted = !dx.is_empty();
        pool::parallel_for(parts, 1, |range| {
            for p in range {
                // SAFETY: every part has its own sums.
                let sums = params.then(|| unsafe { shared.part(2 * n * p, 2 * n) });
                let rows = (p * each).min(rows)..((p + 1) * each).min(rows);
                // SAFETY: every part has its own rows.
                let to = wanted.then(|| unsafe { out.part(rows.start * n, rows.len() * n) });
                self.part(rows, sums, to);
            }
        });
        for part in sums.chunks_exact(2 * n.max(1)) {
            for (to, from) in [&mut *dw, &mut *db].into_iter().zip(part.chunks_exact(n)) {
                to.iter_mut().zip(from).for_each(|(o, &v)| *o += v);
            }
        }
    }

    /// Some rows, as many at a time as stay near.
    fn part(&self, rows: Range<usize>, mut sums: Option<&mut [E::Wide]>, mut to: Option<&mut [E]>) {
        let n = self.stats.n;
        let step = (4096 / n.max(1)).max(1);
        let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
        for first in rows.clone().step_by(step) {
            let at = first * n..rows.end.min(first + step) * n;
            let g = E::wide(&self.g[at.clone()], &mut a);
            let x = E::wide(&self.x[at.clone()], &mut b);
            let mut sums = sums.as_deref_mut();
            match &mut to {
                Some(to) => {
                    let start = rows.start * n;
                    let to = &mut to[at.start - start..at.end - start];
                    E::fill(to, &mut c, &mut |to| {
                        block(&self.stats, first, g, x, sums.as_deref_mut(), Some(to))
                    });
                }
                None => block(&self.stats, first, g, x, sums, None),
            }
        }
    }
}

simd_fn! { wide
    /// The gradient by some rows of the input, and their part of the sums for the parameters.
    fn block<T: Real>(s: &Stats<'_, T>, first: usize, g: &[T], x: &[T], sums: Option<&mut [T]>, out: Option<&mut [T]>) {
        let (n, count) = (s.n, T::of(s.n as f64));
        let mut sums = sums.map(|s| s.split_at_mut(n));
        let mut out = out.map(|o| o.chunks_exact_mut(n.max(1)));
        let lines = g.chunks_exact(n.max(1)).zip(x.chunks_exact(n.max(1)));
        for (r, (g, x)) in (first..).zip(lines) {
            let (mean, rstd) = (s.mean.map_or(T::of(0.0), |m| m[r]), s.rstd[r]);
            if let Some((dw, db)) = &mut sums {
                for (((dw, db), &g), &x) in dw.iter_mut().zip(db.iter_mut()).zip(g).zip(x) {
                    *dw += g * ((x - mean) * rstd);
                    *db += g;
                }
            }
            let Some(to) = out.as_mut().and_then(Iterator::next) else {
                continue;
            };
            let (plain, with_x) = weighted(g, x, s.w, mean);
            let shift = if s.mean.is_some() { plain * rstd / count } else { T::of(0.0) };
            let slope = with_x * rstd * rstd * rstd / count;
            for (((o, &g), &x), &w) in to.iter_mut().zip(g).zip(x).zip(s.w) {
                *o = g * w * rstd - shift - (x - mean) * slope;
            }
        }
    }
}

const LANES: usize = 32;

/// The sums of `g w` and `g w (x - mean)`.
#[inline(always)]
fn weighted<T: Real>(g: &[T], x: &[T], w: &[T], mean: T) -> (T, T) {
    let (mut a, mut b) = ([T::of(0.0); LANES], [T::of(0.0); LANES]);
    let (gs, g_rest) = g.as_chunks::<LANES>();
    let (xs, x_rest) = x.as_chunks::<LANES>();
    let (ws, w_rest) = w.as_chunks::<LANES>();
    for ((g, x), w) in gs.iter().zip(xs).zip(ws) {
        for l in 0..LANES {
            let v = g[l] * w[l];
            a[l] += v;
            b[l] += v * (x[l] - mean);
        }
    }
    for ((&g, &x), &w) in g_rest.iter().zip(x_rest).zip(w_rest) {
        a[0] += g * w;
        b[0] += g * w * (x - mean);
    }
    let mut half = LANES / 2;
    while half > 0 {
        for l in 0..half {
            a[l] += a[l + half];
            b[l] += b[l + half];
        }
        half /= 2;
    }
    (a[0], b[0])
}
