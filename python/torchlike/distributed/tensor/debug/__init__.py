"""What DTensors do: the collectives of a piece of a program."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from torchlike import _absent
from torchlike.distributed._ops import autograd as _autograd
from torchlike.distributed._ops import c10d as _c10d
from torchlike.distributed._ops import dtensor as _dtensor
from torchlike.distributed._ops import functional as _functional
from torchlike.distributed.tensor import _dispatch
from torchlike.utils._python_dispatch import TorchDispatchMode

__all__ = ["CommDebugMode", "visualize_sharding"]

visualize_sharding = _absent.function(
    __name__, "visualize_sharding", "there are no pictures of meshes"
)

_SILENT = ("wait_tensor", "barrier", "send", "recv_")


class CommDebugMode(TorchDispatchMode):
    """Counts the collectives that run inside."""

    def __init__(self) -> None:
        super().__init__()
        self.comm_counts: dict[Any, int] = defaultdict(int)

    def __enter__(self) -> Any:
        self.comm_counts.clear()
        return super().__enter__()

    def get_comm_counts(self) -> dict[Any, int]:
        """How often each collective ran, by its operator."""
        return dict(self.comm_counts)

    def get_total_counts(self) -> int:
        """How many collectives ran."""
        return sum(self.comm_counts.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Counts an operator if it is a collective."""
        from torchlike.distributed.tensor import DTensor

        if any(issubclass(t, DTensor) for t in types):
            return NotImplemented
        if func.namespace in _SPACES and func._opname not in _SILENT:
            self.comm_counts[func.overloadpacket] += 1
        return func(*args, **(kwargs or {}))


_SPACES = {s._space for s in (_functional, _autograd, _c10d, _dtensor)}


def _clear_sharding_prop_cache() -> None:
    """Forgets which placements calls were made with."""
    _dispatch.clear()


def _get_sharding_prop_cache_info() -> dict[str, int]:
    """How many calls are remembered."""
    return {"currsize": len(_dispatch._decisions)}
