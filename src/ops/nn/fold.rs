//! Sliding windows gathered into columns and back.

use crate::cpu::conv::{self as cpu, Geometry};
use crate::cpu::copy;
use crate::ops::core::args::Args;
use crate::ops::core::op::{F, KernelBody, OpDef, Plan, kernel};
use crate::ops::nn::conv::triple;
use crate::{DType, Dims, Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "nn.functional.unfold",
        "(Tensor input, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1)",
        F,
        KernelBody::new(infer_unfold, run_unfold),
        "The windows of images as columns.",
    ),
    kernel(
        "nn.functional.fold",
        "(Tensor input, int[2] output_size, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1)",
        F,
        KernelBody::new(infer_fold, run_fold),
        "Columns added back into images.",
    ),
];

/// The parameters of fold and unfold: window, dilation, padding, stride from position `first`.
fn windows<'a>(a: &'a Args<'_>, first: usize) -> Result<[&'a Dims; 4]> {
    let lists = [
        a.ints(first)?,
        a.ints(first + 1)?,
        a.ints(first + 2)?,
        a.ints(first + 3)?,
    ];
    for (list, name) in lists
        .iter()
        .zip(["kernel_size", "dilation", "padding", "stride"])
    {
        ensure!(
            list.len() == 2,
            Runtime,
            "It is expected {name} equals to 2, but got size {}",
            list.len()
        );
    }
    let [k, d, p, s] = lists;
    ensure!(
        k.iter().all(|&v| v > 0),
        Runtime,
        "kernel size should be greater than zero, but got kernel_height: {} kernel_width: {}",
        k[0],
        k[1]
    );
    ensure!(
        d.iter().all(|&v| v > 0),
        Runtime,
        "dilation should be greater than zero, but got dilation_height: {} dilation_width: {}",
        d[0],
        d[1]
    );
    ensure!(
        p.iter().all(|&v| v >= 0),
        Runtime,
        "padding should be non-negative, but got pad_height: {} pad_width: {}",
        p[0],
        p[1]
    );
    ensure!(
        s.iter().all(|&v| v > 0),
        Runtime,
        "stride should be greater than zero, but got stride_height: {} stride_width: {}",
        s[0],
        s[1]
    );
    Ok(lists)
}

fn blocks(size: &[i64], [k, d, p, s]: [&Dims; 4]) -> [i64; 2] {
    std::array::from_fn(|i| (size[i] + 2 * p[i] - d[i] * (k[i] - 1) - 1).div_euclid(s[i]) + 1)
}

fn tuple(d: &[i64]) -> String {
    format!("({}, {})", d[0], d[1])
}

fn check_gathered(d: DType, name: &str) -> Result<()> {
    let good = matches!(
        d,
        DType::F32 | DType::F64 | DType::F16 | DType::BF16 | DType::C64 | DType::C128 | DType::Bool
    );
    d.check_kernel(good, format_args!("{name}_out_cpu"))?;
    Ok(())
}

fn geometry(
    batch: i64,
    channels: i64,
    size: &[i64],
    out: &[i64],
    [k, d, p, s]: [&Dims; 4],
) -> Geometry {
    let usizes = |s: &[i64]| triple(s, 1usize, |v| v as usize);
    Geometry {
        batch: batch as usize,
        inputs: channels as usize,
        outputs: channels as usize,
        groups: 1,
        size: usizes(size),
        out: usizes(out),
        window: usizes(k),
        stride: triple(s, 1, |v| v),
        pad: triple(p, 0, |v| v),
        dilation: triple(d, 1, |v| v),
        transposed: false,
        channels_last: false,
    }
}

fn infer_unfold(a: &Args) -> Result<Plan> {
    let x = a.tensor(0)?;
    let lists = windows(a, 1)?;
    let s = x.shape();
    let last_ok = s.iter().skip(1).all(|&v| v != 0);
    ensure!(
        s.len() >= 3,
        Index,
        "Dimension out of range (expected to be in range of [{}, {}], but got {})",
        -(s.len() as i64),
        s.len() as i64 - 1,
        s.len()
    );
    ensure!(
        (s.len() == 3 && s[0] != 0 && last_ok) || (s.len() == 4 && last_ok),
        Runtime,
        "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: {s}"
    );
    let n = s.len();
    let out = blocks(&s[n - 2..], lists);
    let [k, d, p, _] = lists;
    ensure!(
        out.iter().all(|&v| v >= 1),
        Runtime,
        "Given input with spatial size {}, kernel_size={}, dilation={}, padding={}, calculated shape of the array of sliding blocks \
         as ({}, {}), but its components must be at least one.",
        tuple(&s[n - 2..]),
        tuple(k),
        tuple(d),
        tuple(p),
        out[0],
        out[1]
    );
    check_gathered(x.dtype(), "im2col")?;
    let rows = [s[n - 3] * k[0] * k[1], out[0] * out[1]];
    Ok(Plan::contiguous(
        &Dims::new(&s[..n - 3]).concat(&rows),
        x.dtype(),
    ))
}

fn run_unfold(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (x, out) = (a.tensor(0)?, &outs[0]);
    if out.numel() == 0 {
        return Ok(());
    }
    let (s, n, lists) = (x.shape(), x.ndim(), windows(a, 1)?);
    let batch = if n == 4 { s[0] } else { 1 };
    let g = geometry(
        batch,
        s[n - 3],
        &s[n - 2..],
        &blocks(&s[n - 2..], lists),
        lists,
    );
    if out.is_contiguous() {
        return cpu::columns(out, x, &g);
    }
    let dense = Tensor::empty(out.shape(), out.dtype(), crate::Device::CPU)?;
    cpu::columns(&dense, x, &g)?;
    copy::copy(out, &dense)
}

fn infer_fold(a: &Args) -> Result<Plan> {
    let (x, size) = (a.tensor(0)?, a.ints(1)?);
    ensure!(
        size.len() == 2,
        Runtime,
        "It is expected output_size equals to 2, but got size {}",
        size.len()
    );
    let lists = windows(a, 2)?;
    let [k, d, p, st] = lists;
    let s = x.shape();
    let n = s.len();
    ensure!(
        (n == 2 && s.iter().all(|&v| v != 0)) || (n == 3 && s[1] != 0 && s[2] != 0),
        Runtime,
        "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for input, but got: {s}"
    );
    let window = k[0] * k[1];
    ensure!(
        s[n - 2] % window == 0,
        Runtime,
        "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got input.size(1)={} and kernel_size={}.",
        s[n - 2],
        tuple(k)
    );
    let [h, w] = blocks(size, lists);
    ensure!(
        s[n - 1] == h * w,
        Runtime,
        "Given output_size={}, kernel_size={}, dilation={}, padding={}, stride={}, expected size of input's dimension 2 to match the \
         calculated number of sliding blocks {h} * {w} = {}, but got input.size(2)={}.",
        tuple(size),
        tuple(k),
        tuple(d),
        tuple(p),
        tuple(st),
        h * w,
        s[n - 1]
    );
    ensure!(
        h >= 1 && w >= 1,
        Runtime,
        "calculated shape of the array of sliding blocks as ({h}, {w}), which is too small (non-positive)"
    );
    check_gathered(x.dtype(), "col2im")?;
    Ok(Plan::contiguous(
        &Dims::new(&s[..n - 2]).concat(&[s[n - 2] / window, size[0], size[1]]),
        x.dtype(),
    ))
}

fn run_fold(a: &Args, outs: &[Tensor]) -> Result<()> {
    let (x, out) = (a.tensor(0)?, &outs[0]);
    if out.numel() == 0 {
        return Ok(());
    }
    let (size, lists, n) = (a.ints(1)?, windows(a, 2)?, out.ndim());
    let batch = if n == 4 { out.shape()[0] } else { 1 };
    let g = geometry(batch, out.shape()[n - 3], size, &blocks(size, lists), lists);
    if out.is_contiguous() {
        return cpu::fold(out, x, &g);
    }
    let dense = Tensor::empty(out.shape(), out.dtype(), crate::Device::CPU)?;
    cpu::fold(&dense, x, &g)?;
    copy::copy(out, &dense)
}
