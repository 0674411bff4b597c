"""What convolutions of all numbers of dimensions share."""

from __future__ import annotations

import math
from typing import Any

import torchlike as torch
from torchlike.nn import functional as F
from torchlike.nn import init
from torchlike.nn.modules.module import Module
from torchlike.nn.modules.utils import _pair, _reverse_repeat_tuple, _single, _triple
from torchlike.nn.parameter import Parameter

Tensor = torch.Tensor

_SQRT5 = math.sqrt(5)
_PADDINGS = {"same", "valid"}
_MODES = {"zeros", "reflect", "replicate", "circular"}


class _ConvNd(Module):
    weight: Any
    bias: Any

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, ...],
        stride: tuple[int, ...],
        padding: Any,
        dilation: tuple[int, ...],
        transposed: bool,
        output_padding: tuple[int, ...],
        groups: int,
        bias: bool,
        padding_mode: str,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if groups <= 0:
            raise ValueError("groups must be a positive integer")
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        if isinstance(padding, str):
            if padding not in _PADDINGS:
                raise ValueError(
                    f"Invalid padding string {padding!r}, should be one of {_PADDINGS}"
                )
            if padding == "same" and any(s != 1 for s in stride):
                raise ValueError("padding='same' is not supported for strided convolutions")
        if padding_mode not in _MODES:
            raise ValueError(
                f"padding_mode must be one of {_MODES}, but got padding_mode='{padding_mode}'"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.transposed = transposed
        self.output_padding = output_padding
        self.groups = groups
        self.padding_mode = padding_mode
        if isinstance(padding, str):
            both = [0, 0] * len(kernel_size)
            if padding == "same":
                for i, (d, k) in enumerate(zip(dilation, kernel_size, strict=False)):
                    total = d * (k - 1)
                    at = 2 * (len(kernel_size) - 1 - i)
                    both[at] = total // 2
                    both[at + 1] = total - total // 2
            self._reversed_padding_repeated_twice: Any = both
        else:
            self._reversed_padding_repeated_twice = _reverse_repeat_tuple(padding, 2)
        ends = (
            (in_channels, out_channels // groups)
            if transposed
            else (out_channels, in_channels // groups)
        )
        self.weight = Parameter(torch.empty((*ends, *kernel_size), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(torch.empty(out_channels, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new weights."""
        if self.weight.is_contiguous():
            init.kaiming_uniform_(self.weight, a=_SQRT5)
        else:
            # Numbers are drawn in the order of memory: channels-last weights get those of plain ones.
            drawn = torch.empty_like(self.weight, memory_format=torch.contiguous_format)
            with torch.no_grad():
                self.weight.copy_(init.kaiming_uniform_(drawn, a=_SQRT5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in) if fan_in > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        text = (
            f"{self.in_channels}, {self.out_channels}, "
            f"kernel_size={self.kernel_size}, stride={self.stride}"
        )
        if self.padding != (0,) * len(self.padding):
            text += f", padding={self.padding}"
        if self.dilation != (1,) * len(self.dilation):
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * len(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text

    def __setstate__(self, state: Any) -> None:
        super().__setstate__(state)
        self._state_.setdefault("padding_mode", "zeros")

    def _padded(self, input: Any) -> Any:
        return F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)


class _ConvTransposeNd(_ConvNd):
    _spatial: int

    def __init__(
        self,
        in_channels: int,
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
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        each = (_single, _pair, _triple)[self._spatial - 1]
        super().__init__(
            in_channels,
            out_channels,
            each(kernel_size),
            each(stride),
            each(padding),
            each(dilation),
            True,
            each(output_padding),
            groups,
            bias,
            padding_mode,
            device,
            dtype,
        )

    def _output_padding(
        self,
        input: Any,
        output_size: Any,
        stride: Any,
        padding: Any,
        kernel_size: Any,
        num_spatial_dims: int,
        dilation: Any = None,
    ) -> Any:
        if output_size is None:
            return self.output_padding
        n = num_spatial_dims
        others = 2 if input.dim() == n + 2 else 1
        if len(output_size) == others + n:
            output_size = output_size[others:]
        if len(output_size) != n:
            raise ValueError(
                f"ConvTranspose{n}D: for {input.dim()}D input, output_size must have {n} "
                f"or {others + n} elements (got {len(output_size)})"
            )
        least = [
            (input.size(d + others) - 1) * stride[d]
            - 2 * padding[d]
            + (dilation[d] if dilation is not None else 1) * (kernel_size[d] - 1)
            + 1
            for d in range(n)
        ]
        most = [least[d] + stride[d] - 1 for d in range(n)]
        for size, low, high in zip(output_size, least, most, strict=True):
            if size < low or size > high:
                raise ValueError(
                    f"requested an output size of {output_size}, but valid sizes range "
                    f"from {least} to {most} (for an input of {input.size()[2:]})"
                )
        return [output_size[d] - least[d] for d in range(n)]

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        if self.padding_mode != "zeros":
            raise ValueError(
                f"Only `zeros` padding mode is supported for ConvTranspose{self._spatial}d"
            )
        extra = self.output_padding
        if output_size is not None:
            extra = self._output_padding(
                input, output_size, self.stride, self.padding, self.kernel_size,
                self._spatial, self.dilation,
            )  # fmt: skip
        op = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[self._spatial - 1]
        return op(
            input, self.weight, self.bias, self.stride, self.padding, extra,
            self.groups, self.dilation,
        )  # fmt: skip
