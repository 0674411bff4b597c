"""What DTensors do: the collectives of a piece of a program."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from torchlike import _absent
from torchlike.distributed import _ops
from torchlike.distributed.tensor import _dispatch
from torchlike.utils._python_dispatch import TorchDispatchMode

__all__ = ["CommDebugMode", "visualize_sharding"]

visualize_sharding = _absent.function(
    __name__, "visualize_sharding", "there are no pictures of meshes"
)

_SILENT = ("send", "recv_")


class CommDebugMode(TorchDispatchMode):
    """Counts the collectives that run inside. It is told of them where they run, and looks at no other operator."""

    def __init__(self) -> None:
        super().__init__()
        self.comm_counts: dict[Any, int] = defaultdict(int)

    def __enter__(self) -> Any:
        self.comm_counts.clear()
        _ops.counters.append(self._count)
        return self

    def __exit__(self, *exc: object) -> None:
        _ops.counters.remove(self._count)

    def _count(self, op: Any) -> None:
        if op._name not in _SILENT:
            self.comm_counts[op] += 1

    def get_comm_counts(self) -> dict[Any, int]:
        """How often each collective ran, by its operator."""
        return dict(self.comm_counts)

    def get_total_counts(self) -> int:
        """How many collectives ran."""
        return sum(self.comm_counts.values())


def _clear_sharding_prop_cache() -> None:
    """Forgets which placements calls were made with."""
    _dispatch.clear()


def _get_sharding_prop_cache_info() -> dict[str, int]:
    """How many calls are remembered."""
    return {"currsize": len(_dispatch._decisions)}
