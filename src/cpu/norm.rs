//! Normalisations: statistics of rows or channels, then one pass that scales and shifts.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::lanes::{Real, sum_by};
use super::lines::{self, Shared};
use super::room::Room;
use super::stored::{Stored, each_line, each_piece};
use super::turned::{LONGEST, Tile, WIDTH, returned, turned};
use super::{slice, slice_mut};
use crate::cpu::simd::simd_fn;
use crate::{DType, Device, Result, Tensor, with_dtype};

/// The type that a normalisation of `d` computes in.
#[must_use]
pub fn compute_type(d: DType) -> DType {
    if d == DType::F64 {
        DType::F64
    } else {
        DType::F32
    }
}

/// Calls a generic function for the compute type: `by_type!(dtype, T => body)`.
macro_rules! by_type {
    ($d:expr, $T:ident => $body:expr) => {
        if $d == DType::F64 {
            type $T = f64;
            $body
        } else {
            type $T = f32;
            $body
        }
    };
}
pub(super) use by_type;

/// A result in the compute type: the result itself if it fits, else a tensor to be copied there.
pub(super) fn working(out: &Tensor, compute: DType) -> Result<Tensor> {
    if out.dtype() == compute && out.is_contiguous() {
        Ok(out.clone())
    } else {
        Tensor::empty(out.shape(), compute, Device::CPU)
    }
}

pub(super) fn finish(out: &Tensor, result: &Tensor) -> Result<()> {
    if result.shares_storage(out) {
        Ok(())
    } else {
        super::copy::copy(out, result)
    }
}

pub(super) fn wide(t: Option<&Tensor>, compute: DType) -> Result<Option<Tensor>> {
    t.map(|t| super::copy::dense(t, compute)).transpose()
}

/// Follows what the normalisations of rows take.
///
/// # Errors
/// If a size overflows.
pub fn scratch<'t>(
    room: &mut Room,
    x: &Tensor,
    parameters: impl IntoIterator<Item = Option<&'t Tensor>>,
    outs: &'t [Tensor],
) -> Result<()> {
    let c = compute_type(x.dtype());
    room.operands([Some(x)], &outs[..1], x.dtype())?;
    room.operands(parameters, &outs[1..], c)
}

/// layer_norm over the last `n` elements: `outs` are the result, the means and the inverse deviations.
///
/// # Errors
/// If memory cannot be had.
pub fn layer_norm(
    outs: &[Tensor],
    x: &Tensor,
    w: Option<&Tensor>,
    b: Option<&Tensor>,
    n: usize,
    eps: f64,
) -> Result<()> {
    normalise(outs, x, [w, b], Parameters::Elements { n }, eps)
}

/// What weights and biases belong to.
#[derive(Clone, Copy)]
enum Parameters {
    /// Each to an element of a row.
    Elements { n: usize },
    /// Each to a channel of `size` positions; a row has `per` of them, the next of `groups`.
    Channels {
        groups: usize,
        per: usize,
        size: usize,
    },
}

/// Normalises rows: `outs` are the result, the means and the inverse deviations.
fn normalise(
    outs: &[Tensor],
    x: &Tensor,
    [w, b]: [Option<&Tensor>; 2],
    parameters: Parameters,
    eps: f64,
) -> Result<()> {
    let (dtype, c) = (x.dtype(), compute_type(x.dtype()));
    let (x, w, b) = (super::copy::dense(x, dtype)?, wide(w, c)?, wide(b, c)?);
    let result = lines::results(&outs[0], dtype)?;
    let (mean, rstd) = (working(&outs[1], c)?, working(&outs[2], c)?);
    let n = match parameters {
        Parameters::Elements { n } => n,
        Parameters::Channels { per, size, .. } => per * size,
    };
    with_dtype!(dtype, [half float] => E, {
        type T = <E as Stored>::Wide;
        let (w, b) = (w.as_ref().map(slice::<T>), b.as_ref().map(slice::<T>));
        let (means, rstds) = (Shared::new(slice_mut::<T>(&mean)), Shared::new(slice_mut::<T>(&rstd)));
        let sizes = [mean.numel() as usize, n];
        if matches!(parameters, Parameters::Elements { .. }) && (1..=LONGEST).contains(&n) {
            each_piece([slice::<E>(&x)], slice_mut::<E>(&result), n, |[x], first, out| {
                let lines = x.len() / n;
                // SAFETY: every line has its own parts.
                let stats = unsafe { [means.part(first, lines), rstds.part(first, lines)] };
                short_lines(x, out, n, [w, b], eps as T, true, stats);
            });
        } else {
            each_line(slice::<E>(&x), slice_mut::<E>(&result), sizes, |r, x, out| {
                // SAFETY: every row has its own parts.
                let (m, s) = unsafe { (&mut means.part(r, 1)[0], &mut rstds.part(r, 1)[0]) };
                match parameters {
                    Parameters::Elements { .. } => layer_row(x, out, w, b, eps as T, m, s),
                    Parameters::Channels { groups, per, size } => {
                        let first = r % groups * per;
                        let (w, b) = (w.map(|w| &w[first..first + per]), b.map(|b| &b[first..first + per]));
                        group_row(x, out, w, b, size, eps as T, m, s);
                    }
                }
            });
        }
    }, else {});
    lines::put(&outs[0], &result)?;
    finish(&outs[1], &mean)?;
    finish(&outs[2], &rstd)
}

/// Mean and inverse deviation of a row.
#[inline(always)]
fn moments<T: Real>(x: &[T], eps: T) -> (T, T) {
    let n = T::of(x.len() as f64);
    let mean = sum_by(x, |v| v) / n;
    let var = sum_by(x, |v| (v - mean) * (v - mean)) / n;
    (mean, T::of(1.0) / (var + eps).sqrt_())
}

simd_fn! { wide
    fn layer_row<T: Real>(x: &[T], out: &mut [T], w: Option<&[T]>, b: Option<&[T]>, eps: T, mean: &mut T, rstd: &mut T) {
        let (m, s) = moments(x, eps);
        (*mean, *rstd) = (m, s);
        match (w, b) {
            (Some(w), Some(b)) => {
                for (((o, &v), &w), &b) in out.iter_mut().zip(x).zip(w).zip(b) {
                    *o = (v - m) * s * w + b;
                }
            }
            (Some(w), None) => {
                for ((o, &v), &w) in out.iter_mut().zip(x).zip(w) {
                    *o = (v - m) * s * w;
                }
            }
            (None, b) => {
                for (o, &v) in out.iter_mut().zip(x) {
                    *o = (v - m) * s;
                }
                for (o, &b) in out.iter_mut().zip(b.unwrap_or(&[])) {
                    *o += b;
                }
            }
        }
    }
}

simd_fn! { wide
    /// Short lines, normalised side by side, around their means if they are `centred`; `stats`, as far as there is room, take
    /// means and inverse deviations.
    fn short_lines<T: Real>(x: &[T], out: &mut [T], n: usize, parameters: [Option<&[T]>; 2], eps: T, centred: bool, stats: [&mut [T]; 2]) {
        let (zero, count, [w, b]) = (T::of(0.0), T::of(n as f64), parameters);
        let mut tile: Tile<T> = [zero; LONGEST * WIDTH];
        let mut stats = stats.map(|s| s.chunks_mut(WIDTH));
        for (x, out) in x.chunks(n * WIDTH).zip(out.chunks_mut(n * WIDTH)) {
            let width = turned(x, n, &mut tile);
            let columns = &mut tile[..n * width];
            let (mut mean, mut factor) = ([zero; WIDTH], [zero; WIDTH]);
            if centred {
                for row in columns.chunks_exact(width) {
                    for (m, &v) in mean.iter_mut().zip(row) {
                        *m += v;
                    }
                }
                mean.iter_mut().for_each(|m| *m = *m / count);
            }
            for row in columns.chunks_exact(width) {
                for ((s, &m), &v) in factor.iter_mut().zip(&mean).zip(row) {
                    *s += (v - m) * (v - m);
                }
            }
            factor.iter_mut().for_each(|s| *s = T::of(1.0) / (*s / count + eps).sqrt_());
            for (j, row) in columns.chunks_exact_mut(width).enumerate() {
                let w = w.map_or(T::of(1.0), |w| w[j]);
                for ((v, &m), &s) in row.iter_mut().zip(&mean).zip(&factor) {
                    *v = (*v - m) * s * w;
                }
                if let Some(b) = b {
                    row.iter_mut().for_each(|v| *v += b[j]);
                }
            }
            returned(&tile, [n, width], out);
            for (to, from) in stats.iter_mut().zip([&mean, &factor]) {
                if let Some(to) = to.next() {
                    to.copy_from_slice(&from[..to.len()]);
                }
            }
        }
    }
}

/// rms_norm over the last `n` elements; `rstd` takes the inverse root mean squares.
///
/// # Errors
/// If memory cannot be had.
pub fn rms_norm(
    out: &Tensor,
    rstd: Option<&Tensor>,
    x: &Tensor,
    w: Option<&Tensor>,
    n: usize,
    eps: f64,
) -> Result<()> {
    let (dtype, c) = (x.dtype(), compute_type(x.dtype()));
    let (x, w) = (super::copy::dense(x, dtype)?, wide(w, c)?);
    let result = lines::results(out, dtype)?;
    let stats = rstd.map(|r| working(r, c)).transpose()?;
    with_dtype!(dtype, [half float] => E, {
        type T = <E as Stored>::Wide;
        let w = w.as_ref().map(slice::<T>);
        let stats = stats.as_ref().map(|s| Shared::new(slice_mut::<T>(s)));
        let x = slice::<E>(&x);
        let rows = x.len().checked_div(n).unwrap_or(0);
        if (1..=LONGEST).contains(&n) {
            each_piece([x], slice_mut::<E>(&result), n, |[x], first, out| {
                // SAFETY: every line has its own part.
                let stats = stats.map(|s| unsafe { s.part(first, x.len() / n) });
                let stats = [&mut [][..], stats.unwrap_or_default()];
                short_lines(x, out, n, [w, None], eps as T, false, stats);
            });
        } else {
            each_line(x, slice_mut::<E>(&result), [rows, n], |r, x, out| {
                let s = rms_row(x, out, w, eps as T);
                if let Some(stats) = stats {
                    // SAFETY: every row has its own part.
                    let place = unsafe { stats.part(r, 1) };
                    place[0] = s;
                }
            });
        }
    }, else {});
    lines::put(out, &result)?;
    rstd.zip(stats.as_ref())
        .map_or(Ok(()), |(r, s)| finish(r, s))
}

simd_fn! { wide
    /// Normalises a row; gives the factor.
    fn rms_row<T: Real>(x: &[T], out: &mut [T], w: Option<&[T]>, eps: T) -> T {
        let mean = sum_by(x, |v| v * v) / T::of(x.len() as f64);
        let s = T::of(1.0) / (mean + eps).sqrt_();
        match w {
            Some(w) => {
                for ((o, &v), &w) in out.iter_mut().zip(x).zip(w) {
                    *o = v * s * w;
                }
            }
            None => {
                for (o, &v) in out.iter_mut().zip(x) {
                    *o = v * s;
                }
            }
        }
        s
    }
}

/// group_norm of `x` read as (batch, groups, channels of a group, positions): result, means, inverse deviations.
///
/// # Errors
/// If memory cannot be had.
pub fn group_norm(
    outs: &[Tensor],
    x: &Tensor,
    w: Option<&Tensor>,
    b: Option<&Tensor>,
    [batch, groups, per, size]: [usize; 4],
    eps: f64,
) -> Result<()> {
    debug_assert_eq!(x.numel() as usize, batch * groups * per * size);
    normalise(
        outs,
        x,
        [w, b],
        Parameters::Channels { groups, per, size },
        eps,
    )
}

simd_fn! { wide
    fn group_row<T: Real>(x: &[T], out: &mut [T], w: Option<&[T]>, b: Option<&[T]>, size: usize, eps: T, mean: &mut T, rstd: &mut T) {
        let (m, s) = moments(x, eps);
        (*mean, *rstd) = (m, s);
        if size == 0 {
            return;
        }
        for (i, (x, o)) in x.chunks_exact(size).zip(out.chunks_exact_mut(size)).enumerate() {
            let scale = w.map_or(s, |w| s * w[i]);
            let shift = b.map_or(T::of(0.0), |b| b[i]) - m * scale;
            for (o, &v) in o.iter_mut().zip(x) {
                *o = v * scale + shift;
            }
        }
    }
}

/// The mean of the squares over a window of channels, zeros outside counting: what local_response_norm divides by.
///
/// # Errors
/// If memory cannot be had.
pub fn window_squares(out: &Tensor, x: &Tensor, window: usize) -> Result<()> {
    let x = super::copy::dense(x, DType::F64)?;
    let result = working(out, DType::F64)?;
    let (rows, channels) = (x.shape()[0] as usize, x.shape()[1] as usize);
    let size = x.numel() as usize / (rows * channels).max(1);
    let (from, to) = (slice::<f64>(&x), slice_mut::<f64>(&result));
    for r in 0..rows {
        for c in 0..channels {
            let (first, last) = (
                c.saturating_sub(window / 2),
                (c + (window - 1) / 2).min(channels - 1),
            );
            for s in 0..size {
                let at = |c: usize| from[(r * channels + c) * size + s];
                to[(r * channels + c) * size + s] =
                    (first..=last).map(|c| at(c) * at(c)).sum::<f64>() / window as f64;
            }
        }
    }
    finish(out, &result)
}
