"""Helpers for several processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike import distributed as dist

if TYPE_CHECKING:
    from torchlike import nn


def _sync_module_states(
    module: nn.Module,
    process_group: Any,
    broadcast_bucket_size: int,
    src: int,
    params_and_buffers_to_ignore: Any,
    broadcast_buffers: bool = True,
) -> None:
    """Gives all ranks the parameters of one, and its buffers."""
    named = list(module.named_parameters())
    named += list(module.named_buffers()) if broadcast_buffers else []
    for name, tensor in named:
        if name not in params_and_buffers_to_ignore:
            dist.broadcast(tensor.detach(), src, group=process_group)
