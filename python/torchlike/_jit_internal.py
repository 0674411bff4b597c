"""Where old code looks for TorchScript's marks: they are `torch.jit`'s."""

from __future__ import annotations

from typing import Any

from torchlike.jit import (
    _overload as _overload,
)
from torchlike.jit import (
    export as export,
)
from torchlike.jit import (
    ignore as ignore,
)
from torchlike.jit import (
    is_scripting as is_scripting,
)
from torchlike.jit import (
    unused as unused,
)
from torchlike.jit._marks import COPY_TO_SCRIPT, mark


def _copy_to_script_wrapper(fn: Any) -> Any:
    """Marks a method of a container that works on compiled modules without being compiled."""
    return mark(fn, COPY_TO_SCRIPT)


boolean_dispatched: Any = {}
"""Functions that stand for two by a switch: none here, the operators take the switch."""
