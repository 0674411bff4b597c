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

boolean_dispatched: Any = {}
"""Functions that stand for two by a switch: none here, the operators take the switch."""
