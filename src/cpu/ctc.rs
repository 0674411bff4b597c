//! The connectionist temporal classification loss (Graves et al., 2006): the forward recursion in logarithms.

use super::{slice, slice_mut};
use crate::{DType, Device, Result, Tensor, ensure};

fn log_add(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if high == f64::NEG_INFINITY {
        high
    } else {
        high + (low - high).exp().ln_1p()
    }
}

/// Minus the log probability of each sample's labels: `x` (steps, samples, classes), labels padded (samples, longest)
/// or after each other.
///
/// # Errors
/// If a label is out of range.
pub fn losses(
    out: &Tensor,
    x: &Tensor,
    targets: &Tensor,
    steps: &[i64],
    lengths: &[i64],
    blank: usize,
) -> Result<()> {
    let (samples, classes) = (x.shape()[1] as usize, x.shape()[2] as usize);
    let (x, labels) = (
        super::copy::dense(x, DType::F64)?,
        super::copy::dense(targets, DType::I64)?,
    );
    let (x, all) = (slice::<f64>(&x), slice::<i64>(&labels));
    let result = Tensor::empty(&[samples as i64], DType::F64, Device::CPU)?;
    let mut start = 0;
    for (s, loss) in slice_mut::<f64>(&result).iter_mut().enumerate() {
        let n = lengths[s] as usize;
        let first = if targets.ndim() == 2 {
            s * targets.shape()[1] as usize
        } else {
            start
        };
        start += n;
        let labels = &all[first..first + n];
        ensure!(
            labels.iter().all(|&l| l >= 0 && (l as usize) < classes),
            Runtime,
            "ctc_loss: a label is out of range"
        );
        // Blanks stand between all labels and at both ends.
        let at = |k: usize| {
            if k % 2 == 0 {
                blank
            } else {
                labels[k / 2] as usize
            }
        };
        let width = 2 * n + 1;
        let score = |t: usize, k: usize| x[(t * samples + s) * classes + at(k)];
        let mut alpha = vec![f64::NEG_INFINITY; width];
        for t in 0..steps[s] as usize {
            let before = alpha.clone();
            for k in 0..width {
                let mut sum = if t == 0 {
                    if k < 2 { 0.0 } else { f64::NEG_INFINITY }
                } else {
                    before[k]
                };
                if t > 0 && k > 0 {
                    sum = log_add(sum, before[k - 1]);
                    if k > 1 && at(k) != blank && at(k) != at(k - 2) {
                        sum = log_add(sum, before[k - 2]);
                    }
                }
                alpha[k] = sum + score(t, k);
            }
        }
        *loss = if steps[s] == 0 {
            if n == 0 { 0.0 } else { f64::INFINITY }
        } else {
            -log_add(
                alpha[width - 1],
                if n > 0 {
                    alpha[width - 2]
                } else {
                    f64::NEG_INFINITY
                },
            )
        };
    }
    super::copy::copy(out, &result)
}
