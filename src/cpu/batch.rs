//! Normalisation over a batch: statistics of channels, then one pass that scales and shifts.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::lanes::{Real, sum_by};
use super::lines::{self, Shared};
use super::math::RealFns;
use super::norm::{compute_type, finish, wide, working};
use super::stored::{Stored, each_piece, each_plane};
use super::{columns, pool, slice, slice_mut};
use crate::cpu::simd::simd_fn;
use crate::{Result, Tensor, with_dtype};

/// A batch as (samples, channels, positions), in a layout whose values can be read in order.
struct Batch {
    x: Tensor,
    out: Tensor,
    rows: usize,
    channels: usize,
    size: usize,
}

/// Whether input and result lie with their channels last.
#[must_use]
pub fn lies_last(out: &Tensor, x: &Tensor) -> bool {
    !x.is_contiguous()
        && x.strides() == out.strides()
        && crate::dims::strides_like_channels_last(x.shape(), x.strides())
        && crate::dims::is_dense(x.shape(), x.strides())
}

/// Reads a channels-last batch as rows of channels, everything else as samples of channels of positions.
fn batch(out: &Tensor, x: &Tensor) -> Result<Batch> {
    let channels = x.shape()[1] as usize;
    let total = x.numel() as usize;
    if lies_last(out, x) {
        let rows = total / channels.max(1);
        let flat = |t: &Tensor| {
            t.view_with(
                [rows as i64, channels as i64].into(),
                [channels as i64, 1].into(),
                t.offset(),
            )
        };
        return Ok(Batch {
            x: flat(x),
            out: flat(out),
            rows,
            channels,
            size: 1,
        });
    }
    let rows = x.shape()[0] as usize;
    Ok(Batch {
        x: super::copy::dense(x, x.dtype())?,
        out: lines::results(out, x.dtype())?,
        rows,
        channels,
        size: total / (rows * channels).max(1),
    })
}

/// Means, inverse deviations and unbiased variances of each channel.
fn channel_stats<E: Stored>(
    x: &[E],
    b: &Batch,
    eps: f64,
    mean: &mut [E::Wide],
    invstd: &mut [E::Wide],
    var: &mut [E::Wide],
) {
    let (rows, channels, size) = (b.rows, b.channels, b.size);
    let n = (rows * size) as f64;
    let of = <E::Wide as RealFns>::of;
    let mut sums = vec![0f64; channels];
    let mut squares = vec![0f64; channels];
    if size == 1 {
        [sums, _] = columns::sums(x, x, mean, columns::Plain);
        for (m, s) in mean.iter_mut().zip(&sums) {
            *m = of(s / n);
        }
        [squares, _] = columns::sums(x, x, mean, columns::Squares);
    } else {
        let (sums, squares) = (Shared::new(&mut sums), Shared::new(&mut squares));
        pool::parallel_for(channels, (16384 / (rows * size).max(1)).max(1), |range| {
            let mut rooms = [Vec::new()];
            for c in range {
                // SAFETY: every channel has its own places.
                let (sum, square) =
                    unsafe { (&mut sums.part(c, 1)[0], &mut squares.part(c, 1)[0]) };
                let sizes = [rows, channels, size];
                each_plane([x], sizes, c, &mut rooms, |[x], sizes, c| {
                    *sum += plain_sum(x, sizes, c);
                });
                let mean = of(*sum / n);
                each_plane([x], sizes, c, &mut rooms, |[x], sizes, c| {
                    *square += square_sum(x, sizes, c, mean);
                });
            }
        });
    }
    for c in 0..channels {
        mean[c] = of(sums[c] / n);
        invstd[c] = of(1.0 / (squares[c] / n + eps).sqrt());
        var[c] = of(squares[c] / (n - 1.0));
    }
}

/// The planes of a channel.
#[inline(always)]
fn planes<T>(x: &[T], sizes: [usize; 3], c: usize) -> impl Iterator<Item = &[T]> {
    let [rows, channels, size] = sizes;
    (0..rows).map(move |r| &x[(r * channels + c) * size..][..size])
}

simd_fn! { wide
    /// The sum of a channel.
    fn plain_sum<T: Real>(x: &[T], sizes: [usize; 3], c: usize) -> f64 {
        let mut sum = 0.0;
        for p in planes(x, sizes, c) {
            sum += sum_by(p, |v| v).f64_();
        }
        sum
    }
}

simd_fn! { wide
    /// The sum of the squares of a channel's distances from a mean.
    fn square_sum<T: Real>(x: &[T], sizes: [usize; 3], c: usize, mean: T) -> f64 {
        let mut sum = 0.0;
        for p in planes(x, sizes, c) {
            sum += sum_by(p, |v| (v - mean) * (v - mean)).f64_();
        }
        sum
    }
}

simd_fn! { wide
    /// Scales and shifts planes from plane `first` on, by the numbers of their channels.
    fn scale_planes<T: Real>(x: &[T], planes: [usize; 2], out: &mut [T], scale: &[T], shift: &[T]) {
        let [first, size] = planes;
        for (i, (x, out)) in x.chunks_exact(size).zip(out.chunks_exact_mut(size)).enumerate() {
            let c = (first + i) % scale.len();
            let (scale, shift) = (scale[c], shift[c]);
            for (o, &v) in out.iter_mut().zip(x) {
                *o = v * scale + shift;
            }
        }
    }
}

simd_fn! { wide
    fn scale_columns<T: Real>(x: &[T], out: &mut [T], scale: &[T], shift: &[T]) {
        for (x, o) in x.chunks_exact(scale.len()).zip(out.chunks_exact_mut(scale.len())) {
            for (((o, &v), &a), &b) in o.iter_mut().zip(x).zip(scale).zip(shift) {
                *o = v * a + b;
            }
        }
    }
}

/// Scales and shifts each channel.
fn apply<E: Stored>(x: &[E], out: &mut [E], b: &Batch, scale: &[E::Wide], shift: &[E::Wide]) {
    if b.size == 1 {
        each_piece([x], out, b.channels, |[x], _, out| {
            scale_columns(x, out, scale, shift);
        });
    } else {
        each_piece([x], out, b.size, |[x], first, out| {
            scale_planes(x, [first, b.size], out, scale, shift);
        });
    }
}

fn factors<T: Real>(
    mean: &[T],
    invstd: &[T],
    w: Option<&[T]>,
    b: Option<&[T]>,
) -> (Vec<T>, Vec<T>) {
    let scale: Vec<T> = invstd
        .iter()
        .enumerate()
        .map(|(c, &s)| w.map_or(s, |w| s * w[c]))
        .collect();
    let shift = scale
        .iter()
        .zip(mean)
        .enumerate()
        .map(|(c, (&s, &m))| b.map_or(T::of(0.0), |b| b[c]) - m * s)
        .collect();
    (scale, shift)
}

/// batch_norm with the batch's own statistics: result, means, inverse deviations, unbiased variances.
///
/// # Errors
/// If memory cannot be had.
pub fn batch_norm_train(
    outs: &[Tensor],
    x: &Tensor,
    w: Option<&Tensor>,
    b: Option<&Tensor>,
    eps: f64,
) -> Result<()> {
    let c = compute_type(x.dtype());
    let (w, b) = (wide(w, c)?, wide(b, c)?);
    let batch = batch(&outs[0], x)?;
    let stats = [
        working(&outs[1], c)?,
        working(&outs[2], c)?,
        working(&outs[3], c)?,
    ];
    with_dtype!(x.dtype(), [half float] => E, {
        type T = <E as Stored>::Wide;
        let x = slice::<E>(&batch.x);
        let (mean, invstd, var) = (slice_mut::<T>(&stats[0]), slice_mut::<T>(&stats[1]), slice_mut::<T>(&stats[2]));
        channel_stats(x, &batch, eps, mean, invstd, var);
        let (scale, shift) = factors::<T>(mean, invstd, w.as_ref().map(slice::<T>), b.as_ref().map(slice::<T>));
        apply(x, slice_mut::<E>(&batch.out), &batch, &scale, &shift);
    }, else {});
    lines::put(&outs[0], &batch.out)?;
    outs[1..]
        .iter()
        .zip(&stats)
        .try_for_each(|(o, r)| finish(o, r))
}

/// batch_norm with given statistics.
///
/// # Errors
/// If memory cannot be had.
pub fn batch_norm_eval(
    out: &Tensor,
    x: &Tensor,
    mean: &Tensor,
    var: &Tensor,
    w: Option<&Tensor>,
    b: Option<&Tensor>,
    eps: f64,
) -> Result<()> {
    let c = compute_type(x.dtype());
    let (w, b, mean, var) = (
        wide(w, c)?,
        wide(b, c)?,
        super::copy::dense(mean, c)?,
        super::copy::dense(var, c)?,
    );
    let batch = batch(out, x)?;
    with_dtype!(x.dtype(), [half float] => E, {
        type T = <E as Stored>::Wide;
        let invstd: Vec<T> = slice::<T>(&var).iter().map(|&v| 1.0 / (v + eps as T).sqrt()).collect();
        let (scale, shift) = factors::<T>(slice::<T>(&mean), &invstd, w.as_ref().map(slice::<T>), b.as_ref().map(slice::<T>));
        apply(slice::<E>(&batch.x), slice_mut::<E>(&batch.out), &batch, &scale, &shift);
    }, else {});
    lines::put(out, &batch.out)
}
