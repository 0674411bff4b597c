"""Versions that compare with texts and tuples by their numbers."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["TorchVersion"]

_PRE = {"a": -3, "alpha": -3, "b": -2, "beta": -2, "rc": -1, "c": -1, "dev": -4}


def _key(version: Any) -> tuple[Any, ...]:
    """What orders versions: numbers without trailing zeros, then what comes before the release."""
    if isinstance(version, list | tuple):
        version = ".".join(str(part) for part in version)
    elif not isinstance(version, str) and hasattr(version, "public"):  # of `packaging`
        version = str(version)
    if not isinstance(version, str):
        raise ValueError(f"not a version: {version!r}")
    match = re.fullmatch(
        r"\s*v?(\d+(?:\.\d+)*)[-_.]?(?:(a|alpha|b|beta|rc|c|dev)[-_.]?(\d*))?(?:\.?dev\d*)?(\+[\w.]*)?\s*",
        version,
    )
    if match is None:
        raise ValueError(f"not a version: {version!r}")
    numbers = [int(n) for n in match[1].split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    stage = (_PRE[match[2]], int(match[3] or 0)) if match[2] else (0, 0)
    return (tuple(numbers), stage, match[4] or "")


class TorchVersion(str):
    """A version that is a text, and is compared as a version with texts and tuples.

    What is no version is compared as a text.
    """

    __slots__ = ()

    def _compare(self, other: Any, method: str) -> Any:
        try:
            return getattr(_key(str(self)), method)(_key(other))
        except ValueError:
            return getattr(str, method)(self, other)

    def __gt__(self, other: Any) -> Any:
        return self._compare(other, "__gt__")

    def __lt__(self, other: Any) -> Any:
        return self._compare(other, "__lt__")

    def __eq__(self, other: object) -> Any:
        return self._compare(other, "__eq__")

    def __ge__(self, other: Any) -> Any:
        return self._compare(other, "__ge__")

    def __le__(self, other: Any) -> Any:
        return self._compare(other, "__le__")

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return str.__hash__(self)
