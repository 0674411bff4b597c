"""MKL: not used."""

from __future__ import annotations

from torchlike.backends.mkldnn import verbose as verbose

VERBOSE_OFF = 0
VERBOSE_ON = 1


def is_available() -> bool:
    """False."""
    return False
