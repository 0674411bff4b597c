"""The functions of `torchlike.distributed` that make groups of ranks, and say who is in them."""

from __future__ import annotations

from typing import Any

from torchlike.distributed import _groups
from torchlike.distributed._checks import OUTSIDE
from torchlike.distributed._groups import ProcessGroup, group_of


def get_rank(group: Any = None) -> int:
    """This process's place in the group; -1 if it has none, or there is no world to have one in."""
    return -1 if group == OUTSIDE else group_of(group).rank()


def get_world_size(group: Any = None) -> int:
    """How many ranks the group has; -1 if this process is not among them."""
    if group == OUTSIDE:
        return -1
    found = group_of(group)
    return found.size() if found.rank() >= 0 else -1


def get_backend(group: Any = None) -> str:
    """The name of what moves the group's data."""
    return group_of(group).backend


def get_default_backend_for_device(device: Any) -> str:
    """The backend for tensors on a device.

    Raises:
        ValueError: if there is none.
    """
    import torchlike

    kind = torchlike.device(device).type
    if kind not in ("cpu", "cuda"):
        raise ValueError(f"Default backend not registered for device : {device}")
    return "gloo" if kind == "cpu" else "nccl"


def supports_complex(reduceOp: Any) -> bool:
    """Whether complex numbers can be reduced so."""
    return getattr(reduceOp, "name", "") in ("SUM", "AVG", "PREMUL_SUM")


def get_backend_config(group: Any = None) -> str:
    """Which backend moves the data of which device."""
    found = group_of(group)
    return f"cpu:{found.backend}"


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The ranks of the group, as the world numbers them."""
    return list(group_of(group).ranks)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The place of a rank in the group.

    Raises:
        ValueError: if it has none.
    """
    if group is _groups.world().default:
        return global_rank
    if global_rank not in group.ranks:
        raise ValueError(f"Global rank {global_rank} is not part of group {group}")
    return group.ranks.index(global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank at a place of the group.

    Raises:
        ValueError: if the group is smaller.
    """
    if group is _groups.world().default:
        return group_rank
    if not 0 <= group_rank < group.size():
        raise ValueError(f"Group rank {group_rank} is not part of group {group}")
    return group.ranks[group_rank]


def new_group(
    ranks: Any = None,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: Any = None,
    sort_ranks: bool = True,
) -> Any:
    """A group of some ranks; a number that says so, if this process is not among them.

    Raises:
        ValueError: if a rank is not in the world, or is there twice.
    """
    world = _groups.world()
    chosen = list(range(world.size) if ranks is None else ranks)
    if sort_ranks:
        chosen.sort()
    for r in chosen:
        if not 0 <= r < world.size:
            raise ValueError(
                f"Rank {r} is out of range. Valid ranks are 0 to {world.size - 1} (world_size={world.size})"
            )
    if len(set(chosen)) < len(chosen):
        raise ValueError(f"ranks list must not contain duplicate entries, got {chosen}")
    name = (backend or world.backend).lower().rpartition(":")[2]
    if name not in _groups.BACKENDS or (name == "gloo") != (world.backend == "gloo"):
        raise NotImplementedError(
            f"torch.distributed.new_group: a group of the backend {name!r} in a world of {world.backend!r} is not "
            "supported by torchlike"
        )
    if not set(chosen) & set(world.here):
        world.made += 1
        return OUTSIDE
    return world.add(chosen, group_desc or "", name)


def new_subgroups(
    group_size: int | None = None,
    group: Any = None,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """Groups of so many neighbours: that of this process, and all.

    Raises:
        ValueError: if the world cannot be divided into them.
    """
    size = _groups.world().size
    if group_size is None:
        raise ValueError(
            "Default group size only takes effect when CUDA is available. If your subgroup using a backend that does "
            "not depend on CUDA, please pass in 'group_size' correctly."
        )
    if group_size <= 0:
        raise ValueError(f"The arg 'group_size' ({group_size}) must be positive")
    if size < group_size:
        raise ValueError(
            f"The arg 'group_size' ({group_size}) must not exceed the world size ({size})"
        )
    if size % group_size:
        raise ValueError(f"The world size ({size}) must be divisible by '{group_size=}'")
    starts = range(0, size, group_size)
    made = [new_group(range(i, i + group_size), timeout, backend, pg_options) for i in starts]
    return made[get_rank() // group_size], made


def new_subgroups_by_enumeration(
    ranks_per_subgroup_list: Any,
    timeout: Any = None,
    backend: str | None = None,
    pg_options: Any = None,
    group_desc: str | None = None,
) -> tuple[Any, list[Any]]:
    """A group for each list of ranks: that of this process (None if it is in none), and all.

    Raises:
        ValueError: without lists, and if a rank is in two.
    """
    if ranks_per_subgroup_list is None or len(ranks_per_subgroup_list) == 0:
        raise ValueError("The arg 'ranks_per_subgroup_list' cannot be empty")
    lists = [list(ranks) for ranks in ranks_per_subgroup_list]
    seen: set[int] = set()
    for ranks in lists:
        if seen & set(ranks):
            raise ValueError(
                f"Rank {min(seen & set(ranks))} has appeared in more than one subgroup"
            )
        seen.update(ranks)
    made = [
        new_group(ranks, timeout, backend, pg_options, group_desc=group_desc) for ranks in lists
    ]
    mine = [g for g, ranks in zip(made, lists, strict=True) if get_rank() in ranks]
    return (mine[0] if mine else None), made


def split_group(
    parent_pg: Any = None,
    split_ranks: Any = None,
    timeout: Any = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: str | None = None,
) -> Any:
    """Divides a group; that part which this process is in, or None. All ranks of the group call it alike.

    Args:
        parent_pg: what is divided; all ranks by default.
        split_ranks: lists of ranks within that group, none of which is in two.

    Raises:
        ValueError: without lists, and if a rank is in two or not in the group.
    """
    if not split_ranks:
        raise ValueError("split_ranks cannot be None or empty")
    parent = group_of(parent_pg)
    flat = [r for ranks in split_ranks for r in ranks]
    if len(set(flat)) < len(flat):
        raise ValueError("the split group cannot have duplicate ranks")
    if any(not 0 <= r < parent.size() for r in flat):
        raise ValueError(
            f"the split group's ranks have to be within the {parent.size()} of the parent group"
        )
    mine = None
    for ranks in split_ranks:
        chosen = [parent.ranks[r] for r in ranks]
        made = new_group(chosen, timeout, backend, pg_options, group_desc=group_desc)
        if get_rank() in chosen:
            mine = made
    return mine
