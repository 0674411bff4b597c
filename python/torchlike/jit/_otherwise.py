"""Functions of code for which there is no operator here, or whose function in Python gives something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.jit._methods import OF_TENSORS, OTHER_NAMES
from torchlike.nn import _native_attention

if TYPE_CHECKING:
    from collections.abc import Callable


def _convolution(
    x: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, output_padding: Any,
    groups: int, *_: Any,
) -> Any:  # fmt: skip
    return torchlike.convolution(
        x, weight, bias, stride, padding, dilation, transposed, output_padding, groups
    )


def _convolution_mode(
    x: Any, weight: Any, bias: Any, stride: Any, padding: str, dilation: Any, groups: int
) -> Any:
    convolution = (torchlike.conv1d, torchlike.conv2d, torchlike.conv3d)[weight.dim() - 3]
    return convolution(x, weight, bias, stride, padding, dilation, groups)


def _lu_with_info(x: Any, pivot: bool = True, check_errors: bool = True) -> Any:
    return torchlike.linalg.lu_factor_ex(x, pivot=pivot, check_errors=check_errors)


def _histogramdd(
    x: Any, bins: Any, range: Any = None, weight: Any = None, density: bool = False
) -> Any:
    return torchlike.histogramdd(x, bins, range=range, weight=weight, density=density)


WITHOUT_OPERATOR: dict[str, Callable[..., Any]] = {
    **OF_TENSORS,
    **OTHER_NAMES,
    "_convolution": _convolution,
    "_convolution_mode": _convolution_mode,
    "is_autocast_enabled": lambda *args: torchlike.is_autocast_enabled(*args),
    "is_autocast_cpu_enabled": lambda: torchlike.is_autocast_enabled("cpu"),
    "is_grad_enabled": torchlike.is_grad_enabled,
    "set_grad_enabled": torchlike.set_grad_enabled,
    "manual_seed": torchlike.manual_seed,
    "get_default_dtype": torchlike.get_default_dtype,
    "tensor": torchlike.tensor,
    "as_tensor": torchlike.as_tensor,
    "from_numpy": torchlike.tensor,
    "_lu_with_info": _lu_with_info,
    "nonzero_numpy": lambda x: list(torchlike.nonzero(x, as_tuple=True)),
    "broadcast_shapes": lambda *shapes: list(torchlike.broadcast_shapes(*shapes)),
    "to_dense": torchlike.Tensor.to_dense,
    "to_padded_tensor": lambda *args, **kwargs: torchlike.Tensor.to_padded_tensor(*args, **kwargs),
    "to_sparse": torchlike.Tensor.to_sparse,
    "histogramdd": _histogramdd,
    **{name: getattr(torchlike, name) for name in _native_attention.__all__},
    "pad_sequence": lambda *args, **kwargs: torchlike.nn.utils.rnn.pad_sequence(*args, **kwargs),
    "unique_consecutive": lambda *args, **kwargs: torchlike.ops.aten.unique_consecutive(
        *args, **kwargs
    ),
}


def _grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> list[Any]:
    found = torchlike.autograd.grad(
        outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused=allow_unused
    )
    return list(found)


OF_AUTOGRAD: dict[str, Callable[..., Any]] = {
    "grad": _grad,
    "backward": torchlike.autograd.backward,
}
