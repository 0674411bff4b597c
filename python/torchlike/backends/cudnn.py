"""cuDNN: convolutions on GPUs, where it is installed."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from torchlike import _C
from torchlike.backends import _Switches

enabled = True
benchmark = False
benchmark_limit: int | None = 10
deterministic = False
fp32_precision = "none"


class _Module(ModuleType):
    """This module, for the switch that convolutions read."""

    @property
    def allow_tf32(self) -> bool:
        """Whether operands of single precision may be rounded to 10 bits of mantissa."""
        return _C._cuda_tf32(True)

    @allow_tf32.setter
    def allow_tf32(self, allow: bool) -> None:
        _C._cuda_tf32(True, allow)


sys.modules[__name__].__class__ = _Module

_switches = _Switches(
    sys.modules[__name__],
    "enabled",
    "benchmark",
    "benchmark_limit",
    "deterministic",
    "allow_tf32",
    "fp32_precision",
)
set_flags = _switches.set_flags
flags = _switches.flags


def version() -> int | None:
    """None: which cuDNN there is shows when it is used."""
    return None


def is_available() -> bool:
    """Whether this build can use cuDNN, as PyTorch means it; whether there is a GPU says `cuda.is_available()`."""
    return _C._cuda_built()


def is_acceptable(tensor: Any) -> bool:
    """Whether convolutions of a tensor go there."""
    return bool(tensor.is_cuda and tensor.is_floating_point())


class _Rounding:
    """How convolutions or recurrent layers may be rounded; kept, without an effect."""

    fp32_precision = "none"


conv = _Rounding()
rnn = _Rounding()
