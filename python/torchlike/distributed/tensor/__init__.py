"""Tensors on meshes of devices: how they lie, and what operators on them come down to."""

from __future__ import annotations

from torchlike import _lazy
from torchlike.distributed.device_mesh import DeviceMesh, init_device_mesh
from torchlike.distributed.tensor._api import (
    DTensor,
    distribute_module,
    distribute_tensor,
    empty,
    full,
    ones,
    rand,
    randn,
    zeros,
)
from torchlike.distributed.tensor.placement_types import Partial, Placement, Replicate, Shard

__all__ = [
    "DTensor",
    "DeviceMesh",
    "Partial",
    "Placement",
    "Replicate",
    "Shard",
    "distribute_module",
    "distribute_tensor",
    "empty",
    "full",
    "init_device_mesh",
    "ones",
    "rand",
    "randn",
    "zeros",
]

__getattr__ = _lazy.submodules("distributed.tensor", "_utils", "debug", "experimental", "parallel")
