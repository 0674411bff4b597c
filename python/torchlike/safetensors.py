"""Reading and writing safetensors, with the functions that the `safetensors.torch` module has.

Unlike there, tensors may share memory, be strided, or be on meta with a source.
"""

from __future__ import annotations

import io
import os
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike.serialization import load as _load

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

__all__ = [
    "SafetensorError",
    "load",
    "load_file",
    "load_model",
    "safe_open",
    "save",
    "save_file",
    "save_model",
]


class SafetensorError(Exception):
    """A file that is not safetensors, or a name that is not in it."""


def _named(tensors: Mapping[str, Any]) -> list[tuple[str, Any]]:
    if not hasattr(tensors, "items"):
        raise ValueError(f"Expected a dict of [str, torch.Tensor] but received {type(tensors)}")
    named = list(tensors.items())
    for name, tensor in named:
        if not isinstance(name, str):
            raise ValueError(f"Expected names of tensors to be strings, got {name!r}")
        if not isinstance(tensor, _C.Tensor):
            raise ValueError(
                f"Key `{name}` is invalid, expected torch.Tensor but received {type(tensor)}"
            )
    return named


def _pairs(metadata: Mapping[str, str] | None) -> list[tuple[str, str]]:
    pairs = list((metadata or {}).items())
    for pair in pairs:
        if not all(isinstance(text, str) for text in pair):
            raise TypeError(f"metadata must be a dict of strings to strings, got {pair!r}")
    return pairs


def save_file(
    tensors: Mapping[str, Any],
    filename: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
    *,
    max_shard_size: int | str | None = None,
    duplicate: bool = False,
) -> None:
    """Writes named tensors to a file, whole or not at all.

    Tensors that are one in memory are written once and come back as one, unless `duplicate`. With
    `max_shard_size` (bytes or `"5GB"`) and more than that, several files and an index are written beside
    `filename`. Meta tensors that know their data are read one at a time.
    """
    _C._save_tensors(
        _named(tensors),
        os.fspath(filename),
        "safetensors",
        _pairs(metadata),
        duplicate,
        max_shard_size,
    )


def save(tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None) -> bytes:
    """The bytes of a safetensors file."""
    out = io.BytesIO()
    _C._save_tensors(_named(tensors), out, "safetensors", _pairs(metadata), False, None)
    return out.getvalue()


def load_file(filename: str | os.PathLike[str], device: Any = "cpu") -> dict[str, Any]:
    """The tensors of a safetensors file by name; with `device="meta"` only the header is read."""
    loaded: dict[str, Any] = _load(filename, map_location=device)
    return loaded


def load(data: bytes) -> dict[str, Any]:
    """The tensors in the bytes of a safetensors file by name."""
    loaded: dict[str, Any] = _load(io.BytesIO(data), map_location="cpu")
    return loaded


def save_model(
    model: Any,
    filename: str,
    metadata: Mapping[str, str] | None = None,
    force_contiguous: bool = True,
) -> None:
    """Writes the state of a module; tied tensors once."""
    save_file(model.state_dict(), filename, metadata)


def load_model(
    model: Any, filename: str | os.PathLike[str], strict: bool = True, device: Any = "cpu"
) -> tuple[list[str], list[str]]:
    """Loads a file into a module; gives the missing and the unexpected names.

    A name that is missing in the file and tied to one that is there is not missing.
    """
    state = load_file(filename, device=device)
    own = model.state_dict()
    found = {
        (t.untyped_storage()._cdata, t.storage_offset()): state[name]
        for name, t in own.items()
        if name in state
    }
    for name, t in own.items():
        tied = found.get((t.untyped_storage()._cdata, t.storage_offset()))
        if name not in state and tied is not None:
            state[name] = tied
    result = model.load_state_dict(OrderedDict(state), strict=strict)
    return list(result.missing_keys), list(result.unexpected_keys)


class _Slice:
    """A tensor of a file of which parts are read: `f.get_slice(name)[2:5]`."""

    def __init__(self, tensor: Any, device: Any) -> None:
        self._tensor = tensor
        self._device = device

    def get_shape(self) -> list[int]:
        """Sizes."""
        return list(self._tensor.shape)

    def get_dtype(self) -> str:
        """The dtype's name in the format."""
        return _DTYPES[str(self._tensor.dtype).rpartition(".")[2]]

    def __getitem__(self, index: Any) -> Any:
        return self._tensor[index].clone().to(self._device)


_DTYPES = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "uint16": "U16",
    "int32": "I32",
    "uint32": "U32",
    "int64": "I64",
    "uint64": "U64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "complex64": "C64",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
    "float4_e2m1fn_x2": "F4",
}


class safe_open:
    """An open safetensors file: its names, metadata, and tensors one at a time."""

    def __init__(
        self, filename: str | os.PathLike[str], framework: str = "pt", device: Any = "cpu"
    ) -> None:
        if framework not in ("pt", "torch", "pytorch", "torchlike"):
            raise SafetensorError(f"framework {framework} is invalid")
        format, metadata = _C._file_metadata(os.fspath(filename))
        if format != "safetensors":
            raise SafetensorError(f"{os.fspath(filename)} is a {format} file and not safetensors")
        self._metadata = dict(metadata) or None
        self._device = device
        self._tensors: dict[str, Any] | None = _load(filename, map_location="cpu", mmap=True)

    def _open(self) -> dict[str, Any]:
        if self._tensors is None:
            raise SafetensorError("File is closed")
        return self._tensors

    def __enter__(self) -> safe_open:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tensors = None

    def keys(self) -> list[str]:
        """The names of the tensors, sorted."""
        return sorted(self._open())

    def offset_keys(self) -> list[str]:
        """The names of the tensors in the order of the file."""
        return list(self._open())

    def metadata(self) -> dict[str, str] | None:
        """The metadata of the file."""
        return self._metadata

    def _find(self, name: str) -> Any:
        tensors = self._open()
        if name not in tensors:
            raise SafetensorError(f"File does not contain tensor {name}")
        return tensors[name]

    def get_tensor(self, name: str) -> Any:
        """A tensor, read now."""
        return self._find(name).clone().to(self._device)

    def get_slice(self, name: str) -> _Slice:
        """A tensor of which parts are read when they are indexed."""
        return _Slice(self._find(name), self._device)
