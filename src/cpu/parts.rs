//! Real and imaginary parts as memory.

use crate::{Dims, Result, Tensor, cpu::copy};

/// Writes the real and imaginary part (broadcast) into a complex tensor.
///
/// # Errors
/// If there is no conversion.
pub fn join(out: &Tensor, real: &Tensor, imag: &Tensor) -> Result<()> {
    let strides: Dims = out.strides().iter().map(|s| s * 2).collect();
    for (i, part) in [real, imag].into_iter().enumerate() {
        let place = out.reinterpret(
            out.dtype().to_real(),
            out.shape().clone(),
            strides.clone(),
            out.offset() * 2 + i as i64,
        );
        copy::copy(&place, part)?;
    }
    Ok(())
}
