//! The spatial sizes of convolutions.

use crate::ops::nn::conv::Lists;
use crate::{Dims, Result, Tensor, bail, ensure};

/// Numbers as messages join them.
fn joined(values: impl Iterator<Item = i64>) -> String {
    values
        .map(|v| v.to_string())
        .collect::<Vec<_>>()
        .join(" x ")
}

/// How far the elements of a window are apart at most, in each dimension.
pub(super) fn reaches(w: &Tensor, l: &Lists) -> Dims {
    (w.shape()[2..].iter().zip(l.dilation.iter()))
        .map(|(&k, d)| d.saturating_mul(k - 1))
        .collect()
}

/// The spatial sizes of an ordinary convolution.
pub(super) fn sizes(x: &[i64], reach: &[i64], l: &Lists) -> Result<Dims> {
    let padded = |i: usize| x[i].saturating_add(l.padding[i].saturating_mul(2));
    let window = |i: usize| reach[i].saturating_add(1);
    let n = x.len();
    ensure!(
        (0..n).all(|i| padded(i) >= window(i)),
        Runtime,
        "Calculated padded input size per channel: ({}). Kernel size: ({}). Kernel size can't be greater than actual input size",
        joined((0..n).map(padded)),
        joined((0..n).map(window))
    );
    Ok((0..n)
        .map(|i| (padded(i) - reach[i] - 1) / l.stride[i] + 1)
        .collect())
}

/// The spatial sizes of a transposed convolution.
pub(super) fn transposed_sizes(x: &[i64], reach: &[i64], l: &Lists) -> Result<Dims> {
    let n = x.len();
    ensure!(
        (0..n).all(|i| l.output[i] < l.stride[i].max(l.dilation[i])),
        Runtime,
        "output padding must be smaller than either stride or dilation, but got output_padding: {}, stride: {}, \
         dilation: {}",
        l.output,
        l.stride,
        l.dilation
    );
    Ok((0..n)
        .map(|i| {
            (x[i] - 1)
                .saturating_mul(l.stride[i])
                .saturating_sub(l.padding[i].saturating_mul(2))
                .saturating_add(reach[i])
                .saturating_add(l.output[i].saturating_add(1))
        })
        .collect())
}

/// Refuses results without elements of inputs that have some.
pub(super) fn check_sizes(x: &Tensor, out: &Dims) -> Result<()> {
    let xs = x.shape();
    ensure!(
        out.iter().all(|&s| s > 0) || x.numel() == 0,
        Runtime,
        "Given input size per channel: {}. Calculated output size per channel: {out}. Output size is too small",
        Dims::new(&xs[2..])
    );
    ensure!(
        x.numel() != 0 || xs[0] == 0 || xs[1] == 0,
        Runtime,
        "Only zero batch or zero channel inputs are supported, but got input shape: {xs}"
    );
    Ok(())
}

/// One value for every dimension.
/// Windows have a size; sequences count as images here.
pub(super) fn check_dilation(dilation: &Dims, transposed: bool) -> Result<()> {
    if dilation.iter().all(|&d| d > 0) {
        return Ok(());
    }
    let mut all = dilation.clone();
    if all.len() == 1 {
        all = Dims::from([1]).concat(&all);
    }
    if !transposed {
        bail!(
            Runtime,
            "dilation should be greater than zero, but got {all}"
        );
    }
    let names = ["depth", "height", "width"];
    let each = names[3 - all.len()..].iter().zip(all.iter());
    let each: Vec<_> = each.map(|(n, d)| format!("dilation_{n}: {d}")).collect();
    bail!(
        Runtime,
        "dilation should be greater than zero, but got {}",
        each.join(", ")
    )
}

pub(super) fn expanded(list: &[i64], n: usize, name: &str) -> Result<Dims> {
    if list.len() == 1 {
        return Ok(Dims::filled(n, list[0]));
    }
    let list = Dims::new(list);
    ensure!(
        list.len() == n,
        Runtime,
        "expected {name} to be a single integer value or a list of {n} values to match the convolution dimensions, but got {name}={list}"
    );
    Ok(list)
}
