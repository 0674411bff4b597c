"""Convolutions."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike.nn import functional as F
from torchlike.nn.modules._convnd import _ConvNd, _ConvTransposeNd
from torchlike.nn.modules._own import own
from torchlike.nn.modules.lazy import LazyModuleMixin
from torchlike.nn.modules.utils import _pair, _single, _triple
from torchlike.nn.parameter import UninitializedParameter, is_lazy

__all__ = [
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "LazyConv1d",
    "LazyConv2d",
    "LazyConv3d",
    "LazyConvTranspose1d",
    "LazyConvTranspose2d",
    "LazyConvTranspose3d",
]

Tensor = torch.Tensor


class Conv1d(_ConvNd):
    """Convolution of sequences."""

    def __init__(
        self,
        in_channels: int,
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
        super().__init__(
            in_channels,
            out_channels,
            _single(kernel_size),
            _single(stride),
            padding if isinstance(padding, str) else _single(padding),
            _single(dilation),
            False,
            _single(0),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
        if self.padding_mode != "zeros":
            return F.conv1d(
                self._padded(input), weight, bias, self.stride, _single(0),
                self.dilation, self.groups,
            )  # fmt: skip
        return F.conv1d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv2d(_ConvNd):
    """Convolution of images."""

    def __init__(
        self,
        in_channels: int,
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
        super().__init__(
            in_channels,
            out_channels,
            _pair(kernel_size),
            _pair(stride),
            padding if isinstance(padding, str) else _pair(padding),
            _pair(dilation),
            False,
            _pair(0),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
        if self.padding_mode != "zeros":
            return F.conv2d(
                self._padded(input), weight, bias, self.stride, _pair(0),
                self.dilation, self.groups,
            )  # fmt: skip
        return F.conv2d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv3d(_ConvNd):
    """Convolution of volumes."""

    def __init__(
        self,
        in_channels: int,
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
        super().__init__(
            in_channels,
            out_channels,
            _triple(kernel_size),
            _triple(stride),
            padding if isinstance(padding, str) else _triple(padding),
            _triple(dilation),
            False,
            _triple(0),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _conv_forward(self, input: Any, weight: Any, bias: Any) -> Any:
        if self.padding_mode != "zeros":
            return F.conv3d(
                self._padded(input), weight, bias, self.stride, _triple(0),
                self.dilation, self.groups,
            )  # fmt: skip
        return F.conv3d(input, weight, bias, self.stride, self.padding, self.dilation, self.groups)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


@own("__init__", "forward")
class ConvTranspose1d(_ConvTransposeNd):
    """Transposed convolution of sequences."""

    _spatial = 1


@own("__init__", "forward")
class ConvTranspose2d(_ConvTransposeNd):
    """Transposed convolution of images."""

    _spatial = 2


@own("__init__", "forward")
class ConvTranspose3d(_ConvTransposeNd):
    """Transposed convolution of volumes."""

    _spatial = 3


class _LazyConvXdMixin(LazyModuleMixin):
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


class _LazyConv(_LazyConvXdMixin):
    def __init__(
        self,
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
        super().__init__(
            0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode,
            device, dtype,
        )  # fmt: skip
        self._start(out_channels, bias, device, dtype)


class _LazyConvTranspose(_LazyConvXdMixin):
    def __init__(
        self,
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
        super().__init__(
            0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation,
            padding_mode, device, dtype,
        )  # fmt: skip
        self._start(out_channels, bias, device, dtype)


@own("__init__")
class LazyConv1d(_LazyConv, Conv1d):
    """A ``Conv1d`` that takes ``in_channels`` from its first input."""

    cls_to_become = Conv1d
    _spatial_dims = 1


@own("__init__")
class LazyConv2d(_LazyConv, Conv2d):
    """A ``Conv2d`` that takes ``in_channels`` from its first input."""

    cls_to_become = Conv2d
    _spatial_dims = 2


@own("__init__")
class LazyConv3d(_LazyConv, Conv3d):
    """A ``Conv3d`` that takes ``in_channels`` from its first input."""

    cls_to_become = Conv3d
    _spatial_dims = 3


@own("__init__")
class LazyConvTranspose1d(_LazyConvTranspose, ConvTranspose1d):
    """A ``ConvTranspose1d`` that takes ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose1d
    _spatial_dims = 1


@own("__init__")
class LazyConvTranspose2d(_LazyConvTranspose, ConvTranspose2d):
    """A ``ConvTranspose2d`` that takes ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose2d
    _spatial_dims = 2


@own("__init__")
class LazyConvTranspose3d(_LazyConvTranspose, ConvTranspose3d):
    """A ``ConvTranspose3d`` that takes ``in_channels`` from its first input."""

    cls_to_become = ConvTranspose3d
    _spatial_dims = 3
