"""Finds public functions by name, for `__torch_function__` handlers."""

from __future__ import annotations

import sys
from typing import Any


def _public(full_name: str) -> Any:
    """`torchlike.linalg.inv` or `Tensor.add` as an object."""
    root = sys.modules["torchlike"]
    path = full_name.removeprefix("torchlike.").split(".")
    found: Any = root
    for part in path:
        found = getattr(found, part)
    return found
