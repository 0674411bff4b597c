"""Tensors on meshes: how they may lie; none can be made."""

from __future__ import annotations

from torchlike import _absent, _lazy
from torchlike.distributed import DeviceMesh as DeviceMesh
from torchlike.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "empty",
    "full",
    "ones",
    "rand",
    "randn",
    "zeros",
]

_why = "there are no process groups"
DTensor = _absent.kind(__name__, "DTensor", _why)
distribute_tensor = _absent.function(__name__, "distribute_tensor", _why)
distribute_module = _absent.function(__name__, "distribute_module", _why)
empty = _absent.function(__name__, "empty", _why)
full = _absent.function(__name__, "full", _why)
ones = _absent.function(__name__, "ones", _why)
rand = _absent.function(__name__, "rand", _why)
randn = _absent.function(__name__, "randn", _why)
zeros = _absent.function(__name__, "zeros", _why)

__getattr__ = _lazy.submodules("distributed.tensor", "_utils", "experimental", "parallel")
