"""Which fake mode is meant, under PyTorch's name for the place."""

from __future__ import annotations

from typing import Any

from torchlike import _C

__all__ = ["active_fake_mode", "detect_fake_mode"]


def active_fake_mode() -> Any:
    """The fake mode that is on, or None."""
    return _C._fake_mode_here()


def detect_fake_mode(inputs: Any = None) -> Any:
    """The fake mode that is on, or that of the fake tensors in a tree of values; None if there is neither.

    Raises:
        AssertionError: if there are several.
    """
    from torchlike.utils import _pytree as pytree

    found = [("active fake mode", active_fake_mode())] if active_fake_mode() is not None else []
    for i, leaf in enumerate(pytree.tree_leaves(inputs)):
        mode = _C._fake_mode_of(leaf) if isinstance(leaf, _C.Tensor) else None
        if mode is not None:
            found.append((f"fake tensor input {i}", mode))
    if not found:
        return None
    first = found[0]
    for what, mode in found[1:]:
        if mode is not first[1]:
            raise AssertionError(
                f"fake mode ({first[1]}) from {first[0]} doesn't match mode ({mode}) from {what}"
            )
    return first[1]
