"""MIOpen: not used; its switch is kept."""

from __future__ import annotations

import sys

from torchlike.backends import _Switches

immediate = False
_switches = _Switches(sys.modules[__name__], "immediate")
set_flags = _switches.set_flags
flags = _switches.flags
