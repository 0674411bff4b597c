"""Linear layers and convolutions on quantised tensors."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import _C
from torchlike._ops.quantized import kernel, packed

_root: Any = torch


def _check(what: bool, text: str) -> None:
    if not what:
        raise RuntimeError(text)


def check_quantized(name: str, t: Any) -> None:
    """Refuses tensors of real numbers.

    Raises:
        NotImplementedError: in PyTorch's words.
    """
    if not t.is_quantized:
        raise NotImplementedError(
            f"Could not run 'quantized::{name}' with arguments from the 'CPU' backend. "
            f"'quantized::{name}' is only available for quantized tensors: call quantize_per_tensor() first"
        )


def _check_real(name: str, t: Any) -> None:
    if t.is_quantized:
        raise NotImplementedError(
            f"Could not run 'quantized::{name}' with arguments from the 'QuantizedCPU' backend. "
            f"'quantized::{name}' takes tensors of real numbers"
        )


@kernel("linear_prepack")
def linear_prepack(W: Any, B: Any = None) -> Any:
    """A matrix of signed bytes and a bias."""
    check_quantized("linear_prepack", W)
    _check(
        W.dim() == 2,
        "The weight tensor for quantized::linear_prepack (fbgemm) should be 2-dimensional.",
    )
    _check(W.dtype == torch.qint8, f"expected scalar type QInt8 but found {_word(W.dtype)}")
    _check(B is None or B.dim() == 1, "bias should be a vector (1D Tensor)")
    _check(B is None or B.size(0) == W.size(0), f"bias should have N elements: {W.size(0)}")
    return packed.linear(_kept(W), B)


def _kept(t: Any, format: Any = torch.contiguous_format) -> Any:
    """A weight as it is kept: scales in single precision, in this layout."""
    integers = _C._integers(t).contiguous(memory_format=format)
    if t.qscheme() == torch.per_tensor_affine:
        scale = torch.tensor(t.q_scale(), dtype=torch.float32).item()
        return _root._make_per_tensor_quantized_tensor(integers, scale, t.q_zero_point())
    scales = t.q_per_channel_scales().float()
    zeros = t.q_per_channel_zero_points()
    return _root._make_per_channel_quantized_tensor(integers, scales, zeros, t.q_per_channel_axis())


def _word(dtype: Any) -> str:
    words = {torch.quint8: "QUInt8", torch.qint8: "QInt8", torch.qint32: "QInt32"}
    return words.get(dtype, str(dtype))


@kernel("linear_unpack", "linear_unpack_fp16")
def linear_unpack(W_prepack: Any) -> Any:
    """The weight and the bias."""
    return W_prepack.unpack()


@kernel("linear")
def linear(X: Any, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int) -> Any:
    """The product with the weight, and the bias."""
    return _linear(X, W_prepack, Y_scale_i, Y_zero_point_i, False)


@kernel("linear_relu")
def linear_relu(X: Any, W_prepack: Any, Y_scale_i: float, Y_zero_point_i: int) -> Any:
    """The same, without what is negative."""
    return _linear(X, W_prepack, Y_scale_i, Y_zero_point_i, True)


def _linear(x: Any, params: Any, scale: float, zero_point: int, relu: bool) -> Any:
    check_quantized("linear_relu" if relu else "linear", x)
    weight, bias = params._held.unpack()
    most = params._held.most
    return _root._quantized_linear(x, weight, bias, scale, zero_point, relu, most)


@kernel("linear_dynamic")
def linear_dynamic(X: Any, W_prepack: Any, reduce_range: bool = False) -> Any:
    """The product with the weight of real numbers that are quantised meanwhile."""
    _check_real("linear_dynamic", X)
    _check(X.dim() >= 2, "The dimension of input tensor should be larger than or equal to 2")
    weight, bias = W_prepack._held.unpack()
    return _root._quantized_linear_dynamic(X, weight, bias, reduce_range, W_prepack._held.most)


@kernel("linear_relu_dynamic")
def linear_relu_dynamic(X: Any, W_prepack: Any, reduce_range: bool = False) -> Any:
    """The same, without what is negative."""
    return linear_dynamic(X, W_prepack, reduce_range).relu_()


@kernel("linear_prepack_fp16")
def linear_prepack_fp16(W: Any, B: Any = None) -> Any:
    """A matrix whose numbers are rounded to half precision, and a bias."""
    _check_real("linear_prepack_fp16", W)
    most = torch.finfo(torch.float16).max
    return packed.linear(W.detach().clamp(-most, most).half().float(), B)


@kernel("linear_dynamic_fp16")
def linear_dynamic_fp16(X: Any, W_prepack: Any) -> Any:
    """The product with a weight in half precision."""
    weight, bias = W_prepack._held.unpack()
    made = X.float() @ weight.t()
    return made if bias is None else made + bias


@kernel("linear_relu_dynamic_fp16")
def linear_relu_dynamic_fp16(X: Any, W_prepack: Any) -> Any:
    """The same, without what is negative."""
    return linear_dynamic_fp16(X, W_prepack).relu_()


def _prepack(name: str, count: int, weight: Any, bias: Any, moves: list[Any], groups: int) -> Any:
    check_quantized(name, weight)
    transposed = "transpose" in name
    _check(
        weight.dim() == count + 2,
        f"quantized::{name}: Weights are expected to have {count + 2} dimensions",
    )
    _check(
        weight.dtype == torch.qint8, f"expected scalar type QInt8 but found {_word(weight.dtype)}"
    )
    for what, given in zip(("stride", "padding", "dilation", "output_padding"), moves, strict=True):
        _check(
            len(given) == count,
            f"{what} should contain {count} elements for {count}D convolution.",
        )
    channels = weight.size(1) * groups if transposed else weight.size(0)
    _check(
        bias is None or (bias.dim() == 1 and bias.size(0) == channels),
        f"bias should have K elements: {channels}",
    )
    weight = weight.detach()
    if count == 1:
        weight, moves = (
            _one_line(weight),
            [[fill, *m] for m, fill in zip(moves, (1, 0, 1, 0), strict=True)],
        )
    format = torch.channels_last_3d if count == 3 else torch.channels_last
    return packed.conv(_kept(weight, format), bias, moves, groups, transposed)


def _one_line(t: Any) -> Any:
    """Sequences as images of one line."""
    if not t.is_quantized or t.qscheme() == torch.per_tensor_affine:
        return t.unsqueeze(2)
    integers = _C._integers(t).unsqueeze(2)
    scales, zeros = t.q_per_channel_scales(), t.q_per_channel_zero_points()
    axis = t.q_per_channel_axis()
    axis += axis > 1
    return _root._make_per_channel_quantized_tensor(integers, scales, zeros, axis)


def _without_line(t: Any) -> Any:
    if t.qscheme() == torch.per_tensor_affine:
        return t.squeeze(2)
    scales, zeros = t.q_per_channel_scales(), t.q_per_channel_zero_points()
    axis = t.q_per_channel_axis()
    axis -= axis > 2
    return _root._make_per_channel_quantized_tensor(_C._integers(t).squeeze(2), scales, zeros, axis)


def _convolve(name: str, x: Any, params: Any, scale: float, zero_point: int, relu: bool) -> Any:
    check_quantized(name, x)
    held = params._held
    count = 1 if "1d" in name else len(held._moves[0])
    _check(
        x.dim() == count + 2,
        f"quantized::{name}(): Expected activation tensor to have {count + 2} dimensions, got {x.dim()}",
    )
    if count == 1:
        x = x.unsqueeze(2)
    weight = held._weight
    inputs = weight.size(0) if held._transposed else weight.size(1) * held._groups
    if x.size(1) != inputs:
        raise RuntimeError(
            f"[QConv{len(held._moves[0])}D] Given groups={held._groups}, weight of size "
            f"{', '.join(map(str, weight.shape))}, expected input (NCHW) {', '.join(map(str, x.shape))} to have "
            f"{inputs} channels, but got {x.size(1)} channels instead"
        )
    stride, padding, dilation, output_padding = held._moves
    made = _root._quantized_convolution(
        x,
        weight,
        held._bias,
        held.packed,
        stride,
        padding,
        dilation,
        held._transposed,
        output_padding,
        held._groups,
        scale,
        zero_point,
        relu,
        held.most,
    )
    return made.squeeze(2) if count == 1 else made


def _dynamic(name: str, x: Any, params: Any, reduce_range: bool) -> Any:
    _check_real(name, x)
    q = _root.quantize_per_tensor_dynamic(x, torch.quint8, reduce_range)
    return _convolve(name, q, params, q.q_scale(), q.q_zero_point(), False).dequantize()


def _define(count: int) -> None:
    """The operators of convolutions over so many dimensions."""
    plain, turned = f"conv{count}d", f"conv_transpose{count}d"

    def prepack(
        weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int
    ) -> Any:
        moves = [stride, padding, dilation, [0] * count]
        return _prepack(f"{plain}_prepack", count, weight, bias, moves, groups)

    def prepack_turned(
        weight: Any,
        bias: Any,
        stride: Any,
        padding: Any,
        output_padding: Any,
        dilation: Any,
        groups: int,
    ) -> Any:
        moves = [stride, padding, dilation, output_padding]
        return _prepack(f"{turned}_prepack", count, weight, bias, moves, groups)

    def unpack(packed_weights: Any) -> Any:
        weight, bias = packed_weights.unpack()
        return (_without_line(weight) if count == 1 else weight), bias

    kernel(f"{plain}_prepack", *(["conv_prepack"] if count == 2 else []))(prepack)
    kernel(f"{turned}_prepack")(prepack_turned)
    kernel(f"{plain}_unpack", f"{turned}_unpack", *(["conv_unpack"] if count == 2 else []))(unpack)
    for name, relu in ((plain, False), (f"{plain}_relu", True), (turned, False)):

        def run(
            qx: Any, params: Any, scale: float, zero_point: int, name: str = name, relu: bool = relu
        ) -> Any:
            return _convolve(name, qx, params, scale, zero_point, relu)

        def run_as_told(
            qx: Any,
            params: Any,
            stride: Any,
            padding: Any,
            dilation: Any,
            groups: int,
            scale: float,
            zero_point: int,
            name: str = name,
            relu: bool = relu,
        ) -> Any:
            # The packed window counts, whatever the call says.
            return _convolve(name, qx, params, scale, zero_point, relu)

        if count == 1 or name == turned:
            kernel(name)(run)
        else:
            kernel(f"{name}.new")(run)
            kernel(name)(run_as_told)
    for name in (plain, turned):

        def dynamic(qx: Any, params: Any, reduce_range: bool = False, name: str = name) -> Any:
            return _dynamic(name, qx, params, reduce_range)

        kernel(f"{name}_dynamic")(dynamic)
        if count > 1:
            for what in ("stride", "padding", "dilation", "groups", "output_padding", "transpose"):
                kernel(f"{name}_{what}")(_told(what))


def _told(what: str) -> Any:
    def told(packed_weights: Any) -> Any:
        found = getattr(packed_weights, what)()
        return int(found) if what == "transpose" else found

    return told


for _count in (1, 2, 3):
    _define(_count)
