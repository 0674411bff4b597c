"""NNPACK: not used; its switch is kept."""

from __future__ import annotations

import sys

from torchlike.backends import _Switches

enabled = True
_switches = _Switches(sys.modules[__name__], "enabled")
flags = _switches.flags


def is_available() -> bool:
    """False."""
    return False


def set_flags(_enabled: bool) -> tuple[bool]:
    """Sets the switch; returns what it was."""
    return _switches.set_flags(enabled=_enabled)
