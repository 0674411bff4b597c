//! Convolutions over sequences that lie as time, batch, channels.

use crate::ops::core::op::{F, OpDef, compose};
use crate::ops::f;
use crate::{Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "conv_tbc",
        "(Tensor self, Tensor weight, Tensor bias, int pad=0)",
        F,
        conv_tbc,
        "A convolution over sequences of `[time, batch, channels]` by weights of `[width, channels, outputs]`.",
    )
    .samples("f32[5, 2, 3], f32[2, 3, 4], f32[4]; f64[4, 1, 2], f64[3, 2, 2], f64[2], 1; i32[5, 2, 3], i32[2, 3, 4], i32[4]")
    .grad("ConvTbcBackward0 | self, weight, bias: _grad.conv_tbc_backward(grad, self, weight, pad, needs)"),
];

fn conv_tbc(a: &calls::ConvTbc) -> Result<Tensor> {
    let (x, w, bias) = (a.input, a.weight, a.bias);
    ensure!(
        x.ndim() == 3,
        Runtime,
        "Input must have 3 dims: time, batch, in_channel"
    );
    ensure!(
        w.ndim() == 3,
        Runtime,
        "Weight tensor must have 3 dims: kernel_width, in_channels, out_channels."
    );
    ensure!(bias.ndim() == 1, Runtime, "Bias must be 1-D");
    ensure!(
        x.shape()[2] == w.shape()[1],
        Runtime,
        "Input dim 2 (input channels) is not == dim 1 in the weight tensor"
    );
    ensure!(
        w.shape()[2] == bias.shape()[0],
        Runtime,
        "Bias size must equal dim 2 in the weight tensor (output channels)."
    );
    let length = a.pad.saturating_mul(2).saturating_add(x.shape()[0] + 1);
    let length = length.saturating_sub(w.shape()[0]);
    if length <= 0 {
        return f::NewEmpty::new(x, &[0, x.shape()[1], w.shape()[2]]).call();
    }
    let made = f::convolution(
        &f::permute(x, &[1, 2, 0])?,
        &f::permute(w, &[2, 1, 0])?,
        Some(bias),
        &[1],
        &[a.pad],
        &[1],
        false,
        &[0],
        1,
    )?;
    f::Contiguous::new(&f::permute(&made, &[2, 0, 1])?).call()
}
