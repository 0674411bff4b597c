"""The compiler's figures: there are none."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

counters: defaultdict[str, Counter[str]] = defaultdict(Counter)


def is_compile_supported(device_type: Any) -> bool:
    """False: nothing is compiled."""
    return False


def compile_times(repr: str = "str", aggregate: bool = False) -> Any:
    """Nothing: no time was spent."""
    return ((), ()) if repr != "str" else ""
