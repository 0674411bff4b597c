"""Exchange of tensors by the DLPack protocol."""

from __future__ import annotations

import enum
from typing import Any

from torchlike import _C
from torchlike._C import from_dlpack

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]


class DLDeviceType(enum.IntEnum):
    """The protocol's numbers of device kinds."""

    kDLCPU = 1
    kDLCUDA = 2
    kDLCUDAHost = 3
    kDLOpenCL = 4
    kDLVulkan = 7
    kDLMetal = 8
    kDLVPI = 9
    kDLROCM = 10
    kDLExtDev = 12
    kDLOneAPI = 14


def to_dlpack(tensor: _C.Tensor) -> Any:
    """A capsule with the tensor, sharing its memory."""
    return tensor.__dlpack__()
