//! Gradients of the normalisation of groups of channels.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::lanes::{Real, sum_by, sum2_by};
use super::lines::{self, Shared};
use super::math::RealFns;
use super::norm::compute_type;
use super::norm_backward::{Asked, Saved, put, room, working, zeros};
use super::stored::Stored;
use super::{copy, pool, slice};
use crate::cpu::simd::simd_fn;
use crate::{Result, with_dtype};
use std::ops::Range;

/// The gradients of group_norm: `x` is read as (batch, groups, channels of a group, positions).
///
/// # Errors
/// If memory cannot be had.
pub fn groups(outs: Asked, s: &Saved, sizes: [usize; 4]) -> Result<()> {
    if s.x.numel() == 0 {
        return zeros(outs);
    }
    let [batch, groups, per, _] = sizes;
    let dtype = s.x.dtype();
    let c = compute_type(dtype);
    let (g, x) = (copy::dense(s.g, dtype)?, copy::dense(s.x, dtype)?);
    let (rstd, mean, w) = (
        copy::dense(s.rstd, c)?,
        s.mean.map(|t| copy::dense(t, c)).transpose()?,
        s.weight.map(|t| copy::dense(t, c)).transpose()?,
    );
    let mut made = working([None, outs[1], outs[2]], c)?;
    made[0] = outs[0].map(|o| lines::results(o, dtype)).transpose()?;
    with_dtype!(dtype, [half float] => E, {
        type T = <E as Stored>::Wide;
        let zeros = vec![0.0; if mean.is_some() { 0 } else { batch * groups }];
        let call = Groups::<E> {
            g: slice::<E>(&g),
            x: slice::<E>(&x),
            mean: mean.as_ref().map_or(&zeros, slice::<T>),
            rstd: slice::<T>(&rstd),
            w: w.as_ref().map(slice::<T>),
            sizes,
        };
        let mut by_channel = vec![(0.0, 0.0); batch * groups * per];
        call.all(room::<E>(&made[0]), &mut by_channel);
        let (dw, db) = (room::<T>(&made[1]), room::<T>(&made[2]));
        dw.fill(0.0);
        db.fill(0.0);
        for sample in by_channel.chunks_exact((groups * per).max(1)) {
            dw.iter_mut().zip(sample).for_each(|(o, s)| *o += s.0);
            db.iter_mut().zip(sample).for_each(|(o, s)| *o += s.1);
        }
    }, else {});
    put(outs, &made)
}

/// Elements that are converted at a time.
const PIECE: usize = 4096;

/// The pieces of a group: several whole channels, or a part of one.
fn pieces(channels: usize, size: usize) -> impl Iterator<Item = Range<usize>> {
    let (each, step) = if size < PIECE {
        let some = PIECE / size;
        (channels.min(some) * size, PIECE / size * size)
    } else {
        (size, PIECE)
    };
    let (n, each) = (channels * size, each.max(1));
    (0..n).step_by(each).flat_map(move |first| {
        let end = n.min(first + each);
        (first..end)
            .step_by(step)
            .map(move |at| at..end.min(at + step))
    })
}

struct Groups<'a, E: Stored> {
    g: &'a [E],
    x: &'a [E],
    mean: &'a [E::Wide],
    rstd: &'a [E::Wide],
    w: Option<&'a [E::Wide]>,
    sizes: [usize; 4],
}

impl<E: Stored> Groups<'_, E> {
    /// The gradient by the input, where there is room for it, and of each channel of each sample the sums of the gradient
    /// times the normalised input and of the gradient.
    fn all(&self, dx: &mut [E], by_channel: &mut [(E::Wide, E::Wide)]) {
        let [batch, groups, per, size] = self.sizes;
        let n = per * size;
        let wanted = !dx.is_empty();
        let (out, sums) = (Shared::new(dx), Shared::new(by_channel));
        pool::parallel_for(batch * groups, (16384 / n.max(1)).max(1), |range| {
            for r in range {
                // SAFETY: every group of a sample has its own parts.
                let sums = unsafe { sums.part(r * per, per) };
                // SAFETY: as above.
                let to = wanted.then(|| unsafe { out.part(r * n, n) });
                self.group(r, sums, to);
            }
        });
    }

    /// One group: the sums of each of its channels, and the gradient by its input.
    fn group(&self, r: usize, sums: &mut [(E::Wide, E::Wide)], out: Option<&mut [E]>) {
        let zero = <E::Wide as RealFns>::of(0.0);
        let [_, groups, per, size] = self.sizes;
        let n = per * size;
        let first = r % groups * per;
        let w = self.w.map(|w| &w[first..first + per]);
        let (g, x) = (&self.g[r * n..][..n], &self.x[r * n..][..n]);
        let (mean, rstd) = (self.mean[r], self.rstd[r]);
        let (mut a, mut b, mut c) = (Vec::new(), Vec::new(), Vec::new());
        sums.fill((zero, zero));
        for at in pieces(per, size) {
            let (g, x) = (
                E::wide(&g[at.clone()], &mut a),
                E::wide(&x[at.clone()], &mut b),
            );
            add(g, x, mean, size, &mut sums[at.start / size..]);
        }
        let Some(out) = out else {
            return sums.iter_mut().for_each(|s| s.0 = s.0 * rstd);
        };
        let (mut plain, mut with_x) = (zero, zero);
        for (i, (of_x, all)) in sums.iter_mut().enumerate() {
            let w = w.map_or(<E::Wide as RealFns>::of(1.0), |w| w[i]);
            plain += *all * w;
            with_x += *of_x * w;
            *of_x = *of_x * rstd;
        }
        let count = <E::Wide as RealFns>::of(n as f64);
        let shift = plain * rstd / count;
        let slope = with_x * rstd * rstd * rstd / count;
        for at in pieces(per, size) {
            let (g, x) = (
                E::wide(&g[at.clone()], &mut a),
                E::wide(&x[at.clone()], &mut b),
            );
            let w = w.map(|w| &w[at.start / size..]);
            E::fill(&mut out[at], &mut c, &mut |to| {
                finish(g, x, w, size, [mean, rstd, shift, slope], to);
            });
        }
    }
}

simd_fn! { wide
    /// Adds to the sums of some channels those of the gradient times the centred input, and of the gradient.
    fn add<T: Real>(g: &[T], x: &[T], mean: T, size: usize, sums: &mut [(T, T)]) {
        for ((g, x), sum) in g.chunks(size).zip(x.chunks(size)).zip(sums) {
            sum.0 += sum2_by(g, x, |g, x| g * (x - mean));
            sum.1 += sum_by(g, |g| g);
        }
    }
}

simd_fn! { wide
    /// The gradient by the input of some channels.
    fn finish<T: Real>(g: &[T], x: &[T], w: Option<&[T]>, size: usize, stats: [T; 4], out: &mut [T]) {
        let [mean, rstd, shift, slope] = stats;
        let lines = out.chunks_mut(size).zip(g.chunks(size)).zip(x.chunks(size));
        for (i, ((o, g), x)) in lines.enumerate() {
            let scale = w.map_or(rstd, |w| w[i] * rstd);
            for ((o, &g), &x) in o.iter_mut().zip(g).zip(x) {
                *o = g * scale - shift - (x - mean) * slope;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_channels_or_parts_of_one() {
        for (channels, size) in [(1, 1), (7, 3), (5, 4000), (3, 4096), (2, 9000), (9000, 1)] {
            let mut end = 0;
            for piece in pieces(channels, size) {
                assert_eq!(piece.start, end);
                assert!((1..=PIECE).contains(&piece.len()));
                let whole = piece.start % size == 0 && piece.len() % size == 0;
                assert!(whole || piece.start / size == (piece.end - 1) / size);
                end = piece.end;
            }
            assert_eq!(end, channels * size);
        }
    }
}
