"""Handles of hooks."""

from torchlike.nn._hooks import RemovableHandle

__all__ = ["RemovableHandle"]
