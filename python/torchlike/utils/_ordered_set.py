"""Sets that keep the order in which things came."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSet
from typing import TypeVar

T = TypeVar("T")


class OrderedSet(MutableSet[T]):
    """A set whose elements are gone through in the order in which they were added."""

    def __init__(self, iterable: Iterable[T] | None = None) -> None:
        self._dict: dict[T, None] = dict.fromkeys(iterable or ())

    def __contains__(self, elem: object) -> bool:
        return elem in self._dict

    def __iter__(self) -> Iterator[T]:
        return iter(self._dict)

    def __len__(self) -> int:
        return len(self._dict)

    def __reversed__(self) -> Iterator[T]:
        return reversed(self._dict)

    def __repr__(self) -> str:
        return f"OrderedSet({list(self)})"

    def add(self, elem: T) -> None:
        """Adds an element at the end, if it is not there."""
        self._dict[elem] = None

    def discard(self, elem: T) -> None:
        """Takes an element out, if it is there."""
        self._dict.pop(elem, None)

    def copy(self) -> OrderedSet[T]:
        """Another with the same elements."""
        return OrderedSet(self)

    def update(self, *others: Iterable[T]) -> None:
        """Adds the elements of others."""
        for other in others:
            self._dict.update(dict.fromkeys(other))

    def union(self, *others: Iterable[T]) -> OrderedSet[T]:
        """All elements of this and of others."""
        made = self.copy()
        made.update(*others)
        return made

    def difference(self, *others: Iterable[T]) -> OrderedSet[T]:
        """The elements that are in none of the others."""
        without = {e for other in others for e in other}
        return OrderedSet(e for e in self if e not in without)

    def intersection(self, *others: Iterable[T]) -> OrderedSet[T]:
        """The elements that are in all others, too."""
        sets = [set(other) for other in others]
        return OrderedSet(e for e in self if all(e in s for s in sets))
