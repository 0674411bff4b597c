//! Gradients of the rest: special functions, and what scatters and gathers.

use crate::ops::core::helpers::is_nowhere;
use crate::ops::core::op::{OpDef, Ret, compose};
use crate::ops::f;
use crate::ops::grad::reduce::like;
use crate::{Result, Scalar, Tensor, bail, dims, ensure, mode};
use num_complex::Complex64;
use torchlike_macros::operators;

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "_grad.turned",
        "(Tensor self)",
        0,
        |a| f::mul(a.input, Scalar::Complex(Complex64::new(0.0, 1.0))),
        "A quarter turn in the complex plane.",
    )
    .samples("c64[3]"),
    compose(
        "_grad.nearness",
        "(Tensor self, Tensor other)",
        0,
        |a| {
            let sum = f::add(&f::mul(a.input, a.input)?, &f::mul(a.other, a.other)?)?;
            f::masked_fill(&f::reciprocal(&sum)?, &f::eq(&sum, 0)?, 0)
        },
        "The reciprocal of the squared distance of a point from the origin; zero there.",
    )
    .samples("f32[3], f32[3]; f64([0.0, 1.0]), f64([0.0, 2.0])"),
    compose(
        "_grad.nll_loss_of_many",
        "(Tensor grad, Tensor input, Tensor target, Tensor? weight, int reduction, int ignore_index, Tensor total_weight)",
        0,
        |a| {
            // More dimensions are one, as in the forward.
            let (n, classes) = (a.input.size(0)?, a.input.size(1)?);
            let places: i64 = a.input.shape()[2..].iter().product();
            let input = f::reshape(a.input, &[n, classes, 1, places][..])?;
            let target = f::reshape(a.target, &[n, 1, places][..])?;
            let grad = if a.reduction == 0 {
                f::reshape(a.grad, &[n, 1, places][..])?
            } else {
                a.grad.clone()
            };
            let made = f::_grad_nll_loss2d_backward(
                &grad,
                &input,
                &target,
                a.weight,
                a.reduction,
                a.ignore_index,
                a.total_weight,
            )?;
            f::reshape(&made, a.input.shape())
        },
        "The gradient of nll_loss of more than two dimensions.",
    )
    .samples("f32[()], f32[2, 3, 4], i64[2, 4].below(3), None, 1, -100, f32(8.)"),
    compose(
        "_grad.mvlgamma",
        "(Tensor grad, Tensor self, int p)",
        0,
        |a| {
            let p = a.p as f64;
            let count = f::NewOnes::new(a.input, &[a.p]).call()?;
            let steps = f::mul(&f::sub(&f::Cumsum::new(&count, 0).call()?, p)?, 0.5)?;
            let all = f::digamma(&f::add(&f::unsqueeze(a.input, -1)?, &steps)?)?;
            f::mul(a.grad, &f::sum_dim(&all, &[-1i64][..])?)
        },
        "The gradient of mvlgamma.",
    )
    .samples("f32[3], f32[3].pos, 2"),
    compose(
        "_grad.index_fill_value",
        "(Tensor grad, int dim, Tensor index)",
        0,
        |a| {
            // An index that comes twice was written once.
            let written = f::index_fill(&f::zeros_like(a.grad)?, a.dim, a.index, 1i64)?;
            f::sum(&f::mul(a.grad, &written)?)
        },
        "The gradient of the number that index_fill writes.",
    )
    .samples("f32[3, 4], 0, i64([0, 2])"),
    compose(
        "_grad.gather_wrapped",
        "(Tensor grad, Tensor self, int dim, Tensor index)",
        0,
        |a| {
            let size = a.input.size(a.dim)?;
            let index = f::where_(&f::lt(a.index, 0i64)?, &f::add(a.index, size)?, a.index)?;
            f::scatter_add(&like(a.grad, a.input.shape())?, a.dim, &index, a.grad)
        },
        "The gradient of a gather whose indices may count from the end.",
    )
    .samples("f32[2, 3], f32[2, 3], 1, i64[2, 3].below(3)"),
    compose(
        "_grad.block_diag_back",
        "(Tensor grad, int[] sizes) -> Tensor[]",
        0,
        |a| block_diag_back(a.grad, a.sizes),
        "The gradients of the blocks; `sizes` are those of each, after its number of dimensions.",
    )
    .samples("f32[3, 4], [2, 1, 2, 2, 2, 2]"),
    compose(
        "_grad.channel_shuffle_back",
        "(Tensor grad, int groups)",
        0,
        |a| {
            let channels = a.grad.size(1)?;
            ensure!(
                a.groups > 0,
                Runtime,
                "Number of groups to divide channels in must be positive. Value of groups:{}",
                a.groups
            );
            f::channel_shuffle(a.grad, channels / a.groups)
        },
        "The gradient of channel_shuffle.",
    )
    .samples("f32[1, 4, 2, 2], 2"),
    compose(
        "_grad.dist",
        "(Tensor grad, Tensor self, Tensor other, Scalar p, Tensor result)",
        0,
        |a| {
            let apart = f::sub(a.input, a.other)?;
            f::_grad_vector_norm(a.grad, &apart, a.p, a.result, None::<&[i64]>, false)
        },
        "The gradient of dist.",
    )
    .samples("f32[()], f32[3], f32[3], 2, f32[()]"),
    compose(
        "_grad.as_strided_scatter_self",
        "(Tensor grad, int[] size, int[] stride, int? storage_offset)",
        0,
        |a| {
            let (none, all) = (like(a.grad, a.grad.shape())?, f::NewOnes::new(a.grad, a.size).call()?);
            let written = f::AsStridedScatter::new(&none, &all, a.size, a.stride);
            f::mul(a.grad, &written.storage_offset(a.storage_offset).call()?)
        },
        "The gradient of what as_strided_scatter starts from: in PyTorch, that of the places written over.",
    )
    .samples("f32[3, 3], [3], [1], 0"),
    compose(
        "_grad.scatter_reduce_self",
        "(Tensor grad, Tensor self, int dim, Tensor index, Tensor src, str reduce, bool include_self, Tensor result)",
        0,
        |a| {
            let made = match a.reduce {
                "sum" => a.grad.clone(),
                "prod" => {
                    // Without the zeros of the start the rest is a quotient.
                    let start = f::masked_fill(a.input, &f::eq(a.input, 0i64)?, 1i64)?;
                    let all = f::ScatterReduce::new(&start, a.dim, a.index, a.src, "prod")
                        .include_self(a.include_self)
                        .call()?;
                    f::div(&f::mul(a.grad, &all)?, &start)?
                }
                "mean" => f::div(a.grad, &counted(a.grad, a.dim, a.index, a.include_self)?)?,
                "amax" | "amin" => {
                    let (shared, own, _) = shares(a)?;
                    f::mul(&shared, &own)?
                }
                other => bail!(Runtime, "Expected 'reduce' to be one of 'sum', 'prod', 'mean', 'amax', 'amin' but got {other}."),
            };
            if a.include_self {
                return Ok(super::kept(made, a.grad));
            }
            f::ScatterValue::new(&made, a.dim, a.index, 0i64)
                .call()
                .map(Ret::One)
        },
        "The gradient of what scatter_reduce starts from.",
    )
    .samples("f32[3], f32[3], 0, i64([0, 1, 1]), f32[3], 'sum', True, f32[3]; f32[3], f32[3], 0, i64([0, 1, 1]), f32[3], 'amax', False, f32[3]"),
    compose(
        "_grad.scatter_reduce_src",
        "(Tensor grad, Tensor self, int dim, Tensor index, Tensor src, str reduce, bool include_self, Tensor result)",
        0,
        |a| reduced_src(a, ["scatter_reduce", "src"]),
        "The gradient of what scatter_reduce adds.",
    )
    .samples("f32[3], f32[3], 0, i64([0, 1, 1]), f32[3], 'mean', True, f32[3]; f32[3], f32[3], 0, i64([0, 1, 1]), f32[3], 'prod', False, f32[3]"),
    compose(
        "_grad.once",
        "(Tensor self, str reason)",
        0,
        |a| f::clone(a.input),
        "A gradient that has none of its own, for a reason.",
    )
    .samples("f32[3], 'only once'")
    .grad("Error | self: _grad.never(grad, reason)"),
    compose(
        "_grad.never",
        "(Tensor grad, str reason)",
        0,
        |a| -> Result<Tensor> { bail!(Runtime, "{}", a.reason) },
        "Says why there is no gradient.",
    )
    .samples("see tests/test_scatter_reduce.py"),
    compose(
        "_grad.index_reduce_self",
        "(Tensor grad, Tensor self, int dim, Tensor index, Tensor source, str reduce, bool include_self, Tensor result)",
        0,
        |a| {
            let index = spread(a.index, a.dim, a.source)?;
            f::_grad_scatter_reduce_self(a.grad, a.input, a.dim, &index, a.source, a.reduce, a.include_self, a.result)
        },
        "The gradient of what index_reduce starts from.",
    )
    .samples("f32[3], f32[3], 0, i64([0, 1, 1]), f32[3], 'amin', True, f32[3]"),
    compose(
        "_grad.index_reduce_source",
        "(Tensor grad, Tensor self, int dim, Tensor index, Tensor source, str reduce, bool include_self, Tensor result)",
        0,
        |a| {
            let index = spread(a.index, a.dim, a.source)?;
            let call = calls::_GradScatterReduceSrc {
                grad: a.grad,
                input: a.input,
                dim: a.dim,
                index: &index,
                src: a.source,
                reduce: a.reduce,
                include_self: a.include_self,
                result: a.result,
            };
            reduced_src(&call, ["index_reduce", "source"])
        },
        "The gradient of what index_reduce adds.",
    )
    .samples("f32[3], f32[3], 0, i64([0, 1, 1]), f32[3], 'mean', True, f32[3]"),
];

fn block_diag_back(grad: &Tensor, sizes: &[i64]) -> Result<Vec<Tensor>> {
    let (mut rest, mut made) = (sizes, Vec::new());
    let (mut row, mut column) = (0, 0);
    while let [count, more @ ..] = rest {
        let count = *count as usize;
        if count > more.len() || count > 2 {
            bail!(Runtime, "the sizes of {count} dimensions are missing");
        }
        let (shape, after) = more.split_at(count);
        rest = after;
        let (rows, columns) = match shape {
            [] => (1, 1),
            [n] => (1, *n),
            more => (more[0], more[1]),
        };
        let part = f::narrow(&f::narrow(grad, 0, row, rows)?, 1, column, columns)?;
        made.push(match shape {
            [] => f::squeeze(&part)?,
            [_] => f::squeeze_dim(&part, 0)?,
            _ => part,
        });
        row += rows;
        column += columns;
    }
    Ok(made)
}

/// How many values were joined at each place.
fn counted(grad: &Tensor, dim: i64, index: &Tensor, with_self: bool) -> Result<Tensor> {
    let start = if with_self {
        f::ones_like(grad)?
    } else {
        f::zeros_like(grad)?
    };
    let ones = f::new_ones(grad, index.shape())?;
    let count = f::scatter_add(&start, dim, index, &ones)?;
    f::masked_fill(&count, &f::eq(&count, 0i64)?, 1i64)
}

/// The gradient shared by the extreme values of each place, and which of the old and the new are extreme.
fn shares(a: &calls::_GradScatterReduceSelf) -> Result<(Tensor, Tensor, Tensor)> {
    parts(a.grad, a.input, a.dim, a.index, a.src, a.result)
}

fn parts(
    grad: &Tensor,
    old: &Tensor,
    dim: i64,
    index: &Tensor,
    src: &Tensor,
    result: &Tensor,
) -> Result<(Tensor, Tensor, Tensor)> {
    let own = f::to_dtype(&f::eq(old, result)?, grad.dtype())?;
    let new = f::eq(&covered(src, index)?, &f::gather(result, dim, index)?)?;
    let new = f::to_dtype(&new, grad.dtype())?;
    let times = f::scatter_add(&own, dim, index, &new)?;
    Ok((f::div(grad, &times)?, own, new))
}

/// The part of the values that indices cover.
fn covered(src: &Tensor, index: &Tensor) -> Result<Tensor> {
    let mut part = src.clone();
    for (d, n) in index.shape().iter().enumerate() {
        if part.shape()[d] != *n {
            part = f::narrow(&part, d as i64, 0, *n)?;
        }
    }
    Ok(part)
}

/// What is said of a second gradient where several zeros were multiplied.
fn again([function, values]: [&str; 2]) -> String {
    format!(
        "{function}(): Double backward is unsupported for {values} when >1 zeros in {values} are scattered to the same position in self"
    )
}

fn reduced_src(a: &calls::_GradScatterReduceSrc, name: [&str; 2]) -> Result<Tensor> {
    let taken = |t: &Tensor| f::gather(t, a.dim, a.index);
    let made = match a.reduce {
        "sum" => taken(a.grad)?,
        "mean" => taken(&f::div(
            a.grad,
            &counted(a.grad, a.dim, a.index, a.include_self)?,
        )?)?,
        "prod" => {
            let src = covered(a.src, a.index)?;
            let zero = f::eq(&src, 0i64)?;
            let divisor = f::masked_fill(&src, &zero, 1i64)?;
            let plain = f::div(&taken(&f::mul(a.grad, a.result)?)?, &divisor)?;
            // Where one factor is zero, its own gradient is the product of the others.
            let zeros = f::scatter_add(
                &f::zeros_like(a.input)?,
                a.dim,
                a.index,
                &f::to_dtype(&zero, a.input.dtype())?,
            )?;
            let zeros = taken(&zeros)?;
            let alone = f::logical_and(&zero, &f::eq(&zeros, 1i64)?)?;
            let filled = f::masked_fill(&src, &alone, 1i64)?;
            let others = f::ScatterReduce::new(a.input, a.dim, a.index, &filled, "prod")
                .include_self(a.include_self)
                .call()?;
            let lone = taken(&f::mul(a.grad, &others)?)?;
            let made = f::where_(&alone, &lone, &plain)?;
            let several = mode::grad_enabled()
                && !is_nowhere(&zeros)
                && f::any(&f::gt(&zeros, 1i64)?)?.item()?.to_f64() != 0.0;
            match several {
                // What other zeros there are decides over such a gradient, and nothing here follows them.
                true => f::_grad_once(&made, &again(name))?,
                false => made,
            }
        }
        "amax" | "amin" => {
            let (shared, _, new) = parts(a.grad, a.input, a.dim, a.index, a.src, a.result)?;
            f::mul(&taken(&shared)?, &new)?
        }
        other => bail!(
            Runtime,
            "Expected 'reduce' to be one of 'sum', 'prod', 'mean', 'amax', 'amin' but got {other}."
        ),
    };
    if made.shape() == a.src.shape() {
        return Ok(made);
    }
    let mut pad = Vec::new();
    for (have, want) in made.shape().iter().zip(a.src.shape().iter()).rev() {
        pad.extend([0, want - have]);
    }
    f::constant_pad_nd(&made, &pad[..])
}

/// An index along a dimension, for every element of what it places.
fn spread(index: &Tensor, dim: i64, like: &Tensor) -> Result<Tensor> {
    if like.ndim() == 0 {
        return f::reshape(index, &[][..]);
    }
    let dim = dims::wrap_dim(dim, like.ndim())?;
    let shape: Vec<i64> = (0..like.ndim())
        .map(|d| if d == dim { -1 } else { 1 })
        .collect();
    f::expand(&f::reshape(index, &shape[..])?, like.shape())
}
