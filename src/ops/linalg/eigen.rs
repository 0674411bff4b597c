//! Eigenvalues of general matrices.

use crate::cpu::eigen::{Number, eigen};
use crate::cpu::{copy, matrices, slice};
use crate::ops::core::op::{Batch, Cast, F, O, OpDef, OutSpec, Plan, Ret, X, kernel};
use crate::ops::f;
use crate::ops::linalg::rules::{check, columnwise};
use crate::{DType, Element, Result, Tensor, bail, ensure, with_dtype};
use num_complex::Complex;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.eig",
        "(Tensor A) -> (Tensor eigenvalues, Tensor eigenvectors)",
        F | O | X,
        body!(|a| rule(a.A, true), |a, _, o| write(a.A, "linalg.eig", &o[0], Some(&o[1]))).unmeasured(),
        "Eigenvalues and eigenvectors of a square matrix.",
    )
    .samples("f32[5, 5]; c64[2, 3, 3]; f64[0, 0]")
    .grad("A: _grad.eig(grads[0], grads[1], eigenvalues, eigenvectors); jvp: _grad.eig_tangent(A_t, eigenvalues, eigenvectors)")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "linalg.eigvals",
        "(Tensor A)",
        F | O | X,
        body!(|a| rule(a.A, false), |a, _, o| write(a.A, "linalg.eig", &o[0], None)).unmeasured(),
        "Eigenvalues of a square matrix.",
    )
    .samples("f32[5, 5]; c64[2, 3, 3]")
    .through(typed!(recorded_eigvals))
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
];

fn rule(t: &Tensor, vectors: bool) -> Result<Plan> {
    let (name, d) = ("linalg.eig", t.dtype());
    if t.ndim() >= 2 && d.is_reduced_float() {
        return Err(d.no_kernel("linalg_eig_out_cpu"));
    }
    ensure!(
        t.ndim() < 2 || d.is_float() || d.is_complex(),
        Runtime,
        "Unknown Complex ScalarType for {}",
        d.scalar_type()
    );
    let (batch, n, _) = check(t, name, true)?;
    let complex = if d.to_real() == DType::F64 {
        DType::C128
    } else {
        DType::C64
    };
    let mut plan = Plan::contiguous(&batch.concat(&[n]), complex);
    if vectors {
        let OutSpec {
            shape,
            strides,
            dtype,
        } = columnwise(t.shape().clone(), complex);
        plan.outs.push(OutSpec {
            shape,
            strides,
            dtype,
        });
    }
    Ok(plan)
}

fn write(t: &Tensor, name: &str, values: &Tensor, vectors: Option<&Tensor>) -> Result<()> {
    if t.numel() == 0 {
        return Ok(());
    }
    with_dtype!(t.dtype(), [float complex] => T, {
        return write_typed::<T>(t, name, values, vectors);
    }, else {});
    Err(t.dtype().no_kernel("linalg_eig_out_cpu"))
}

fn write_typed<T>(t: &Tensor, name: &str, values: &Tensor, vectors: Option<&Tensor>) -> Result<()>
where
    T: Number + Element,
    Complex<T::Size>: Element,
{
    let n = t.shape()[t.ndim() - 1] as usize;
    let dense = copy::dense(t, t.dtype())?;
    let (mut all, mut bases) = (Vec::new(), Vec::new());
    for m in slice::<T>(&dense).chunks_exact(n * n) {
        ensure!(
            m.iter().all(|v| v.is_finite()),
            Runtime,
            "torch.linalg.eig: input tensor should not contain infs or NaNs."
        );
        let Some(found) = eigen(n, m, vectors.is_some()) else {
            bail!(
                LinAlg,
                "{name}: The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated eigenvalues."
            );
        };
        all.extend(found.values);
        bases.extend(found.vectors);
    }
    copy::copy(values, &Tensor::from_slice(&all, values.shape())?)?;
    let Some(out) = vectors else {
        return Ok(());
    };
    matrices::write_columns(out, &bases)
}

/// Eigenvalues with the vectors that their gradient needs.
fn recorded_eigvals(a: &calls::LinalgEigvals) -> Result<Ret> {
    let [values, _] = f::linalg_eig(a.A)?;
    Ok(Ret::One(values))
}
