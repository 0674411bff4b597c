//! Copies of views.

use crate::dims::MemoryFormat;
use crate::ops::core::op::{F, FMO, O, OpDef, Q, X, compose};
use crate::ops::f;
use crate::ops::sparse::is_sparse;
use crate::{Result, Tensor, bail, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "view_copy",
        "(Tensor self, int[] size)",
        F | O | X,
        |a| copied(f::reshape(a.input, a.size)),
        "A copy of `view`.",
    )
    .samples("f32[25, 5], (5, 5, 5); c64[50, 5], (5, -1)")
    .grad("ViewBackward0_copy | self: grad.reshape(self.sizes); jvp: linear"),
    compose(
        "view_copy#dtype",
        "(Tensor self, dtype dtype)",
        F | O | X,
        |a| copied(f::view_dtype(a.input, a.dtype)),
        "A copy of `view`.",
    )
    .samples("f32[2, 3], i32"),
    compose(
        "permute_copy",
        "(Tensor self, int[] dims)",
        F | O | X,
        |a| copied(f::permute(a.input, a.dims)),
        "A copy of `permute`.",
    )
    .samples("f32[1, 2, 3, 4], (2, 1, 3, 0); c64[1, 2, 3, 4], (2, 1, 3, 0)")
    .grad("PermuteBackward0_copy | self: _grad.permute_back(grad, dims); jvp: linear"),
    compose(
        "transpose_copy",
        "(Tensor self, int dim0, int dim1)",
        F | O | X,
        |a| copied(f::transpose(a.input, a.dim0, a.dim1)),
        "A copy of `transpose`.",
    )
    .samples("f32[3, 4], 0, 0; c64[3, 4], -1, -2")
    .grad("TransposeBackward0_copy | self: grad.transpose(dim0, dim1); jvp: linear"),
    compose(
        "t_copy",
        "(Tensor self)",
        F | O | X,
        |a| copied(f::t(a.input)),
        "A copy of `t`.",
    )
    .samples("f64[3, 4]")
    .grad("TBackward0_copy | self: grad.t(); jvp: linear"),
    compose(
        "expand_copy",
        "(Tensor self, int[] size, *, bool implicit=False)",
        F | O | X,
        |a| copied(f::Expand::new(a.input, a.size).implicit(a.implicit).call()),
        "A copy of `expand`.",
    )
    .samples("f32[5, 1, 5], (-1, 5, -1)")
    .grad("ExpandBackward0_copy | self: _grad.sum_to(grad, self.sizes); jvp: linear"),
    compose(
        "squeeze_copy",
        "(Tensor self)",
        F | O | X,
        |a| copied(f::squeeze(a.input)),
        "A copy of `squeeze`.",
    )
    .samples("f32[3, 4]; c64[3, 4]")
    .grad("SqueezeBackward0_copy | self: _grad.unsqueeze_to(grad, self.sizes)"),
    compose(
        "squeeze_copy#dim",
        "(Tensor self, int dim)",
        F | O | X,
        |a| copied(f::squeeze_dim(a.input, a.dim)),
        "A copy of `squeeze`.",
    )
    .samples("f32[3, 4], 0; b8[3, 4], -1")
    .grad("SqueezeBackward1_copy | self: _grad.unsqueeze_to(grad, self.sizes, [dim])"),
    compose(
        "squeeze_copy#dims",
        "(Tensor self, int[] dim)",
        F | O | X,
        |a| copied(f::squeeze_dims(a.input, a.dim)),
        "A copy of `squeeze`.",
    )
    .samples("f32[2, 1, 3, 1], [1, 3]")
    .grad("SqueezeBackward2_copy | self: _grad.unsqueeze_to(grad, self.sizes, dim)"),
    compose(
        "unsqueeze_copy",
        "(Tensor self, int dim)",
        F | O | X,
        |a| copied(f::unsqueeze(a.input, a.dim)),
        "A copy of `unsqueeze`.",
    )
    .samples("f32[3, 4], 0; c64[3, 4], 0")
    .grad("UnsqueezeBackward0_copy | self: grad.squeeze(dim); jvp: linear"),
    compose(
        "select_copy",
        "(Tensor self, int dim, int index)",
        F | O | X,
        |a| copied(f::select(a.input, a.dim, a.index)),
        "A copy of `select`.",
    )
    .samples("f32[3, 4], 0, 1; i64[3], 0, -1")
    .grad("SelectBackward0_copy | self: _grad.select_backward(grad, self.sizes, dim, index); jvp: linear"),
    compose(
        "slice_copy",
        "(Tensor self, int dim=0, int? start=None, int? end=None, int step=1)",
        F | O | X,
        |a| {
            copied(
                f::Slice::new(a.input)
                    .dim(a.dim)
                    .start(a.start)
                    .end(a.end)
                    .step(a.step)
                    .call(),
            )
        },
        "A copy of a range.",
    )
    .samples("f32[5, 3], 0, 1, 4, 2")
    .grad("SliceBackward0_copy | self: _grad.slice_backward(grad, self.sizes, dim, start if start.given else 0, end if end.given else 9223372036854775807, step); jvp: linear"),
    compose(
        "narrow_copy",
        "(Tensor self, int dim, int start, int length)",
        FMO | X | Q,
        narrow_copy,
        "A copy of `narrow`.",
    )
    .samples("f32[3, 4], 1, 0, 0; b8[3, 4], 1, 2, 2")
    .grad("self: _grad.slice_backward(grad, self.sizes, dim, start, start + length, 1); jvp: linear"),
    compose(
        "diagonal_copy",
        "(Tensor self, int offset=0, int dim1=0, int dim2=1)",
        F | O | X,
        |a| {
            copied(
                f::Diagonal::new(a.input)
                    .offset(a.offset)
                    .dim1(a.dim1)
                    .dim2(a.dim2)
                    .call(),
            )
        },
        "A copy of `diagonal`.",
    )
    .samples("f32[3, 4]; c64[3, 4]; f32[2, 3, 4], offset=1, dim1=1, dim2=2")
    .grad("DiagonalBackward0_copy | self: _grad.diagonal_backward(grad, self.sizes, offset, dim1, dim2); jvp: linear"),
    compose(
        "as_strided_copy",
        "(Tensor self, int[] size, int[] stride, int? storage_offset=None)",
        F | O | X,
        |a| {
            copied(
                f::AsStrided::new(a.input, a.size, a.stride)
                    .storage_offset(a.storage_offset)
                    .call(),
            )
        },
        "A copy of `as_strided`.",
    )
    .samples(
        "f32[3, 4], (2, 2), (1, 2), storage_offset=0; c64[3, 4], (1,), (1,), storage_offset=0",
    )
    .grad("AsStridedBackward0_copy | self: _grad.as_strided_back(grad, self.sizes, self.strides, size, stride, storage_offset, self.offset, 0)"),
    compose(
        "unfold_copy",
        "(Tensor self, int dimension, int size, int step)",
        F | O | X,
        |a| copied(f::unfold(a.input, a.dimension, a.size, a.step)),
        "A copy of `unfold`.",
    )
    .samples("f32[3, 4], 0, 3, 1; b8[3, 4], 1, 4, 1")
    .grad("UnfoldBackward0_copy | self: _grad.unfold_backward(grad, self.sizes, dimension, size, step); jvp: linear"),
    compose(
        "alias_copy",
        "(Tensor self)",
        F | O | X,
        |a| copied(f::alias(a.input)),
        "A copy.",
    )
    .samples("f64[3, 4]; c64[3, 4]")
    .grad("AliasBackward0_copy | self: grad; jvp: linear"),
    compose(
        "detach_copy",
        "(Tensor self)",
        F | O | X,
        |a| copied(f::detach(a.input)),
        "A copy of `detach`.",
    )
    .samples("f32[2, 3]"),
    compose(
        "view_as_real_copy",
        "(Tensor self)",
        F | O | X,
        |a| copied(f::view_as_real(a.input)),
        "A copy of `view_as_real`.",
    )
    .samples("c64[2, 3]")
    .grad("ViewAsRealBackward0_copy | self: grad.contiguous().view_as_complex(); jvp: linear"),
    compose(
        "view_as_complex_copy",
        "(Tensor self)",
        F | O | X,
        |a| copied(f::view_as_complex(a.input)),
        "A copy of `view_as_complex`.",
    )
    .samples("f32[3, 2]")
    .grad("ViewAsComplexBackward0_copy | self: grad.contiguous().resolve_conj().view_as_real(); jvp: linear"),
    compose(
        "split_copy",
        "(Tensor self, int split_size, int dim=0) -> Tensor[]",
        F | O | X,
        |a| all_copied(f::Split::new(a.input, a.split_size).dim(a.dim).call()),
        "Copies of the pieces of `split`.",
    )
    .alike(1)
    .samples("f32[5, 2], 2")
    .grad("SplitBackward0_copy | self: _grad.split_back(grads, self.sizes, split_size, dim)"),
    compose(
        "split_with_sizes_copy",
        "(Tensor self, int[] split_sizes, int dim=0) -> Tensor[]",
        F | O | X,
        |a| {
            all_copied(
                f::SplitWithSizes::new(a.input, a.split_sizes)
                    .dim(a.dim)
                    .call(),
            )
        },
        "Copies of the pieces of `split_with_sizes`.",
    )
    .alike(1)
    .samples("f32[5, 5, 5], (1, 3, 1); b8[5, 5, 5], (1, 3, 1); f32[5, 5, 5], (1, 3, 1), 2")
    .grad("SplitWithSizesBackward0_copy | self: _grad.split_sizes_back(grads, self.sizes, split_sizes, dim)"),
    compose(
        "unbind_copy",
        "(Tensor self, int dim=0) -> Tensor[]",
        F | O | X,
        |a| all_copied(f::Unbind::new(a.input).dim(a.dim).call()),
        "Copies of the pieces of `unbind`.",
    )
    .alike(1)
    .samples("f32[3, 4], -1; b8[3, 4], 1")
    .grad("UnbindBackward0_copy | self: _grad.unbind_back(grads, self.sizes, dim)"),
];

fn narrow_copy(a: &calls::NarrowCopy) -> Result<Tensor> {
    let ndim = a.input.ndim() as i64;
    ensure!(
        ndim == 0 || a.dim < ndim,
        Runtime,
        "Expected dim < static_cast<int64_t>(self_sizes.size()) to be true, but got false.  \
         (Could this error message be improved?  If so, please report an enhancement request to PyTorch.)"
    );
    if ndim > 0 && a.length < 0 {
        // What is told of the start comes first.
        f::narrow(a.input, a.dim, a.start, 0)?;
        bail!(
            Runtime,
            "start ({}) + length ({}) exceeds dimension size ({}).",
            a.start,
            a.length,
            a.input.size(a.dim)?
        );
    }
    copied(f::narrow(a.input, a.dim, a.start, a.length))
}

fn copied(view: Result<Tensor>) -> Result<Tensor> {
    let view = view?;
    // Parts of sparse tensors are copies.
    if is_sparse(&view) {
        return Ok(view);
    }
    f::Clone::new(&view)
        .memory_format(MemoryFormat::Contiguous)
        .call()
}

fn all_copied(views: Result<Vec<Tensor>>) -> Result<Vec<Tensor>> {
    views?.into_iter().map(|v| copied(Ok(v))).collect()
}
