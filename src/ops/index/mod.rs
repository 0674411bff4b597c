//! Reading and writing at indices and masks.

pub mod advanced;
pub mod along;
mod beside;
mod counts;
pub mod getitem;
mod layout;
pub mod mask;
pub mod masked;
pub mod nonzero;
pub(in crate::ops) mod room;
pub mod scatter;
pub mod slices;
pub mod take;
pub mod truth;
