"""The mode of fake tensors, where there is one."""

from __future__ import annotations

from typing import Any


def detect_fake_mode(inputs: Any = None) -> Any:
    """The mode of fake tensors that is on, or of which these inputs are; None without one."""
    try:
        from torchlike._guards import detect_fake_mode as detect
    except ImportError:
        return None
    return detect(inputs)


def fake_copy(module: Any, mode: Any) -> Any:
    """A copy of a module with fake tensors."""
    import copy

    from torchlike._subclasses.fake_tensor import FakeCopyMode

    with FakeCopyMode(mode):
        return copy.deepcopy(module)
