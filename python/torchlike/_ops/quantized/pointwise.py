"""Sums, products and functions of single elements of quantised tensors."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import _C
from torchlike._ops.quantized import kernel
from torchlike._ops.quantized.products import check_quantized

_root: Any = torch
F: Any = torch.nn.functional
# Elements from which on functions of a byte are looked up.
_TABLE_FROM = 512


def _ends(dtype: Any) -> tuple[int, int]:
    """The smallest and the largest integer of a quantised type."""
    limits = torch.iinfo(dtype)
    return limits.min, limits.max


def stored(integers: Any, scale: float, zero_point: int) -> Any:
    """Integers as quantised numbers."""
    return _root._make_per_tensor_quantized_tensor(integers, scale, zero_point)


_NO_CHANNELS = {
    "cat": "Only per-tensor quantization is supported in 'cat'!",
    "matmul": "Only per-tensor quantization is supported in Matmul.",
}


def check_uniform(name: str, *tensors: Any) -> None:
    """Refuses what is not quantised with one scale.

    Raises:
        NotImplementedError: if one is not quantised.
        RuntimeError: if one has a scale for each channel.
    """
    for t in tensors:
        check_quantized(name, t)
        if t.qscheme() != torch.per_tensor_affine:
            raise RuntimeError(_NO_CHANNELS.get(name, "Only per tensor quantization is supported."))


def requantized(reals: Any, scale: Any, zero_point: Any, dtype: Any) -> Any:
    """Real numbers, quantised; scale and zero point may be tensors of one element."""
    return _root.quantize_per_tensor(reals, float(scale), int(zero_point), dtype)


def by_element(name: str, fn: Any, x: Any, scale: float, zero_point: int) -> Any:
    """A function of single elements; of many bytes the 256 that there can be are computed, and looked up."""
    check_uniform(name, x)
    if x.dtype == torch.qint32 or x.numel() < _TABLE_FROM:
        return requantized(fn(x.dequantize()), scale, zero_point, x.dtype)
    low, high = _ends(x.dtype)
    steps = torch.arange(low, high + 1, dtype=torch.int8 if low else torch.uint8)
    every = stored(steps, x.q_scale(), x.q_zero_point()).dequantize()
    table = requantized(fn(every), scale, zero_point, x.dtype)
    return _root._quantized_looked_up(x, _C._integers(table), float(scale), int(zero_point))


# --- sums and products -----------------------------------------------------------------------


def _pair(name: str, op: str, relu: bool) -> Any:
    def run(qa: Any, qb: Any, scale: Any, zero_point: Any) -> Any:
        check_uniform(name, qa, qb)
        return _root._quantized_pair(qa, qb, op == "mul", float(scale), int(zero_point), relu)

    return run


def _into(run: Any) -> Any:
    def written(qa: Any, qb: Any, out: Any) -> Any:
        made = run(qa, qb, out.q_scale(), out.q_zero_point())
        return out.copy_(made)

    return written


def _plus(qa: Any, number: Any, relu: bool) -> Any:
    """The sum with a number: the same integers around another zero point, which has to lie among them."""
    check_uniform("add", qa)
    scale, zero = qa.q_scale(), qa.q_zero_point()
    low, high = _ends(qa.dtype)
    steps = round(float(number) / scale)
    integers = _C._integers(qa)
    moved = zero - steps
    if low <= moved <= high:
        made = stored(integers, scale, moved)
        return torch.relu_(made) if relu else made
    # The zero point would lie outside: the numbers between it and the far end have wider steps.
    reach = high - moved if moved < low else moved - low
    end = low if moved < low else high
    wider = reach / (high - low) * scale
    reals = stored(integers, scale, moved).dequantize()
    made = _root.quantize_per_tensor(reals, wider, end, qa.dtype)
    return torch.relu_(made) if relu else made


def _times(qa: Any, number: Any, relu: bool) -> Any:
    """The product with a number: the same integers, or those on the other side, with another scale."""
    check_uniform("mul", qa)
    number = float(number)
    scale, zero = qa.q_scale(), qa.q_zero_point()
    low, high = _ends(qa.dtype)
    integers = _C._integers(qa)
    if number > 0:
        made = stored(integers, scale * number, zero)
    elif number == 0:
        return stored(torch.zeros_like(integers), 1.0, 0)
    else:
        made = stored(high + low - integers, scale * -number, high - (zero - low))
    return torch.relu_(made) if relu else made


def _number(run: Any) -> Any:
    """The call with a number, which may stand first, or in a tensor."""

    def called(a: Any, b: Any) -> Any:
        first, second = (a, b) if isinstance(a, _C.Tensor) and a.is_quantized else (b, a)
        return run(first, second)

    return called


def _number_into(run: Any) -> Any:
    def written(qa: Any, b: Any, out: Any) -> Any:
        return out.copy_(run(qa, b))

    return written


def _define(op: str, with_number: Any) -> None:
    for relu in (False, True):
        name = f"{op}_relu" if relu else op
        run = _pair(name, op, relu)
        kernel(name)(run)
        kernel(f"{name}.out", f"{name}_out")(_into(run))

        def numbered(qa: Any, b: Any, relu: bool = relu) -> Any:
            return with_number(qa, b, relu)

        scalar = f"{op}_scalar_relu" if relu else f"{op}_scalar"
        either = _number(numbered)
        kernel(f"{name}.Scalar", f"{name}.Scalar2", scalar, f"{scalar}.Tensor")(either)
        written = _number_into(either)
        kernel(f"{name}.Scalar_out", f"{scalar}_out", f"{scalar}_out.Tensor")(written)


_define("add", _plus)
_define("mul", _times)


@kernel("matmul")
def matmul(qa: Any, qb: Any, scale: float, zero_point: int) -> Any:
    """The product of matrices."""
    check_uniform("matmul", qa, qb)
    if qa.dtype != qb.dtype or qa.dtype not in (torch.qint8, torch.quint8):
        raise RuntimeError("Quantized matmul operands should have same data type.")
    made = qa.dequantize() @ qb.dequantize()
    return requantized(made, scale, zero_point, qa.dtype)


@kernel("cat")
def cat(qx: Any, dim: int, scale: float | None, zero_point: int | None) -> Any:
    """Tensors side by side, quantised as the first unless told otherwise."""
    return _joined(qx, dim, scale, zero_point, False)


@kernel("cat_relu")
def cat_relu(qx: Any, dim: int, scale: float | None, zero_point: int | None) -> Any:
    """The same, without what is negative."""
    return _joined(qx, dim, scale, zero_point, True)


def _joined(qx: Any, dim: int, scale: Any, zero_point: Any, relu: bool) -> Any:
    check_uniform("cat", *qx)
    scale = qx[0].q_scale() if scale is None else scale
    zero_point = qx[0].q_zero_point() if zero_point is None else zero_point
    if any(t.dtype != qx[0].dtype for t in qx):
        raise RuntimeError("All dtypes must be the same.")
    first = qx[0]
    alike = [
        t
        if (t.q_scale(), t.q_zero_point()) == (scale, zero_point)
        else _root.quantize_per_tensor(t.dequantize(), scale, zero_point, first.dtype)
        for t in qx
    ]
    made = torch.cat(alike, dim)
    return torch.relu_(made) if relu else made


@kernel("cat_out")
def cat_out(qx: Any, dim: int, out: Any) -> Any:
    """Tensors side by side, quantised as what they are written to."""
    return out.copy_(cat(qx, dim, out.q_scale(), out.q_zero_point()))


@kernel("cat_relu_out")
def cat_relu_out(qx: Any, dim: int, out: Any) -> Any:
    """The same, without what is negative."""
    return out.copy_(cat_relu(qx, dim, out.q_scale(), out.q_zero_point()))


# --- functions of single elements ------------------------------------------------------------


@kernel("sigmoid")
def sigmoid(qx: Any, output_scale: float, output_zero_point: int) -> Any:
    """The logistic function."""
    return by_element("sigmoid", torch.sigmoid, qx, output_scale, output_zero_point)


@kernel("hardswish")
def hardswish(input: Any, output_scale: float, output_zero_point: int) -> Any:
    """The product with a ramp between -3 and 3."""
    return by_element("hardswish", F.hardswish, input, output_scale, output_zero_point)


@kernel("elu")
def elu(
    self: Any,
    output_scale: float,
    output_zero_point: int,
    alpha: float = 1,
    scale: float = 1,
    input_scale: float = 1,
) -> Any:
    """The exponential linear unit."""

    def fn(x: Any) -> Any:
        below = torch.expm1(x * input_scale) * (alpha * scale)
        return torch.where(x > 0, x * scale, below)

    return by_element("elu", fn, self, output_scale, output_zero_point)


@kernel("celu")
def celu(self: Any, output_scale: float, output_zero_point: int, alpha: float = 1) -> Any:
    """The exponential linear unit whose slope has no jump."""
    if alpha == 0:
        raise ZeroDivisionError("alpha cannot be 0 in the CELU")
    return elu(self, output_scale, output_zero_point, alpha, 1.0, 1.0 / alpha)


@kernel("leaky_relu")
def leaky_relu(
    qx: Any, negative_slope: float, inplace: bool, output_scale: float, output_zero_point: int
) -> Any:
    """What is negative times a slope."""

    def fn(x: Any) -> Any:
        return F.leaky_relu(x, negative_slope)

    return by_element("leaky_relu", fn, qx, output_scale, output_zero_point)


@kernel("relu6")
def relu6(qx: Any, inplace: bool = False) -> Any:
    """Clamped between 0 and 6."""
    check_uniform("relu6", qx)
    return F.hardtanh_(qx, 0.0, 6.0) if inplace else F.hardtanh(qx, 0.0, 6.0)


@kernel("clamp")
def clamp(qx: Any, min: float | None = None, max: float | None = None) -> Any:
    """Clamped."""
    check_uniform("clamp", qx)
    return torch.clamp(qx, min, max)


@kernel("threshold")
def threshold(qx: Any, threshold: float, value: float) -> Any:
    """A value in place of what is not larger than a threshold."""
    check_uniform("threshold", qx)
    return F.threshold(qx, threshold, value)


@kernel("prelu")
def prelu(qx: Any, weight: Any, output_scale: float, output_zero_point: int) -> Any:
    """What is negative times a slope of its channel; the slopes are quantised."""
    check_uniform("prelu", qx, weight)
    if weight.numel() != 1 and qx.dim() > 1 and weight.numel() != qx.size(1):
        raise RuntimeError(
            f"Mismatch of parameter numbers and input channel size. Found parameter numbers = {weight.numel()} "
            f"and channel size = {qx.size(1)}."
        )
    made = F.prelu(qx.dequantize(), weight.dequantize())
    return requantized(made, output_scale, output_zero_point, qx.dtype)


@kernel("softmax")
def softmax(qx: Any, dim: int, output_scale: float, output_zero_point: int) -> Any:
    """The softmax along a dimension."""
    check_uniform("softmax", qx)
    made = torch.softmax(qx.dequantize(), dim)
    return requantized(made, output_scale, output_zero_point, qx.dtype)


@kernel("dropout")
def dropout(
    self: Any,
    output_scale: float,
    output_zero_point: int,
    p: float = 0.5,
    training: bool = False,
) -> Any:
    """The input: nothing is left out of quantised tensors."""
    return self


def _pooled(count: int) -> Any:
    def run(
        qx: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
    ) -> Any:
        check_uniform(f"max_pool{count}d", qx)
        pool = getattr(torch, f"max_pool{count}d")
        return pool(qx, kernel_size, stride, padding, dilation, ceil_mode)

    return run


kernel("max_pool1d")(_pooled(1))
kernel("max_pool2d")(_pooled(2))
