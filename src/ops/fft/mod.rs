//! Discrete Fourier transforms: three kernels, and the functions of `fft` made of them.

pub(crate) mod functions;
mod plan;
pub(crate) mod short_time;

use crate::cpu::fft::{self as cpu, How};
use crate::dims::wrap_dim;
use crate::kernels::fft;
use crate::ops::core::op::{F, O, OpDef, Plan, kernel};
use crate::{Result, Tensor, bail, ensure};
use smallvec::SmallVec;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_fft_c2c",
        "(Tensor self, int[] dim, int normalization, bool forward)",
        F | O,
        body!(
            |a| complex_rule(a.input, a.dim),
            anywhere: |a, dims, outs| fft::complex(
                &outs[0],
                a.input,
                dims,
                How {
                    forward: a.forward,
                    scale: scale(a.normalization, a.input.shape(), dims)
                }
            ),
            scratch: |a, dims, outs, room| cpu::complex_room(room, &outs[0], dims, How {
                forward: a.forward,
                scale: scale(a.normalization, a.input.shape(), dims)
            })
        ),
        "The Fourier transform of complex numbers along dimensions.",
    )
    .samples("c64[3, 4], (1,), 0, True; c128[2, 3, 4], (0, 2), 1, False; c64[3, 4], (), 0, True")
    .grad("self: _fft_c2c(grad, dim, normalization, not forward); jvp: linear"),
    kernel(
        "_fft_r2c",
        "(Tensor self, int[] dim, int normalization, bool onesided)",
        F | O,
        body!(
            |a| real_rule(a.input, a.dim, a.onesided),
            anywhere: |a, dims, outs| fft::real(
                &outs[0],
                a.input,
                dims,
                scale(a.normalization, a.input.shape(), dims)
            ),
            scratch: |a, dims, outs, room| cpu::real_room(room, &outs[0], a.input, dims)
        ),
        "The Fourier transform of real numbers along dimensions, or the half of the last that says all.",
    )
    .samples("f32[3, 4], (1,), 0, True; f64[2, 3, 5], (0, 2), 1, True; f32[3, 4], (0,), 2, False")
    .grad("self: _grad.fft_r2c(grad, dim, normalization, onesided, self.sizes); jvp: linear"),
    kernel(
        "_fft_c2r",
        "(Tensor self, int[] dim, int normalization, int last_dim_size)",
        F | O,
        body!(
            |a| inverse_rule(a.input, a.dim, a.last_dim_size),
            anywhere: |a, dims, outs| fft::inverse(
                &outs[0],
                a.input,
                dims,
                scale(a.normalization, outs[0].shape(), dims)
            ),
            scratch: |a, dims, outs, room| cpu::inverse_room(room, &outs[0], a.input, dims)
        ),
        "The inverse Fourier transform to real numbers, of the half of the last dimension that says all.",
    )
    .samples("c64[3, 4], (1,), 2, 6; c128[3, 4], (1,), 1, 7; c64[2, 3, 4], (0, 2), 2, 6")
    .grad("self: _grad.fft_c2r(grad, dim, normalization); jvp: linear"),
];

/// The factor of a normalisation: 0 none, 1 orthonormal, 2 that of the inverse.
fn scale(normalization: i64, shape: &[i64], dims: &[usize]) -> f64 {
    let n: f64 = dims.iter().map(|d| shape[*d] as f64).product();
    match normalization {
        1 => 1.0 / n.sqrt(),
        2 => 1.0 / n,
        _ => 1.0,
    }
}

/// Dimensions of a transform.
type List = SmallVec<[usize; 4]>;

fn list(t: &Tensor, dims: &[i64]) -> Result<List> {
    dims.iter().map(|d| dimension(t, *d)).collect()
}

/// A dimension, of which a tensor without any has none.
fn dimension(t: &Tensor, dim: i64) -> Result<usize> {
    ensure!(
        t.ndim() > 0,
        Index,
        "Dimension specified as {dim} but tensor has no dimensions"
    );
    wrap_dim(dim, t.ndim())
}

fn check_complex(t: &Tensor) -> Result<()> {
    ensure!(
        t.dtype().is_complex(),
        Runtime,
        "Only supports complex dtypes, but found: {}",
        t.dtype().scalar_type()
    );
    Ok(())
}

/// The dimensions of a transform between real and complex numbers, and the last of them, which has a half.
fn halved(t: &Tensor, dims: &[i64]) -> Result<(List, usize)> {
    let dims = list(t, dims)?;
    match dims.last() {
        Some(&last) => Ok((dims, last)),
        None => bail!(
            Runtime,
            "ArrayRef: attempted to access back() of empty list"
        ),
    }
}

fn complex_rule(t: &Tensor, dims: &[i64]) -> Result<(Plan, List)> {
    check_complex(t)?;
    let dims = list(t, dims)?;
    let strides = if dims.is_empty() {
        crate::dims::preserved_strides(t.shape(), t.strides())
    } else {
        plan::complex(t.shape(), t.strides(), &dims)
    };
    Ok((Plan::one(t.shape().clone(), strides, t.dtype()), dims))
}

fn real_rule(t: &Tensor, dims: &[i64], onesided: bool) -> Result<(Plan, List)> {
    ensure!(
        t.dtype().is_float(),
        Runtime,
        "Only supports floating-point dtypes, but found: {}",
        t.dtype().scalar_type()
    );
    let (dims, last) = halved(t, dims)?;
    let dtype = t.dtype().to_complex();
    let half = t.shape().with(last, t.shape()[last] / 2 + 1);
    let shape = if onesided { half } else { t.shape().clone() };
    let strides = plan::ordered(&shape, t.strides(), &dims, true);
    Ok((Plan::one(shape, strides, dtype), dims))
}

fn inverse_rule(t: &Tensor, dims: &[i64], size: i64) -> Result<(Plan, List)> {
    check_complex(t)?;
    let (dims, last) = halved(t, dims)?;
    ensure!(
        size >= 1 && t.shape()[last] > size / 2,
        Runtime,
        "_fft_c2r: a dimension of {} values is too small for a result of {size}",
        t.shape()[last]
    );
    let shape = t.shape().with(last, size);
    let before = plan::complex(t.shape(), t.strides(), &dims[..dims.len() - 1]);
    let strides = plan::ordered(&shape, &before, &[last], true);
    Ok((Plan::one(shape, strides, t.dtype().to_real()), dims))
}
