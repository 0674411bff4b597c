"""Parameters that are cut over ranks: `fully_shard`, and the older wrapper `FullyShardedDataParallel`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchlike import _lazy
from torchlike.distributed.fsdp._fully_shard import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    UnshardHandle,
    fully_shard,
    register_fsdp_forward_method,
)

if TYPE_CHECKING:
    from torchlike.distributed.fsdp.api import (
        BackwardPrefetch,
        CPUOffload,
        FullOptimStateDictConfig,
        FullStateDictConfig,
        LocalOptimStateDictConfig,
        LocalStateDictConfig,
        MixedPrecision,
        OptimStateDictConfig,
        ShardedOptimStateDictConfig,
        ShardedStateDictConfig,
        ShardingStrategy,
        StateDictConfig,
        StateDictSettings,
        StateDictType,
    )
    from torchlike.distributed.fsdp.fully_sharded_data_parallel import (
        FullyShardedDataParallel,
        OptimStateKeyType,
    )

__all__ = [
    "BackwardPrefetch",
    "CPUOffload",
    "CPUOffloadPolicy",
    "FSDPModule",
    "FullOptimStateDictConfig",
    "FullStateDictConfig",
    "FullyShardedDataParallel",
    "LocalOptimStateDictConfig",
    "LocalStateDictConfig",
    "MixedPrecision",
    "MixedPrecisionPolicy",
    "OffloadPolicy",
    "OptimStateDictConfig",
    "OptimStateKeyType",
    "ShardedOptimStateDictConfig",
    "ShardedStateDictConfig",
    "ShardingStrategy",
    "StateDictConfig",
    "StateDictSettings",
    "StateDictType",
    "UnshardHandle",
    "fully_shard",
    "register_fsdp_forward_method",
]

_OLDER = dict.fromkeys(
    ("FullyShardedDataParallel", "OptimStateKeyType"), "fully_sharded_data_parallel"
)

__getattr__ = _lazy.submodules(
    "distributed.fsdp",
    "_fully_shard",
    "api",
    "fully_sharded_data_parallel",
    "sharded_grad_scaler",
    "wrap",
    **{name: _OLDER.get(name, "api") for name in __all__ if name not in globals()},
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
