"""oneDNN: not used; its switches are kept."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Any

from torchlike.backends import _Switches

VERBOSE_OFF = 0
VERBOSE_ON = 1
VERBOSE_ON_CREATION = 2

enabled = True
deterministic = False
allow_tf32 = True
fp32_precision = "none"

_switches = _Switches(
    sys.modules[__name__], "enabled", "deterministic", "allow_tf32", "fp32_precision"
)
set_flags = _switches.set_flags
flags = _switches.flags


class verbose:
    """Accepted, without an effect: there is nothing to report."""

    def __init__(self, level: int) -> None:
        self.level = level

    def __enter__(self) -> verbose:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: Any, trace: TracebackType | None
    ) -> None:
        pass


def is_available() -> bool:
    """False."""
    return False


def is_acl_available() -> bool:
    """False."""
    return False
