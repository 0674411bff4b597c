//! Products, factorisations and solutions of matrices.

pub mod addmm;
pub mod cholesky;
pub mod contract;
pub mod eigen;
pub mod einsum;
pub mod grouped;
pub mod indefinite;
pub mod lstsq;
pub mod lu;
pub mod matrix;
pub mod norm;
pub mod packed;
pub mod power;
pub mod rank;
pub mod reflections;
mod rules;
pub mod solve;
pub mod spectral;
pub mod triangular;
pub mod vectors;
