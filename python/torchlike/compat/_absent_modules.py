"""Modules of PyTorch's that torchlike has not: they can be imported, and what is in them says so when it is used.

`absent.txt` has their names, below the reason of each group. A name that the package around such a module has is that.
"""

from __future__ import annotations

import functools
import sys
from importlib import resources
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

from torchlike import _absent, _naming

if TYPE_CHECKING:
    from types import ModuleType


@functools.cache
def table() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Of each module, below `torchlike.`: why it is not there, and its public names."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    why = ""
    text = (resources.files("torchlike.compat") / "absent.txt").read_text("utf-8")
    for line in text.splitlines():
        if line.startswith("= "):
            why = line[2:]
        elif not line.startswith("#"):
            module, *names = line.split()
            found[module] = (why, tuple(names))
    return found


def _unavailable() -> bool:
    """False: it is not there."""
    return False


class _Absent(Loader):
    """Fills a module with what says that it is not there."""

    def create_module(self, spec: ModuleSpec) -> None:
        """The usual kind of module."""

    def exec_module(self, module: ModuleType) -> None:
        own = module.__name__
        why, names = table()[own.removeprefix(_naming.OWN + ".")]
        around = sys.modules.get(own.rpartition(".")[0])
        made = _absent.names(own, why, " ".join(names))
        for name in names:
            found = getattr(around, name, made[name])
            setattr(module, name, _unavailable if name == "is_available" else found)
        module.__doc__ = f"Not there: {why}."
        setattr(module, "__all__", list(names))  # noqa: B010


def spec(name: str) -> ModuleSpec | None:
    """The spec of an absent module by its own name, `torchlike.x.y`; None for other modules."""
    below = name.removeprefix(_naming.OWN + ".")
    if below not in table():
        return None
    package = any(other.startswith(below + ".") for other in table())
    return ModuleSpec(name, _Absent(), is_package=package)
