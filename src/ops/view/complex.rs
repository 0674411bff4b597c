//! Views between complex and real tensors.

use crate::ops::core::args::Args;
use crate::ops::core::op::{F, FM, OpDef, Ret, old_view};
use crate::{DType, Dims, Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    old_view("real", "(Tensor self)", F, real, "The real parts."),
    old_view("imag", "(Tensor self)", F, imag, "The imaginary parts."),
    old_view(
        "view_as_real",
        "(Tensor self)",
        F,
        view_as_real,
        "Complex numbers as pairs in a last dimension.",
    ),
    old_view(
        "view_as_complex",
        "(Tensor self)",
        F,
        view_as_complex,
        "Pairs in the last dimension as complex numbers.",
    ),
    old_view(
        "conj",
        "(Tensor self)",
        FM,
        |a| Ok(conj(a.tensor(0)?).into()),
        "Complex conjugated, lazily.",
    ),
];

/// The lazily conjugated tensor; real tensors are returned as they are.
#[must_use]
pub fn conj(t: &Tensor) -> Tensor {
    if t.dtype().is_complex() {
        t.detach().with_conj(!t.is_conj())
    } else {
        t.clone()
    }
}

fn parts(t: &Tensor, which: i64) -> Tensor {
    let strides: Dims = t.strides().iter().map(|s| s * 2).collect();
    t.reinterpret(
        t.dtype().to_real(),
        t.shape().clone(),
        strides,
        t.offset() * 2 + which,
    )
}

fn real(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    Ok(if t.dtype().is_complex() {
        parts(t, 0)
    } else {
        t.clone()
    }
    .into())
}

fn imag(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(
        t.dtype().is_complex(),
        Runtime,
        "imag is not implemented for tensors with non-complex dtypes."
    );
    Ok(parts(t, 1).with_neg(t.is_conj()).into())
}

fn view_as_real(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(
        t.dtype().is_complex(),
        Runtime,
        "view_as_real is only supported for complex tensors"
    );
    ensure!(
        !t.is_conj(),
        Runtime,
        "view_as_real doesn't work on unresolved conjugated tensors.  To resolve the conjugate tensor so you can view it as real, use \
         self.resolve_conj(); however, be warned that the resulting tensor will NOT alias the original."
    );
    let p = parts(t, 0);
    Ok(
        p.view_with(p.shape().concat(&[2]), p.strides().concat(&[1]), p.offset())
            .into(),
    )
}

fn view_as_complex(a: &Args) -> Result<Ret> {
    let t = a.tensor(0)?;
    ensure!(
        matches!(t.dtype(), DType::F16 | DType::F32 | DType::F64),
        Runtime,
        "view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: {}",
        t.dtype().scalar_type()
    );
    let n = t.ndim();
    ensure!(
        n > 0,
        Runtime,
        "Input tensor must have one or more dimensions"
    );
    ensure!(
        t.shape()[n - 1] == 2,
        Runtime,
        "Tensor must have a last dimension of size 2"
    );
    ensure!(
        t.strides()[n - 1] == 1,
        Runtime,
        "Tensor must have a last dimension with stride 1"
    );
    ensure!(
        t.offset() % 2 == 0,
        Runtime,
        "Tensor must have a storage_offset divisible by 2"
    );
    let mut strides = Dims::filled(n - 1, 0);
    for d in 0..n - 1 {
        ensure!(
            t.strides()[d] % 2 == 0,
            Runtime,
            "Tensor must have a stride divisible by 2 for all but last dimension"
        );
        strides[d] = t.strides()[d] / 2;
    }
    Ok(t.reinterpret(
        t.dtype().to_complex(),
        Dims::new(&t.shape()[..n - 1]),
        strides,
        t.offset() / 2,
    )
    .into())
}
