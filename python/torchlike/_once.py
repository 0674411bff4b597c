"""Warnings that are given once in a process."""

from __future__ import annotations

import warnings

from torchlike import _C

_said: set[str] = set()


def warn_once(text: str, stacklevel: int = 2) -> None:
    """Warns of something the first time, or each time if `set_warn_always` says so."""
    if text in _said and not _C._is_warn_always():
        return
    _said.add(text)
    warnings.warn(text, stacklevel=stacklevel + 1)
