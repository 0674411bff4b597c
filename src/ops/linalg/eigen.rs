//! Eigenvalues of general matrices.

use crate::cpu::dense::view::Matrix;
use crate::cpu::eigen::{Spectral, eigen};
use crate::cpu::matrices::{self, Pieces, Stack};
use crate::ops::core::op::{Batch, Cast, F, O, OpDef, OutSpec, P, Plan, Ret, kernel};
use crate::ops::f;
use crate::ops::linalg::rules::{check, columnwise, cubic, lead, with_numbers};
use crate::{DType, DeviceKind, Element, Result, Tensor, ensure};
use num_complex::Complex;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "linalg.eig",
        "(Tensor self) -> (Tensor eigenvalues, Tensor eigenvectors)",
        F | O | P,
        body!(|a| rule(a.input, true), |a, _, o| write(a.input, "linalg.eig", &o[0], Some(&o[1]))).unmeasured(),
        "Eigenvalues and eigenvectors of a square matrix.",
    )
    .samples("f32[5, 5]; c64[2, 3, 3]; f64[0, 0]")
    .grad("self: _grad.eig(grads[0], grads[1], eigenvalues, eigenvectors); jvp: _grad.eig_tangent(self_t, eigenvalues, eigenvectors)")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "linalg.eigvals",
        "(Tensor self)",
        F | O,
        body!(|a| rule(a.input, false), |a, _, o| write(a.input, "linalg.eig", &o[0], None)).unmeasured(),
        "Eigenvalues of a square matrix.",
    )
    .samples("f32[5, 5]; c64[2, 3, 3]")
    .through(typed!(recorded_eigvals))
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
];

fn rule(t: &Tensor, vectors: bool) -> Result<Plan> {
    let d = t.dtype();
    let name = if vectors {
        "linalg.eig"
    } else {
        "linalg.eigvals"
    };
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
        plan.outs.push(if t.device().kind == DeviceKind::Cuda {
            OutSpec::contiguous(t.shape(), complex)
        } else {
            columnwise(t.shape().clone(), complex)
        });
    }
    Ok(plan)
}

fn write(t: &Tensor, name: &str, values: &Tensor, vectors: Option<&Tensor>) -> Result<()> {
    if t.numel() == 0 {
        return Ok(());
    }
    with_numbers!(t.dtype(), T => write_typed::<T>(t, name, values, vectors))
}

fn write_typed<T: Spectral>(
    t: &Tensor,
    name: &str,
    values: &Tensor,
    vectors: Option<&Tensor>,
) -> Result<()>
where
    Complex<T::Size>: Element,
{
    let all = Stack::<T>::copied(t, &lead(t.shape()))?;
    ensure!(
        all.unbounded().is_none(),
        Runtime,
        "torch.linalg.eig: input tensor should not contain infs or NaNs."
    );
    let n = all.rows;
    let zero = Complex::<T::Size>::default();
    let mut found = vec![zero; all.count * n];
    let mut bases = vec![
        zero;
        if vectors.is_some() {
            found.len() * n
        } else {
            0
        }
    ];
    let mut done = vec![false; all.count];
    let width = if vectors.is_some() { n * n } else { 0 };
    let parts = (
        Pieces::new(&mut found, n),
        Pieces::new(&mut bases, width),
        Pieces::new(&mut done, 1),
    );
    matrices::each(all.count, cubic(n), &parts, |i, (values, vectors, done)| {
        let matrix = Matrix {
            rows: n,
            columns: n,
            data: all.flat(i).to_vec(),
        };
        if let Some(made) = eigen(matrix, width > 0) {
            values.copy_from_slice(&made.values);
            vectors.copy_from_slice(&made.vectors);
            done[0] = true;
        }
    });
    ensure!(
        done.iter().all(|&d| d),
        LinAlg,
        "{name}: The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated eigenvalues."
    );
    matrices::write_numbers(values, &found)?;
    match vectors {
        Some(out) => matrices::write_columns(out, &bases),
        None => Ok(()),
    }
}

/// Eigenvalues with the vectors that their gradient needs.
fn recorded_eigvals(a: &calls::LinalgEigvals) -> Result<Ret> {
    let [values, _] = f::linalg_eig(a.input)?;
    Ok(Ret::One(values))
}
