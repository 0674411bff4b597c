"""Tables of what operators come down to."""

from __future__ import annotations

from typing import Any

__all__ = ["CustomDecompTable"]


class CustomDecompTable(dict[Any, Any]):
    """Functions by operator, for `run_decompositions`."""

    def copy(self) -> CustomDecompTable:
        """The same functions in another table."""
        return CustomDecompTable(self)

    def materialize(self) -> dict[Any, Any]:
        """A plain dictionary."""
        return dict(self)
