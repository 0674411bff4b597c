//! Dense algebra in the matrix's own type: factorisations of blocks, whose bulk is the products of [`gemm`](super::gemm).
//!
//! Matrices lie column after column, results and their order, signs and codes are LAPACK's. No sum depends on the
//! number of threads.
//!
//! Sources: Golub and Van Loan, "Matrix computations"; the working notes of LAPACK where a file names them.

pub mod bidiagonal;
pub mod chase;
pub mod cholesky;
pub mod columns;
pub mod divide;
pub mod hermitian;
pub mod lu;
pub mod number;
pub mod parted;
pub mod reflect;
#[cfg(test)]
mod samples;
pub mod secular;
pub mod singular;
pub mod triangular;
pub mod tridiagonal;
pub mod vector;
pub mod view;
