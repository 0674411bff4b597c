"""What DTensors do: the collectives of a piece of a program."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from torchlike import _absent
from torchlike.distributed import _ops
from torchlike.distributed._tools.mod_tracker import ModTracker
from torchlike.distributed.tensor import _dispatch
from torchlike.distributed.tensor._dtensor import DTensor
from torchlike.utils._python_dispatch import TorchDispatchMode

__all__ = ["CommDebugMode", "visualize_sharding"]

visualize_sharding = _absent.function(
    __name__, "visualize_sharding", "there are no pictures of meshes"
)

_SILENT = ("send", "recv_")


def _counts() -> dict[str, Any]:
    return {"forward": defaultdict(int), "backward": defaultdict(int)}


class CommDebugMode(TorchDispatchMode):
    """Counts the collectives that run inside. It is told of them where they run, and looks at no other operator.

    `comm_module_counts` has them by the names of the modules at work, and "Global".
    """

    def __init__(self) -> None:
        super().__init__()
        self.comm_counts: dict[Any, int] = defaultdict(int)
        self.comm_module_counts: dict[str, dict[str, Any]] = {}
        self._params: dict[str, dict[str, Any]] = {}
        self._shards: dict[str, Any] = {}

    def __enter__(self) -> Any:
        for kept in (self.comm_counts, self.comm_module_counts, self._params, self._shards):
            kept.clear()
        self.comm_module_counts["Global"] = _counts()
        self.advanced_module_tracker = ModTracker()
        self.advanced_module_tracker.register_user_hooks(pre_fw_hook=self._meet)
        self.advanced_module_tracker.__enter__()
        _ops.counters.append(self._count)
        return self

    def __exit__(self, *exc: object) -> None:
        _ops.counters.remove(self._count)
        self.advanced_module_tracker.__exit__(*exc)

    def _meet(self, module: Any, _: Any) -> None:
        name = str(self.advanced_module_tracker.get_known_fqn(module))
        for key, param in module.named_parameters(recurse=False):
            self._params.setdefault(name, {})[key] = param.data
            if isinstance(param, DTensor):
                self._shards[f"{name}.{key}"] = param.placements

    def _count(self, op: Any) -> None:
        if op._name in _SILENT:
            return
        # Collectives of groups are known by the names of those of ranks.
        spaces = (_ops.functional, _ops.autograd)
        if any(op is getattr(space, op._name, None) for space in spaces):
            op = getattr(_ops.ranked, op._name)
        tracker = self.advanced_module_tracker
        self.comm_counts[op] += 1
        for name in tracker.parents:
            counts = self.comm_module_counts.setdefault(name, _counts())
            counts["backward" if tracker.is_bw else "forward"][op] += 1

    def get_comm_counts(self) -> dict[Any, int]:
        """How often each collective ran, by its operator: zero for others."""
        return self.comm_counts

    def get_total_counts(self) -> int:
        """How many collectives ran."""
        return sum(self.comm_counts.values())

    def get_parameter_info(self) -> dict[str, dict[str, Any]]:
        """The parameters of the modules that were called, by the modules' names and theirs."""
        return self._params

    def get_sharding_info(self) -> dict[str, Any]:
        """The placements of those parameters that lie on a mesh, by their names."""
        return self._shards


def _clear_sharding_prop_cache() -> None:
    """Forgets which placements calls were made with."""
    _dispatch.clear()


def _get_sharding_prop_cache_info() -> dict[str, int]:
    """How many calls are remembered."""
    return {"currsize": len(_dispatch._decisions)}
