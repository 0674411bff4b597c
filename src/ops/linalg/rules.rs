//! Layout rules that operators on matrices share.

use crate::ops::core::op::{OutSpec, Plan};
use crate::{DType, Dims, Result, Tensor, dims, ensure};

/// A plan of several results.
pub(super) fn plan<const N: usize>(outs: [OutSpec; N]) -> Plan {
    Plan {
        outs: outs.into_iter().collect(),
        device: None,
    }
}

/// Strides with the last two dimensions column by column.
pub(super) fn by_columns(shape: &[i64]) -> Dims {
    let mut s = dims::contiguous_strides(shape);
    let n = shape.len();
    if n >= 2 {
        s[n - 2] = 1;
        s[n - 1] = shape[n - 2].max(1);
    }
    s
}

/// A result column by column.
pub(super) fn columnwise(shape: Dims, dtype: DType) -> OutSpec {
    OutSpec {
        strides: by_columns(&shape),
        shape,
        dtype,
    }
}

/// Checks a batch of (square) matrices; gives the batch's sizes, rows and columns.
pub(super) fn check(t: &Tensor, name: &str, square: bool) -> Result<(Dims, i64, i64)> {
    let n = t.ndim();
    ensure!(
        n >= 2,
        Runtime,
        "{name}: The input tensor A must have at least 2 dimensions."
    );
    let (r, c) = (t.shape()[n - 2], t.shape()[n - 1]);
    ensure!(
        !square || r == c,
        Runtime,
        "{name}: A must be batches of square matrices, but they are {r} by {c} matrices"
    );
    check_numbers(t.dtype(), name)?;
    Ok((lead(t.shape()), r, c))
}

/// The same for a factorisation into triangles, which has its own words for what is no matrix.
pub(super) fn check_triangles(t: &Tensor, name: &str) -> Result<(Dims, i64, i64)> {
    ensure!(
        t.ndim() >= 2,
        Runtime,
        "{name}: Expected tensor with 2 or more dimensions. Got size: {} instead",
        t.shape()
    );
    check(t, name, false)
}

/// Checks that there is a factorisation of matrices of this type, as PyTorch's functions do: some look at the type
/// themselves, others leave that to their kernel, or what is a matrix of low precision.
pub(super) fn check_numbers(d: DType, name: &str) -> Result<()> {
    if matches!(d, DType::F32 | DType::F64 | DType::C64 | DType::C128) {
        return Ok(());
    }
    let (looks, kernel) = match name {
        "cholesky" => (false, "cholesky_cpu"),
        "cholesky_inverse" => (false, "cholesky_inverse_out_cpu"),
        "cholesky_solve" => (false, "cholesky_solve_cpu"),
        "geqrf" => (false, "geqrf_cpu"),
        "linalg.cholesky" => (true, "cholesky_cpu"),
        "linalg.eigh" => (false, "linalg_eigh_cpu"),
        "linalg.lu" | "torch.lu_factor" => (false, "lu_cpu"),
        "linalg.qr" => (true, "geqrf_cpu"),
        "linalg.solve" => (true, "lu_cpu"),
        "linalg.solve_triangular" | "triangular_solve" => (false, "triangular_solve_cpu"),
        "linalg.svd" => (true, "linalg_svd_cpu"),
        "torch.linalg.householder_product" => (false, "orgqr_cpu"),
        "torch.linalg.ldl_factor_ex" => (true, "ldl_factor_kernel_cpu"),
        "torch.linalg.lu_solve" => (true, "linalg.lu_solve_cpu"),
        _ => (true, ""),
    };
    ensure!(
        !looks || d.is_float() || d.is_complex(),
        Runtime,
        "{name}: Expected a floating point or complex tensor as input. Got {}",
        d.scalar_type()
    );
    ensure!(
        !kernel.is_empty(),
        Runtime,
        "{name}: Low precision dtypes not supported. Got {}",
        d.scalar_type()
    );
    Err(d.no_kernel(kernel))
}

/// The sizes before those of the matrices.
pub(super) fn lead(shape: &[i64]) -> Dims {
    Dims::new(&shape[..shape.len() - 2])
}

/// The sizes of the matrices.
pub(super) fn tail(shape: &[i64]) -> &[i64] {
    &shape[shape.len() - 2..]
}

/// The checks of functions that are older than `linalg`, in their order and words; gives the batch of the equation.
pub(super) fn older(name: &str, a: &Tensor, b: &Tensor) -> Result<Dims> {
    let (p, q) = (a.dtype().scalar_type(), b.dtype().scalar_type());
    ensure!(
        a.dtype() == b.dtype(),
        Runtime,
        "Expected b and A to have the same dtype, but found b of type {q} and A of type {p} instead."
    );
    let (n, m, r, c) = (a.size(-2)?, a.size(-1)?, b.size(-2)?, b.size(-1)?);
    ensure!(
        n == m,
        Runtime,
        "A must be batches of square matrices, but they are {n} by {m} matrices"
    );
    ensure!(
        n == r,
        Runtime,
        "Incompatible matrix sizes for {name}: each A matrix is {n} by {n} but each b matrix is {r} by {c}"
    );
    check_numbers(a.dtype(), name)?;
    dims::broadcast(&lead(b.shape()), &lead(a.shape()))
}

/// Both sides of an equation have one dtype.
pub(super) fn same_types(name: &str, a: &Tensor, b: &Tensor) -> Result<()> {
    let (p, q) = (a.dtype().scalar_type(), b.dtype().scalar_type());
    let left = if name == "linalg.lu_solve" { "LU" } else { "A" };
    ensure!(
        a.dtype() == b.dtype(),
        Runtime,
        "{name}: Expected {left} and B to have the same dtype, but found {left} of type {p} and B of type {q} instead"
    );
    Ok(())
}

/// The batch of an equation `A X = B`, or `X A = B`, from the shapes of both sides.
pub(super) fn fits(name: &str, a: &[i64], b: &[i64], left: bool) -> Result<Dims> {
    let (n, r, c) = (a[a.len() - 1], b[b.len() - 2], b[b.len() - 1]);
    ensure!(
        if left { n == r } else { n == c },
        Runtime,
        "{name}: Incompatible shapes of A and B for the equation {} ({n}x{n} and {r}x{c})",
        if left { "AX = B" } else { "XA = B" }
    );
    dims::broadcast(&lead(a), &lead(b))
}

/// Which matrix of a batch failed, for messages.
pub(super) fn batch_note(t: &Tensor, i: usize) -> String {
    if t.ndim() > 2 {
        format!("(Batch element {i}): ")
    } else {
        String::new()
    }
}

/// Returns a call that is generic in the number type `T` of a dtype.
macro_rules! with_numbers {
    ($dtype:expr, $T:ident => $call:expr) => {{
        let dtype: $crate::DType = $dtype;
        $crate::with_dtype!(dtype, [float complex] => $T, { return $call; }, else {});
        Err(dtype.no_kernel("linalg"))
    }};
}
pub(super) use with_numbers;

/// Operations of an algorithm that does `n^3` of them, as far as they decide about threads.
pub(super) fn cubic(n: usize) -> usize {
    n.saturating_mul(n).saturating_mul(n)
}
