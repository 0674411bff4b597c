"""The compiler's figures: there are none."""

from __future__ import annotations

import contextlib
import warnings
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

counters: defaultdict[str, Counter[str]] = defaultdict(Counter)


def is_compile_supported(device_type: Any) -> bool:
    """False: nothing is compiled."""
    return False


def compile_times(repr: str = "str", aggregate: bool = False) -> Any:
    """Nothing: no time was spent."""
    return ((), ()) if repr != "str" else ""


_warned: set[str] = set()


def warn_once(msg: str, stacklevel: int = 1) -> None:
    """Warns of each text once."""
    if msg not in _warned:
        _warned.add(msg)
        warnings.warn(msg, stacklevel=stacklevel + 1)


@contextlib.contextmanager
def disable_cache_limit() -> Iterator[None]:
    """Nothing is cached."""
    yield
