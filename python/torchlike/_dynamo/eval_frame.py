"""Compiled modules: none are made."""

from __future__ import annotations

from torchlike import _absent
from torchlike.nn import Module

OptimizedModule = _absent.kind(__name__, "OptimizedModule", "nothing is compiled", Module)


def is_dynamo_supported() -> bool:
    """Whether Python code is compiled: it is not."""
    return False
