"""The context of automatic mixed precision under its old name."""

from __future__ import annotations

from typing import Any

from torchlike import _C, amp
from torchlike._autocast import old_name

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


class autocast(amp.autocast):
    """`torchlike.amp.autocast("cuda", ...)`."""

    def __init__(
        self, enabled: bool = True, dtype: Any = _C.float16, cache_enabled: bool = True
    ) -> None:
        old_name("cuda.amp.autocast(args...)", "amp.autocast('cuda', args...)")
        super().__init__("cuda", enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)


def custom_fwd(fwd: Any = None, *, cast_inputs: Any = None) -> Any:
    """`torchlike.amp.custom_fwd` on GPUs."""
    old_name("cuda.amp.custom_fwd(args...)", "amp.custom_fwd(args..., device_type='cuda')")
    return amp.custom_fwd(fwd, device_type="cuda", cast_inputs=cast_inputs)


def custom_bwd(bwd: Any) -> Any:
    """`torchlike.amp.custom_bwd` on GPUs."""
    old_name("cuda.amp.custom_bwd(args...)", "amp.custom_bwd(args..., device_type='cuda')")
    return amp.custom_bwd(bwd, device_type="cuda")
