//! The forms of an operator, as bits: where it appears, and what its `out=` and its in-place form are.

/// Appears as a function of the module.
pub const F: u16 = 1;
/// Appears as a method of `Tensor`.
pub const M: u16 = 2;
/// Has an in-place form `name_`.
pub const I: u16 = 4;
/// Takes `out=`.
pub const O: u16 = 8;
/// Its `out=` has to have exactly the dtype of the result; a bit beside [`O`].
pub const X: u16 = 16;
/// Numbers alone make a tensor, as with the four arithmetic operations.
pub const N: u16 = 32;
/// Its in-place form wants a tensor of exactly the dtype of the result; a bit beside [`I`].
pub const E: u16 = 64;
/// Its in-place form is a function of the module too: `relu_(x)` beside `x.relu_()`.
pub const J: u16 = 256;
/// Its `out=` says the `dtype` that it computes in, unless one is given; a bit beside [`O`].
pub const D: u16 = 128;
/// Its `out=` lies row-major where it has to be made larger; a bit beside [`O`].
pub const R: u16 = 512;
/// Its `out=` keeps its shape where that has as many elements as the result; a bit beside [`O`].
pub const K: u16 = 4096;
/// Its `out=` is made larger without a warning; a bit beside [`O`].
pub const Q: u16 = 1024;
/// Its `out=` lies row-major where it has to be made larger, unless it was empty and of the result's dtype; a bit beside [`O`].
pub const P: u16 = 2048;
/// Function and method.
pub const FM: u16 = F | M;
/// Function, method and `out=`.
pub const FMO: u16 = F | M | O;
/// All forms.
pub const FMIO: u16 = F | M | I | O;
