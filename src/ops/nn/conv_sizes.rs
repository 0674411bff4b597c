//! The spatial sizes of convolutions, and what their operands have to agree in.

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
        "output padding must be smaller than either stride or dilation, but got {} {} {}",
        named("output_padding", &l.output, 0, " "),
        named("stride", &l.stride, 1, " "),
        named("dilation", &l.dilation, 1, " ")
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
    let shown = |sizes: &[i64]| joined(as_image(sizes, 1).iter().copied());
    ensure!(
        out.iter().all(|&s| s > 0) || x.numel() == 0,
        Runtime,
        "Given input size per channel: ({}). Calculated output size per channel: ({}). Output size is too small",
        shown(&xs[2..]),
        shown(out)
    );
    ensure!(
        x.numel() != 0 || xs[0] == 0 || xs[1] == 0,
        Runtime,
        "Only zero batch or zero channel inputs are supported, but got input shape: {xs}"
    );
    Ok(())
}

/// Windows have elements.
pub(super) fn check_window(sizes: &[i64]) -> Result<()> {
    if !sizes.contains(&0) {
        return Ok(());
    }
    match sizes {
        [d, h, w] => bail!(
            Runtime,
            "kernel size should be greater than zero, but got: {d} x {h} x {w} (TxHxW)"
        ),
        _ => bail!(
            Runtime,
            "kernel size should be greater than zero, but got {}",
            named("kernel", sizes, 1, " ")
        ),
    }
}

/// Windows have a size; sequences count as images here.
pub(super) fn check_dilation(dilation: &Dims, transposed: bool) -> Result<()> {
    if dilation.iter().all(|&d| d > 0) {
        return Ok(());
    }
    if !transposed {
        bail!(
            Runtime,
            "dilation should be greater than zero, but got {}",
            as_image(dilation, 1)
        );
    }
    bail!(
        Runtime,
        "dilation should be greater than zero, but got {}",
        named("dilation", dilation, 1, ", ")
    )
}

/// A number for each dimension of an image, as sequences are images of one line.
fn as_image(list: &[i64], line: i64) -> Dims {
    match list {
        [one] => Dims::from([line, *one]),
        all => Dims::new(all),
    }
}

/// The numbers of a list behind their names, as texts of images say them.
fn named(what: &str, list: &[i64], line: i64, between: &str) -> String {
    let all = as_image(list, line);
    let names = ["depth", "height", "width"];
    let each = names[3 - all.len()..].iter().zip(all.iter());
    let each: Vec<_> = each.map(|(n, v)| format!("{what}_{n}: {v}")).collect();
    each.join(between)
}

/// One value for every dimension.
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

/// A bias has the type of the images.
pub(super) fn check_bias_dtype(input: &Tensor, bias: Option<&Tensor>) -> Result<()> {
    let d = input.dtype();
    if let Some(b) = bias.filter(|b| b.dtype() != d) {
        let name = crate::DType::cpp_name;
        bail!(
            Runtime,
            "Input type ({}) and bias type ({}) should be the same",
            name(d),
            name(b.dtype())
        );
    }
    Ok(())
}
