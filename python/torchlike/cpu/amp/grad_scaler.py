"""The scaler of gradients under its old name."""

from __future__ import annotations

from torchlike import amp
from torchlike._autocast import old_name

__all__ = ["GradScaler"]


class GradScaler(amp.GradScaler):
    """`torchlike.amp.GradScaler("cpu", ...)`."""

    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        old_name("cpu.amp.GradScaler(args...)", "amp.GradScaler('cpu', args...)")
        super().__init__(
            "cpu",
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )
