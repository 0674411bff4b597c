"""Ragged sizes: what stands in a shape where every sequence has a length of its own."""

from __future__ import annotations

import weakref
from typing import Any

from torchlike._symbolic import SymInt

__all__ = ["NestedIntNode", "ragged_size", "share_size"]


class NestedIntNode:
    """`coeff` times the size `t_id`, which equals itself and is two at least; nothing else is known of it.

    `lengths` are those of the sequences where they were known as numbers when the size was made: what
    tensors without data are taken apart by.
    """

    __slots__ = ("__dict__", "lengths")

    def __init__(self, t_id: int, coeff: int, lengths: tuple[int, ...] | None = None) -> None:
        self.t_id = t_id
        self.coeff = coeff
        self.lengths = lengths

    def nested_int(self) -> int:
        """The number of the size."""
        return self.t_id

    def nested_int_coeff(self) -> int:
        """What the size is multiplied by."""
        return self.coeff

    def is_nested_int(self) -> bool:
        """True."""
        return True

    def __repr__(self) -> str:
        return f"j{self.t_id}" if self.coeff == 1 else f"{self.coeff}*j{self.t_id}"

    def mul(self, other: Any) -> NestedIntNode:
        """The size times a number.

        Raises:
            ValueError: for the product of two sizes.
        """
        if not isinstance(other, int):
            raise ValueError(f"unsupported: {type(other)}")
        return NestedIntNode(self.t_id, self.coeff * other)

    def eq(self, other: Any) -> bool:
        """Whether it is the same size, as often."""
        same = isinstance(other, NestedIntNode)
        return same and (self.t_id, self.coeff) == (other.t_id, other.coeff)

    def ne(self, other: Any) -> bool:
        """Whether it is another size, or a number."""
        return not self.eq(other)

    def ge(self, other: Any) -> bool:
        """Whether it is as large, which is known of the same size and of small numbers.

        Raises:
            ValueError: if it is not known.
        """
        if isinstance(other, NestedIntNode):
            if self.t_id == other.t_id:
                return self.coeff >= other.coeff
        elif other <= 2:
            return True
        raise ValueError("ge: relation is indeterminate")

    def le(self, other: Any) -> bool:
        """Whether it is as small.

        Raises:
            ValueError: if it is not known.
        """
        if isinstance(other, NestedIntNode):
            return other.ge(self)
        if other < 2:
            return False
        raise ValueError("ge: relation is indeterminate")

    def gt(self, other: Any) -> bool:
        """Whether it is larger."""
        return not self.le(other)

    def lt(self, other: Any) -> bool:
        """Whether it is smaller."""
        return not self.ge(other)


_next = 0
_started = False
_known: dict[int, tuple[Any, SymInt]] = {}


def ragged_size(source: Any, lengths: tuple[int, ...] | None = None) -> SymInt:
    """The size that a tensor of offsets or lengths stands for, always the same for the same tensor."""
    global _next
    entry = _known.get(id(source))
    if entry is not None and entry[0]() is source:
        found = entry[1]
        if lengths is not None and found.node.lengths is None:
            found.node.lengths = lengths
        return found
    made = SymInt(NestedIntNode(_next, 1, lengths))
    _next += 1
    _remember(source, made)
    return made


def start() -> None:
    """Counts the number that PyTorch's constructors take once, for a tensor of their own."""
    global _next, _started
    if not _started:
        _started = True
        _next += 1


def share_size(source: Any, size: SymInt) -> None:
    """Notes that a copy of offsets or lengths stands for the same size."""
    _remember(source, size)


def _remember(source: Any, size: SymInt) -> None:
    key = id(source)

    def forget(gone: Any) -> None:
        entry = _known.get(key)
        if entry is not None and entry[0] is gone:
            del _known[key]

    _known[key] = (weakref.ref(source, forget), size)
