"""Several processes: groups of ranks, what they send each other, and tensors that lie on meshes of them.

A world is played in one process: one rank of it (`fake`, which moves nothing), or all (`local`). Backends that connect
processes are not there yet; they are refused by name.
"""

from __future__ import annotations

import os
from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, Any, NoReturn

from torchlike import _absent, _lazy
from torchlike.distributed import _groups
from torchlike.distributed._groups import (
    HashStore,
    PrefixStore,
    ProcessGroup,
    Store,
    Work,
    is_initialized,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_resolve_process_group = _groups.resolve
_WHY = "nothing connects processes yet"

__getattr__ = _lazy.submodules(
    "distributed",
    *("_composable", "_tensor", "algorithms", "checkpoint", "device_mesh", "distributed_c10d"),
    *("elastic", "fsdp", "launch", "nn", "run", "tensor", "utils"),
)


def is_available() -> bool:
    """True: the package is there."""
    return True


def is_torchelastic_launched() -> bool:
    """Whether a launcher started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def _absent_backend() -> bool:
    """False: nothing connects processes."""
    return False


is_nccl_available = is_gloo_available = is_mpi_available = _absent_backend
is_ucc_available = is_xccl_available = _absent_backend


def is_backend_available(backend: str) -> bool:
    """Whether there is such a backend: `fake` and `local`."""
    return backend.lower() in _groups.BACKENDS


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: Any = None,
    world_size: int = -1,
    rank: int = -1,
    store: Any = None,
    group_name: str = "",
    pg_options: Any = None,
    device_id: Any = None,
) -> None:
    """Makes the world: `fake` plays one rank of it, and moves nothing, `local` plays all its ranks.

    Raises:
        ValueError: if there is a world already.
        NotImplementedError: for backends that connect processes.
    """
    size = world_size if world_size >= 0 else int(os.environ.get("WORLD_SIZE", "1"))
    number = rank if rank >= 0 else int(os.environ.get("RANK", "0"))
    _groups.create(backend, number, size, store)


def destroy_process_group(group: Any = None) -> None:
    """Forgets a group, or the world.

    Raises:
        AssertionError: if there is none.
    """
    _groups.destroy(group)


def get_pg_count() -> int:
    """How many groups there are."""
    return len(_groups.world().groups) if is_initialized() else 0


def _get_default_group() -> ProcessGroup:
    """The group of all ranks."""
    return _groups.world().default


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """The process's number on its machine, which a launcher has put into the environment.

    Raises:
        RuntimeError: if it has not, and no other number is given.
    """
    if "LOCAL_RANK" in os.environ:
        return int(os.environ["LOCAL_RANK"])
    if fallback_rank is not None:
        return int(fallback_rank)
    raise RuntimeError(
        "LOCAL_RANK is not in the environment. Consider passing fallback_rank to allow `get_node_local_rank` to work, "
        "assuming you are not running in a multi-device context and want the code to run locally instead."
    )


class _RedOpType(Enum):
    SUM = 0
    AVG = 1
    PRODUCT = 2
    MIN = 3
    MAX = 4
    BAND = 5
    BOR = 6
    BXOR = 7
    PREMUL_SUM = 8


_RedOpType.__name__ = "RedOpType"
_RedOpType.__qualname__ = "ReduceOp.RedOpType"


class ReduceOp:
    """How values of several processes become one."""

    RedOpType = _RedOpType
    SUM = _RedOpType.SUM
    AVG = _RedOpType.AVG
    PRODUCT = _RedOpType.PRODUCT
    MIN = _RedOpType.MIN
    MAX = _RedOpType.MAX
    BAND = _RedOpType.BAND
    BOR = _RedOpType.BOR
    BXOR = _RedOpType.BXOR
    PREMUL_SUM = _RedOpType.PREMUL_SUM


class DebugLevel(Enum):
    """How much is said of collectives."""

    OFF = 0
    INFO = 1
    DETAIL = 2


def get_debug_level() -> DebugLevel:
    """Nothing is said."""
    return DebugLevel.OFF


class Backend(str):
    """The name of what moves data, in lower case."""

    UNDEFINED = "undefined"
    GLOO = "gloo"
    NCCL = "nccl"
    XCCL = "xccl"
    UCC = "ucc"
    MPI = "mpi"
    FAKE = "fake"
    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]

    def __new__(cls, name: str) -> Backend:
        """Checks that it is a name."""
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, {name=}")
        return super().__new__(cls, name.lower())


class _Members(type):
    @property
    def WORLD(cls) -> Any:
        """The group of all ranks, if there is one."""
        return _groups.world().default if is_initialized() else None


class GroupMember(metaclass=_Members):
    """The group of all ranks, and what stands for a group that this process is not in."""

    NON_GROUP_MEMBER = -100


class group(metaclass=_Members):
    """The group of all ranks, as `group.WORLD`."""


class DistError(RuntimeError):
    """Something between processes went wrong."""


class DistBackendError(DistError):
    """A backend failed."""


class DistNetworkError(DistError):
    """The network failed."""


class DistStoreError(DistError):
    """A store failed."""


_KINDS = "ProcessGroupGloo ProcessGroupNCCL TCPStore FileStore P2POp GradBucket Reducer Logger"
globals().update(_absent.names(__name__, _WHY, _KINDS))
_FUNCTIONS = (
    "all_gather_coalesced batch_isend_irecv gather_object get_backend_config irecv isend monitored_barrier "
    "new_subgroups new_subgroups_by_enumeration recv_object_list scatter_object_list send_object_list split_group"
)


def _asking(name: str) -> Callable[..., NoReturn]:
    """An absent function, which asks for the group first."""
    absent = _absent.function(__name__, name, _WHY)

    @wraps(absent)
    def asked(*args: Any, **kwargs: Any) -> NoReturn:
        _groups.world()
        absent(*args, **kwargs)

    return asked


globals().update({name: _asking(name) for name in _FUNCTIONS.split()})

from torchlike.distributed._collectives import (  # noqa: E402
    all_gather,
    all_gather_into_tensor,
    all_gather_object,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    broadcast,
    broadcast_object_list,
    gather,
    get_backend,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    new_group,
    recv,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    send,
)
from torchlike.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402

_all_gather_base, _reduce_scatter_base = all_gather_into_tensor, reduce_scatter_tensor

__all__ = [
    "Backend",
    "DebugLevel",
    "DeviceMesh",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "GroupMember",
    "HashStore",
    "PrefixStore",
    "ProcessGroup",
    "ReduceOp",
    "Store",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "get_backend",
    "get_debug_level",
    "get_global_rank",
    "get_group_rank",
    "get_node_local_rank",
    "get_pg_count",
    "get_process_group_ranks",
    "get_rank",
    "get_world_size",
    "group",
    "init_device_mesh",
    "init_process_group",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "new_group",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "send",
]
