//! The backward operators of rows elsewhere: what the formulas of gradients call.

pub mod activation;
pub mod attention;
pub mod conv;
pub mod ctc;
pub mod distance;
pub mod eigen;
pub mod embedding;
pub mod fft;
pub mod grid;
mod grid_composed;
pub mod index;
pub mod layout;
pub mod linalg;
pub mod loss;
pub mod norm;
mod norm_composed;
pub mod pad;
pub mod pointwise;
pub mod pool;
pub mod products;
pub mod recurrent;
pub mod reduce;
pub mod reflections;
pub mod resize;
pub mod softmax;
pub mod special;
pub mod spectral;
pub mod tangent;

use crate::ops::core::op::Ret;
use crate::{Result, Tensor, bail};

/// Which of `N` results are asked for.
fn needs<const N: usize>(mask: &[bool]) -> Result<[bool; N]> {
    match mask.try_into() {
        Ok(mask) => Ok(mask),
        Err(_) => bail!(
            Runtime,
            "output_mask must have {N} elements, but got {}",
            mask.len()
        ),
    }
}

/// The results of a call in the places of those that are asked for; without any, nothing is called.
fn spread<const N: usize>(
    asked: [bool; N],
    call: impl FnOnce() -> Result<Vec<Tensor>>,
) -> Result<[Option<Tensor>; N]> {
    let mut made = if asked.contains(&true) {
        call()?
    } else {
        Vec::new()
    }
    .into_iter();
    Ok(asked.map(|a| if a { made.next() } else { None }))
}

/// A result that may be the first argument itself.
fn kept(made: Tensor, first: &Tensor) -> Ret {
    if made.lies_as(first) {
        return Ret::Same(0);
    }
    Ret::One(made)
}
