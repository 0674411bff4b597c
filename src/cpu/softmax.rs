//! softmax, log_softmax and log-sum-exp along one dimension.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::lanes::{Real, SHORT, Term, max_of, sum_by};
use super::lines::{self, Shared};
use super::stored::each_line;
use super::{pool, slice, slice_mut};
use crate::cpu::room::Room;
use crate::cpu::simd::simd_fn;
use crate::{DType, Result, Tensor, with_dtype};

/// Writes the softmax of `x` along `dim`, or its logarithm, into `out`, whose dtype decides that of the arithmetic.
///
/// # Errors
/// If memory cannot be had.
pub fn softmax(out: &Tensor, x: &Tensor, dim: usize, log: bool) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let x = super::copy::dense(x, out.dtype())?;
    let n = x.shape().get(dim).map_or(1, |&n| n as usize);
    let inner: usize = x
        .shape()
        .iter()
        .skip(dim + 1)
        .map(|&d| d as usize)
        .product();
    if inner == 1 {
        let result = lines::results(out, out.dtype())?;
        with_dtype!(out.dtype(), [half float] => E, {
            let (x, out) = (slice::<E>(&x), slice_mut::<E>(&result));
            each_line(x, out, [x.len() / n, n], |_, x, out| {
                if log { log_row(x, out) } else { row(x, out) }
            });
        }, else {});
        return lines::put(out, &result);
    }
    if out.dtype() == DType::F64 {
        let result = lines::results(out, DType::F64)?;
        columns_of(slice::<f64>(&x), slice_mut(&result), n, inner, log);
        return lines::put(out, &result);
    }
    let x = super::copy::dense(&x, DType::F32)?;
    let result = lines::results(out, DType::F32)?;
    columns_of(slice::<f32>(&x), slice_mut(&result), n, inner, log);
    lines::put(out, &result)
}

/// Follows what [`softmax`] takes.
///
/// # Errors
/// If a size overflows.
pub fn scratch(room: &mut Room, out: &Tensor, x: &Tensor, dim: usize) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let x = room.dense(x, out.dtype())?;
    let inner: i64 = x.shape().iter().skip(dim + 1).product();
    if inner == 1 || out.dtype() == DType::F64 {
        return room.dense(out, out.dtype()).map(drop);
    }
    room.all_dense([Some(&x), Some(out)], DType::F32)
}

fn columns_of<T: Real>(x: &[T], out: &mut [T], n: usize, inner: usize, log: bool) {
    let outer = x.len() / (n * inner);
    let grain = (8192 / (n * inner).max(1)).max(1);
    let shared = Shared::new(out);
    pool::parallel_for(outer, grain, |range| {
        for r in range {
            let (at, len) = (r * n * inner, n * inner);
            // SAFETY: every matrix has its own part.
            columns(
                &x[at..at + len],
                unsafe { shared.part(at, len) },
                inner,
                log,
            );
        }
    });
}

simd_fn! { wide
    fn row<T: Real>(x: &[T], out: &mut [T]) {
        let m = max_of(x);
        if x.len() <= SHORT {
            // All lanes of a vector cost as much as one.
            let mut lanes = [m; SHORT];
            lanes[..x.len()].copy_from_slice(x);
            for v in &mut lanes {
                *v = (*v - m).exp_();
            }
            out.copy_from_slice(&lanes[..x.len()]);
        } else {
            for (o, &v) in out.iter_mut().zip(x) {
                *o = (v - m).exp_();
            }
        }
        let scale = T::of(1.0) / sum_by(out, |v| v);
        for o in out {
            *o = *o * scale;
        }
    }
}

/// The exponential of the difference to a number.
#[derive(Clone, Copy)]
struct ExpBelow<T>(T);

impl<T: Real> Term<T> for ExpBelow<T> {
    #[inline(always)]
    fn term(self, v: T) -> T {
        (v - self.0).exp_()
    }
}

simd_fn! { wide
    fn log_row<T: Real>(x: &[T], out: &mut [T]) {
        let m = max_of(x);
        let log_sum = sum_by(x, ExpBelow(m)).log_();
        for (o, &v) in out.iter_mut().zip(x) {
            *o = (v - m) - log_sum;
        }
    }
}

simd_fn! { wide
    fn columns<T: Real>(x: &[T], out: &mut [T], inner: usize, log: bool) {
        const WIDTH: usize = 64;
        let mut start = 0;
        while start < inner {
            let w = WIDTH.min(inner - start);
            let (mut m, mut s) = ([T::LOWEST; WIDTH], [T::of(0.0); WIDTH]);
            for row in x.chunks_exact(inner) {
                for (m, &v) in m.iter_mut().zip(&row[start..start + w]) {
                    *m = if v > *m { v } else { *m };
                }
            }
            for (row, o) in x.chunks_exact(inner).zip(out.chunks_exact_mut(inner)) {
                let (row, o) = (&row[start..start + w], &mut o[start..start + w]);
                for j in 0..w {
                    let e = (row[j] - m[j]).exp_();
                    s[j] += e;
                    o[j] = if log { row[j] - m[j] } else { e };
                }
            }
            for s in &mut s[..w] {
                *s = if log { s.log_() } else { T::of(1.0) / *s };
            }
            for o in out.chunks_exact_mut(inner) {
                for (o, &s) in o[start..start + w].iter_mut().zip(&s) {
                    *o = if log { *o - s } else { *o * s };
                }
            }
            start += w;
        }
    }
}

/// Elements of a line that are summed in one go.
const PART: usize = 8192;

simd_fn! { wide
    /// The largest element, and the sum of the exponentials of the differences to it (to 0 if it is infinite).
    fn exp_part<T: Real>(x: &[T], out: &mut (T, T)) {
        let top = max_of(x);
        let shift = shift_of(top);
        *out = (top, sum_by(x, ExpBelow(shift)));
    }
}

/// The number that is subtracted before the exponential.
#[inline(always)]
fn shift_of<T: Real>(top: T) -> T {
    if top - top == T::of(0.0) {
        top
    } else {
        T::of(0.0)
    }
}

/// The logarithm of the sum of exponentials of each line of `n` elements.
pub fn log_sum_exp<T: Real>(x: &[T], n: usize, out: &mut [T]) {
    let parts = n.div_ceil(PART);
    let zero = (T::of(0.0), T::of(0.0));
    let total = |parts: &[(T, T)]| -> T {
        let top = parts
            .iter()
            .fold(T::LOWEST, |m, p| if p.0 > m { p.0 } else { m });
        let shift = shift_of(top).f64_();
        let mut sum = 0.0;
        for &(top, s) in parts {
            // A part without a finite element adds nothing, whatever the scale.
            if s != T::of(0.0) {
                sum += s.f64_() * (shift_of(top).f64_() - shift).exp();
            }
        }
        T::of(sum.ln() + shift)
    };
    if parts == 1 {
        return super::lines::for_each(x, n, out, 1, |_, line, o| {
            let mut part = [zero];
            exp_part(line, &mut part[0]);
            o[0] = total(&part);
        });
    }
    let mut all = vec![zero; parts * out.len()];
    let shared = Shared::new(&mut all);
    pool::parallel_for(parts * out.len(), 1, |range| {
        for k in range {
            let (line, at) = (k / parts * n, k % parts * PART);
            let part = &x[line + at..line + n.min(at + PART)];
            // SAFETY: every task has its own element.
            exp_part(part, unsafe { &mut shared.part(k, 1)[0] });
        }
    });
    for (o, parts) in out.iter_mut().zip(all.chunks_exact(parts)) {
        *o = total(parts);
    }
}

#[cfg(test)]
mod tests {
    use super::log_sum_exp;

    #[test]
    fn long_lines_are_summed_in_parts() {
        let n = 20_000;
        let mut x = vec![0.5f32; 4 * n];
        x[3] = 90.0;
        x[n..2 * n].fill(f32::NEG_INFINITY);
        x[2 * n + 5] = f32::INFINITY;
        x[3 * n + 19_999] = f32::NAN;
        let mut out = [0f32; 4];
        log_sum_exp(&x, n, &mut out);
        assert!((out[0] - 90.0).abs() < 1e-5);
        assert_eq!(out[1], f32::NEG_INFINITY);
        assert_eq!(out[2], f32::INFINITY);
        assert!(out[3].is_nan());
        log_sum_exp(&x[4..n], n - 4, &mut out[..1]);
        assert!((f64::from(out[0]) - (0.5 + (n as f64 - 4.0).ln())).abs() < 1e-5);
    }
}
