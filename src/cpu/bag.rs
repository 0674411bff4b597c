//! Sums, means and maxima of rows that index lists choose; bilinear forms.

#![allow(unsafe_code, reason = "tasks write disjoint parts of a result")]

use super::norm::by_type;
use super::{copy, slice, slice_mut};
use crate::{DType, Device, Result, Tensor, bail, ensure};

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

impl Bag<'_> {
    /// Whether PyTorch asks a library that knows where every bag ends, by the offsets alone.
    fn is_by_offsets(&self) -> bool {
        !self.is_max() && self.padding.is_none() && self.weight.dtype() != DType::F64
    }

    fn is_max(&self) -> bool {
        self.mode == 2
    }
}

/// The same with its numbers at hand.
struct Rows<'a, T> {
    bag: &'a Bag<'a>,
    weight: &'a [T],
    width: usize,
    indices: &'a [i64],
    offsets: &'a [i64],
    factors: Option<&'a [f64]>,
}

/// Joins the rows of each bag: result, bag of each index, sizes of the bags, chosen rows of maxima.
///
/// # Errors
/// If a row number or offset is out of range.
pub fn bags(outs: &[Tensor], b: &Bag) -> Result<()> {
    let compute = super::norm::compute_type(b.weight.dtype());
    let weight = copy::dense(b.weight, compute)?;
    let indices = copy::dense(b.indices, DType::I64)?;
    let offsets = copy::dense(b.offsets, DType::I64)?;
    let factors = b.factors.map(|f| copy::dense(f, DType::F64)).transpose()?;
    let (indices, offsets) = (slice::<i64>(&indices), slice::<i64>(&offsets));
    check(b, indices, offsets)?;
    // Elsewhere the last bag goes on to the end, whatever the last offset says.
    let bags = outs[0].shape()[0] as usize;
    let known = if b.is_by_offsets() {
        offsets.len()
    } else {
        bags
    };
    let offsets = &offsets[..known.min(offsets.len())];
    let width = weight.shape()[1] as usize;
    let factors = factors.as_ref().map(slice::<f64>);
    by_type!(compute, T => {
        let weight = slice::<T>(&weight);
        Rows { bag: b, weight, width, indices, offsets, factors }.all(outs)
    })
}

fn check(b: &Bag, indices: &[i64], offsets: &[i64]) -> Result<()> {
    if let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) {
        ensure!(
            first == 0,
            Runtime,
            "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from position 0. However, got {first}"
        );
        ensure!(
            last <= indices.len() as i64,
            Runtime,
            "offsets[-1] can not be greater than input's length {} but got offsets[-1] of {last}",
            indices.len()
        );
    }
    let rows = b.weight.shape()[0];
    let Some(at) = indices.iter().position(|i| !(0..rows).contains(i)) else {
        return Ok(());
    };
    let wrong = indices[at];
    if b.is_by_offsets() {
        bail!(
            Runtime,
            "Index {at} of input takes value {wrong} which is not in the valid range [0, {rows})"
        );
    }
    bail!(
        Runtime,
        "embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {wrong}"
    );
}

impl<T: Copy + Into<f64>> Rows<'_, T> {
    fn all(&self, outs: &[Tensor]) -> Result<()> {
        let n = outs[0].shape()[0] as usize;
        let result = Tensor::empty(outs[0].shape(), DType::F64, Device::CPU)?;
        let to = slice_mut::<f64>(&result);
        let mut bag_of = vec![0i64; self.indices.len()];
        let mut sizes = vec![0i64; n];
        let mut chosen = vec![if self.bag.is_max() { -1i64 } else { 0 }; n * self.width];
        for bag in 0..n {
            let range = self.range(bag);
            bag_of[range.clone()].fill(bag as i64);
            let columns = bag * self.width..(bag + 1) * self.width;
            sizes[bag] = self.join(range, &mut to[columns.clone()], &mut chosen[columns]);
        }
        copy::copy(&outs[0], &result)?;
        write(&outs[1], &bag_of)?;
        write(&outs[2], &sizes)?;
        write(&outs[3], if self.bag.is_max() { &chosen } else { &sizes })
    }

    /// The indices of a bag.
    fn range(&self, bag: usize) -> std::ops::Range<usize> {
        let len = self.indices.len();
        let place = |k: usize| {
            self.offsets
                .get(k)
                .map_or(len, |&o| (o.max(0) as usize).min(len))
        };
        place(bag)..place(bag + 1).max(place(bag))
    }

    /// Joins the rows of a bag; gives how many count.
    fn join(&self, range: std::ops::Range<usize>, out: &mut [f64], chosen: &mut [i64]) -> i64 {
        let mut size = 0;
        out.fill(0.0);
        for k in range {
            let i = self.indices[k];
            if Some(i) == self.bag.padding {
                continue;
            }
            let factor = self.factors.map_or(1.0, |f| f[k]);
            let row = &self.weight[i as usize * self.width..][..self.width];
            for ((o, chosen), &v) in out.iter_mut().zip(&mut *chosen).zip(row) {
                let v = v.into() * factor;
                if !self.bag.is_max() {
                    *o += v;
                } else if size == 0 || v > *o {
                    (*o, *chosen) = (v, i);
                }
            }
            size += 1;
        }
        if self.bag.mode == 1 && size > 1 {
            out.iter_mut().for_each(|o| *o /= size as f64);
        }
        size
    }
}

/// Writes whole numbers, as many as there is room for; a result that expects more than there are stays as it is.
fn write(out: &Tensor, v: &[i64]) -> Result<()> {
    match v.get(..out.numel() as usize) {
        Some(v) => copy::copy(out, &Tensor::from_slice(v, out.shape())?),
        None => Ok(()),
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
    let dense = |t: &Tensor| copy::dense(t, DType::F64);
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
    copy::copy(out, &result)
}

/// The gradient of [`bilinear`] by its weights: the sum over rows of `g[o] x[i] y[j]`, into `out` `[o, i, j]`.
///
/// # Errors
/// If memory cannot be had.
pub fn bilinear_weight(out: &Tensor, g: &Tensor, x: &Tensor, y: &Tensor) -> Result<()> {
    let dense = |t: &Tensor| copy::dense(t, DType::F64);
    let (g, x, y) = (dense(g)?, dense(x)?, dense(y)?);
    let [o, i, j] = [&g, &x, &y].map(|t| t.shape()[1] as usize);
    let result = Tensor::empty(out.shape(), DType::F64, Device::CPU)?;
    let (g, x, y) = (slice::<f64>(&g), slice::<f64>(&x), slice::<f64>(&y));
    let to = super::lines::Shared::new(slice_mut::<f64>(&result));
    let rows = g.len().checked_div(o).unwrap_or(0);
    super::pool::parallel_for(o * i, (16384 / (rows * j).max(1)).max(1), |range| {
        for r in range {
            let (k, a) = (r / i, r % i);
            // SAFETY: every pair of an output and an element of `x` has its own row.
            let sum = unsafe { to.part(r * j, j) };
            sum.fill(0.0);
            for n in 0..rows {
                let by = g[n * o + k] * x[n * i + a];
                for (s, &v) in sum.iter_mut().zip(&y[n * j..][..j]) {
                    *s += by * v;
                }
            }
        }
    });
    copy::copy(out, &result)
}
