"""What stays on the host, and which dtypes are computed in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class MixedPrecisionPolicy:
    """Dtypes of parameters, gradients and results."""

    param_dtype: Any = None
    reduce_dtype: Any = None
    output_dtype: Any = None
    cast_forward_inputs: bool = True


@dataclass
class OffloadPolicy:
    """What stays on the host: nothing."""


@dataclass
class CPUOffloadPolicy(OffloadPolicy):
    """Parameters stay on the host."""

    pin_memory: bool = True
