//! The backward operators of rows elsewhere: what the formulas of gradients call.

pub mod attention;
pub mod conv;
pub mod grid;
pub mod index;
pub mod layout;
pub mod linalg;
pub mod pad;
pub mod pointwise;
pub mod pool;
pub mod products;
pub mod reduce;
pub mod resize;
pub mod special;

use crate::{Result, bail};

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
