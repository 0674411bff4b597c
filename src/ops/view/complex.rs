//! Views between complex and real tensors.

use crate::ops::core::op::{Batch, Cast, F, FM, OpDef, Ret, compose, view};
use crate::ops::core::plan::ViewPlan;
use crate::ops::f;
use crate::{DType, Dims, Result, Tensor, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose("real", "(Tensor self)", F, real, "The real parts.").samples("f32[3, 4]; b8[3, 4]"),
    compose("imag", "(Tensor self)", F, imag, "The imaginary parts.").samples("c64[3, 4]"),
    view(
        "view_as_real",
        "(Tensor self)",
        F,
        view_as_real,
        "Complex numbers as pairs in a last dimension.",
    )
    .samples("c128[3, 4]")
    .grad("self: grad.contiguous().view_as_complex(); jvp: linear")
    .batch(Batch::Lead),
    view(
        "view_as_complex",
        "(Tensor self)",
        F,
        view_as_complex,
        "Pairs in the last dimension as complex numbers.",
    )
    .samples("f32[5, 2]")
    .grad("self: grad.contiguous().resolve_conj().view_as_real(); jvp: linear")
    .batch(Batch::Lead)
    .amp(Cast::Single, Cast::Kept),
    view(
        "_conj",
        "(Tensor self)",
        FM,
        |a| Ok(ViewPlan::of(a.input).conjugated()),
        "Complex conjugated, lazily.",
    )
    .samples("c64[2, 3]; f32[2]")
    .grad("self: grad.conj(); jvp: linear")
    .batch(Batch::Lead),
    compose(
        "conj",
        "(Tensor self)",
        FM,
        conj,
        "Complex conjugated, lazily; real tensors are returned as they are.",
    )
    .samples("f32[3, 4]; b8[3, 4]"),
];

fn conj(a: &calls::Conj) -> Result<Ret> {
    if a.input.dtype().is_complex() {
        f::_conj(a.input).map(Ret::from)
    } else {
        Ok(Ret::Same(0))
    }
}

/// One of the two numbers of each element, of the tensor without its lazy conjugation.
fn part(t: &Tensor, which: i64) -> Result<Tensor> {
    let plain;
    let t = if t.is_conj() {
        plain = f::_conj(t)?;
        &plain
    } else {
        t
    };
    f::select(&f::view_as_real(t)?, -1, which)
}

fn real(a: &calls::Real) -> Result<Ret> {
    if a.input.dtype().is_complex() {
        part(a.input, 0).map(Ret::from)
    } else {
        Ok(Ret::Same(0))
    }
}

fn imag(a: &calls::Imag) -> Result<Tensor> {
    ensure!(
        a.input.dtype().is_complex(),
        Runtime,
        "imag is not implemented for tensors with non-complex dtypes."
    );
    let part = part(a.input, 1)?;
    if a.input.is_conj() {
        f::_neg_view(&part)
    } else {
        Ok(part)
    }
}

fn view_as_real(a: &calls::ViewAsReal) -> Result<ViewPlan> {
    let t = a.input;
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
    let doubled: Dims = t.strides().iter().map(|s| s * 2).collect();
    Ok(ViewPlan {
        neg: t.is_neg(),
        ..ViewPlan::reinterpret(
            t.dtype().to_real(),
            t.shape().concat(&[2]),
            doubled.concat(&[1]),
            t.offset() * 2,
        )
    })
}

fn view_as_complex(a: &calls::ViewAsComplex) -> Result<ViewPlan> {
    let t = a.input;
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
            t.strides()[d] % 2 == 0 || t.shape()[d] == 1,
            Runtime,
            "Tensor must have a stride divisible by 2 for all but last dimension"
        );
        strides[d] = t.strides()[d] / 2;
    }
    Ok(ViewPlan {
        neg: t.is_neg(),
        ..ViewPlan::reinterpret(
            t.dtype().to_complex(),
            Dims::new(&t.shape()[..n - 1]),
            strides,
            t.offset() / 2,
        )
    })
}
