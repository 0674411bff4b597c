"""Functions of code that tensors answer themselves, and those that come down to a function of another name."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.nn.utils import rnn

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OF_TENSORS", "OTHER_NAMES"]


def _method(name: str) -> Callable[..., Any]:
    """A method of tensors, or an attribute, as a function."""

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, torchlike.Tensor):
            raise TypeError(f"torch.{name}: not for a {type(x).__name__}")
        found = getattr(x, name)
        return found(*args, **kwargs) if callable(found) else found

    return call


_ANSWERED = (
    "coalesce dense_dim sparse_dim indices crow_indices col_indices ccol_indices row_indices _nnz is_coalesced "
    "dequantize int_repr q_scale q_zero_point q_per_channel_scales q_per_channel_zero_points q_per_channel_axis "
    "element_size get_device is_complex is_conj is_neg is_signed is_pinned is_inference is_distributed is_set_to "
    "storage_offset pin_memory retain_grad"
)
OF_TENSORS: dict[str, Callable[..., Any]] = {name: _method(name) for name in _ANSWERED.split()}
"""Methods of tensors that are no operators here."""
OF_TENSORS |= {n: _method(n) for n in ("data", "is_leaf", "output_nr", "retains_grad", "_version")}


def _dtype(number: int | None) -> Any:
    """The type that code has a number for."""
    from torchlike.jit._functions import DTYPES

    return None if number is None else DTYPES[number]


def _number(dtype: Any) -> int:
    from torchlike.jit._functions import DTYPES

    return next(n for n, d in DTYPES.items() if d == dtype)


def _pack(x: Any, lengths: Any, batch_first: bool) -> tuple[Any, Any]:
    packed = rnn.pack_padded_sequence(x, lengths, batch_first)
    return packed.data, packed.batch_sizes


def _pad(data: Any, sizes: Any, batch_first: bool, padding: float, total: int) -> Any:
    packed = rnn.PackedSequence(data, sizes)
    return rnn.pad_packed_sequence(packed, batch_first, padding, total if total > 0 else None)


def _interpolate(
    x: Any,
    size: Any = None,
    scale: Any = None,
    mode: str = "nearest",
    align: Any = None,
    recompute: Any = None,
    *rest: Any,
) -> Any:
    return torchlike.nn.functional.interpolate(x, size, scale, mode, align, recompute, *rest)


def _convolution(name: str) -> Callable[..., Any]:
    """A convolution by the name of one of its kernels, which takes the size of the weight too."""

    def call(
        x: Any, weight: Any, kernel: Any, bias: Any = None, stride: Any = 1, *rest: Any
    ) -> Any:
        if name.startswith("conv_transpose"):
            padding, output_padding, dilation = (*rest, 0, 0, 1)[: len(rest)] + (0, 0, 1)[
                len(rest) :
            ]
            return getattr(torchlike, name)(
                x, weight, bias, stride, padding, output_padding, 1, dilation
            )
        return getattr(torchlike, name)(x, weight, bias, stride, *rest)

    return call


def _depthwise(name: str) -> Callable[..., Any]:
    def call(x: Any, weight: Any, kernel: Any, bias: Any, stride: Any, *rest: Any) -> Any:
        return getattr(torchlike, name)(x, weight, bias, stride, *rest, x.size(1))

    return call


def _full(x: Any, cuda: bool, cpu: bool) -> Any:
    """A tensor in single precision where mixed precision is on."""
    on = cuda if x.is_cuda else cpu
    narrow = x.dtype in (torchlike.float16, torchlike.bfloat16)
    return x.float() if on and narrow else x


def _reduced(x: Any, cuda: bool, cpu: bool, of_cuda: int, of_cpu: int) -> Any:
    """A tensor in the narrow type of its device where mixed precision is on."""
    on, dtype = (cuda, of_cuda) if x.is_cuda else (cpu, of_cpu)
    return x.to(_dtype(dtype)) if on and x.dtype == torchlike.float32 else x


def _without_gradients(name: str) -> Callable[..., Any]:
    def call(x: Any, *args: Any) -> Any:
        with torchlike.no_grad():
            return getattr(x, name)(*[a for a in args if a is not None])

    return call


def _addmm_activation(
    bias: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1, use_gelu: bool = False
) -> Any:
    out = torchlike.addmm(bias, a, b, beta=beta, alpha=alpha)
    return torchlike.nn.functional.gelu(out) if use_gelu else torchlike.relu(out)


_CASTS = {
    "Byte": "uint8", "Char": "int8", "Double": "float64", "Float": "float32", "Int": "int32", "Long": "int64",
    "Short": "int16", "Half": "float16",
}  # fmt: skip

OTHER_NAMES: dict[str, Callable[..., Any]] = {
    "can_cast": lambda a, b: torchlike.can_cast(_dtype(a), _dtype(b)),
    "promote_types": lambda a, b: _number(torchlike.promote_types(_dtype(a), _dtype(b))),
    "result_type": lambda a, b: _number(torchlike.result_type(a, b)),
    "quantize_per_tensor": lambda x, scale, zero, dtype: torchlike.quantize_per_tensor(
        x, scale, zero, _dtype(dtype)
    ),
    "quantize_per_channel": lambda x, scales, zeros, axis, dtype: torchlike.quantize_per_channel(
        x, scales, zeros, axis, _dtype(dtype)
    ),
    "conv_tbc": lambda *args: torchlike.conv_tbc(*args),
    "native_channel_shuffle": lambda x, groups: torchlike.native_channel_shuffle(x, groups),
    "norm_except_dim": lambda *args: torchlike.norm_except_dim(*args),
    "_weight_norm": lambda *args: torchlike._weight_norm(*args),
    "_aminmax": lambda x, *args: (
        torchlike.aminmax(x, dim=args[0], keepdim=args[1]) if args else x.aminmax()
    ),
    "_unique": lambda x, *args: torchlike.ops.aten._unique2(x, *args)[:2],
    "_unsafe_index": lambda x, indices: torchlike.ops.aten.index(x, indices),
    "_stack": lambda tensors, dim=0: torchlike.stack(tensors, dim),
    "_linalg_eigvals": lambda x: torchlike.linalg.eigvals(x),
    "_logcumsumexp": lambda x, dim: torchlike.logcumsumexp(x, dim),
    "_dim_arange": lambda like, dim: torchlike.arange(like.size(dim), device=like.device),
    "_shape_as_tensor": lambda x: torchlike.tensor(list(x.shape)),
    "_list_to_tensor": lambda items: torchlike.tensor(items),
    "_tensor_to_list": lambda x: x.tolist(),
    "_infer_size": lambda a, b: list(torchlike.broadcast_shapes(a, b)),
    "_add_relu": lambda a, b, *, alpha=1: torchlike.relu(torchlike.add(a, b, alpha=alpha)),
    "_addmm_activation": _addmm_activation,
    "_get_tracing_state": lambda: False,
    "get_autocast_dtype": lambda device: _number(torchlike.get_autocast_dtype(device)),
    "divmod": divmod,
    "mathremainder": math.remainder,
    "modf": math.modf,
    "initial_seed": lambda *args: torchlike.initial_seed(),
    "seed": lambda *args: torchlike.seed(),
    "_pack_padded_sequence": _pack,
    "_pad_packed_sequence": _pad,
    "__interpolate": _interpolate,
    "__upsample": lambda *args, **kwargs: torchlike.nn.functional.interpolate(*args, **kwargs),
    "__upsample_nearest": lambda x, size=None, scale=None: torchlike.nn.functional.interpolate(
        x, size, scale
    ),
    "__upsample_bilinear": lambda x, size=None, scale=None: torchlike.nn.functional.interpolate(
        x, size, scale, "bilinear", True
    ),
    "thnn_conv2d": _convolution("conv2d"),
    "slow_conv3d": _convolution("conv3d"),
    "slow_conv_dilated2d": _convolution("conv2d"),
    "slow_conv_dilated3d": _convolution("conv3d"),
    "slow_conv_transpose2d": _convolution("conv_transpose2d"),
    "slow_conv_transpose3d": _convolution("conv_transpose3d"),
    "_conv_depthwise2d": _depthwise("conv2d"),
    "conv_depthwise3d": _depthwise("conv3d"),
    "_autocast_to_full_precision": _full,
    "_autocast_to_reduced_precision": _reduced,
    **{
        f"_no_grad_{n}_": _without_gradients(f"{n}_") for n in ("fill", "normal", "uniform", "zero")
    },
    **{
        f"_cast_{name}": lambda x, *_, dtype=dtype: x.to(getattr(torchlike, dtype))
        for name, dtype in _CASTS.items()
    },
}
"""Functions that are here by another name, or take other arguments."""
