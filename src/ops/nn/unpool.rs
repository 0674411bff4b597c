//! Undoing max pooling.

use crate::cpu::{self as host, copy, pooling as cpu};
use crate::ops::core::op::{Cast, F, OpDef, Plan, compose, kernel};
use crate::ops::f;
use crate::ops::nn::pool::{each, format, plan};
use crate::{DType, Device, Dims, Result, Scalar, Tensor, bail, ensure};
use torchlike_macros::operators;

/// What the rows of all dimensions take.
struct Operands<'a> {
    x: &'a Tensor,
    kernel: &'a [i64],
    stride: Option<&'a [i64]>,
    padding: &'a [i64],
    asked: Option<&'a [i64]>,
}

macro_rules! operands {
    ($a:ident) => {
        Operands {
            x: $a.input,
            kernel: $a.kernel_size,
            stride: $a.stride,
            padding: $a.padding,
            asked: $a.output_size,
        }
    };
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    compose(
        "nn.functional.max_unpool1d",
        "(Tensor input, Tensor indices, int[1] kernel_size, int[1]? stride=None, int[1] padding=0, int[]? output_size=None)",
        F,
        |a| {
            let size = size(1, "max_unpool1d", &operands!(a))?;
            let (x, at) = (f::unsqueeze(a.input, -1)?, f::unsqueeze(a.indices, -1)?);
            f::squeeze_dim(&f::_max_unpool(&x, &at, &[size[0], 1])?, -1)
        },
        "Pooled values put back where they came from, zeros elsewhere.",
    ).samples("f32[1, 2, 1], i64([[[1], [2]]]), kernel_size=3, output_size=(1, 2, 3)")
    .amp(Cast::Single, Cast::Kept),
    compose(
        "nn.functional.max_unpool2d",
        "(Tensor input, Tensor indices, int[2] kernel_size, int[2]? stride=None, int[2] padding=0, int[]? output_size=None)",
        F,
        |a| {
            let size = size(2, "max_unpool2d", &operands!(a))?;
            f::_max_unpool(a.input, a.indices, &size)
        },
        "Pooled values put back where they came from, zeros elsewhere.",
    ).samples("f32[1, 2, 2, 4], i64[1, 2, 2, 4].below(18), kernel_size=(3, 2), padding=1, output_size=(1, 2, 3, 6)")
    .amp(Cast::Single, Cast::Kept),
    compose(
        "nn.functional.max_unpool3d",
        "(Tensor input, Tensor indices, int[3] kernel_size, int[3]? stride=None, int[3] padding=0, int[]? output_size=None)",
        F,
        |a| {
            let size = size(3, "max_unpool3d", &operands!(a))?;
            f::_max_unpool(a.input, a.indices, &size)
        },
        "Pooled values put back where they came from, zeros elsewhere.",
    ).samples("f32[1, 2, 1, 3, 2], i64[1, 2, 1, 3, 2].below(83), kernel_size=(3, 2, 3), stride=2, output_size=(1, 2, 3, 6, 5)")
    .amp(Cast::Single, Cast::Kept),
    kernel(
        "_max_unpool",
        "(Tensor self, Tensor indices, int[] output_size)",
        0,
        body!(rule, unpool, scratch: |a, _, outs, room| {
            if outs[0].numel() == 0 {
                return Ok(());
            }
            room.all_dense([Some(&outs[0]), Some(a.input)], a.input.dtype())?;
            room.dense(a.indices, DType::I64).map(drop)
        }),
        "",
    ).samples("f32[1, 2, 2, 2], i64([[[[0, 3], [8, 11]], [[1, 2], [9, 10]]]]), [4, 4]")
    .grad("MaxUnpool{output_size.count}DBackward0 | self: _grad.max_pool_double_backward(grad, indices, output_size.count); jvp: linear"),
];

/// The spatial sizes of the result: those asked for, or the smallest that pooling would take to the input's.
fn size(n: usize, name: &str, o: &Operands) -> Result<Dims> {
    let kernel = each(o.kernel, n, name, "kernel_size")?;
    let stride = match o.stride {
        Some(s) => each(s, n, name, "stride")?,
        None => kernel.clone(),
    };
    let padding = each(o.padding, n, name, "padding")?;
    let sizes = o.x.shape();
    let default: Dims = if sizes.len() >= n {
        (0..n)
            .map(|i| {
                (sizes[sizes.len() - n + i] - 1)
                    .saturating_mul(stride[i])
                    .saturating_add(kernel[i])
                    .saturating_sub(padding[i].saturating_mul(2))
            })
            .collect()
    } else {
        Dims::filled(n, 0)
    };
    match o.asked {
        Some(asked) => checked_size(asked, &default, &stride),
        None => Ok(default),
    }
}

/// A size asked for, which has to be less than a stride away from the default.
fn checked_size(asked: &[i64], default: &[i64], stride: &[i64]) -> Result<Dims> {
    let n = default.len();
    let given = if asked.len() == n + 2 {
        &asked[2..]
    } else {
        asked
    };
    ensure!(
        given.len() == n,
        Value,
        "output_size should be a sequence containing {n} or {} elements, but it has a length of '{}'",
        n + 2,
        asked.len()
    );
    for d in 0..n {
        let low = default[d].saturating_sub(stride[d]);
        let high = default[d].saturating_add(stride[d]);
        if !(low < given[d] && given[d] < high) {
            let list: Vec<String> = given.iter().map(ToString::to_string).collect();
            let shown = if n == 1 {
                format!("({},)", list[0])
            } else {
                format!("({})", list.join(", "))
            };
            bail!(
                Value,
                "invalid output_size \"{shown}\" (dim {d} must be between {low} and {high})"
            );
        }
    }
    Ok(Dims::new(given))
}

fn rule(a: &calls::_MaxUnpool) -> Result<Plan> {
    let (x, at, size) = (a.input, a.indices, a.output_size);
    let n = size.len();
    ensure!(
        at.dtype() == DType::I64,
        Runtime,
        "elements in indices should be type int64 but got: {}",
        at.dtype().scalar_type()
    );
    ensure!(
        x.ndim() == n + 1 || x.ndim() == n + 2,
        Runtime,
        "Input to max_unpooling{n}d should be a {}d or {}d Tensor, but got a tensor with {} dimensions.",
        n + 1,
        n + 2,
        x.ndim()
    );
    ensure!(
        x.shape() == at.shape(),
        Runtime,
        "Expected shape of indices to be same as that of the input tensor ({}) but got indices tensor with shape: {}",
        x.shape(),
        at.shape()
    );
    x.dtype()
        .check_float_kernel(format_args!("max_unpool{n}d"))?;
    plan(x, size, format(x, n, false), false)
}

fn unpool(a: &calls::_MaxUnpool, (): &(), outs: &[Tensor]) -> Result<()> {
    let (x, size, out) = (a.input, a.output_size, &outs[0]);
    if out.numel() == 0 {
        return Ok(());
    }
    let dense = if out.is_contiguous() {
        out.clone()
    } else {
        Tensor::empty(out.shape(), out.dtype(), Device::CPU)?
    };
    host::fill(&dense, Scalar::Int(0))?;
    let planes: i64 = x.shape()[..x.ndim() - size.len()].iter().product();
    cpu::unpool(&dense, x, a.indices, planes as usize, size)?;
    if out.is_contiguous() {
        Ok(())
    } else {
        copy::copy(out, &dense)
    }
}
