"""`Size`: a tuple of integers that knows its product."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from torchlike import _naming
from torchlike._symbolic import SymInt

if TYPE_CHECKING:
    from collections.abc import Iterable


class Size(tuple):  # type: ignore[type-arg]
    """The shape of a tensor."""

    __slots__ = ()
    __module__ = "torchlike"

    def __new__(cls, values: Iterable[int] = ()) -> Size:
        """Checks that every entry is an integer."""
        entries = []
        for i, v in enumerate(values):
            if isinstance(v, SymInt):
                entries.append(v)
                continue
            try:
                entries.append(operator.index(v))
            except TypeError:
                message = (
                    f"torch.Size() takes an iterable of 'int' (item {i} is '{type(v).__name__}')"
                )
                raise TypeError(message) from None
        return tuple.__new__(cls, entries)

    def numel(self) -> int:
        """The number of elements of a tensor of this shape."""
        product = 1
        for v in self:
            product *= v
        return product

    def __repr__(self) -> str:
        return f"{_naming.shown}.Size([{', '.join(map(str, self))}])"

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        item = tuple.__getitem__(self, index)
        return tuple.__new__(Size, item) if isinstance(index, slice) else item

    def __add__(self, other):  # type: ignore[no-untyped-def]
        if not isinstance(other, tuple):
            return NotImplemented
        return tuple.__new__(Size, tuple.__add__(self, other))

    def __radd__(self, other):  # type: ignore[no-untyped-def]
        if not isinstance(other, tuple):
            return NotImplemented
        return tuple.__new__(Size, tuple.__add__(other, self))

    def __mul__(self, n):  # type: ignore[no-untyped-def]
        return tuple.__new__(Size, tuple.__mul__(self, n))

    __rmul__ = __mul__

    def __reduce__(self):  # type: ignore[no-untyped-def]
        return Size, (tuple(self),)
