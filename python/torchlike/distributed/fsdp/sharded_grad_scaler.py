"""Scales of sharded gradients: an overflow on one rank is one on all."""

from __future__ import annotations

from typing import Any

from torchlike.amp import GradScaler

__all__ = ["ShardedGradScaler"]


class ShardedGradScaler(GradScaler):
    """A `GradScaler` for parameters that are cut over the ranks of a group.

    Args:
        process_group: the ranks; all by default.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        backoff_factor: float = 0.5,
        growth_factor: float = 2.0,
        growth_interval: int = 2000,
        enabled: bool = True,
        process_group: Any = None,
    ) -> None:
        super().__init__(
            device,
            init_scale=init_scale,
            backoff_factor=backoff_factor,
            growth_factor=growth_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )
        if self._enabled:
            from torchlike.distributed import _groups

            self.process_group = _groups.group_of(process_group)

    def unscale_(self, optimizer: Any) -> None:
        """Takes the scale out of the gradients, and tells all ranks of overflows."""
        super().unscale_(optimizer)
        if not self._enabled:
            return
        import torchlike.distributed as dist

        for found in self._found_inf_per_device(optimizer).values():
            dist.all_reduce(found, dist.ReduceOp.MAX, self.process_group)
