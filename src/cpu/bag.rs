//! Sums, means and maxima of rows that index lists choose; bilinear forms.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::{slice, slice_mut};
use crate::{DType, Device, Result, Tensor, ensure};

/// How the rows of a bag are joined.
pub struct Bag<'a> {
    /// The rows.
    pub weight: &'a Tensor,
    /// Row numbers, all bags after each other.
    pub indices: &'a Tensor,
    /// Where each bag starts.
    pub offsets: &'a Tensor,
    /// 0: sum, 1: mean, 2: maximum.
    pub mode: i64,
    /// A factor for each index.
    pub factors: Option<&'a Tensor>,
    /// A row that does not count.
    pub padding: Option<i64>,
}

/// Joins the rows of each bag: result, bag of each index, sizes of the bags, chosen rows of maxima.
///
/// # Errors
/// If a row number or offset is out of range.
pub fn bags(outs: &[Tensor], b: &Bag) -> Result<()> {
    let compute = super::norm::compute_type(b.weight.dtype());
    let w = super::copy::dense(b.weight, compute)?;
    let (indices, offsets) = (
        super::copy::dense(b.indices, DType::I64)?,
        super::copy::dense(b.offsets, DType::I64)?,
    );
    let factors = b
        .factors
        .map(|f| super::copy::dense(f, DType::F64))
        .transpose()?;
    let (indices, offsets) = (slice::<i64>(&indices), slice::<i64>(&offsets));
    let (rows, width) = (w.shape()[0], w.shape()[1] as usize);
    let n = outs[0].shape()[0] as usize;
    if let Some(&first) = offsets.first() {
        ensure!(
            first == 0,
            Runtime,
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got {first}"
        );
        let last = offsets[offsets.len() - 1];
        ensure!(
            last <= indices.len() as i64,
            Runtime,
            "offsets[-1] can not be greater than input's length {} but got offsets[-1] of {last}",
            indices.len()
        );
    }
    ensure!(
        indices.iter().all(|&i| i >= 0 && i < rows),
        Runtime,
        "Expected i < index_size to be true, but got false.  (Could this error message be improved?  If so, please report an \
         enhancement request to PyTorch.)"
    );
    let result = Tensor::empty(outs[0].shape(), DType::F64, Device::CPU)?;
    let to = slice_mut::<f64>(&result);
    let mut bag_of = vec![0i64; indices.len()];
    let mut sizes = vec![0i64; n];
    let mut chosen = vec![if b.mode == 2 { -1i64 } else { 0 }; n * width];
    let at = |row: usize, c: usize| -> f64 {
        if compute == DType::F64 {
            slice::<f64>(&w)[row * width + c]
        } else {
            f64::from(slice::<f32>(&w)[row * width + c])
        }
    };
    for bag in 0..n {
        let start = (offsets[bag].max(0) as usize).min(indices.len());
        let end = offsets
            .get(bag + 1)
            .map_or(indices.len(), |&e| (e.max(0) as usize).min(indices.len()))
            .max(start);
        let out = &mut to[bag * width..(bag + 1) * width];
        out.fill(0.0);
        for (k, &i) in indices[start..end].iter().enumerate() {
            bag_of[start + k] = bag as i64;
            if Some(i) == b.padding {
                continue;
            }
            let factor = factors.as_ref().map_or(1.0, |f| slice::<f64>(f)[start + k]);
            for (c, o) in out.iter_mut().enumerate() {
                let v = at(i as usize, c) * factor;
                if b.mode != 2 {
                    *o += v;
                } else if sizes[bag] == 0 || v > *o {
                    *o = v;
                    chosen[bag * width + c] = i;
                }
            }
            sizes[bag] += 1;
        }
        if b.mode == 1 && sizes[bag] > 1 {
            out.iter_mut().for_each(|o| *o /= sizes[bag] as f64);
        }
    }
    super::copy::copy(&outs[0], &result)?;
    let longs = |out: &Tensor, v: &[i64]| -> Result<()> {
        let len = out.numel() as usize;
        let t = Tensor::from_slice(&v[..len.min(v.len())], &[len.min(v.len()) as i64])?;
        if len == t.numel() as usize {
            super::copy::copy(
                out,
                &t.view_with(
                    out.shape().clone(),
                    crate::dims::contiguous_strides(out.shape()),
                    0,
                ),
            )
        } else {
            Ok(())
        }
    };
    longs(&outs[1], &bag_of)?;
    longs(&outs[2], &sizes)?;
    if b.mode == 2 {
        longs(&outs[3], &chosen)
    } else {
        longs(&outs[3], &sizes)
    }
}

/// x A y + b for each pair of rows and each matrix A of `weight`.
///
/// # Errors
/// If memory cannot be had.
pub fn bilinear(
    out: &Tensor,
    x: &Tensor,
    y: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
) -> Result<()> {
    let dense = |t: &Tensor| super::copy::dense(t, DType::F64);
    let (x, y, w) = (dense(x)?, dense(y)?, dense(weight)?);
    let bias = bias.map(dense).transpose()?;
    let (o, i, j) = (
        w.shape()[0] as usize,
        w.shape()[1] as usize,
        w.shape()[2] as usize,
    );
    let result = Tensor::empty(out.shape(), DType::F64, Device::CPU)?;
    let (x, y, w) = (slice::<f64>(&x), slice::<f64>(&y), slice::<f64>(&w));
    let to = super::lines::Shared::new(slice_mut::<f64>(&result));
    let rows = (out.numel() as usize).checked_div(o).unwrap_or(0);
    super::pool::parallel_for(rows, (16384 / (o * i * j).max(1)).max(1), |range| {
        for r in range {
            let (x, y) = (&x[r * i..][..i], &y[r * j..][..j]);
            // SAFETY: every bag has its own row.
            let row = unsafe { to.part(r * o, o) };
            for (k, v) in row.iter_mut().enumerate() {
                let start = bias.as_ref().map_or(0.0, |b| slice::<f64>(b)[k]);
                *v = (0..i).fold(start, |s, a| {
                    let row = &w[(k * i + a) * j..][..j];
                    s + x[a] * super::lanes::sum2_by(row, y, |p, q| p * q)
                });
            }
        }
    });
    super::copy::copy(out, &result)
}
