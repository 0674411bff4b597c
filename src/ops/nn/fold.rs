//! Sliding windows gathered into columns and back.

use crate::cpu::conv::{self as cpu, Geometry};
use crate::cpu::copy;
use crate::cpu::room::Room;
use crate::ops::core::op::{Batch, F, OpDef, Plan, kernel};
use crate::ops::nn::conv::triple;
use crate::{DType, Device, Dims, Result, Tensor, ensure, kernels};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "nn.functional.unfold",
        "(Tensor input, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1)",
        F,
        body!(unfold_rule, unfold, cuda: |a, g, outs| kernels::conv::unfold(&outs[0], a.input, g), scratch: |a, _, outs, room| windows_room(room, &outs[0], a.input, a.input.dtype())),
        "The windows of images as columns.",
    ).samples("f32[2, 3, 4], 2, 1, 0, 1; c64[2, 3, 4], (3, 3); f32[2, 3, 4], 2, (1, 2), 1, 1")
    .grad("Im2ColBackward0 | input: nn.functional.fold(grad, [input.sizes[2], input.sizes[3]] if input.ndim == 4 else [input.sizes[1], input.sizes[2]], kernel_size, dilation, padding, stride)")
    .batch(Batch::Fold(3)),
    kernel(
        "nn.functional.fold",
        "(Tensor input, int[2] output_size, int[2] kernel_size, int[2] dilation=1, int[2] padding=0, int[2] stride=1)",
        F,
        body!(fold_rule, fold, cuda: |a, g, outs| kernels::conv::fold(&outs[0], a.input, g), scratch: |a, _, outs, room| windows_room(room, &outs[0], a.input, cpu::summed_in(a.input.dtype()))),
        "Columns added back into images.",
    ).samples("f32[1, 4, 4], (3, 3), (2, 2); f32[4, 4], (3, 3), 2")
    .grad("Col2ImBackward0 | input: nn.functional.unfold(grad, kernel_size, dilation, padding, stride)")
    .batch(Batch::Fold(2)),
];

/// The parameters of the windows: height, then width.
#[derive(Clone, Copy)]
struct Windows<'a> {
    kernel: &'a [i64],
    dilation: &'a [i64],
    padding: &'a [i64],
    stride: &'a [i64],
}

impl Windows<'_> {
    fn check(&self) -> Result<()> {
        let (k, d, p, s) = (self.kernel, self.dilation, self.padding, self.stride);
        for (list, name) in [
            (k, "kernel_size"),
            (d, "dilation"),
            (p, "padding"),
            (s, "stride"),
        ] {
            ensure!(
                list.len() == 2,
                Runtime,
                "It is expected {name} equals to 2, but got size {}",
                list.len()
            );
        }
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
        Ok(())
    }

    /// How many windows an image has, in each direction.
    fn blocks(&self, size: &[i64]) -> [i64; 2] {
        std::array::from_fn(|i| {
            let room = size[i]
                .saturating_add(self.padding[i].saturating_mul(2))
                .saturating_sub(self.dilation[i].saturating_mul(self.kernel[i] - 1));
            (room - 1).div_euclid(self.stride[i]) + 1
        })
    }

    fn geometry(&self, batch: i64, channels: i64, size: &[i64], blocks: &[i64]) -> Geometry {
        let usizes = |s: &[i64]| triple(s, 1usize, |v| v as usize);
        Geometry {
            batch: batch as usize,
            inputs: channels as usize,
            outputs: channels as usize,
            groups: 1,
            size: usizes(size),
            out: usizes(blocks),
            window: usizes(self.kernel),
            stride: triple(self.stride, 1, |v| v),
            pad: triple(self.padding, 0, |v| v),
            dilation: triple(self.dilation, 1, |v| v),
            transposed: false,
            channels_last: false,
            exact: false,
        }
    }
}

fn tuple(d: &[i64]) -> String {
    format!("({}, {})", d[0], d[1])
}

fn check_gathered(d: DType, name: &str) -> Result<()> {
    let good = matches!(
        d,
        DType::F32 | DType::F64 | DType::F16 | DType::BF16 | DType::C64 | DType::C128 | DType::Bool
    );
    d.check_kernel(good, format_args!("{name}_out_cpu"))
}

fn unfold_rule(a: &calls::NnFunctionalUnfold) -> Result<(Plan, Geometry)> {
    let x = a.input;
    let windows = Windows {
        kernel: a.kernel_size,
        dilation: a.dilation,
        padding: a.padding,
        stride: a.stride,
    };
    windows.check()?;
    let s = x.shape();
    let n = s.len();
    let last_ok = s.iter().skip(1).all(|&v| v != 0);
    ensure!(
        n >= 3,
        Index,
        "Dimension out of range (expected to be in range of [{}, {}], but got {n})",
        -(n as i64),
        n as i64 - 1
    );
    ensure!(
        (n == 3 && s[0] != 0 && last_ok) || (n == 4 && last_ok),
        Runtime,
        "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: {s}"
    );
    let size = &s[n - 2..];
    let out = windows.blocks(size);
    ensure!(
        out.iter().all(|&v| v >= 1),
        Runtime,
        "Given input with spatial size {}, kernel_size={}, dilation={}, padding={}, calculated shape of the array of sliding blocks \
         as ({}, {}), but its components must be at least one.",
        tuple(size),
        tuple(windows.kernel),
        tuple(windows.dilation),
        tuple(windows.padding),
        out[0],
        out[1]
    );
    check_gathered(x.dtype(), "im2col")?;
    let (batch, channels) = (if n == 4 { s[0] } else { 1 }, s[n - 3]);
    let rows = [
        channels
            .saturating_mul(windows.kernel[0])
            .saturating_mul(windows.kernel[1]),
        out[0].saturating_mul(out[1]),
    ];
    Ok((
        Plan::contiguous(&Dims::new(&s[..n - 3]).concat(&rows), x.dtype()),
        windows.geometry(batch, channels, size, &out),
    ))
}

fn unfold(a: &calls::NnFunctionalUnfold, g: &Geometry, outs: &[Tensor]) -> Result<()> {
    by_dense(&outs[0], |out| cpu::columns(out, a.input, g))
}

/// What windows take that are read row-major in a type, and made so.
fn windows_room(room: &mut Room, out: &Tensor, x: &Tensor, dtype: DType) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    let out = room.dense(out, out.dtype())?;
    room.dense(x, dtype)?;
    room.dense(&out, dtype).map(drop)
}

/// Fills a tensor by way of a row-major one, if it is not that itself.
fn by_dense(out: &Tensor, fill: impl FnOnce(&Tensor) -> Result<()>) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    if out.is_contiguous() {
        return fill(out);
    }
    let dense = Tensor::empty(out.shape(), out.dtype(), Device::CPU)?;
    fill(&dense)?;
    copy::copy(out, &dense)
}

fn fold_rule(a: &calls::NnFunctionalFold) -> Result<(Plan, Geometry)> {
    let (x, size) = (a.input, a.output_size);
    ensure!(
        size.len() == 2,
        Runtime,
        "It is expected output_size equals to 2, but got size {}",
        size.len()
    );
    let windows = Windows {
        kernel: a.kernel_size,
        dilation: a.dilation,
        padding: a.padding,
        stride: a.stride,
    };
    windows.check()?;
    let blocks = check_columns(x.shape(), size, &windows)?;
    check_gathered(x.dtype(), "col2im")?;
    let (s, n) = (x.shape(), x.ndim());
    let channels = s[n - 2] / (windows.kernel[0] * windows.kernel[1]);
    let batch = if n == 3 { s[0] } else { 1 };
    Ok((
        Plan::contiguous(
            &Dims::new(&s[..n - 2]).concat(&[channels, size[0], size[1]]),
            x.dtype(),
        ),
        windows.geometry(batch, channels, size, &blocks),
    ))
}

/// Checks that columns of shape `s` are those of images of a size; the numbers of windows.
fn check_columns(s: &Dims, size: &[i64], windows: &Windows) -> Result<[i64; 2]> {
    let (n, k) = (s.len(), windows.kernel);
    ensure!(
        (n == 2 && s.iter().all(|&v| v != 0)) || (n == 3 && s[1] != 0 && s[2] != 0),
        Runtime,
        "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for input, but got: {s}"
    );
    ensure!(
        s[n - 2] % (k[0] * k[1]) == 0,
        Runtime,
        "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got input.size(1)={} and kernel_size={}.",
        s[n - 2],
        tuple(k)
    );
    let [h, w] = windows.blocks(size);
    ensure!(
        s[n - 1] == h * w,
        Runtime,
        "Given output_size={}, kernel_size={}, dilation={}, padding={}, stride={}, expected size of input's dimension 2 to match the \
         calculated number of sliding blocks {h} * {w} = {}, but got input.size(2)={}.",
        tuple(size),
        tuple(k),
        tuple(windows.dilation),
        tuple(windows.padding),
        tuple(windows.stride),
        h * w,
        s[n - 1]
    );
    ensure!(
        h >= 1 && w >= 1,
        Runtime,
        "calculated shape of the array of sliding blocks as ({h}, {w}), which is too small (non-positive)"
    );
    Ok([h, w])
}

fn fold(a: &calls::NnFunctionalFold, g: &Geometry, outs: &[Tensor]) -> Result<()> {
    by_dense(&outs[0], |out| cpu::fold(out, a.input, g))
}
