"""What loaders are made of: collation, fetching, worker processes and the way between them."""

from importlib.util import find_spec

from torchlike._utils import ExceptionWrapper
from torchlike.utils.data._utils import collate, fetch, pin_memory, signal_handling, worker

__all__ = ["ExceptionWrapper", "collate", "fetch", "pin_memory", "signal_handling", "worker"]

HAS_NUMPY = find_spec("numpy") is not None
MP_STATUS_CHECK_INTERVAL = 5.0
"""Seconds between questions whether a process still lives."""
