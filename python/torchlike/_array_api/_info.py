"""What the array API's namespace says of itself."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike._array_api._types import KINDS


class __array_namespace_info__:
    """Devices, types and capabilities."""

    def capabilities(self) -> dict[str, Any]:
        """What is optional in the standard, and is here."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        """Where arrays are made unless a device is given."""
        return torch.get_default_device()

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The types of arrays that are made without one."""
        real = torch.get_default_dtype()
        wide = torch.complex128 if real == torch.float64 else torch.complex64
        return {
            "real floating": real,
            "complex floating": wide,
            "integral": torch.int64,
            "indexing": torch.int64,
        }

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The types of a kind, or of several, by name.

        Raises:
            ValueError: for names of no kind.
        """
        if kind is None:
            kind = ("bool", "numeric")
        kinds = (kind,) if isinstance(kind, str) else kind
        if unknown := [k for k in kinds if k not in KINDS]:
            raise ValueError(f"unknown kind of types: {unknown[0]!r}")
        found = set().union(*(KINDS[k] for k in kinds))
        return {str(d).rpartition(".")[2]: d for d in sorted(found, key=str)}

    def devices(self) -> list[Any]:
        """The devices that there are."""
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return [
            torch.device("cpu"),
            *(torch.device("cuda", i) for i in range(gpus)),
            torch.device("meta"),
        ]
