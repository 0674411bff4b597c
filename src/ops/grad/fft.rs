//! Gradients of Fourier transforms between real and complex numbers.

use crate::ops::core::op::{OpDef, compose};
use crate::ops::f;
use crate::{Result, Tensor, bail};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.fft_r2c",
        "(Tensor grad, int[] dim, int normalization, bool onesided, int[] sizes)",
        0,
        real_back,
        "The gradient of `_fft_r2c`: what the other half says is nothing new.",
    )
    .samples("c64[3, 3], (1,), 0, True, (3, 4)"),
    compose(
        "_grad.fft_c2r",
        "(Tensor grad, int[] dim, int normalization)",
        0,
        inverse_back,
        "The gradient of `_fft_c2r`: values that stand for two count twice.",
    )
    .samples("f32[3, 6], (1,), 2"),
];

fn last_of(dim: &[i64]) -> Result<i64> {
    match dim.last() {
        Some(last) => Ok(*last),
        None => bail!(Runtime, "a transform needs a dimension"),
    }
}

fn real_back(a: &calls::_GradFftR2c) -> Result<Tensor> {
    let mut grad = a.grad.clone();
    if a.onesided {
        let last = crate::dims::wrap_dim(last_of(a.dim)?, grad.ndim())?;
        let Some(size) = a.sizes.get(last) else {
            bail!(
                Runtime,
                "fft_r2c_backward: no size of dimension {last} in {:?}",
                a.sizes
            );
        };
        let missing = size.saturating_sub(grad.shape()[last]);
        if missing > 0 {
            let mut pad = vec![0; 2 * (grad.ndim() - last)];
            pad[2 * (grad.ndim() - 1 - last) + 1] = missing;
            grad = f::constant_pad_nd(&grad, &pad)?;
        }
    }
    f::real(&f::_fft_c2c(&grad, a.dim, a.normalization, false)?)
}

fn inverse_back(a: &calls::_GradFftC2r) -> Result<Tensor> {
    let last = last_of(a.dim)?;
    let made = f::_fft_r2c(a.grad, a.dim, a.normalization, true)?;
    let twice = a.grad.size(last)? - made.size(last)?;
    if twice <= 0 {
        return Ok(made);
    }
    let rest = made.size(last)? - 1 - twice;
    let of = |n: i64, weight: i64| f::NewFull::new(a.grad, &[n], weight).call();
    let weights = [of(1, 1)?, of(twice, 2)?, of(rest, 1)?];
    let weights = f::Cat::new(&weights[..]).call()?;
    let d = crate::dims::wrap_dim(last, made.ndim())?;
    let shape = crate::Dims::filled(made.ndim(), 1).with(d, made.shape()[d]);
    f::mul(&made, &f::view(&weights, &shape)?)
}
