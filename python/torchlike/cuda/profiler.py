"""Tells a profiler of GPUs that watches this process where to begin and end."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from torchlike import _absent

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["profile", "start", "stop"]

_why = "run the whole process under the profiler"
start = _absent.function("torchlike.cuda.profiler", "start", _why)
stop = _absent.function("torchlike.cuda.profiler", "stop", _why)


@contextlib.contextmanager
def profile() -> Iterator[None]:
    """From `start` to `stop`."""
    start()
    try:
        yield
    finally:
        stop()
