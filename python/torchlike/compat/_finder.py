"""How imports of `torch` and `torch.x.y` find torchlike's modules, none of which runs twice."""

from __future__ import annotations

import importlib
import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from torchlike import _naming
from torchlike.compat import _absent_modules, _names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from types import ModuleType


class _Alias(Loader):
    """Gives the module of ours for a name of PyTorch's."""

    def __init__(self, own: str) -> None:
        self.own = own
        self.spec: Any = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.own)
        self.spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec  # the import system has put the alias's there

    def get_code(self, name: str) -> Any:
        """What `python -m torch.x` runs."""
        spec = find_spec(self.own)
        return spec.loader.get_code(self.own) if spec and spec.loader else None  # type: ignore[attr-defined]


class _Aliases(MetaPathFinder):
    """Modules and the distribution under PyTorch's name."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name == "functorch" or name.startswith("functorch."):
            own = "torchlike._functorch.package" + name[len("functorch") :]
        elif name == "torch" or name.startswith("torch."):
            own = _naming.own(name)
        else:
            return None
        there = sys.modules.get(own)
        try:
            # One that waits to run is not to run here: its name would be taken before it is given.
            found = find_spec(own) if there is None else object.__getattribute__(there, "__spec__")
        except (ModuleNotFoundError, ValueError):
            return None
        if found is None:
            return None
        package = found.submodule_search_locations
        spec = ModuleSpec(name, _Alias(own), origin=found.origin, is_package=package is not None)
        if package is not None:
            spec.submodule_search_locations = list(package)
        return spec

    def find_distributions(self, context: Any = None) -> Iterable[Any]:
        """The metadata of an installed `torch`."""
        if getattr(context, "name", None) in (None, "torch"):
            from torchlike.compat._distribution import Torch

            return [Torch()]
        return []


def watch(spec: Any) -> None:
    """Lets a module's definitions be renamed, and its alias stand, once it has run."""
    loader = getattr(spec.loader, "loader", spec.loader)  # beneath a lazy one
    if loader is None or "exec_module" in getattr(loader, "__dict__", {"exec_module": 0}):
        return
    run = loader.exec_module

    def run_and_rename(module: ModuleType) -> None:
        run(module)
        if _naming.shown != _naming.OWN:
            name = "torch" + spec.name[len(_naming.OWN) :]
            sys.modules.setdefault(name, module)
            _names.retitle(module)

    loader.exec_module = run_and_rename


class _Own(MetaPathFinder):
    """Our modules that are imported while the library goes by another name."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        if not name.startswith(_naming.OWN + "."):
            return None
        spec = PathFinder.find_spec(name, path, target) or _absent_modules.spec(name)
        if spec is not None and spec.loader is not None:
            watch(spec)
        return spec


ALIASES = _Aliases()
OWN = _Own()
