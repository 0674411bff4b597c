"""Archives of models with their code: not written, and not run."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from torchlike import _absent

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["GlobGroup", "PackageExporter", "PackageImporter", "is_from_package"]

_why = "archives with code are neither written nor run"
PackageExporter = _absent.kind(__name__, "PackageExporter", _why)
PackageImporter = _absent.kind(__name__, "PackageImporter", _why)
globals().update(
    _absent.names(__name__, _why, "Directory Importer OrderedImporter analyze_dependencies")
)


class PackagingError(Exception):
    """An archive cannot be written; never raised, as none is."""


class EmptyMatchError(Exception):
    """A pattern matches no module; never raised, as no archive is written."""


class ObjNotFoundError(Exception):
    """An object is not where its name says; never raised, as no archive is written."""


class ObjMismatchError(Exception):
    """A name stands for another object; never raised, as no archive is written."""


def is_from_package(obj: Any) -> bool:
    """False: nothing comes from an archive with code."""
    return False


class GlobGroup:
    """Names that patterns include, without those that others exclude.

    In a pattern `*` is a part of a name between separators, and `**` any number of parts.

    Args:
        include: a pattern, or several.
        exclude: a pattern, or several.
        separator: what stands between the parts of names.
    """

    def __init__(
        self,
        include: str | Iterable[str],
        *,
        exclude: str | Iterable[str] = (),
        separator: str = ".",
    ) -> None:
        self._text = f"GlobGroup(include={include}, exclude={exclude})"
        self.separator = separator
        self.include = [self._expression(p) for p in _several(include)]
        self.exclude = [self._expression(p) for p in _several(exclude)]

    def __str__(self) -> str:
        return self._text

    __repr__ = __str__

    def matches(self, candidate: str) -> bool:
        """Whether a name is one of them."""
        name = self.separator + candidate
        return any(p.fullmatch(name) for p in self.include) and not any(
            p.fullmatch(name) for p in self.exclude
        )

    def _expression(self, pattern: str) -> re.Pattern[str]:
        separator = re.escape(self.separator)
        part = f"[^{separator}]*"
        found = ""
        for piece in pattern.split(self.separator):
            if "**" in piece and piece != "**":
                raise ValueError("** can only appear as an entire path segment")
            if piece == "**":
                found += f"({separator}[^{separator}]+)*"
            else:
                found += separator + part.join(map(re.escape, piece.split("*")))
        return re.compile(found)


def _several(patterns: str | Iterable[str]) -> list[str]:
    return [patterns] if isinstance(patterns, str) else list(patterns)
