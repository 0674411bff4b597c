"""Convolutions that take their number of input channels from the first input."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike.nn.layers.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from torchlike.nn.layers.lazy import LazyModuleMixin
from torchlike.nn.parameter import UninitializedParameter, is_lazy

__all__ = [
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
]


class _LazyConv(LazyModuleMixin):
    _spatial_dims: int
    groups: int
    transposed: bool
    kernel_size: Any

    def _start(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()  # type: ignore[misc]

    def _get_in_channels(self, input: Any) -> int:
        n = self._spatial_dims
        if input.dim() not in (n + 1, n + 2):
            raise RuntimeError(
                f"Expected {n + 1}D (unbatched) or {n + 2}D (batched) input "
                f"to {type(self).__name__}, but got input of size: {input.shape}"
            )
        return input.shape[1] if input.dim() == n + 2 else input.shape[0]

    def initialize_parameters(self, input: Any, *args: Any, **kwargs: Any) -> None:
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._get_in_channels(input)
        groups = self.groups
        if self.in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if not is_lazy(self.weight):
            raise AssertionError("self.weight must be an UninitializedParameter")
        if self.transposed:
            ends = (self.in_channels, self.out_channels // groups)
        else:
            ends = (self.out_channels, self.in_channels // groups)
        with torch.no_grad():
            self.weight.materialize((*ends, *self.kernel_size))
            if self.bias is not None:
                if not is_lazy(self.bias):
                    raise AssertionError("self.bias must be an UninitializedParameter")
                self.bias.materialize((self.out_channels,))
            self.reset_parameters()


def _plain(name: str, base: Any, dims: int) -> Any:
    def __init__(
        self: Any,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super(cls, self).__init__(
            0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode,
            device, dtype,
        )  # fmt: skip
        self._start(out_channels, bias, device, dtype)

    cls = _made(name, base, dims, __init__)
    return cls


def _transposed(name: str, base: Any, dims: int) -> Any:
    def __init__(
        self: Any,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super(cls, self).__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation,
            padding_mode, device, dtype,
        )  # fmt: skip
        self._start(out_channels, bias, device, dtype)

    cls = _made(name, base, dims, __init__)
    return cls


def _made(name: str, base: Any, dims: int, init: Any) -> Any:
    init.__qualname__ = f"{name}.__init__"
    body = {
        "__init__": init,
        "__module__": __name__,
        "__qualname__": name,
        "__doc__": f"A ``{base.__name__}`` that takes ``in_channels`` from its first input.",
        "cls_to_become": base,
        "_spatial_dims": dims,
    }
    return type(name, (_LazyConv, base), body)


LazyConv1d = _plain("LazyConv1d", Conv1d, 1)
LazyConv2d = _plain("LazyConv2d", Conv2d, 2)
LazyConv3d = _plain("LazyConv3d", Conv3d, 3)
LazyConvTranspose1d = _transposed("LazyConvTranspose1d", ConvTranspose1d, 1)
LazyConvTranspose2d = _transposed("LazyConvTranspose2d", ConvTranspose2d, 2)
LazyConvTranspose3d = _transposed("LazyConvTranspose3d", ConvTranspose3d, 3)
