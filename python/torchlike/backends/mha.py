"""The fast path of attention layers in inference, which has the results of the other; the switch is kept."""

from __future__ import annotations

_is_fastpath_enabled = True


def get_fastpath_enabled() -> bool:
    """Whether the fast path may be taken."""
    return _is_fastpath_enabled


def set_fastpath_enabled(value: bool) -> None:
    """Sets whether the fast path may be taken."""
    global _is_fastpath_enabled
    _is_fastpath_enabled = value
