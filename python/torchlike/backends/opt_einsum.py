"""The package that plans products of many tensors: not used; its switches are kept."""

from __future__ import annotations

import sys
from typing import Any

from torchlike.backends import _Switches

enabled = True
strategy: str | None = "auto"
_switches = _Switches(sys.modules[__name__], "enabled", "strategy")
set_flags = _switches.set_flags
flags = _switches.flags


def is_available() -> bool:
    """False: contractions go from left to right."""
    return False


def get_opt_einsum() -> Any:
    """None."""
    return None
