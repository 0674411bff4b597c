//! Backward of views, indexing and scans: the gradient goes to the places that were read, zeros to all others.

use crate::dims::wrap_dim;
use crate::ops::core::helpers;
use crate::ops::core::op::{OpDef, Ret, compose};
use crate::ops::core::typed::OptTensors;
use crate::ops::f;
use crate::ops::sparse::is_sparse;
use crate::parts::Layout;
use crate::{DType, Result, Tensor, bail, dims, ensure};
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.select_backward",
        "(Tensor grad_output, int[] input_sizes, int dim, int index)",
        0,
        |a| {
            placed(a.grad_output, a.input_sizes, |z| {
                f::select(z, a.dim, a.index)
            })
        },
        "Zeros, with the gradient at an index.",
    )
    .samples("f32[3, 4], [3, 2, 4], 1, -1; c64[()], [3], 0, 2"),
    compose(
        "_grad.slice_backward",
        "(Tensor grad_output, int[] input_sizes, int dim, int start, int end, int step)",
        0,
        |a| {
            placed(a.grad_output, a.input_sizes, |z| {
                f::Slice::new(z)
                    .dim(a.dim)
                    .start(a.start)
                    .end(a.end)
                    .step(a.step)
                    .call()
            })
        },
        "Zeros, with the gradient in a range.",
    )
    .samples("f32[3, 2], [3, 5], 1, 1, 9223372036854775807, 2; c64[2], [4], 0, -2, 4, 1"),
    compose(
        "_grad.diagonal_backward",
        "(Tensor grad_output, int[] input_sizes, int offset, int dim1, int dim2)",
        0,
        |a| {
            placed(a.grad_output, a.input_sizes, |z| {
                f::Diagonal::new(z)
                    .offset(a.offset)
                    .dim1(a.dim1)
                    .dim2(a.dim2)
                    .call()
            })
        },
        "Zeros, with the gradient on a diagonal.",
    )
    .samples("f32[3], [3, 4], 1, 0, 1; f32[2, 3], [3, 2, 4], 0, 0, -1"),
    compose(
        "_grad.unfold_backward",
        "(Tensor grad_in, int[] input_sizes, int dim, int size, int step)",
        0,
        unfold_backward,
        "The sum of windows, each at its place.",
    )
    .samples("f32[2, 3, 2], [2, 4], 1, 2, 1; f32[2, 3, 2], [5, 3], 0, 2, 3; f32[()], [], 0, 1, 1")
    .grad("UnfoldBackwardBackward0 | grad_in: unfold(grad, dim, size, step)"),
    compose(
        "_grad.trace_backward",
        "(Tensor grad, int[] sizes)",
        0,
        trace_backward,
        "Zeros, with the gradient on the main diagonal.",
    )
    .samples("f32[()], [3, 4]; c64[()], [4, 2]"),
    compose(
        "_grad.value_selecting_reduction_backward",
        "(Tensor grad, int dim, Tensor indices, int[] sizes, bool keepdim)",
        0,
        value_selecting_reduction_backward,
        "Zeros, with the gradient where a reduction found its value.",
    )
    .samples(
        "f32[3], 1, i64[3].below(4), [3, 4], False; \
         f32[3, 1], 1, i64[3, 1].below(4), [3, 4], True; \
         f32[()], 0, i64(0), [], False",
    ),
    compose(
        "_grad.index_select_backward",
        "(Tensor grad, int[] self_sizes, int dim, Tensor index)",
        0,
        |a| by_dense(a.grad, |grad| f::index_add(&new_zeros_as(grad, a.self_sizes)?, a.dim, a.index, grad)),
        "Zeros, with slices of the gradient added at `index`.",
    )
    .samples("f32[2, 4], [3, 4], 0, i64([2, 2])"),
    compose(
        "_grad.index_backward",
        "(Tensor grad, int[] sizes, Tensor?[] indices)",
        0,
        |a| {
            let zeros = new_zeros_as(a.grad, a.sizes)?;
            let indices: OptTensors = a.indices.clone();
            f::IndexPut::new(&zeros, indices, a.grad)
                .accumulate(true)
                .call()
        },
        "Zeros, with the gradient added at indices.",
    )
    .samples("f32[2, 4], [3, 4], [i64([1, 1])]; f32[3, 2], [3, 4], [None, i64([0, 0])]"),
    compose(
        "_grad.gather_backward",
        "(Tensor grad, Tensor self, int dim, Tensor index, bool sparse_grad)",
        0,
        |a| {
            if a.sparse_grad {
                return entries_along(a);
            }
            let zeros = f::new_zeros(a.grad, a.input.shape())?;
            f::scatter_add(&zeros, a.dim, a.index, a.grad)
        },
        "Zeros, with the gradient added at `index` along a dimension.",
    )
    .samples("f32[2, 3], f32[4, 3], 0, i64[2, 3].below(4), False"),
    compose(
        "_grad.masked_scatter_backward",
        "(Tensor grad_output, Tensor mask, int[] sizes)",
        0,
        masked_scatter_backward,
        "The gradient where the mask is true, in order, then zeros.",
    )
    .samples("f32[2, 3], b8([[True, False, True], [False, True, False]]), [2, 4]; f32[3], b8([False, False, True]), [1]"),
    compose(
        "_grad.cumprod_backward",
        "(Tensor grad, Tensor input, int dim, Tensor output)",
        0,
        cumprod_backward,
        "The gradient of a running product, through zeros too.",
    )
    .samples(
        "f32[4], f32([2.0, 3.0, 4.0, 5.0]), 0, f32([2.0, 6.0, 24.0, 120.0]); \
         f32[4], f32([2.0, 0.0, 4.0, 0.0]), 0, f32([2.0, 0.0, 0.0, 0.0])",
    )
    .through(typed!(cumprod_again)),
];

/// The gradient as entries of a sparse tensor, at `index` along a dimension.
fn entries_along(a: &calls::_GradGatherBackward) -> Result<Tensor> {
    let (ndim, shape) = (a.input.ndim(), a.index.shape());
    let count = a.grad.numel();
    let mut rows = Vec::with_capacity(ndim);
    if ndim > 0 && a.index.ndim() > 0 {
        let dim = dims::wrap_dim(a.dim, ndim)?;
        for d in 0..ndim {
            let row = if d == dim {
                a.index.clone()
            } else {
                let along = f::Arange::new(shape[d])
                    .dtype(DType::I64)
                    .device(a.index.device())
                    .call()?;
                let mut sizes = vec![1; ndim];
                sizes[d] = shape[d];
                f::expand(&f::reshape(&along, &sizes)?, shape)?
            };
            rows.push(f::reshape(&row, &[-1])?);
        }
    }
    let indices = match rows.is_empty() {
        true => f::NewZeros::new(a.index, &[ndim as i64, count][..]).call()?,
        false => f::stack(&rows[..])?,
    };
    let values = f::reshape(a.grad, &[count])?;
    f::_SparseCooTensorUnsafe::new(&indices, &values, a.input.shape()).call()
}

/// What `make` gives, of a sparse gradient sparse again: what is chosen of a sparse tensor is no view of it.
fn by_dense(grad: &Tensor, make: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
    match is_sparse(grad) {
        true => f::_to_sparse(&make(&f::_to_dense(grad)?)?, "sparse_coo"),
        false => make(grad),
    }
}

/// Zeros like a gradient, all of whose properties are said.
fn new_zeros_as(grad: &Tensor, sizes: &[i64]) -> Result<Tensor> {
    f::NewZeros::new(grad, sizes)
        .dtype(grad.dtype())
        .layout(Layout::Strided)
        .device(grad.device())
        .call()
}

/// Zeros of a size, with the gradient in the part that `view` gives.
fn placed(
    grad: &Tensor,
    sizes: &[i64],
    view: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Tensor> {
    by_dense(grad, |grad| {
        let zeros = f::new_zeros(grad, sizes)?;
        helpers::copy_(&view(&zeros)?, grad)?;
        Ok(zeros)
    })
}

fn unfold_backward(a: &calls::_GradUnfoldBackward) -> Result<Tensor> {
    let (grad, size, step) = (a.grad_in, a.size, a.step);
    ensure!(size >= 0, Runtime, "size is {size} but must be >= 0");
    ensure!(step > 0, Runtime, "step is {step} but must be > 0");
    let dim = wrap_dim(a.dim, a.input_sizes.len())?;
    if step >= size || a.input_sizes.is_empty() {
        return placed(grad, a.input_sizes, |z| f::unfold(z, a.dim, size, step));
    }
    let zeros = f::new_zeros(grad, a.input_sizes)?;
    let windows = f::unfold(&zeros, a.dim, size, step)?;
    ensure!(
        windows.shape() == grad.shape(),
        Runtime,
        "unfold_backward: windows of {size} elements in steps of {step} along dimension {dim} of {} have the shape {}, the gradient has {}",
        zeros.shape(),
        windows.shape(),
        grad.shape()
    );
    // Windows overlap, but never at the same place of each: one place after the other.
    let (count, last) = (windows.shape()[dim], windows.ndim() as i64 - 1);
    for at in 0..size {
        let end = at + (count - 1) * step + 1;
        let part = f::Slice::new(&zeros)
            .dim(a.dim)
            .start(at)
            .end(end)
            .step(step)
            .call()?;
        f::Add::new(&part, &f::select(grad, last, at)?).call_()?;
    }
    Ok(zeros)
}

fn trace_backward(a: &calls::_GradTraceBackward) -> Result<Tensor> {
    if a.sizes.len() != 2 {
        bail!(Runtime, "expected matrix input");
    }
    placed(a.grad, a.sizes, |z| f::Diagonal::new(z).call())
}

fn value_selecting_reduction_backward(
    a: &calls::_GradValueSelectingReductionBackward,
) -> Result<Tensor> {
    let zeros = || f::new_zeros(a.grad, a.sizes);
    if a.keepdim || a.sizes.is_empty() {
        return f::scatter(&zeros()?, a.dim, a.indices, a.grad);
    }
    let grad = f::unsqueeze(a.grad, a.dim)?;
    let indices = f::unsqueeze(a.indices, a.dim)?;
    f::scatter(&zeros()?, a.dim, &indices, &grad)
}

/// Element `k` is the gradient at the `k`-th true place. Places are counted, not collected, so that shapes do not depend on
/// values; what is not wanted goes to one element more.
fn masked_scatter_backward(a: &calls::_GradMaskedScatterBackward) -> Result<Tensor> {
    let count = dims::numel(a.sizes)?;
    let grad = f::reshape(a.grad_output, &[-1])?;
    let mask = f::reshape(&f::expand_as(a.mask, a.grad_output)?, &[-1])?;
    let rank = f::sub(&f::Cumsum::new(&mask, 0).dtype(DType::I64).call()?, 1)?;
    let to = f::where_(&mask, &rank, count)?;
    let zeros = f::new_zeros(a.grad_output, &[count + 1])?;
    let to = f::Clamp::new(&to).max(crate::Scalar::Int(count)).call()?;
    let all = f::scatter(&zeros, 0, &to, &grad)?;
    f::reshape(&f::narrow(&all, 0, 0, count)?, a.sizes)
}

/// Before the first zero of a line, the gradient of an element is the sum of `grad * output` from there on, divided by it. At
/// the first zero it is the sum over the products without that zero; behind it nothing matters.
fn cumprod_backward(a: &calls::_GradCumprodBackward) -> Result<Tensor> {
    let (grad, x, dim) = (a.grad, a.input, a.dim);
    if x.numel() <= 1 || x.shape()[wrap_dim(dim, x.ndim())?] == 1 {
        return Ok(grad.clone());
    }
    let factors = conjugate(x)?;
    let zero = f::eq(x, 0)?;
    let zeros = f::Cumsum::new(&zero, dim).dtype(DType::I64).call()?;
    let weighted = f::mul(&conjugate(a.output)?, grad)?;
    let rest = f::flip(&f::cumsum(&f::flip(&weighted, &[dim])?, dim)?, &[dim])?;
    let before = f::div(&rest, &f::masked_fill(&factors, &zero, 1)?)?;
    let first = f::logical_and(&zero, &f::eq(&zeros, 1)?)?;
    let without = f::cumprod(&f::masked_fill(&factors, &first, 1)?, dim)?;
    let behind = f::masked_fill(&f::mul(&without, grad)?, &f::eq(&zeros, 0)?, 0)?;
    let at_first = f::SumDim::new(&behind, Some(&[dim][..]))
        .keepdim(true)
        .call()?;
    let out = f::masked_fill(&before, &f::gt(&zeros, 0)?, 0)?;
    f::add(&out, &f::where_(&first, &at_first, 0)?)
}

/// The gradient of a running product as sums of the products that each element is left out of: no element is looked at, so
/// that it can be differentiated where there are zeros, too.
fn cumprod_again(a: &calls::_GradCumprodBackward) -> Result<Ret> {
    let (grad, x) = (a.grad, a.input);
    if x.ndim() == 0 || x.numel() == 0 {
        return Ok(Ret::Same(0));
    }
    let (dim, n) = (a.dim, x.size(a.dim)?);
    let factors = conjugate(x)?;
    let one = f::ones_like(&f::narrow(x, dim, 0, 1)?)?;
    let mut made = Vec::new();
    let mut before = one.clone();
    for k in 0..n {
        let after = f::cumprod(&f::narrow(&factors, dim, k + 1, n - k - 1)?, dim)?;
        let after = f::Cat::new(&[one.clone(), after][..]).dim(dim).call()?;
        let left_out = f::mul(&f::mul(&before, &after)?, &f::narrow(grad, dim, k, n - k)?)?;
        made.push(f::SumDim::new(&left_out, &[dim][..]).keepdim(true).call()?);
        before = f::mul(&before, &f::narrow(&factors, dim, k, 1)?)?;
    }
    f::Cat::new(&made).dim(dim).call().map(Ret::One)
}

/// The complex conjugate; real tensors are that themselves.
fn conjugate(t: &Tensor) -> Result<Tensor> {
    if t.dtype().is_complex() {
        f::conj(t)
    } else {
        Ok(t.clone())
    }
}
