//! Normalisation over a batch: statistics of channels, then one pass that scales and shifts.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::lanes::{Real, sum_by};
use super::lines::Shared;
use super::norm::{by_type, compute_type, finish, wide, working};
use super::{columns, pool, slice, slice_mut};
use crate::cpu::simd::simd_fn;
use crate::{DType, Result, Tensor};

/// A batch as (samples, channels, positions), in a layout whose values can be read in order.
struct Batch {
    x: Tensor,
    out: Tensor,
    rows: usize,
    channels: usize,
    size: usize,
}

/// Whether input and result lie with their channels last, in the type `c`.
#[must_use]
pub fn lies_last(out: &Tensor, x: &Tensor, c: DType) -> bool {
    !x.is_contiguous()
        && x.dtype() == c
        && out.dtype() == c
        && x.strides() == out.strides()
        && crate::dims::strides_like_channels_last(x.shape(), x.strides())
        && crate::dims::is_dense(x.shape(), x.strides())
}

/// Reads a channels-last batch as rows of channels, everything else as samples of channels of positions.
fn batch(out: &Tensor, x: &Tensor, c: DType) -> Result<Batch> {
    let channels = x.shape()[1] as usize;
    let total = x.numel() as usize;
    if lies_last(out, x, c) {
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
        x: super::copy::dense(x, c)?,
        out: working(out, c)?,
        rows,
        channels,
        size: total / (rows * channels).max(1),
    })
}

/// Means, inverse deviations and unbiased variances of each channel.
fn channel_stats<T: Real>(
    x: &[T],
    b: &Batch,
    eps: f64,
    mean: &mut [T],
    invstd: &mut [T],
    var: &mut [T],
) {
    let (rows, channels, size) = (b.rows, b.channels, b.size);
    let n = (rows * size) as f64;
    let mut sums = vec![0f64; channels];
    let mut squares = vec![0f64; channels];
    if size == 1 {
        [sums, _] = columns::sums(x, x, mean, columns::Plain);
        for (m, s) in mean.iter_mut().zip(&sums) {
            *m = T::of(s / n);
        }
        [squares, _] = columns::sums(x, x, mean, columns::Squares);
    } else {
        let (sums, squares) = (Shared::new(&mut sums), Shared::new(&mut squares));
        pool::parallel_for(channels, (16384 / (rows * size).max(1)).max(1), |range| {
            for c in range {
                // SAFETY: every channel has its own places.
                let (sum, square) =
                    unsafe { (&mut sums.part(c, 1)[0], &mut squares.part(c, 1)[0]) };
                plane_stats(x, c, [rows, channels, size], sum, square);
            }
        });
    }
    for c in 0..channels {
        mean[c] = T::of(sums[c] / n);
        invstd[c] = T::of(1.0 / (squares[c] / n + eps).sqrt());
        var[c] = T::of(squares[c] / (n - 1.0));
    }
}

simd_fn! { wide
    fn plane_stats<T: Real>(x: &[T], c: usize, dims: [usize; 3], sum: &mut f64, squares: &mut f64) {
        let [rows, channels, size] = dims;
        let planes = || (0..rows).map(move |r| &x[(r * channels + c) * size..][..size]);
        (*sum, *squares) = (0.0, 0.0);
        for p in planes() {
            *sum += sum_by(p, |v| v).f64_();
        }
        let m = T::of(*sum / (rows * size) as f64);
        for p in planes() {
            *squares += sum_by(p, |v| (v - m) * (v - m)).f64_();
        }
    }
}

simd_fn! { wide
    fn scale_plane<T: Real>(x: &[T], out: &mut [T], scale: T, shift: T) {
        for (o, &v) in out.iter_mut().zip(x) {
            *o = v * scale + shift;
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
fn apply<T: Real>(x: &[T], out: &mut [T], b: &Batch, scale: &[T], shift: &[T]) {
    let (channels, size) = (b.channels, b.size);
    let out = Shared::new(out);
    if size == 1 {
        pool::parallel_for(b.rows, (16384 / channels.max(1)).max(1), |r| {
            let (at, n) = (r.start * channels, r.len() * channels);
            // SAFETY: every row has its own part.
            scale_columns(&x[at..at + n], unsafe { out.part(at, n) }, scale, shift);
        });
    } else {
        pool::parallel_for(b.rows * channels, (16384 / size.max(1)).max(1), |range| {
            for r in range {
                let c = r % channels;
                // SAFETY: every plane has its own part.
                let plane = unsafe { out.part(r * size, size) };
                scale_plane(&x[r * size..(r + 1) * size], plane, scale[c], shift[c]);
            }
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
    let batch = batch(&outs[0], x, c)?;
    let stats = [
        working(&outs[1], c)?,
        working(&outs[2], c)?,
        working(&outs[3], c)?,
    ];
    by_type!(c, T => {
        let x = slice::<T>(&batch.x);
        let (mean, invstd, var) = (slice_mut::<T>(&stats[0]), slice_mut::<T>(&stats[1]), slice_mut::<T>(&stats[2]));
        channel_stats(x, &batch, eps, mean, invstd, var);
        let (scale, shift) = factors::<T>(mean, invstd, w.as_ref().map(slice::<T>), b.as_ref().map(slice::<T>));
        apply(x, slice_mut::<T>(&batch.out), &batch, &scale, &shift);
    });
    if !batch.out.shares_storage(&outs[0]) {
        super::copy::copy(&outs[0], &batch.out)?;
    }
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
    let batch = batch(out, x, c)?;
    by_type!(c, T => {
        let invstd: Vec<T> = slice::<T>(&var).iter().map(|&v| 1.0 / (v + eps as T).sqrt()).collect();
        let (scale, shift) = factors::<T>(slice::<T>(&mean), &invstd, w.as_ref().map(slice::<T>), b.as_ref().map(slice::<T>));
        apply(slice::<T>(&batch.x), slice_mut::<T>(&batch.out), &batch, &scale, &shift);
    });
    if batch.out.shares_storage(out) {
        Ok(())
    } else {
        super::copy::copy(out, &batch.out)
    }
}
