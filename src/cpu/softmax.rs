//! softmax and log_softmax along one dimension.

use super::lanes::{Real, Shared, max_of, sum_by};
use super::{pool, slice, slice_mut};
use crate::{DType, Device, Result, Tensor, wide_fn};

/// Writes the softmax of `x` along `dim`, or its logarithm, into `out`, whose dtype decides that of the arithmetic.
///
/// # Errors
/// If memory cannot be had.
pub fn softmax(out: &Tensor, x: &Tensor, dim: usize, log: bool) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let compute = if out.dtype() == DType::F64 {
        DType::F64
    } else {
        DType::F32
    };
    let x = super::copy::dense(x, out.dtype())?;
    let x = super::copy::dense(&x, compute)?;
    let direct = out.is_contiguous() && out.dtype() == compute;
    let result = if direct {
        out.clone()
    } else {
        Tensor::empty(x.shape(), compute, Device::CPU)?
    };
    let n = x.shape().get(dim).map_or(1, |&n| n as usize);
    let inner: usize = x
        .shape()
        .iter()
        .skip(dim + 1)
        .map(|&d| d as usize)
        .product();
    if compute == DType::F64 {
        run(slice::<f64>(&x), slice_mut::<f64>(&result), n, inner, log);
    } else {
        run(slice::<f32>(&x), slice_mut::<f32>(&result), n, inner, log);
    }
    if direct {
        Ok(())
    } else {
        super::copy::copy(out, &result)
    }
}

fn run<T: Real>(x: &[T], out: &mut [T], n: usize, inner: usize, log: bool) {
    let outer = x.len() / (n * inner);
    let grain = (8192 / (n * inner).max(1)).max(1);
    let shared = Shared::new(out);
    pool::parallel_for(outer, grain, |rows| {
        for r in rows {
            let (at, len) = (r * n * inner, n * inner);
            let (x, out) = (&x[at..at + len], shared.part(at, len));
            match (inner == 1, log) {
                (true, false) => row(x, out),
                (true, true) => log_row(x, out),
                (false, _) => columns(x, out, inner, log),
            }
        }
    });
}

wide_fn! {
    fn row<T: Real>(x: &[T], out: &mut [T]) {
        let m = max_of(x);
        for (o, &v) in out.iter_mut().zip(x) {
            *o = (v - m).exp_();
        }
        let scale = T::of(1.0) / sum_by(out, |v| v);
        for o in out {
            *o = *o * scale;
        }
    }
}

wide_fn! {
    fn log_row<T: Real>(x: &[T], out: &mut [T]) {
        let m = max_of(x);
        let log_sum = sum_by(x, |v| (v - m).exp_()).log_();
        for (o, &v) in out.iter_mut().zip(x) {
            *o = (v - m) - log_sum;
        }
    }
}

wide_fn! {
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
