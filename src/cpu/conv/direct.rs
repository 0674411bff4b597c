//! Convolutions with one channel a group: sums without gathering.

#![allow(unsafe_code, reason = "slices of checked layouts for each thread")]

use super::super::lines::Shared;
use super::{Geometry, Tap, inside};
use crate::cpu::simd::simd_fn;
use crate::cpu::{copy, pool, slice};
use crate::{DType, Result, Tensor};

/// One channel a group: sums without gathering.
pub(super) fn direct(
    out: &Tensor,
    x: &Tensor,
    w: &Tensor,
    bias: Option<&Tensor>,
    g: &Geometry,
) -> Result<()> {
    let phases = g.phases();
    let Some(phase) = phases.first() else {
        return Ok(());
    };
    let multiplier = g.outputs / g.groups;
    let taps = phase.taps.len();
    let w = copy::dense(w, w.dtype())?;
    let bias = bias.map(|b| copy::dense(b, b.dtype())).transpose()?;
    let plane: usize = g.size.iter().product();
    macro_rules! run {
        ($t:ty) => {{
            let (src, ws) = (Shared::at(x.data_ptr()), slice::<$t>(&w));
            let bs = bias.as_ref().map(|b| slice::<$t>(b));
            let dst = Shared::at(out.data_ptr());
            if g.channels_last && multiplier == 1 {
                let c = g.inputs;
                // Weights as [tap][channel], so that a pixel's channels are one vector operation.
                let turned: Vec<$t> = (0..taps * c).map(|i| ws[i % c * taps + i / c]).collect();
                let rows = g.batch * g.out[0] * g.out[1];
                pool::parallel_for(rows, (32768 / (g.out[2] * c * taps).max(1)).max(1), |r| {
                    for row in r {
                        let (n, d, h) = (row / (g.out[0] * g.out[1]), row / g.out[1] % g.out[0], row % g.out[1]);
                        // SAFETY: image and row lie within the dense tensors.
                        let (image, line) = unsafe {
                            (std::slice::from_raw_parts(src.get().cast::<$t>().add(n * plane * c), plane * c),
                             std::slice::from_raw_parts_mut(dst.get().cast::<$t>().add(row * g.out[2] * c), g.out[2] * c))
                        };
                        for (wx, pixel) in line.chunks_exact_mut(c).enumerate() {
                            match bs { Some(b) => pixel.copy_from_slice(b), None => pixel.fill(0.0) }
                            for (k, tap) in phase.taps.iter().enumerate() {
                                let t = [d, h, wx];
                                let at: [i64; 3] = std::array::from_fn(|i| t[i] as i64 * phase.advance[i] + tap.at[i]);
                                if (0..3).all(|i| at[i] >= 0 && at[i] < g.size[i] as i64) {
                                    let q = ((at[0] as usize * g.size[1] + at[1] as usize) * g.size[2] + at[2] as usize) * c;
                                    axpy_each::<$t>(pixel, &image[q..q + c], &turned[k * c..(k + 1) * c]);
                                }
                            }
                        }
                    }
                });
                return Ok(());
            }
            if !g.channels_last {
                let positions = g.positions();
                pool::parallel_for(g.batch * g.outputs, (32768 / (positions * taps).max(1)).max(1), |r| {
                    for i in r {
                        let (n, o) = (i / g.outputs, i % g.outputs);
                        // SAFETY: planes of the dense tensors; one output plane a step.
                        let (from, to) = unsafe {
                            (std::slice::from_raw_parts(src.get().cast::<$t>().add((n * g.inputs + o / multiplier) * plane), plane),
                             std::slice::from_raw_parts_mut(dst.get().cast::<$t>().add(i * positions), positions))
                        };
                        slide::<$t>(to, from, &ws[o * taps..(o + 1) * taps], &phase.taps, phase.advance, g.size, g.out, bs.map_or(0.0, |b| b[o]));
                    }
                });
                return Ok(());
            }
            let step = if g.channels_last { g.inputs } else { 1 };
            let ostep = if g.channels_last { g.outputs } else { 1 };
            let positions = g.positions();
            pool::parallel_for(g.batch * g.outputs, (32768 / (positions * taps).max(1)).max(1), |r| {
                let mut line = vec![0.0 as $t; g.out[2]];
                for i in r {
                    let (n, o) = (i / g.outputs, i % g.outputs);
                    let c = o / multiplier;
                    let start = if g.channels_last { n * plane * g.inputs + c } else { (n * g.inputs + c) * plane };
                    let to = if g.channels_last { n * positions * g.outputs + o } else { i * positions };
                    for row in 0..g.out[0] * g.out[1] {
                        let (d, h) = (row / g.out[1], row % g.out[1]);
                        line.fill(bs.map_or(0.0, |b| b[o]));
                        for (k, tap) in phase.taps.iter().enumerate() {
                            let (y, z) = (d as i64 * phase.advance[0] + tap.at[0], h as i64 * phase.advance[1] + tap.at[1]);
                            if y < 0 || y >= g.size[0] as i64 || z < 0 || z >= g.size[1] as i64 {
                                continue;
                            }
                            let (lo, hi) = inside(g.out[2], phase.advance[2], tap.at[2], g.size[2]);
                            if lo >= hi {
                                continue;
                            }
                            let x0 = lo as i64 * phase.advance[2] + tap.at[2];
                            let from = start + ((y as usize * g.size[1] + z as usize) * g.size[2] + x0 as usize) * step;
                            let stride = phase.advance[2] as usize * step;
                            // SAFETY: `inside` keeps all sources within the row of the plane.
                            let source = unsafe { std::slice::from_raw_parts(src.get().cast::<$t>().add(from), (hi - lo - 1) * stride + 1) };
                            axpy::<$t>(&mut line[lo..hi], source, stride, ws[o * taps + k]);
                        }
                        for (j, v) in line.iter().enumerate() {
                            // SAFETY: positions of this output channel, which no other task writes.
                            unsafe { *dst.get().cast::<$t>().add(to + (row * g.out[2] + j) * ostep) = *v };
                        }
                    }
                }
            });
        }};
    }
    if out.dtype() == DType::F32 {
        run!(f32)
    } else {
        run!(f64)
    }
    Ok(())
}

/// Real numbers with fused multiply-add.
trait Real: Copy {
    fn fma(self, a: Self, b: Self) -> Self;
}
impl Real for f32 {
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        a.mul_add(b, self)
    }
}
impl Real for f64 {
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        a.mul_add(b, self)
    }
}

/// `C` neighbouring outputs of a row, from the starts of their lines and the weights.
#[inline(always)]
fn chunk<T: Real, const C: usize, const STEP: usize>(
    out: &mut [T],
    x: &[T],
    lines: &[(usize, T)],
    shift: usize,
    bias: T,
) {
    let mut sum = [bias; C];
    for &(start, w) in lines {
        let from = &x[start + shift..][..(C - 1) * STEP + 1];
        for i in 0..C {
            sum[i] = sum[i].fma(from[i * STEP], w);
        }
    }
    out[..C].copy_from_slice(&sum);
}

/// The outputs `lo..hi` of a row, for which all lines lie within the input; the last chunk overlaps its neighbour.
#[inline(always)]
fn middle<T: Real, const STEP: usize>(out: &mut [T], x: &[T], lines: &[(usize, T)], bias: T) {
    let n = out.len();
    macro_rules! by {
        ($c:literal) => {
            for j in (0..n).step_by($c) {
                let j = j.min(n - $c);
                chunk::<T, $c, STEP>(&mut out[j..], x, lines, j * STEP, bias);
            }
        };
    }
    if n >= 16 {
        by!(16);
    } else if n >= 8 {
        by!(8);
    } else {
        by!(1);
    }
}

simd_fn! { wide
    /// A plane of outputs from a plane of inputs.
    #[allow(clippy::too_many_arguments)]
    fn slide<T: Real>(out: &mut [T], x: &[T], w: &[T], taps: &[Tap], advance: [i64; 3], size: [usize; 3], count: [usize; 3], bias: T) {
        // Columns that all taps have an input for.
        let (mut lo, mut hi) = (0, count[2]);
        for tap in taps {
            let (a, b) = inside(count[2], advance[2], tap.at[2], size[2]);
            (lo, hi) = (lo.max(a), hi.min(b));
        }
        hi = hi.max(lo);
        // Other steps than 1 and 2 are rare: all columns are made like those at the edges.
        if advance[2] > 2 {
            (lo, hi) = (0, 0);
        }
        let mut lines: Vec<(usize, T)> = Vec::with_capacity(taps.len());
        for (row, to) in out.chunks_exact_mut(count[2]).enumerate() {
            lines.clear();
            let base = [(row / count[1]) as i64 * advance[0], (row % count[1]) as i64 * advance[1]];
            for edge in (0..lo.min(count[2])).chain(hi..count[2]) {
                let at = edge as i64 * advance[2];
                let mut sum = bias;
                for (tap, &k) in taps.iter().zip(w) {
                    let p = [base[0] + tap.at[0], base[1] + tap.at[1], at + tap.at[2]];
                    if (0..3).all(|i| p[i] >= 0 && p[i] < size[i] as i64) {
                        sum = sum.fma(x[(p[0] as usize * size[1] + p[1] as usize) * size[2] + p[2] as usize], k);
                    }
                }
                to[edge] = sum;
            }
            if lo >= hi {
                continue;
            }
            for (tap, &k) in taps.iter().zip(w) {
                let (y, z) = (base[0] + tap.at[0], base[1] + tap.at[1]);
                if y >= 0 && y < size[0] as i64 && z >= 0 && z < size[1] as i64 {
                    let x0 = (lo as i64 * advance[2] + tap.at[2]) as usize;
                    lines.push(((y as usize * size[1] + z as usize) * size[2] + x0, k));
                }
            }
            if advance[2] == 1 {
                middle::<T, 1>(&mut to[lo..hi], x, &lines, bias);
            } else {
                middle::<T, 2>(&mut to[lo..hi], x, &lines, bias);
            }
        }
    }
}

simd_fn! { wide
    /// `out[i] += x[i * step] * w`.
    fn axpy<T: Real>(out: &mut [T], x: &[T], step: usize, w: T) {
        if step == 1 {
            for (o, &v) in out.iter_mut().zip(x) {
                *o = o.fma(v, w);
            }
        } else {
            for (o, v) in out.iter_mut().zip(x.chunks(step)) {
                *o = o.fma(v[0], w);
            }
        }
    }
}

simd_fn! { wide
    /// `out[i] += x[i] * w[i]`.
    fn axpy_each<T: Real>(out: &mut [T], x: &[T], w: &[T]) {
        for ((o, &v), &k) in out.iter_mut().zip(x).zip(w) {
            *o = o.fma(v, k);
        }
    }
}
