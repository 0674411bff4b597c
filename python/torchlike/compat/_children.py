"""Processes that are started anew by `multiprocessing`: `import torch` gives torchlike in them too.

What such a process is told before it imports the program's main module has an entry more, which installs itself where
it is read.
"""

from __future__ import annotations

import importlib
from multiprocessing import spawn
from typing import Any

_theirs = spawn.get_preparation_data


class _Installs:
    """Installs torchlike where it is unpickled; by a name that is found there without."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return importlib.import_module, ("torchlike.compat._now",)


def _told(name: str) -> dict[str, Any]:
    return {"torchlike": _Installs(), **_theirs(name)}


def tell(wanted: bool) -> None:
    """Whether processes that start from now on are told."""
    setattr(spawn, "get_preparation_data", _told if wanted else _theirs)  # noqa: B010
