"""Several processes: their types and questions. No process group can be made, so this is one process alone.

What needs a group says so as PyTorch does before `init_process_group`.
"""

from __future__ import annotations

import os
from enum import Enum
from typing import Any, NoReturn

from torchlike import _absent, _lazy

_WHY = "there are no process groups"
_MISSING = (
    "Default process group has not been initialized, please make sure to call init_process_group."
)

__getattr__ = _lazy.submodules(
    "distributed",
    *("_composable", "_tensor", "algorithms", "checkpoint", "device_mesh", "distributed_c10d"),
    *("elastic", "fsdp", "launch", "nn", "run", "tensor", "utils"),
)


def is_available() -> bool:
    """True: the package is there, although no group can be made."""
    return True


def is_initialized() -> bool:
    """False: there is no process group."""
    return False


def is_torchelastic_launched() -> bool:
    """Whether a launcher started this process."""
    return os.environ.get("TORCHELASTIC_RUN_ID") is not None


def _absent_backend() -> bool:
    """False: nothing moves data between processes."""
    return False


is_nccl_available = is_gloo_available = is_mpi_available = _absent_backend
is_ucc_available = is_xccl_available = _absent_backend


def is_backend_available(backend: str) -> bool:
    """False: nothing moves data between processes."""
    return False


def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> NoReturn:
    """Not supported.

    Raises:
        NotImplementedError: always.
    """
    raise NotImplementedError(
        f"torch.distributed.init_process_group is not supported by torchlike: {_WHY}"
    )


def destroy_process_group(group: Any = None) -> NoReturn:
    """Fails: there is no group.

    Raises:
        AssertionError: always.
    """
    raise AssertionError("Process group cannot be None")


def _needs_a_group(name: str) -> Any:
    def missing(*_: Any, **__: Any) -> NoReturn:
        raise ValueError(_MISSING)

    missing.__name__ = missing.__qualname__ = name
    missing.__module__ = __name__
    missing.__doc__ = "Needs a process group, and says that there is none."
    return missing


_GROUP_CALLS = (
    "all_gather all_gather_coalesced all_gather_into_tensor all_gather_object all_reduce "
    "all_reduce_coalesced all_to_all all_to_all_single barrier batch_isend_irecv broadcast "
    "broadcast_object_list gather gather_object get_backend get_backend_config get_global_rank "
    "get_group_rank get_process_group_ranks get_rank get_world_size irecv isend monitored_barrier "
    "new_group new_subgroups new_subgroups_by_enumeration recv recv_object_list reduce reduce_scatter "
    "reduce_scatter_tensor scatter scatter_object_list send send_object_list split_group _all_gather_base "
    "_reduce_scatter_base _get_default_group"
)
globals().update({name: _needs_a_group(name) for name in _GROUP_CALLS.split()})


def get_pg_count() -> int:
    """0: there are no groups."""
    return 0


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


class GroupMember:
    """The group of all processes: there is none."""

    WORLD: Any = None
    NON_GROUP_MEMBER = -100


class group:
    """The group of all processes: there is none."""

    WORLD: Any = None


class DistError(RuntimeError):
    """Something between processes went wrong."""


class DistBackendError(DistError):
    """A backend failed."""


class DistNetworkError(DistError):
    """The network failed."""


class DistStoreError(DistError):
    """A store failed."""


_KINDS = (
    "ProcessGroup ProcessGroupGloo ProcessGroupNCCL Store TCPStore FileStore HashStore PrefixStore Work P2POp "
    "GradBucket Reducer Logger"
)
globals().update(_absent.names(__name__, _WHY, _KINDS))
DeviceMesh = _absent.kind("torchlike.distributed.device_mesh", "DeviceMesh", _WHY)
init_device_mesh = _absent.function("torchlike.distributed.device_mesh", "init_device_mesh", _WHY)
