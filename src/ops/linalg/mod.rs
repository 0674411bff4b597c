//! Products, factorisations and solutions of matrices.

pub mod addmm;
pub mod contract;
pub mod derived;
pub mod einsum;
pub mod factor;
pub mod lu;
pub mod matrix;
pub mod solve;
pub mod spectral;
