//! Backward of poolings.

use crate::cpu::pooling::{Windows, windows};
use crate::cpu::pooling_backward::{Spread, To};
use crate::cpu::pooling_room::backward;
use crate::ops::core::op::{OpDef, Plan, compose, kernel};
use crate::ops::f;
use crate::ops::nn::adaptive_pool::shares;
use crate::ops::nn::pool::{Asked, format, regular};
use crate::{DType, Dims, MemoryFormat, Result, Tensor, bail, dims, ensure, kernels};
use torchlike_macros::operators;

/// A pooling by regular windows, as its forward checks it.
macro_rules! asked {
    ($a:ident, $n:literal, $name:literal, $dilation:expr) => {
        Asked {
            n: $n,
            name: $name,
            x: $a.input,
            kernel: $a.kernel_size,
            stride: $a.stride,
            padding: $a.padding,
            dilation: $dilation,
            ceil: $a.ceil_mode,
        }
    };
}

/// The family's rows.
#[operators]
pub static OPS: &[OpDef] = &[
    kernel(
        "_grad.max_pool2d_with_indices_backward",
        "(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, int[2] dilation, bool ceil_mode, Tensor indices)",
        0,
        body!(
            |a| maxima(&asked!(a, 2, "max_pool2d_backward", Some(a.dilation)), a.grad_output, a.indices),
            anywhere: |a, format, outs| to_places(2, *format, a.grad_output, a.indices, outs),
            scratch: |a, format, outs, room| backward(room, *format, &outs[0], a.grad_output, Some(a.indices))
        ),
        "The gradient of windows at the places of their largest elements.",
    )
    .samples(
        "f32[1, 2, 3, 3], f32[1, 2, 6, 6], 2, 2, 0, 1, False, i64[1, 2, 3, 3].below(36); \
         f32[1, 2, 3, 2].cl, f32[1, 2, 5, 5].cl, [3, 2], [2, 2], [1, 0], [1, 2], False, i64[1, 2, 3, 2].below(25).cl",
    )
    .grad("grad_output: _grad.max_pool_double_backward(grad, indices, 2); self: zeros_like(grad)"),
    kernel(
        "_grad.max_pool3d_with_indices_backward",
        "(Tensor grad_output, Tensor self, int[3] kernel_size, int[3] stride, int[3] padding, int[3] dilation, bool ceil_mode, Tensor indices)",
        0,
        body!(
            |a| maxima(&asked!(a, 3, "max_pool3d_backward", Some(a.dilation)), a.grad_output, a.indices),
            anywhere: |a, format, outs| to_places(3, *format, a.grad_output, a.indices, outs),
            scratch: |a, format, outs, room| backward(room, *format, &outs[0], a.grad_output, Some(a.indices))
        ),
        "The gradient of windows at the places of their largest elements.",
    )
    .samples("f32[2, 2, 2, 2], f32[2, 4, 4, 4], 2, 2, 0, 1, False, i64[2, 2, 2, 2].below(64)")
    .grad("grad_output: _grad.max_pool_double_backward(grad, indices, 3); self: zeros_like(grad)"),
    kernel(
        "_grad.avg_pool2d_backward",
        "(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] stride, int[2] padding, bool ceil_mode, bool count_include_pad, int? divisor_override)",
        0,
        body!(
            |a| means(&asked!(a, 2, "avg_pool2d_backward_out_frame", None), a.grad_output, a.divisor_override),
            anywhere: |a, found, outs| {
                found.run(2, a.grad_output, a.count_include_pad, a.divisor_override, outs)
            }, scratch: |a, found, outs, room| backward(room, found.format, &outs[0], a.grad_output, None)
        ),
        "The gradient of windows, a share to each element.",
    )
    .samples(
        "f32[1, 2, 3, 3], f32[1, 2, 6, 6], 2, 2, 0, False, True, None; \
         f32[1, 2, 3, 3].cl, f32[1, 2, 5, 5].cl, 3, 2, 1, False, False, None; \
         f32[2, 3, 3], f32[2, 5, 5], 3, 2, 1, True, True, 5",
    )
    .grad("grad_output: nn.functional.avg_pool2d(grad, kernel_size, stride if stride.count else None, padding, ceil_mode, count_include_pad, divisor_override); self: zeros_like(grad)"),
    kernel(
        "_grad.avg_pool3d_backward",
        "(Tensor grad_output, Tensor self, int[3] kernel_size, int[3] stride, int[3] padding, bool ceil_mode, bool count_include_pad, int? divisor_override)",
        0,
        body!(
            |a| means(&asked!(a, 3, "avg_pool3d_backward_out_frame", None), a.grad_output, a.divisor_override),
            anywhere: |a, found, outs| {
                found.run(3, a.grad_output, a.count_include_pad, a.divisor_override, outs)
            }, scratch: |a, found, outs, room| backward(room, found.format, &outs[0], a.grad_output, None)
        ),
        "The gradient of windows, a share to each element.",
    )
    .samples("f32[1, 2, 2, 2, 2], f32[1, 2, 4, 4, 4], 2, 2, 0, False, True, None")
    .grad("grad_output: nn.functional.avg_pool3d(grad, kernel_size, stride if stride.count else None, padding, ceil_mode, count_include_pad, divisor_override); self: zeros_like(grad)"),
    kernel(
        "_grad._adaptive_avg_pool2d_backward",
        "(Tensor grad_output, Tensor self)",
        0,
        body!(|a| adaptive_means(a.grad_output, a.input, 2), anywhere: |a, found, outs| {
            found.run(2, a.grad_output, false, None, outs)
        }, scratch: |a, found, outs, room| backward(room, found.format, &outs[0], a.grad_output, None)),
        "The gradient of windows, a share to each element.",
    )
    .samples("f32[1, 2, 2, 3], f32[1, 2, 5, 5]; f32[2, 2, 2], f32[2, 4, 3]")
    .grad("grad_output: nn.functional.adaptive_avg_pool2d(grad, [grad_output.rows, grad_output.columns]); self: zeros_like(grad)"),
    kernel(
        "_grad._adaptive_avg_pool3d_backward",
        "(Tensor grad_output, Tensor self)",
        0,
        body!(|a| adaptive_means(a.grad_output, a.input, 3), anywhere: |a, found, outs| {
            found.run(3, a.grad_output, false, None, outs)
        }, scratch: |a, found, outs, room| backward(room, found.format, &outs[0], a.grad_output, None)),
        "The gradient of windows, a share to each element.",
    )
    .samples("f32[1, 2, 2, 2, 2], f32[1, 2, 3, 4, 5]")
    .grad("grad_output: nn.functional.adaptive_avg_pool3d(grad, [grad_output.sizes[2], grad_output.sizes[3], grad_output.sizes[4]] if grad_output.ndim == 5 else [grad_output.sizes[1], grad_output.sizes[2], grad_output.sizes[3]]); self: zeros_like(grad)"),
    kernel(
        "_grad.adaptive_max_pool2d_backward",
        "(Tensor grad_output, Tensor self, Tensor indices)",
        0,
        body!(
            |a| adaptive_maxima(a.grad_output, a.input, a.indices, 2),
            anywhere: |a, format, outs| to_places(2, *format, a.grad_output, a.indices, outs),
            scratch: |a, format, outs, room| backward(room, *format, &outs[0], a.grad_output, Some(a.indices))
        ),
        "The gradient of windows at the places of their largest elements.",
    )
    .samples("f32[1, 2, 2, 3], f32[1, 2, 5, 5], i64[1, 2, 2, 3].below(25)")
    .grad("grad_output: _grad.max_pool_double_backward(grad, indices, 2); self: zeros_like(grad)"),
    kernel(
        "_grad.adaptive_max_pool3d_backward",
        "(Tensor grad_output, Tensor self, Tensor indices)",
        0,
        body!(
            |a| adaptive_maxima(a.grad_output, a.input, a.indices, 3),
            anywhere: |a, format, outs| to_places(3, *format, a.grad_output, a.indices, outs),
            scratch: |a, format, outs, room| backward(room, *format, &outs[0], a.grad_output, Some(a.indices))
        ),
        "The gradient of windows at the places of their largest elements.",
    )
    .samples("f32[2, 2, 2, 1], f32[2, 3, 3, 3], i64[2, 2, 2, 1].below(27)")
    .grad("grad_output: _grad.max_pool_double_backward(grad, indices, 3); self: zeros_like(grad)"),
    kernel(
        "_grad.fractional_max_pool2d_backward",
        "(Tensor grad_output, Tensor self, int[2] kernel_size, int[2] output_size, Tensor indices)",
        0,
        body!(
            |a| fractional_maxima(a.grad_output, a.input, a.output_size, a.indices),
            anywhere: |a, format, outs| to_places(2, *format, a.grad_output, a.indices, outs),
            scratch: |a, format, outs, room| backward(room, *format, &outs[0], a.grad_output, Some(a.indices))
        ),
        "The gradient of windows at the places of their largest elements.",
    )
    .samples("f32[1, 2, 2, 2], f32[1, 2, 5, 5], 2, 2, i64[1, 2, 2, 2].below(25)")
    .grad("grad_output: _grad.max_pool_double_backward(grad, indices, 2); self: zeros_like(grad)"),
    kernel(
        "_grad.fractional_max_pool3d_backward",
        "(Tensor grad_output, Tensor self, int[3] kernel_size, int[3] output_size, Tensor indices)",
        0,
        body!(
            |a| fractional_maxima(a.grad_output, a.input, a.output_size, a.indices),
            anywhere: |a, format, outs| to_places(3, *format, a.grad_output, a.indices, outs),
            scratch: |a, format, outs, room| backward(room, *format, &outs[0], a.grad_output, Some(a.indices))
        ),
        "The gradient of windows at the places of their largest elements.",
    )
    .samples("f32[1, 2, 2, 2, 2], f32[1, 2, 4, 4, 4], 2, 2, i64[1, 2, 2, 2, 2].below(64)")
    .grad("grad_output: _grad.max_pool_double_backward(grad, indices, 3); self: zeros_like(grad)"),
    compose(
        "_grad.max_pool_double_backward",
        "(Tensor grad, Tensor indices, int dim)",
        0,
        max_pool_double_backward,
        "The elements at the places of maxima; planes have `dim` dimensions.",
    )
    .samples("f32[1, 2, 4, 4], i64[1, 2, 2, 2].below(16), 2; f32[2, 6], i64[2, 3].below(6), 1"),
];

/// Checks the shape of an argument that has to have that of the result.
fn check_like(t: &Tensor, shape: &[i64]) -> Result<()> {
    let n = shape.len();
    for (i, &want) in shape.iter().enumerate() {
        let have = t.shape().get(i).copied().unwrap_or(0);
        ensure!(
            t.ndim() == n && have == want,
            Runtime,
            "Expected a tensor of dimension {n} and tensor.size[{i}] == {want} but got: dimension {} and tensor.size[{i}] = {have}",
            t.ndim()
        );
    }
    Ok(())
}

/// Checks the dtypes of both gradients, which `name` computes.
fn check_dtype(grad: &Tensor, x: &Tensor, what: &str, name: &str) -> Result<()> {
    ensure!(
        grad.dtype() == x.dtype(),
        Runtime,
        "{what} but got dtype {}",
        grad.dtype().scalar_type().to_lowercase()
    );
    x.dtype().check_float_kernel(name)
}

fn check_indices(indices: &Tensor) -> Result<()> {
    ensure!(
        indices.dtype() == DType::I64,
        Runtime,
        "expected scalar type Long but found {}",
        indices.dtype().scalar_type()
    );
    Ok(())
}

/// A gradient for `x`, laid out in a format.
fn like(x: &Tensor, format: MemoryFormat) -> Result<Plan> {
    let strides = dims::format_strides(x.shape(), format)?;
    Ok(Plan::one(x.shape().clone(), strides, x.dtype()))
}

/// What PyTorch says of a gradient of another dtype.
fn expected(x: &Tensor, name: &str) -> String {
    format!(
        "expected dtype {} for `{name}`",
        x.dtype().scalar_type().to_lowercase()
    )
}

fn maxima(a: &Asked, grad: &Tensor, indices: &Tensor) -> Result<(Plan, MemoryFormat)> {
    check_dtype(grad, a.x, &expected(a.x, "gradOutput"), a.name)?;
    let regular = regular(a)?;
    let shape = Dims::new(&a.x.shape()[..a.x.ndim() - a.n]).concat(regular.out());
    check_like(grad, &shape)?;
    check_like(indices, &shape)?;
    check_indices(indices)?;
    let format = format(a.x, a.n, true);
    Ok((like(a.x, format)?, format))
}

fn adaptive_maxima(
    grad: &Tensor,
    x: &Tensor,
    indices: &Tensor,
    n: usize,
) -> Result<(Plan, MemoryFormat)> {
    let name = format!("adaptive_max_pool{n}d_backward");
    check_dtype(grad, x, &expected(x, "grad_output"), &name)?;
    check_spatial(x, n, &name)?;
    ensure!(
        indices.ndim() == x.ndim() && grad.ndim() == x.ndim(),
        Runtime,
        "expected dimensions {} for `indices` but got dimensions {}",
        x.ndim(),
        indices.ndim()
    );
    ensure!(
        grad.shape() == indices.shape(),
        Runtime,
        "expected sizes {} for `grad_output` but got sizes {}",
        indices.shape(),
        grad.shape()
    );
    check_planes(grad, x, n)?;
    check_filled(grad, &name)?;
    check_indices(indices)?;
    let format = format(x, n, false);
    Ok((like(x, format)?, format))
}

fn fractional_maxima(
    grad: &Tensor,
    x: &Tensor,
    size: &[i64],
    indices: &Tensor,
) -> Result<(Plan, MemoryFormat)> {
    let n = size.len();
    let name = format!("fractional_max_pool{n}d_backward");
    check_dtype(grad, x, &expected(x, "gradOutput"), &name)?;
    check_spatial(x, n, &name)?;
    let shape = Dims::new(&x.shape()[..x.ndim() - n]).concat(size);
    for (t, what) in [(grad, "gradOutput"), (indices, "indices")] {
        ensure!(
            *t.shape() == shape,
            Runtime,
            "{name}(): {what} sizes unexpected"
        );
    }
    check_indices(indices)?;
    Ok((like(x, MemoryFormat::Contiguous)?, MemoryFormat::Contiguous))
}

/// Elements in all dimensions of a gradient but the first.
fn check_filled(grad: &Tensor, name: &str) -> Result<()> {
    if let Some(i) = (1..grad.ndim()).find(|&i| grad.shape()[i] == 0) {
        bail!(
            Runtime,
            "{name}(): Expected grad_output to have non-zero size for non-batch dimensions, but grad_output has sizes {} with \
             dimension {i} being empty",
            grad.shape()
        );
    }
    Ok(())
}

/// A batch of planes of `n` dimensions, or the planes of one image.
fn check_spatial(x: &Tensor, n: usize, name: &str) -> Result<()> {
    ensure!(
        x.ndim() == n + 1 || x.ndim() == n + 2,
        Runtime,
        "{name}(): Expected {}D or {}D tensor, but got: {}",
        n + 1,
        n + 2,
        x.shape()
    );
    Ok(())
}

/// As many planes in the gradient as in the input.
fn check_planes(grad: &Tensor, x: &Tensor, n: usize) -> Result<()> {
    let lead = x.ndim() - n;
    ensure!(
        grad.shape()[..lead] == x.shape()[..lead],
        Runtime,
        "expected a gradient of as many planes as {}, but got {}",
        x.shape(),
        grad.shape()
    );
    Ok(())
}

fn to_places(
    n: usize,
    format: MemoryFormat,
    grad: &Tensor,
    indices: &Tensor,
    outs: &[Tensor],
) -> Result<()> {
    let to = To::Places(indices);
    kernels::pool::back(&Spread { n, format, to }, &outs[0], grad)
}

/// What the rules of means find.
struct Means {
    format: MemoryFormat,
    windows: Windows,
}

impl Means {
    fn run(
        &self,
        n: usize,
        grad: &Tensor,
        padding: bool,
        divisor: Option<i64>,
        outs: &[Tensor],
    ) -> Result<()> {
        let to = To::Windows {
            windows: &self.windows,
            divisor,
            padding,
        };
        let format = self.format;
        kernels::pool::back(&Spread { n, format, to }, &outs[0], grad)
    }
}

fn means(a: &Asked, grad: &Tensor, divisor: Option<i64>) -> Result<(Plan, Means)> {
    let x = a.x;
    ensure!(divisor != Some(0), Runtime, "divisor must be not zero");
    check_dtype(grad, x, &expected(x, "gradOutput"), a.name)?;
    let regular = regular(a)?;
    let lead = x.ndim() - a.n;
    check_like(grad, &Dims::new(&x.shape()[..lead]).concat(regular.out()))?;
    let format = format(x, a.n, false);
    let windows = regular.windows(&x.shape()[lead..], false);
    Ok((like(x, format)?, Means { format, windows }))
}

fn adaptive_means(grad: &Tensor, x: &Tensor, n: usize) -> Result<(Plan, Means)> {
    let name = format!("adaptive_avg_pool{n}d_backward");
    let what = if n == 2 { "grad_output" } else { "gradOutput_" };
    let place = format!("{name}_out_cpu_template: Expected");
    ensure!(
        grad.ndim() == x.ndim(),
        Runtime,
        "{place} dimensions {} for `{what}` but got dimensions {}",
        x.ndim(),
        grad.ndim()
    );
    let dtype = x.dtype().scalar_type().to_lowercase();
    check_dtype(
        grad,
        x,
        &format!("{place} dtype {dtype} for `{what}`"),
        &name,
    )?;
    check_spatial(x, n, &name)?;
    check_planes(grad, x, n)?;
    let lead = x.ndim() - n;
    check_filled(grad, &name)?;
    let format = format(x, n, false);
    let windows = windows(n, |i| shares(x.shape()[lead + i], grad.shape()[lead + i]));
    Ok((like(x, format)?, Means { format, windows }))
}

fn max_pool_double_backward(a: &calls::_GradMaxPoolDoubleBackward) -> Result<Tensor> {
    let (grad, indices) = (a.grad, a.indices);
    ensure!(
        (1..=indices.ndim() as i64).contains(&a.dim) && grad.ndim() == indices.ndim(),
        Runtime,
        "expected planes of at most {} dimensions, but got {}",
        indices.ndim(),
        a.dim
    );
    let lead = indices.ndim() - a.dim as usize;
    let lines = |t: &Tensor| {
        let count: i64 = t.shape()[lead..].iter().product();
        f::reshape(t, &Dims::new(&t.shape()[..lead]).concat(&[count]))
    };
    let taken = f::gather(&lines(grad)?, -1, &lines(indices)?)?;
    f::reshape(&taken, indices.shape())
}
