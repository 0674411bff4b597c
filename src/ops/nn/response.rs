//! Local response normalisation.

use crate::ops::core::op::{F, OpDef, Plan, Ret, compose, kernel};
use crate::ops::f;
use crate::{DType, Result, Tensor, cpu, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_nn.window_squares",
        "(Tensor input, int size)",
        0,
        body!(rule_window, run_window, scratch: |a, _, outs, room| {
            room.operands([Some(a.input)], outs, DType::F64)
        }),
        "The mean of squares over neighbouring channels.",
    )
    .samples("f32[2, 5, 3], 3; f64[1, 4, 2, 2], 2")
    .through(typed!(pooled_squares)),
    compose(
        "nn.functional.local_response_norm",
        "(Tensor input, int size, float alpha=0.0001, float beta=0.75, float k=1.0)",
        F,
        local_response_norm,
        "Divided by a power of the mean square over neighbouring channels.",
    )
    .samples("f32[2, 3, 4], 2; i64[2, 3, 4], 2, beta=0.5; f32[2, 3, 4], 2, alpha=0.0, beta=0.5"),
];

fn rule_window(a: &calls::_NnWindowSquares) -> Result<(Plan, usize)> {
    let (x, size) = (a.input, a.size);
    x.size(1)?;
    let window = match x.ndim() {
        3 => format!("kH: {size} kW: 1"),
        _ => format!("kT: {size} kH: 1 kW: 1"),
    };
    ensure!(
        size > 0,
        Runtime,
        "kernel size should be greater than zero, but got {window}"
    );
    if x.dtype() != DType::I64 {
        x.dtype().check_float_kernel("avg_pool2d_out_frame")?;
    }
    Ok((Plan::contiguous(x.shape(), x.dtype()), size as usize))
}

fn run_window(a: &calls::_NnWindowSquares, size: &usize, outs: &[Tensor]) -> Result<()> {
    cpu::norm::window_squares(&outs[0], a.input, *size)
}

fn local_response_norm(a: &calls::NnFunctionalLocalResponseNorm) -> Result<Ret> {
    let x = a.input;
    ensure!(
        x.ndim() >= 3,
        Value,
        "Expected 3D or higher dimensionality                          input (got {} dimensions)",
        x.ndim()
    );
    if x.numel() == 0 {
        return Ok(Ret::Same(0));
    }
    let squares = f::_nn_window_squares(x, a.size)?;
    let scale = f::add(&f::mul(&squares, a.alpha)?, a.k)?;
    Ok(f::div(x, &f::pow(&scale, a.beta)?)?.into())
}

/// `window_squares` as the pooling that its gradient is made of.
fn pooled_squares(a: &calls::_NnWindowSquares) -> Result<Ret> {
    let (x, size) = (a.input, a.size);
    x.size(1)?;
    let squares = f::mul(x, x)?;
    let around = [size / 2, (size - 1) / 2];
    if x.ndim() == 3 {
        let wide = f::constant_pad_nd(&f::unsqueeze(&squares, 1)?, &[0, 0, around[0], around[1]])?;
        let means = f::NnFunctionalAvgPool2d::new(&wide, &[size, 1])
            .stride(&[1][..])
            .call()?;
        return f::squeeze_dim(&means, 1).map(Ret::One);
    }
    let s = x.shape();
    let wide = f::view(&squares, &[s[0], 1, s[1], s[2], -1])?;
    let wide = f::constant_pad_nd(&wide, &[0, 0, 0, 0, around[0], around[1]])?;
    let means = f::NnFunctionalAvgPool3d::new(&wide, &[size, 1, 1])
        .stride(&[1][..])
        .call()?;
    f::view(&f::squeeze_dim(&means, 1)?, s).map(Ret::One)
}
