//! Dense algebra in the matrix's own type: factorisations of blocks, whose bulk is the products of [`gemm`](super::gemm).
//!
//! Matrices lie column after column, results and their order, signs and codes are LAPACK's. No sum depends on the
//! number of threads.
//!
//! Sources: Golub and Van Loan, "Matrix computations"; the working notes of LAPACK where a file names them.

pub mod number;
pub mod vector;
pub mod view;
pub mod cholesky;
pub mod lu;
pub mod reflect;
#[cfg(test)]
mod samples;
pub mod triangular;
pub mod divide;
pub mod hermitian;
pub mod secular;
pub mod tridiagonal;
pub mod bidiagonal;
pub mod chase;
pub mod parted;
pub mod singular;
