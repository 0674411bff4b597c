"""Puts the op functions of one namespace of the core into a Python module."""

from __future__ import annotations

from typing import Any


def fill(names: dict[str, Any], core: Any, namespace: str) -> None:
    """Copies the functions of `core.<namespace>`, if the table has any."""
    module = getattr(core, namespace, None)
    if module is not None:
        names.update({k: v for k, v in vars(module).items() if not k.startswith("__")})
