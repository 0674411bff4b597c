"""What collectives ask of their arguments before they talk to other ranks."""

from __future__ import annotations

import functools
import inspect
import warnings
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike.distributed import _groups

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike.distributed._groups import ProcessGroup

OUTSIDE = -100
"""What stands for a group that this process is not in."""


def for_members(f: Callable[..., Any]) -> Callable[..., Any]:
    """Lets only members of a group take part: others are warned, and nothing happens."""
    at = list(inspect.signature(f).parameters).index("group")

    @functools.wraps(f)
    def run(*args: Any, **kwargs: Any) -> Any:
        group = args[at] if len(args) > at else kwargs.get("group")
        if type(group) is int and group == OUTSIDE:
            rank = _groups.world().rank if _groups.is_initialized() else -1
            warnings.warn(
                f"Running {f.__name__} on global rank {rank} which does not belong to the given group.",
                stacklevel=2,
            )
            return None
        return f(*args, **kwargs)

    return run


def tensor(value: Any, name: str) -> None:
    """Asks for a tensor.

    Raises:
        TypeError: if it is none.
    """
    if not isinstance(value, torch.Tensor):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor\n"
            f"             but got {type(value)} instead."
        )


def tensors(value: Any, name: str) -> None:
    """Asks for a list of tensors.

    Raises:
        TypeError: if it is none.
    """
    wanted = (
        f"Invalid function argument. Expected parameter `{name}` of type List[torch.Tensor]\n"
        f"             but got {type(value)}"
    )
    if not isinstance(value, list):
        raise TypeError(f"{wanted} instead.")
    if not all(isinstance(t, torch.Tensor) for t in value):
        raise TypeError(f"{wanted} with elements of type {[type(t) for t in value]}.")


def alike(*values: Any) -> None:
    """Asks for tensors, and lists of them, of one dtype; complex numbers pass for pairs of their parts.

    Raises:
        ValueError: if there are two.
    """
    first = None
    for t in (t for v in values for t in (v if isinstance(v, list) else [v])):
        part = t.dtype.to_real() if t.dtype.is_complex else t.dtype
        first = first or part
        if part != first:
            raise ValueError(
                f"Invalid usage of tensors with different dtypesFound {first} and  {t.dtype}"
            )


def place(
    group: ProcessGroup, rank: int | None, group_rank: int | None, usual: int | None = None
) -> int:
    """The place in a group of a rank that is named by its number, or by that place.

    Raises:
        ValueError: if it is named in both ways, or in none, or is not in the group.
    """
    if rank is None and group_rank is None:
        rank = usual
    if group_rank is not None:
        if rank is not None:
            raise ValueError("Can't specify both group_rank and global_rank")
        return group_rank
    if rank is None:
        raise ValueError("Must specify global_rank or group_rank")
    if group is _groups.world().default:
        return rank
    if rank not in group.ranks:
        raise ValueError(f"Global rank {rank} is not part of group {group}")
    return group.ranks.index(rank)


def gathered(group: ProcessGroup, root: int, value: Any) -> None:
    """Asks for a list of what is gathered, where it is.

    Raises:
        ValueError: if it is missing there, or elsewhere.
    """
    if root != group.rank():
        if value:
            raise ValueError(
                "Argument ``gather_list`` must NOT be specified on non-destination ranks."
            )
    elif not value:
        raise ValueError("Argument ``gather_list`` must be specified on destination rank.")


def scattered(group: ProcessGroup, root: int, value: Any) -> None:
    """Asks for a list of what is scattered, where it is.

    Raises:
        ValueError: if it is missing there, or elsewhere.
    """
    if root != group.rank():
        if value:
            raise ValueError("Argument ``scatter_list`` must NOT be specified on non-source ranks.")
    elif not value:
        raise ValueError("Argument ``scatter_list`` must be specified on source rank.")
