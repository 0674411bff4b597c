//! Max pooling.

use crate::cpu::pooling::Rule;
use crate::ops::core::op::{Batch, Cast, F, OpDef, Plan, Ret, compose, kernel};
use crate::ops::f;
use crate::ops::nn::pool::{
    Asked, Pooling, both, check_1d, only, pooled, pooled_size, regular, run, scratch,
};
use crate::{DType, Result, ensure};
use torchlike_macros::operators;

macro_rules! asked {
    ($a:ident, $n:literal, $name:literal) => {
        Asked {
            n: $n,
            name: $name,
            x: $a.input,
            kernel: $a.kernel_size,
            stride: $a.stride,
            padding: $a.padding,
            dilation: Some($a.dilation),
            ceil: $a.ceil_mode,
        }
    };
}

/// The call of a row below by a function of `nn.functional`.
macro_rules! maxima {
    ($a:ident, $row:ident) => {
        f::$row::new($a.input, $a.kernel_size)
            .stride($a.stride.unwrap_or(&[]))
            .padding($a.padding)
            .dilation($a.dilation)
            .ceil_mode($a.ceil_mode)
            .call()
    };
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "max_pool1d",
        "(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False)",
        F,
        |a| sequences(&asked!(a, 1, "max_pool1d")),
        "The largest elements of windows.",
    ).samples("f32[2, 3, 6], 2; f32[3, 6], 3, 2, 1"),
    compose(
        "max_pool1d_with_indices",
        "(Tensor self, int[1] kernel_size, int[1] stride=[], int[1] padding=0, int[1] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",
        F,
        |a| sequences_with_indices(&asked!(a, 1, "max_pool1d")),
        "The largest elements of windows, and their positions.",
    ).samples("f32[2, 3, 6], 2"),
    kernel(
        "max_pool2d",
        "(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False)",
        F,
        body!(|a| rule(&asked!(a, 2, "max_pool2d"), false), anywhere: run, scratch: scratch),
        "The largest elements of windows.",
    ).samples("f32[1, 2, 6, 6], 2; f32[2, 6, 6], 3, 2, 1, ceil_mode=True")
    .through(typed!(recorded_max_pool2d)),
    kernel(
        "max_pool2d_with_indices",
        "(Tensor self, int[2] kernel_size, int[2] stride=[], int[2] padding=0, int[2] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",
        0,
        body!(|a| rule(&asked!(a, 2, "max_pool2d"), true), anywhere: run, scratch: scratch),
        "The largest elements of windows, and their positions.",
    ).samples("f32[1, 2, 6, 6], 2; f32[1, 2, 6, 6].cl, (3, 2), 1")
    .grad("self: _grad.max_pool2d_with_indices_backward(grad, self, kernel_size, stride, padding, dilation, ceil_mode, result1)")
    .batch(Batch::Fold(3)),
    kernel(
        "max_pool3d",
        "(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False)",
        F,
        body!(|a| rule(&asked!(a, 3, "max_pool3d"), false), anywhere: run, scratch: scratch),
        "The largest elements of windows.",
    ).samples("f32[1, 2, 4, 4, 4], 2")
    .through(typed!(recorded_max_pool3d))
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "max_pool3d_with_indices",
        "(Tensor self, int[3] kernel_size, int[3] stride=[], int[3] padding=0, int[3] dilation=1, bool ceil_mode=False) -> (Tensor, Tensor)",
        0,
        body!(|a| rule(&asked!(a, 3, "max_pool3d"), true), anywhere: run, scratch: scratch),
        "The largest elements of windows, and their positions.",
    ).samples("f32[1, 2, 4, 4, 4], 2")
    .grad("self: _grad.max_pool3d_with_indices_backward(grad, self, kernel_size, stride, padding, dilation, ceil_mode, result1)")
    .batch(Batch::Fold(4)),
    compose(
        "nn.functional.max_pool1d",
        "(Tensor input, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, int[1] dilation=1, bool ceil_mode=False, bool return_indices=False)",
        F,
        |a| {
            if a.return_indices {
                maxima!(a, MaxPool1dWithIndices).map(both)
            } else {
                maxima!(a, MaxPool1d).map(Ret::from)
            }
        },
        "The largest elements of windows.",
    ).samples(
        "f32[3, 4], kernel_size=(3,), stride=2, dilation=(1,); \
         f32[3, 4], kernel_size=3, stride=(2,), ceil_mode=True, dilation=(1,), return_indices=True",
    ),
    compose(
        "nn.functional.max_pool1d_with_indices",
        "(Tensor input, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, int[1] dilation=1, bool ceil_mode=False, bool return_indices=False)",
        F,
        |a| maxima!(a, MaxPool1dWithIndices).map(both),
        "The largest elements of windows, and their positions.",
    ).samples("f32[2, 3, 6], 2"),
    compose(
        "nn.functional.max_pool2d",
        "(Tensor input, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, int[2] dilation=1, bool ceil_mode=False, bool return_indices=False)",
        F,
        |a| {
            if a.return_indices {
                maxima!(a, MaxPool2dWithIndices).map(both)
            } else {
                maxima!(a, MaxPool2d).map(Ret::from)
            }
        },
        "The largest elements of windows.",
    ).samples("f32[2, 3, 4], kernel_size=3, padding=(1, 1), return_indices=True"),
    compose(
        "nn.functional.max_pool2d_with_indices",
        "(Tensor input, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, int[2] dilation=1, bool ceil_mode=False, bool return_indices=False)",
        F,
        |a| maxima!(a, MaxPool2dWithIndices).map(both),
        "The largest elements of windows, and their positions.",
    ).samples("f32[1, 2, 6, 6], 2"),
    compose(
        "nn.functional.max_pool3d",
        "(Tensor input, int[3] kernel_size, int[3]? stride=None, int[3] padding=0, int[3] dilation=1, bool ceil_mode=False, bool return_indices=False)",
        F,
        |a| {
            if a.return_indices {
                maxima!(a, MaxPool3dWithIndices).map(both)
            } else {
                maxima!(a, MaxPool3d).map(Ret::from)
            }
        },
        "The largest elements of windows.",
    ).samples("f32[2, 3, 6, 5], kernel_size=3, stride=(2, 1, 2)"),
    compose(
        "nn.functional.max_pool3d_with_indices",
        "(Tensor input, int[3] kernel_size, int[3]? stride=None, int[3] padding=0, int[3] dilation=1, bool ceil_mode=False, bool return_indices=False)",
        F,
        |a| maxima!(a, MaxPool3dWithIndices).map(both),
        "The largest elements of windows, and their positions.",
    ).samples("f32[1, 2, 4, 4, 4], 2"),
];

fn rule<'a>(a: &Asked<'a>, positions: bool) -> Result<(Plan, Pooling<'a>)> {
    let regular = regular(a)?;
    let d = a.x.dtype();
    d.check_kernel(
        !d.is_complex()
            && d != DType::Bool
            && !d.is_storage_only()
            && !matches!(d, DType::U16 | DType::U32 | DType::U64),
        a.name,
    )?;
    pooled(a.x, regular, Rule::Max, positions)
}

/// Sequences are images of one row.
fn sequences_with_indices(a: &Asked) -> Result<Ret> {
    check_1d(a.x, a.name)?;
    let stride = if a.stride.is_empty() {
        a.kernel
    } else {
        a.stride
    };
    let dilation = a.dilation.unwrap_or(&[1]);
    let kernel = [1, only(a.kernel, a.name, "kernel_size")?];
    let stride = [1, only(stride, a.name, "stride")?];
    let padding = [0, only(a.padding, a.name, "padding")?];
    let dilation = [1, only(dilation, a.name, "dilation")?];
    let wide = f::unsqueeze(a.x, -2)?;
    let [most, at] = f::MaxPool2dWithIndices::new(&wide, &kernel)
        .stride(&stride)
        .padding(&padding)
        .dilation(&dilation)
        .ceil_mode(a.ceil)
        .call()?;
    Ok(both([f::squeeze_dim(&most, -2)?, f::squeeze_dim(&at, -2)?]))
}

/// Sequences are images of one row.
fn sequences(a: &Asked) -> Result<Ret> {
    let [kernel, stride, padding, dilation] = check_sequences(a)?;
    let (kernel, stride) = ([1, kernel], [1, stride]);
    let (padding, dilation) = ([0, padding], [1, dilation]);
    let wide = f::unsqueeze(&f::contiguous(a.x)?, -2)?;
    let most = f::MaxPool2d::new(&wide, &kernel)
        .stride(&stride)
        .padding(&padding)
        .dilation(&dilation)
        .ceil_mode(a.ceil)
        .call()?;
    Ok(f::squeeze_dim(&most, -2)?.into())
}

/// The checks of max pooling over sequences: kernel size, stride, padding and dilation.
fn check_sequences(a: &Asked) -> Result<[i64; 4]> {
    let s = a.x.shape();
    ensure!(
        matches!(s.len(), 2 | 3) && s[s.len() - 2..].iter().all(|&v| v != 0),
        Runtime,
        "max_pool1d: Expected 2D or 3D (batch mode) tensor with optional 0 dim batch size for input, but got:{s}"
    );
    let dilations = a.dilation.unwrap_or(&[1]);
    for (list, name) in [
        (a.kernel, "kernel_size"),
        (a.padding, "padding"),
        (dilations, "dilation"),
    ] {
        ensure!(
            list.len() == 1,
            Runtime,
            "max_pool1d() {name} must be an int, list of ints or tuple of ints of size 1 but got size {}",
            list.len()
        );
    }
    let (kernel, padding, dilation) = (a.kernel[0], a.padding[0], dilations[0]);
    let stride = a.stride.first().copied().unwrap_or(kernel);
    for (v, name) in [
        (kernel, "kernel_size"),
        (stride, "stride"),
        (dilation, "dilation"),
    ] {
        ensure!(
            v > 0,
            Runtime,
            "max_pool1d() {name} must be greater than zero, but got {v}"
        );
    }
    ensure!(
        padding >= 0,
        Runtime,
        "max_pool1d() padding must be non-negative, but got {padding}"
    );
    ensure!(
        padding <= kernel / 2,
        Runtime,
        "max_pool1d() padding should be at most half of kernel size, but got padding={padding} and kernel_size={kernel}"
    );
    let out = pooled_size(s[s.len() - 1], kernel, padding, stride, dilation, a.ceil);
    ensure!(
        out > 0,
        Runtime,
        "max_pool1d() Invalid computed output size: {out}"
    );
    let d = a.x.dtype();
    d.check_kernel(d.is_float(), "max_pool1d_impl")?;
    Ok([kernel, stride, padding, dilation])
}

/// A maximum with the indices that its gradient needs.
fn recorded_max_pool2d(a: &calls::MaxPool2d) -> Result<Ret> {
    let [made, _] = f::MaxPool2dWithIndices::new(a.input, a.kernel_size)
        .stride(a.stride)
        .padding(a.padding)
        .dilation(a.dilation)
        .ceil_mode(a.ceil_mode)
        .call()?;
    Ok(Ret::One(made))
}

/// A maximum with the indices that its gradient needs.
fn recorded_max_pool3d(a: &calls::MaxPool3d) -> Result<Ret> {
    let [made, _] = f::MaxPool3dWithIndices::new(a.input, a.kernel_size)
        .stride(a.stride)
        .padding(a.padding)
        .dilation(a.dilation)
        .ceil_mode(a.ceil_mode)
        .call()?;
    Ok(Ret::One(made))
}
