"""Python's `multiprocessing`, with tensors that pass by memory which both processes map.

A tensor that is sent moves to shared memory, and whoever receives it sees the same elements. That memory has no
name: the system frees it with the last process that holds it, however that ends.
"""

from __future__ import annotations

import multiprocessing
import sys
from multiprocessing import *

from torchlike.multiprocessing import reductions
from torchlike.multiprocessing.reductions import init_reductions
from torchlike.multiprocessing.spawn import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    "ProcessContext",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]
__all__ += multiprocessing.__all__

_all_sharing_strategies = {"file_descriptor", "file_system"}
_sharing_strategy = "file_descriptor"


def set_sharing_strategy(new_strategy: str) -> None:
    """Remembers a name: memory always passes as descriptors of files that have none."""
    global _sharing_strategy
    if new_strategy not in _all_sharing_strategies:
        raise AssertionError(
            f"invalid sharing strategy {new_strategy!r}, expected one of {_all_sharing_strategies}"
        )
    _sharing_strategy = new_strategy


def get_sharing_strategy() -> str:
    """The name that was set."""
    return _sharing_strategy


def get_all_sharing_strategies() -> set[str]:
    """The names that can be."""
    return _all_sharing_strategies


init_reductions()
