//! Reading and writing at indices that need not lie within the tensor where a mask is false.

use crate::ops::core::op::{F, OpDef, compose};
use crate::ops::core::typed::OptTensors;
use crate::ops::f;
use crate::{Result, Scalar, Tensor};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_unsafe_masked_index",
        "(Tensor self, Tensor mask, Tensor?[] indices, Scalar fill)",
        F,
        |a| {
            let indices = clamped(a.input, &a.indices)?;
            let found = f::index(a.input, OptTensors::from(&indices[..]))?;
            f::masked_fill(&found, &f::logical_not(a.mask)?, a.fill)
        },
        "The elements at indices where a mask is true, and `fill` elsewhere.",
    )
    .samples("f32[4], b8([True, False]), [i64([1, 9])], 0.5")
    .grad("self: _unsafe_masked_index_put_accumulate(grad.new_zeros(self.sizes), mask, indices, grad); jvp: _unsafe_masked_index(self_t, mask, indices, 0)"),
    compose(
        "_unsafe_masked_index_put_accumulate",
        "(Tensor self, Tensor mask, Tensor?[] indices, Tensor values)",
        F,
        |a| {
            let indices = clamped(a.input, &a.indices)?;
            let values = f::masked_fill(a.values, &f::logical_not(a.mask)?, 0i64)?;
            f::IndexPut::new(a.input, OptTensors::from(&indices[..]), &values)
                .accumulate(true)
                .call()
        },
        "A tensor with values added at indices where a mask is true.",
    )
    .samples("f32[4], b8([True, False]), [i64([1, 9])], f32[2]")
    .grad("self: grad; values: _unsafe_masked_index(grad, mask, indices, 0); jvp: linear"),
];

/// Indices that lie within a tensor.
fn clamped(t: &Tensor, indices: &OptTensors) -> Result<Vec<Option<Tensor>>> {
    let within = |(index, n): (&Option<&Tensor>, &i64)| {
        let bounded = |i: &Tensor| {
            f::Clamp::new(i)
                .min(Scalar::Int(-*n))
                .max(Scalar::Int(*n - 1))
                .call()
        };
        index.map(bounded).transpose()
    };
    indices.0.iter().zip(t.shape().iter()).map(within).collect()
}
