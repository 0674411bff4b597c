"""What decorators note on functions, and what compiled code is told of them."""

from __future__ import annotations

from typing import Any

EXPORT, UNUSED, IGNORE, COPY_TO_SCRIPT = "export", "unused", "ignore", "copy_to_script"
_NAME = "_torchscript_modifier"


def mark(function: Any, how: str) -> Any:
    """Notes on a function how it is compiled."""
    target = function.fget if isinstance(function, property) else function
    setattr(target, _NAME, how)
    return function


def mark_of(function: Any) -> str | None:
    """What is noted on a function."""
    found = getattr(getattr(function, "__func__", function), _NAME, None)
    return found if isinstance(found, str) else None
