"""The context of automatic mixed precision under its old name."""

from __future__ import annotations

from typing import Any

from torchlike import _C, amp
from torchlike._autocast import old_name

__all__ = ["autocast"]


class autocast(amp.autocast):
    """`torchlike.amp.autocast("cpu", ...)`."""

    def __init__(
        self, enabled: bool = True, dtype: Any = _C.bfloat16, cache_enabled: bool = True
    ) -> None:
        old_name("cpu.amp.autocast(args...)", "amp.autocast('cpu', args...)")
        super().__init__("cpu", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)
