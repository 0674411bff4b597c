//! Gradients of the normalisation over a batch.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::columns::{self, BLOCK};
use super::lanes::Real;
use super::lines::{self, Shared};
use super::math::RealFns;
use super::norm::{by_type, compute_type};
use super::norm_backward::{Asked, Saved, put, room, working, zeros};
use super::room::Room;
use super::stored::{Stored, each_piece, each_plane};
use super::{copy, pool, slice, slice_mut};
use crate::cpu::simd::simd_fn;
use crate::{DType, Result, Tensor, dims, with_dtype};

/// The gradients of batch_norm; `train`: the statistics are the batch's own.
///
/// # Errors
/// If memory cannot be had.
pub fn batch_norm(outs: Asked, s: &Saved, train: bool) -> Result<()> {
    if s.x.numel() == 0 {
        return zeros(outs);
    }
    let (c, sizes) = (compute_type(s.x.dtype()), sizes(s.x));
    let (order, dtype) = (order(s.x), s.x.dtype());
    let read = |t: &Tensor| copy::dense(&t.permuted(&order), dtype);
    let (g, x) = (read(s.g)?, read(s.x)?);
    let dx = outs[0].map(|o| o.permuted(&order));
    let outs = [dx.as_ref(), outs[1], outs[2]];
    let mut made = working([None, outs[1], outs[2]], c)?;
    made[0] = outs[0].map(|o| lines::results(o, dtype)).transpose()?;
    let dense = |t: &Tensor| copy::dense(t, c);
    let (mean, rstd) = (s.mean.map(dense).transpose()?, dense(s.rstd)?);
    let w = s.weight.map(dense).transpose()?;
    with_dtype!(dtype, [half float] => E, {
        type T = <E as Stored>::Wide;
        let zeros = vec![0.0; sizes[1]];
        let batch = Batch::<E> {
            g: slice::<E>(&g),
            x: slice::<E>(&x),
            mean: mean.as_ref().map_or(&zeros, slice::<T>),
            rstd: slice::<T>(&rstd),
            w: w.as_ref().map(slice::<T>),
            sizes,
        };
        batch.all(room::<E>(&made[0]), [room::<T>(&made[1]), room::<T>(&made[2])], train);
    }, else {});
    put(outs, &made)
}

/// Follows what [`batch_norm`] takes, and [`inverse_deviations`] before it unless `train`.
///
/// # Errors
/// If a size overflows.
pub fn scratch(room: &mut Room, outs: Asked, s: &Saved, train: bool) -> Result<()> {
    let (x, c) = (s.x, compute_type(s.x.dtype()));
    let mut rstd = s.rstd.clone();
    if !train {
        rstd = room.keep(|room| {
            room.dense(s.rstd, c)?;
            room.empty(s.rstd.shape(), c)
        })?;
    }
    if x.numel() == 0 {
        return Ok(());
    }
    let order = order(x);
    for t in [Some(s.g), Some(x), outs[0]].into_iter().flatten() {
        room.dense(&t.permuted(&order), x.dtype())?;
    }
    room.all_dense([outs[1], outs[2], s.mean, Some(&rstd), s.weight], c)
}

/// The dimensions in the order in which values are read: channels last where the batch lies so.
fn order(x: &Tensor) -> Vec<usize> {
    if lies_last(x) {
        std::iter::once(0).chain(2..x.ndim()).chain([1]).collect()
    } else {
        (0..x.ndim()).collect()
    }
}

/// The batch as (rows, channels, positions).
fn sizes(x: &Tensor) -> [usize; 3] {
    let (n, channels) = (x.numel() as usize, x.shape()[1] as usize);
    let rows = if lies_last(x) {
        n.checked_div(channels).unwrap_or(0)
    } else {
        x.shape()[0] as usize
    };
    [rows, channels, n.checked_div(rows * channels).unwrap_or(0)]
}

fn lies_last(x: &Tensor) -> bool {
    !x.is_contiguous() && dims::strides_like_channels_last(x.shape(), x.strides())
}

/// Inverse deviations from variances.
///
/// # Errors
/// If memory cannot be had.
pub fn inverse_deviations(var: &Tensor, x: DType, eps: f64) -> Result<Tensor> {
    let c = compute_type(x);
    let var = copy::dense(var, c)?;
    let out = Tensor::empty(var.shape(), c, crate::Device::CPU)?;
    by_type!(c, T => {
        for (o, &v) in slice_mut::<T>(&out).iter_mut().zip(slice::<T>(&var)) {
            *o = 1.0 / (v + eps as T).sqrt();
        }
    });
    Ok(out)
}

/// A batch as (rows, channels, positions).
struct Batch<'a, E: Stored> {
    g: &'a [E],
    x: &'a [E],
    mean: &'a [E::Wide],
    rstd: &'a [E::Wide],
    w: Option<&'a [E::Wide]>,
    sizes: [usize; 3],
}

impl<E: Stored> Batch<'_, E> {
    /// The gradients by the input and by the parameters, each where there is room for it.
    fn all(&self, dx: &mut [E], [dw, db]: [&mut [E::Wide]; 2], train: bool) {
        let [rows, channels, size] = self.sizes;
        let (mut plain, mut with_x) = (vec![0f64; channels], vec![0f64; channels]);
        if train || !dw.is_empty() || !db.is_empty() {
            if size == 1 {
                [plain, with_x] = columns::sums(self.g, self.x, self.mean, columns::Products);
            } else {
                self.sum_planes(&mut plain, &mut with_x);
            }
        }
        for (c, o) in dw.iter_mut().enumerate() {
            *o = <E::Wide as RealFns>::of(with_x[c] * self.rstd[c].f64_());
        }
        for (o, &v) in db.iter_mut().zip(&plain) {
            *o = <E::Wide as RealFns>::of(v);
        }
        if dx.is_empty() {
            return;
        }
        let n = (rows * size) as f64;
        let lines: Vec<[E::Wide; 4]> = (0..channels)
            .map(|c| {
                let rstd = self.rstd[c].f64_();
                let share = |v: f64| <E::Wide as RealFns>::of(if train { v / n } else { 0.0 });
                let scale = self.w.map_or(self.rstd[c], |w| w[c] * self.rstd[c]);
                [
                    scale,
                    share(plain[c]),
                    share(with_x[c] * rstd * rstd),
                    self.mean[c],
                ]
            })
            .collect();
        if train {
            self.apply(dx, &lines);
        } else {
            self.scale(dx, &lines);
        }
    }

    /// Sums of the gradient, and of the gradient times the centred input, of each channel.
    fn sum_planes(&self, plain: &mut [f64], with_x: &mut [f64]) {
        let [rows, channels, size] = self.sizes;
        let (plain, with_x) = (Shared::new(plain), Shared::new(with_x));
        pool::parallel_for(channels, (16384 / (rows * size).max(1)).max(1), |range| {
            for c in range {
                // SAFETY: every channel has its own places.
                let to = unsafe { (&mut plain.part(c, 1)[0], &mut with_x.part(c, 1)[0]) };
                (*to.0, *to.1) = self.sum_channel(c);
            }
        });
    }

    /// The same of one channel.
    fn sum_channel(&self, c: usize) -> (f64, f64) {
        let (mut rooms, mut sums) = ([Vec::new(), Vec::new()], (0.0, 0.0));
        each_plane(
            [self.g, self.x],
            self.sizes,
            c,
            &mut rooms,
            |[g, x], sizes, at| {
                let more = plane_sums(g, x, self.mean[c], sizes, at);
                sums = (sums.0 + more.0, sums.1 + more.1);
            },
        );
        sums
    }

    /// The gradient by the input where the statistics do not depend on it.
    fn scale(&self, dx: &mut [E], lines: &[[E::Wide; 4]]) {
        let [_, channels, size] = self.sizes;
        let n = if size == 1 { channels } else { size };
        let columns: Vec<E::Wide> = lines.iter().map(|l| l[0]).collect();
        each_piece([self.g], dx, n, |[g], first, to| {
            scale_lines(g, &columns, [first, size], to)
        });
    }

    /// The gradient by the input from the four numbers of each channel.
    fn apply(&self, dx: &mut [E], lines: &[[E::Wide; 4]]) {
        let [_, channels, size] = self.sizes;
        if size == 1 {
            let column = |k: usize| lines.iter().map(|l| l[k]).collect::<Vec<E::Wide>>();
            let columns = [column(0), column(1), column(2), column(3)];
            return each_piece([self.g, self.x], dx, channels, |[g, x], _, to| {
                apply_columns(g, x, &columns, to)
            });
        }
        each_piece([self.g, self.x], dx, size, |[g, x], first, to| {
            apply_planes(g, x, lines, [first, size], to)
        });
    }
}

const LANES: usize = 32;
/// Steps in single precision before sums are taken over in double precision.
const STEPS: usize = 128;

/// Sums of lanes, added in double precision and left at zero.
#[inline(always)]
fn taken<T: Real>(lanes: &mut [T; LANES]) -> f64 {
    let mut sum = 0.0;
    for l in lanes {
        sum += l.f64_();
        *l = T::of(0.0);
    }
    sum
}

simd_fn! { wide
    /// The sums of the gradient, and of the gradient times the centred input, over the planes of channel `c`.
    fn plane_sums<T: Real>(g: &[T], x: &[T], mean: T, sizes: [usize; 3], c: usize) -> (f64, f64) {
        let [rows, channels, size] = sizes;
        let (mut a, mut b) = ([T::of(0.0); LANES], [T::of(0.0); LANES]);
        let (mut sums, mut steps) = ((0.0, 0.0), 0);
        for r in 0..rows {
            let at = (r * channels + c) * size;
            for (g, x) in g[at..][..size].chunks(LANES * STEPS).zip(x[at..][..size].chunks(LANES * STEPS)) {
                let ((gs, g_rest), (xs, x_rest)) = (g.as_chunks::<LANES>(), x.as_chunks::<LANES>());
                for (g, x) in gs.iter().zip(xs) {
                    for l in 0..LANES {
                        a[l] += g[l];
                        b[l] += g[l] * (x[l] - mean);
                    }
                }
                for (l, (&g, &x)) in g_rest.iter().zip(x_rest).enumerate() {
                    a[l] += g;
                    b[l] += g * (x - mean);
                }
                steps += gs.len() + 1;
                if steps >= STEPS {
                    sums = (sums.0 + taken(&mut a), sums.1 + taken(&mut b));
                    steps = 0;
                }
            }
        }
        (sums.0 + taken(&mut a), sums.1 + taken(&mut b))
    }
}

simd_fn! { wide
    /// Lines times the factors of their channels: rows of channels if `size` is 1, else planes from plane `first` on.
    fn scale_lines<T: Real>(g: &[T], factors: &[T], planes: [usize; 2], out: &mut [T]) {
        let [first, size] = planes;
        let n = factors.len();
        if size == 1 {
            for (o, g) in out.chunks_exact_mut(n).zip(g.chunks_exact(n)) {
                for ((o, &g), &f) in o.iter_mut().zip(g).zip(factors) {
                    *o = g * f;
                }
            }
            return;
        }
        for (k, (o, g)) in out.chunks_exact_mut(size).zip(g.chunks_exact(size)).enumerate() {
            let f = factors[(first + k) % n];
            for (o, &g) in o.iter_mut().zip(g) {
                *o = g * f;
            }
        }
    }
}

simd_fn! { wide
    /// The gradient by planes of the input, of which the first is plane `first` of the batch.
    fn apply_planes<T: Real>(g: &[T], x: &[T], lines: &[[T; 4]], planes: [usize; 2], out: &mut [T]) {
        let [first, size] = planes;
        let planes = out.chunks_exact_mut(size).zip(g.chunks_exact(size)).zip(x.chunks_exact(size));
        for (k, ((o, g), x)) in planes.enumerate() {
            let [scale, shift, slope, mean] = lines[(first + k) % lines.len()];
            for ((o, &g), &x) in o.iter_mut().zip(g).zip(x) {
                *o = (g - shift - (x - mean) * slope) * scale;
            }
        }
    }
}

simd_fn! { wide
    fn apply_columns<T: Real>(g: &[T], x: &[T], columns: &[Vec<T>; 4], out: &mut [T]) {
        let n = columns[0].len();
        let whole = n / BLOCK * BLOCK;
        let [scale, shift, slope, mean] = [0, 1, 2, 3].map(|k| &columns[k][..n]);
        for c in (0..whole).step_by(BLOCK) {
            let (Some(a), Some(b), Some(s), Some(m)) = (
                scale[c..].first_chunk::<BLOCK>(),
                shift[c..].first_chunk::<BLOCK>(),
                slope[c..].first_chunk::<BLOCK>(),
                mean[c..].first_chunk::<BLOCK>(),
            ) else { return };
            let (a, b, s, m) = (*a, *b, *s, *m);
            for ((o, g), x) in out.chunks_exact_mut(n).zip(g.chunks_exact(n)).zip(x.chunks_exact(n)) {
                let (Some(o), Some(g), Some(x)) = (
                    o[c..].first_chunk_mut::<BLOCK>(),
                    g[c..].first_chunk::<BLOCK>(),
                    x[c..].first_chunk::<BLOCK>(),
                ) else { return };
                let mut made = [T::of(0.0); BLOCK];
                for l in 0..BLOCK {
                    made[l] = (g[l] - b[l] - (x[l] - m[l]) * s[l]) * a[l];
                }
                *o = made;
            }
        }
        for ((o, g), x) in out.chunks_exact_mut(n).zip(g.chunks_exact(n)).zip(x.chunks_exact(n)) {
            for c in whole..n {
                o[c] = (g[c] - shift[c] - (x[c] - mean[c]) * slope[c]) * scale[c];
            }
        }
    }
}
