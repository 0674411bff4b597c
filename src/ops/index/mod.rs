//! Reading and writing at indices and masks.

pub mod along;
pub mod getitem;
pub mod mask;
pub mod nonzero;
pub mod scatter;
pub mod take;
