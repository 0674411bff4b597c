"""Several processes: groups of ranks, what they send each other, and tensors that lie on meshes of them.

A world is played in one process: one rank of it (`fake`, which moves nothing), or all (`local`); or its ranks are the
processes of one host (`gloo`). Other backends are refused by name.
"""

from __future__ import annotations

import os
from datetime import timedelta
from enum import Enum
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from torchlike import _absent, _lazy
from torchlike.distributed import _groups
from torchlike.distributed._buckets import GradBucket
from torchlike.distributed._checks import OUTSIDE
from torchlike.distributed._groups import ProcessGroup, Work, is_initialized
from torchlike.distributed._stores import (
    FileStore,
    HashStore,
    PrefixStore,
    Store,
    TCPStore,
    checked_timeout,
)
from torchlike.distributed.constants import default_pg_timeout

if TYPE_CHECKING:
    from collections.abc import Callable

_resolve_process_group = _groups.resolve
_WHY = "what connects processes is gloo, which has no such part"

__getattr__ = _lazy.submodules(
    "distributed",
    *("_composable", "_tensor", "algorithms", "checkpoint", "device_mesh", "distributed_c10d"),
    *("elastic", "fsdp", "launch", "nn", "rendezvous", "run", "tensor", "utils"),
)


def is_available() -> bool:
    """True: the package is there."""
    return True


def is_torchelastic_launched() -> bool:
    """Whether a launcher started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def _absent_backend() -> bool:
    """False: there is no such backend."""
    return False


is_nccl_available = is_mpi_available = _absent_backend
is_ucc_available = is_xccl_available = _absent_backend


def is_gloo_available() -> bool:
    """True: processes of one host can be connected."""
    return True


def is_backend_available(backend: str) -> bool:
    """Whether there is such a backend: `gloo`, `fake` and `local`."""
    return backend.lower() in _groups.BACKENDS


def _meeting(
    init_method: str | None, store: Any, rank: int, world_size: int, timeout: timedelta
) -> tuple[Any, int, int]:
    """The store by which processes meet, this one's rank, and how many there are."""
    from torchlike.distributed.rendezvous import rendezvous

    if store is not None and init_method is not None:
        raise AssertionError("Cannot specify both init_method and store.")
    if store is not None:
        if world_size < 1:
            raise AssertionError("world_size must be positive if using store")
        if rank < 0:
            raise AssertionError("rank must be non-negative if using store")
        return store, rank, world_size
    found, rank, world_size = next(
        rendezvous(init_method or "env://", rank, world_size, timeout=timeout)
    )
    found.set_timeout(timeout)
    return found, rank, world_size


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
    """Makes the world. `gloo` connects processes of one host, which find each other by `store`, or by `init_method`
    (`env://`, `tcp://host:port`, `file:///path`); `fake` plays one rank, and moves nothing, `local` plays all ranks.

    Without a backend it is `gloo` where `init_method`, `store` or a launcher's environment say how to meet, and else
    `local`.

    Raises:
        ValueError: if there is a world already, or nothing says how to meet.
        RuntimeError: if the others do not come before `timeout` (30 minutes).
        NotImplementedError: for backends that are not there.
    """
    _groups.unmade()
    limit = checked_timeout(default_pg_timeout if timeout is None else timeout)
    if backend is None:
        told = init_method is not None or store is not None or "MASTER_ADDR" in os.environ
        backend = "gloo" if told else "local"
    name = backend.lower().rpartition(":")[2]
    if name == "gloo":
        found, rank, world_size = _meeting(init_method, store, rank, world_size, limit)
        store = PrefixStore("default_pg", found)
    else:
        world_size = world_size if world_size >= 0 else int(os.environ.get("WORLD_SIZE", "1"))
        rank = rank if rank >= 0 else int(os.environ.get("RANK", "0"))
    _groups.create(name, rank, world_size, store, limit.total_seconds())


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
    default_device_backend_map: ClassVar = {"cpu": GLOO, "cuda": NCCL}
    """What PyTorch takes for a type of device; here `gloo` takes tensors of all."""
    backend_list = [UNDEFINED, GLOO, NCCL, XCCL, UCC, MPI, FAKE]

    def __new__(cls, name: str) -> Backend:
        """Checks that it is a name."""
        if not isinstance(name, str):
            raise ValueError(f"Backend constructor parameter must be string-ish, {name=}")
        return super().__new__(cls, name.lower())

    @classmethod
    def register_backend(
        cls, name: str, func: Any, extended_api: bool = False, devices: Any = None
    ) -> None:
        """Adds something that moves data.

        Raises:
            NotImplementedError: always, as collectives are this library's own.
        """
        raise NotImplementedError(
            f"torch.distributed.Backend.register_backend({name!r}) is not supported by torchlike: what moves data is "
            "its own"
        )


class _Members(type):
    @property
    def WORLD(cls) -> Any:
        """The group of all ranks, if there is one."""
        return _groups.world().default if is_initialized() else None


class GroupMember(metaclass=_Members):
    """The group of all ranks, and what stands for a group that this process is not in."""

    NON_GROUP_MEMBER = OUTSIDE


def _rank_not_in_group(group: Any) -> bool:
    """Whether this process is not in a group."""
    return bool(group == GroupMember.NON_GROUP_MEMBER)


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


class QueueEmptyError(DistStoreError):
    """A queue of a store holds nothing."""


_KINDS = "ProcessGroupGloo ProcessGroupNCCL Reducer Logger"
globals().update(_absent.names(__name__, _WHY, _KINDS))
_FUNCTIONS = "all_gather_coalesced"


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
    P2POp,
    all_gather,
    all_gather_into_tensor,
    all_gather_object,
    all_reduce,
    all_reduce_coalesced,
    all_to_all,
    all_to_all_single,
    barrier,
    batch_isend_irecv,
    broadcast,
    broadcast_object_list,
    gather,
    gather_object,
    irecv,
    isend,
    monitored_barrier,
    recv,
    recv_object_list,
    reduce,
    reduce_scatter,
    reduce_scatter_tensor,
    scatter,
    scatter_object_list,
    send,
    send_object_list,
)
from torchlike.distributed._process_groups import (  # noqa: E402
    get_backend,
    get_backend_config,
    get_default_backend_for_device,
    get_global_rank,
    get_group_rank,
    get_process_group_ranks,
    get_rank,
    get_world_size,
    new_group,
    new_subgroups,
    new_subgroups_by_enumeration,
    split_group,
    supports_complex,
)
from torchlike.distributed.device_mesh import DeviceMesh, init_device_mesh  # noqa: E402

_all_gather_base = all_gather_single = all_gather_into_tensor
_reduce_scatter_base = reduce_scatter_single = reduce_scatter_tensor

__all__ = [
    "Backend",
    "DebugLevel",
    "DeviceMesh",
    "DistBackendError",
    "DistError",
    "DistNetworkError",
    "DistStoreError",
    "FileStore",
    "GradBucket",
    "GroupMember",
    "HashStore",
    "P2POp",
    "PrefixStore",
    "ProcessGroup",
    "QueueEmptyError",
    "ReduceOp",
    "Store",
    "TCPStore",
    "Work",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_gather_single",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "batch_isend_irecv",
    "broadcast",
    "broadcast_object_list",
    "destroy_process_group",
    "gather",
    "gather_object",
    "get_backend",
    "get_backend_config",
    "get_debug_level",
    "get_default_backend_for_device",
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
    "irecv",
    "is_available",
    "is_backend_available",
    "is_gloo_available",
    "is_initialized",
    "is_mpi_available",
    "is_nccl_available",
    "is_torchelastic_launched",
    "is_ucc_available",
    "is_xccl_available",
    "isend",
    "monitored_barrier",
    "new_group",
    "new_subgroups",
    "new_subgroups_by_enumeration",
    "recv",
    "recv_object_list",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_single",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
    "send_object_list",
    "split_group",
    "supports_complex",
]
