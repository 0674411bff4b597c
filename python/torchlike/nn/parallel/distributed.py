"""One model over several processes."""

from __future__ import annotations

from typing import Any

from torchlike.nn.modules.module import Module

__all__ = ["DistributedDataParallel"]


class DistributedDataParallel(Module):
    """There are no process groups to average gradients over."""

    def __init__(self, module: Any, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("DistributedDataParallel is not supported")
