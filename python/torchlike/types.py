"""Types that annotations name."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO, Any, TypeAlias

import torchlike

__all__ = ["Device", "FileLike", "Number", "Storage"]

# Names of built-in types that libraries take from here.
_int = builtins.int
_float = builtins.float
_bool = builtins.bool
_complex = builtins.complex

_dtype = torchlike.dtype
_device = torchlike.device
_layout = torchlike.layout
_qscheme = torchlike.qscheme
_size: TypeAlias = torchlike.Size | list[int] | tuple[int, ...]
_symsize: TypeAlias = torchlike.Size | Sequence[int]
_dispatchkey: TypeAlias = str

Device: TypeAlias = torchlike.device | str | int | None
Number: TypeAlias = int | float | bool
PyNumber: TypeAlias = int | float | complex
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
Storage: Any = torchlike.UntypedStorage
_TensorOrTensors: TypeAlias = torchlike.Tensor | Sequence[torchlike.Tensor]
_TensorOrTensorsOrGradEdge: TypeAlias = Any
