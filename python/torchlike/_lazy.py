"""Modules that run when they are first asked for something: importing torchlike costs what every program uses.

A module-level `__getattr__` would do too, but the interpreter does not specialise look-ups in a module that
has one, and each use of a function of torchlike would pay for it.
"""

import functools
import sys
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType
from typing import Any


def module(name: str) -> ModuleType:
    """The module of this name, which runs when one of its attributes is asked for, or ran already."""
    if name in sys.modules:
        return sys.modules[name]
    spec = find_spec(name)
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"No module named '{name}'", name=name)
    spec.loader = LazyLoader(spec.loader)
    made = module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    made.__class__ = _waiting(type(made))  # type: ignore[arg-type]
    return made


@functools.lru_cache
def _waiting(lazy: type[ModuleType]) -> type[ModuleType]:
    """The class of a module that waits, of that of the library's lazy modules."""

    class Waiting(lazy):  # type: ignore[misc, valid-type]
        """Asking where its parts are does not run it: the import of a part would run that part twice."""

        def __getattribute__(self, name: str) -> Any:
            if name in ("__path__", "__spec__"):
                return object.__getattribute__(self, name)
            return super().__getattribute__(name)

    return Waiting


class Operators(ModuleType):
    """`torchlike.ops`: a namespace for each library."""

    __file__ = "_ops.py"

    def __init__(self) -> None:
        super().__init__("torch.ops")

    def __getattr__(self, name: str) -> ModuleType:
        if name.startswith("__"):
            raise AttributeError(name)
        from torchlike._ops import _OpNamespace

        space = _OpNamespace(name)
        setattr(self, name, space)
        return space

    def __repr__(self) -> str:
        return "<module 'torch.ops' from '_ops.py'>"
