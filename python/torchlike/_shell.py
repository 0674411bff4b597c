"""Types of a few bits: libraries name them in tables, there are no tensors of them."""

from __future__ import annotations

from typing import Any

from torchlike import _naming


class _Bits:
    """An integer type of 1 to 7 bits."""

    itemsize = 1
    is_floating_point = is_complex = False

    def __init__(self, name: str) -> None:
        self._name = name
        self.is_signed = name.startswith("int")

    def __repr__(self) -> str:
        return f"{_naming.shown}.{self._name}"

    def __reduce__(self) -> str:
        return self._name

    def __deepcopy__(self, memo: Any) -> _Bits:
        return self


int1, int2, int3, int4, int5, int6, int7 = (_Bits(f"int{n}") for n in range(1, 8))
uint1, uint2, uint3, uint4, uint5, uint6, uint7 = (_Bits(f"uint{n}") for n in range(1, 8))
