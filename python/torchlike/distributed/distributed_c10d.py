"""The functions of the package, where PyTorch defines them."""

from typing import Any as _Any

import torchlike.distributed as _package
from torchlike.distributed import _groups
from torchlike.distributed.constants import default_pg_timeout

globals().update(
    {name: value for name, value in vars(_package).items() if not name.startswith("__")}
)

__all__ = [*_package.__all__, "default_pg_timeout"]


def _get_global_rank(group: _Any, rank: int) -> int:
    """Old name of `get_global_rank`."""
    return _package.get_global_rank(group, rank)


def __getattr__(name: str) -> _Any:
    """PyTorch's table of the groups there are, made when it is asked for."""
    if name != "_pg_map":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    if not _groups.is_initialized():
        return {}
    return {group: (group.backend, None) for group in _groups.world().groups.values()}
