//! Lines of pixels with the channels innermost, cut where the taps that meet them change, and sums over taps or pixels that
//! stay in registers.

#![allow(unsafe_code, reason = "vectors at checked places of slices")]

use super::{Geometry, Phase, inside};
use crate::cpu::dense::number::Real;
use crate::cpu::vectors::{Lanes, Task, at, put, run};

/// Elements that one step of a loop over pixels covers, where neighbours are read together: enough for vectors.
const WIDTH: usize = 64;

/// Pieces, or taps, that are summed side by side.
const ABREAST: usize = 4;

/// Elements of a piece, which the factors of a tap are written out for: those of one pixel, or of several if these are
/// neighbours in the input too.
pub(super) fn tile(g: &Geometry, phase: &Phase) -> usize {
    if phase.advance[2] == 1 {
        g.inputs * WIDTH.div_ceil(g.inputs)
    } else {
        g.inputs
    }
}

/// Elements of the input from one piece to the next.
pub(super) fn reach(g: &Geometry, phase: &Phase) -> usize {
    if phase.advance[2] == 1 {
        tile(g, phase)
    } else {
        phase.advance[2] as usize * g.inputs
    }
}

/// Positions of a line that the same taps meet.
pub(super) struct Segment {
    pub(super) lo: usize,
    pub(super) hi: usize,
    taps: Vec<usize>,
}

/// A tap, and where the input of a segment's first position begins.
#[derive(Clone, Copy)]
pub(super) struct Met {
    pub(super) tap: usize,
    pub(super) from: usize,
}

/// All segments of a line.
pub(super) fn segments(g: &Geometry, phase: &Phase) -> Vec<Segment> {
    let count = phase.count[2];
    let meets = |at: i64| inside(count, phase.advance[2], at, g.size[2]);
    let spans: Vec<_> = phase.taps.iter().map(|tap| meets(tap.at[2])).collect();
    let mut cuts = vec![0, count];
    cuts.extend(spans.iter().flat_map(|&(lo, hi)| [lo, hi]));
    cuts.sort_unstable();
    cuts.dedup();
    let segment = |cut: &[usize]| Segment {
        lo: cut[0],
        hi: cut[1],
        taps: (0..spans.len())
            .filter(|&k| spans[k].0 <= cut[0] && cut[1] <= spans[k].1)
            .collect(),
    };
    cuts.windows(2).map(segment).collect()
}

impl Segment {
    /// The taps that meet it in the line at `place`, in their order.
    pub(super) fn met(&self, g: &Geometry, phase: &Phase, place: [usize; 2], found: &mut Vec<Met>) {
        found.clear();
        for &tap in &self.taps {
            let at = phase.taps[tap].at;
            let [d, h] = [0, 1].map(|i| place[i] as i64 * phase.advance[i] + at[i]);
            if (0..g.size[0] as i64).contains(&d) && (0..g.size[1] as i64).contains(&h) {
                let w = self.lo as i64 * phase.advance[2] + at[2];
                let pixel = (d as usize * g.size[1] + h as usize) * g.size[2] + w as usize;
                let from = pixel * g.inputs;
                found.push(Met { tap, from });
            }
        }
    }
}

/// How many pieces, which begin every `tile` of `len` elements, have `n` of them, and how many elements a last one has.
fn cut(len: usize, tile: usize, n: usize) -> (usize, usize) {
    let whole = (len + tile - n) / tile;
    (whole, len.saturating_sub(whole * tile))
}

/// Elements of the input to the last one of such pieces, which begin every `reach` elements there.
fn extent((whole, rest): (usize, usize), reach: usize, n: usize) -> usize {
    match (whole, rest) {
        (0, rest) => rest,
        (_, 0) => (whole - 1) * reach + n,
        (_, rest) => (whole * reach + rest).max((whole - 1) * reach + n),
    }
}

/// Calls a function of vectors from element `i` on for all of `n`: two at a time, then one, whose last may be in part.
macro_rules! in_vectors {
    ($n:expr, $v:ident, |$i:ident, $part:ident| $f:ident::<$t:ty, $p:tt>($($arg:expr),*)) => {{
        let (n, mut $i) = ($n, 0);
        while n - $i >= 2 * $v::WIDE {
            let $part = None;
            $f::<$t, $v, $p, 2>($($arg),*);
            $i += 2 * $v::WIDE;
        }
        while n > $i {
            let $part = (n - $i < $v::WIDE).then_some(n - $i);
            $f::<$t, $v, $p, 1>($($arg),*);
            $i += $v::WIDE.min(n - $i);
        }
    }};
}

/// Writes `bias` and the sums over taps of pieces of `x` times the tap's row of `w` to `out`. Pieces begin every `reach`
/// elements from where a tap does; `bias` and each row of `w` are as long as a piece.
pub(super) fn sum_taps<T: Real>(
    out: &mut [T],
    x: &[T],
    reach: usize,
    taps: &[Met],
    w: &[T],
    bias: &[T],
) {
    let tile = bias.len();
    let extent = extent(cut(out.len(), tile, tile), reach, tile);
    assert!(taps.iter().all(|t| t.from + extent <= x.len()));
    assert!(taps.iter().all(|t| (t.tap + 1) * tile <= w.len()));
    // SAFETY: the pieces of `x` end within their extent, and every element of a piece has its factors.
    unsafe {
        run(Taps {
            out,
            x,
            reach,
            taps,
            w,
            bias,
        })
    }
}

/// What [`sum_taps`] is given.
struct Taps<'a, T> {
    out: &'a mut [T],
    x: &'a [T],
    reach: usize,
    taps: &'a [Met],
    w: &'a [T],
    bias: &'a [T],
}

impl<T: Real> Task<T> for Taps<'_, T> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Lanes<T>>(self) {
        let (tile, steps) = (self.bias.len(), [self.bias.len(), self.reach]);
        let (taps, w, bias) = (self.taps, self.w.as_ptr(), self.bias.as_ptr());
        for (i, out) in self.out.chunks_mut(ABREAST * tile).enumerate() {
            // SAFETY: as [`sum_taps`] has looked.
            unsafe {
                let x = self.x.as_ptr().add(i * ABREAST * self.reach);
                if out.len() == ABREAST * tile {
                    let out = out.as_mut_ptr();
                    in_vectors!(tile, V, |i, part| times_taps::<T, ABREAST>(
                        out, x, steps, taps, w, bias, i, part
                    ));
                    continue;
                }
                for (j, out) in out.chunks_mut(tile).enumerate() {
                    let (n, out, x) = (out.len(), out.as_mut_ptr(), x.add(j * self.reach));
                    in_vectors!(n, V, |i, part| times_taps::<T, 1>(
                        out, x, steps, taps, w, bias, i, part
                    ));
                }
            }
        }
    }
}

/// `K` vectors of `P` pieces, from their element `i` on; pieces begin every so many elements of the result and of `x`.
#[inline(always)]
unsafe fn times_taps<T: Real, V: Lanes<T>, const P: usize, const K: usize>(
    out: *mut T,
    x: *const T,
    [tile, reach]: [usize; 2],
    taps: &[Met],
    w: *const T,
    bias: *const T,
    i: usize,
    part: Option<usize>,
) {
    // SAFETY: as the callers promise.
    unsafe {
        let mut sums = [[V::splat(T::zero()); K]; P];
        for k in 0..K {
            let bias = at(bias, i + k * V::WIDE, part);
            for p in 0..P {
                sums[p][k] = bias;
            }
        }
        for tap in taps {
            let (w, x) = (w.add(tap.tap * tile), x.add(tap.from));
            for k in 0..K {
                let i = i + k * V::WIDE;
                let factors: V = at(w, i, part);
                for p in 0..P {
                    sums[p][k] = sums[p][k].plus(at(x.add(p * reach), i, part), factors);
                }
            }
        }
        for p in 0..P {
            for k in 0..K {
                put(sums[p][k], out.add(p * tile), i + k * V::WIDE, part);
            }
        }
    }
}

/// Adds to `sums[tap]`, of the same elements of a piece for each tap, the products of pieces of `grad` with those of `x` from
/// the tap on; they begin every so many elements.
pub(super) fn sum_pixels<T: Real>(
    sums: &mut [&mut [T]],
    grad: &[T],
    x: &[T],
    reaches: [usize; 2],
    taps: &[Met],
) {
    let n = sums.first().map_or(0, |s| s.len());
    assert!(n <= reaches[0] && sums.iter().all(|s| s.len() == n));
    let cut = cut(grad.len(), reaches[0], n);
    let extent = extent(cut, reaches[1], n);
    assert!(
        taps.iter()
            .all(|t| t.from + extent <= x.len() && t.tap < sums.len())
    );
    // SAFETY: the pieces of both end within them, and there is a sum for each of `n` elements.
    unsafe {
        run(Pixels {
            sums,
            n,
            cut,
            grad,
            x,
            reaches,
            taps,
        })
    }
}

/// What [`sum_pixels`] is given, and how many pieces that is.
struct Pixels<'a, 'b, T> {
    sums: &'a mut [&'b mut [T]],
    n: usize,
    cut: (usize, usize),
    grad: &'a [T],
    x: &'a [T],
    reaches: [usize; 2],
    taps: &'a [Met],
}

impl<T: Real> Task<T> for Pixels<'_, '_, T> {
    type Out = ();
    #[inline(always)]
    unsafe fn run<V: Lanes<T>>(self) {
        let (sums, reaches, (whole, rest)) = (self.sums, self.reaches, self.cut);
        for taps in self.taps.chunks(ABREAST) {
            for (first, pieces, n) in [(0, whole, self.n), (whole, 1, rest)] {
                if pieces * n == 0 {
                    continue;
                }
                // SAFETY: as [`sum_pixels`] has looked.
                unsafe {
                    let grad = self.grad.as_ptr().add(first * reaches[0]);
                    let x = self.x.as_ptr().add(first * reaches[1]);
                    if let Ok(taps) = <&[Met; ABREAST]>::try_from(taps) {
                        in_vectors!(n, V, |i, part| times_pixels::<T, ABREAST>(
                            sums, grad, x, reaches, taps, pieces, i, part
                        ));
                        continue;
                    }
                    for tap in taps {
                        in_vectors!(n, V, |i, part| times_pixels::<T, 1>(
                            sums,
                            grad,
                            x,
                            reaches,
                            &[*tap],
                            pieces,
                            i,
                            part
                        ));
                    }
                }
            }
        }
    }
}

/// `K` vectors of the sums of `P` taps, from their element `i` on.
#[inline(always)]
unsafe fn times_pixels<T: Real, V: Lanes<T>, const P: usize, const K: usize>(
    sums: &mut [&mut [T]],
    grad: *const T,
    x: *const T,
    reaches: [usize; 2],
    taps: &[Met; P],
    pieces: usize,
    i: usize,
    part: Option<usize>,
) {
    // SAFETY: as the callers promise.
    unsafe {
        let mut found = [[V::splat(T::zero()); K]; P];
        for p in 0..P {
            for k in 0..K {
                found[p][k] = at(sums[taps[p].tap].as_ptr(), i + k * V::WIDE, part);
            }
        }
        for piece in 0..pieces {
            let (grad, x) = (grad.add(piece * reaches[0]), x.add(piece * reaches[1]));
            for k in 0..K {
                let i = i + k * V::WIDE;
                let factors: V = at(grad, i, part);
                for p in 0..P {
                    found[p][k] = found[p][k].plus(factors, at(x.add(taps[p].from), i, part));
                }
            }
        }
        for p in 0..P {
            for k in 0..K {
                let sum = sums[taps[p].tap].as_mut_ptr();
                put(found[p][k], sum, i + k * V::WIDE, part);
            }
        }
    }
}
