"""Padding."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike.nn import functional as F
from torchlike.nn.modules._own import own
from torchlike.nn.modules.module import Module
from torchlike.nn.modules.utils import _ntuple, _pair, _quadruple

__all__ = [
    "CircularPad1d",
    "CircularPad2d",
    "CircularPad3d",
    "ConstantPad1d",
    "ConstantPad2d",
    "ConstantPad3d",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "ZeroPad1d",
    "ZeroPad2d",
    "ZeroPad3d",
]

Tensor = torch.Tensor

_BOTH_ENDS = {1: _pair, 2: _quadruple, 3: _ntuple(6)}


class _PadNd(Module):
    _dims: int

    def __init__(self, padding: Any) -> None:
        super().__init__()
        self.padding = _BOTH_ENDS[self._dims](padding)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _CircularPadNd(_PadNd):
    def forward(self, input: Tensor) -> Tensor:
        if input.dim() not in (self._dims + 1, self._dims + 2):
            raise ValueError(
                f"expected {self._dims + 1}D or {self._dims + 2}D input (got {input.dim()}D input)"
            )
        return F.pad(input, self.padding, "circular")


class _ReflectionPadNd(_PadNd):
    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "reflect")


class _ReplicationPadNd(_PadNd):
    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "replicate")


class _ConstantPadNd(_PadNd):
    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


@own("__init__")
class CircularPad1d(_CircularPadNd):
    """Continues sequences from their other end."""

    _dims = 1


@own("__init__")
class CircularPad2d(_CircularPadNd):
    """Continues images from their other end."""

    _dims = 2


@own("__init__")
class CircularPad3d(_CircularPadNd):
    """Continues volumes from their other end."""

    _dims = 3


@own("__init__")
class ReflectionPad1d(_ReflectionPadNd):
    """Mirrors sequences at their ends."""

    _dims = 1


@own("__init__")
class ReflectionPad2d(_ReflectionPadNd):
    """Mirrors images at their edges."""

    _dims = 2


@own("__init__")
class ReflectionPad3d(_ReflectionPadNd):
    """Mirrors volumes at their faces."""

    _dims = 3


@own("__init__")
class ReplicationPad1d(_ReplicationPadNd):
    """Repeats the ends of sequences."""

    _dims = 1


@own("__init__")
class ReplicationPad2d(_ReplicationPadNd):
    """Repeats the edges of images."""

    _dims = 2


@own("__init__")
class ReplicationPad3d(_ReplicationPadNd):
    """Repeats the faces of volumes."""

    _dims = 3


@own("__init__")
class ConstantPad1d(_ConstantPadNd):
    """Puts a number around sequences."""

    _dims = 1


@own("__init__")
class ConstantPad2d(_ConstantPadNd):
    """Puts a number around images."""

    _dims = 2


@own("__init__")
class ConstantPad3d(_ConstantPadNd):
    """Puts a number around volumes."""

    _dims = 3


class _ZeroPad(_ConstantPadNd):
    def extra_repr(self) -> str:
        return f"{self.padding}"


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """Puts zeros around sequences."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """Puts zeros around images."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """Puts zeros around volumes."""

    def __init__(self, padding: Any) -> None:
        super().__init__(padding, 0.0)
