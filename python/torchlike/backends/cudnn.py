"""cuDNN: not used; its switches are kept."""

from __future__ import annotations

from typing import Any

from torchlike.backends import _Switches

enabled = True
benchmark = False
benchmark_limit: int | None = 10
deterministic = False
allow_tf32 = True
fp32_precision = "none"

_switches = _Switches(
    globals(),
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
    """None: there is no cuDNN."""
    return None


def is_available() -> bool:
    """False."""
    return False


def is_acceptable(tensor: Any) -> bool:
    """False: nothing is computed with it."""
    return False


class _Rounding:
    """How convolutions or recurrent layers may be rounded; kept, without an effect."""

    fp32_precision = "none"


conv = _Rounding()
rnn = _Rounding()
