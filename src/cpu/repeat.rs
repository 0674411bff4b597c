//! Elements again and again, or in reverse order.

use super::copy;
use crate::{Dims, Result, Tensor};

/// Fills `out` with `t` again and again, as often along each dimension as `repeats` says.
///
/// # Errors
/// If there is no conversion.
pub fn repeat(out: &Tensor, t: &Tensor, repeats: &[i64]) -> Result<()> {
    if out.numel() == 0 {
        return Ok(());
    }
    // Each dimension of the result is one of repetitions and one of the tensor's own.
    let lead = repeats.len() - t.ndim();
    let (mut shape, mut to, mut from) = (Vec::new(), Vec::new(), Vec::new());
    for i in 0..repeats.len() {
        let (size, stride) = if i < lead {
            (1, 0)
        } else {
            (t.shape()[i - lead], t.strides()[i - lead])
        };
        shape.extend([repeats[i], size]);
        to.extend([out.strides()[i] * size, out.strides()[i]]);
        from.extend([0, stride]);
    }
    let shape = Dims::new(&shape);
    copy::copy(
        &out.view_with(shape.clone(), Dims::new(&to), out.offset()),
        &t.view_with(shape, Dims::new(&from), t.offset()),
    )
}

/// Copies `t` to `out` with some dimensions in reverse order.
///
/// # Errors
/// If there is no conversion.
pub fn flip(out: &Tensor, t: &Tensor, dims: &[usize]) -> Result<()> {
    let (mut strides, mut offset) = (t.strides().clone(), t.offset());
    if t.numel() > 0 && t.ndim() > 0 {
        for &d in dims {
            offset += (t.shape()[d] - 1) * strides[d];
            strides[d] = -strides[d];
        }
    }
    copy::copy(out, &t.view_with(t.shape().clone(), strides, offset))
}
