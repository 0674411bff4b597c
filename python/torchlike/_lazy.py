"""Modules that run when they are first asked for something: importing torchlike costs what every program uses.

A module-level `__getattr__` would do too, but the interpreter does not specialise look-ups in a module that
has one, and each use of a function of torchlike would pay for it.
"""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import LazyLoader, find_spec, module_from_spec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def submodules(package: str, *names: str, **inside: str) -> "Callable[[str], Any]":
    """A `__getattr__` for a package that few programs use: its modules run when they are first asked for.

    Args:
        package: its name, without `torchlike.`.
        names: its modules.
        inside: what stands in one of its modules, and in which.
    """

    def __getattr__(name: str) -> Any:
        if name in names:
            whole = f"torchlike.{package}.{name}"
            try:
                return import_module(whole)
            except ModuleNotFoundError as e:
                if e.name != whole:  # some are there as `torch` alone
                    raise
        if name in inside:
            return getattr(import_module(f"torchlike.{package}.{inside[name]}"), name)
        from torchlike import _naming

        raise AttributeError(f"module '{_naming.shown}.{package}' has no attribute '{name}'")

    return __getattr__


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
    return made


class _Renamed:
    """Finds the modules below an old name of a package: those below its name."""

    def __init__(self, old: str, new: str) -> None:
        self.old, self.new = f"torchlike.{old}.", f"torchlike.{new}."

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> ModuleSpec | None:
        """The spec of a module below the old name."""
        if not name.startswith(self.old):
            return None
        real = self.new + name.removeprefix(self.old)
        try:
            return None if find_spec(real) is None else ModuleSpec(name, _Standing(real))  # type: ignore[arg-type]
        except ModuleNotFoundError:
            return None


class _Standing:
    """Gives the place of a module to another one."""

    def __init__(self, real: str) -> None:
        self.real = real

    def create_module(self, spec: ModuleSpec) -> None:
        """The usual kind of module, for the moment."""

    def exec_module(self, module: ModuleType) -> None:
        """Puts the other module in its place."""
        sys.modules[module.__name__] = import_module(self.real)


def renamed(old: str, new: str) -> None:
    """Has a package's modules found under its old name, too; both without `torchlike.`."""
    sys.meta_path.insert(0, _Renamed(old, new))


class _Loaded:
    """Finds the parts that a package has loaded already, which waited until somebody asked where its parts are.

    The interpreter looks for a part before it asks the package, and would run it once more.
    """

    def __init__(self, module: ModuleType) -> None:
        self.module, self.spec = module, module.__spec__

    @classmethod
    def find_spec(cls, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """A specification that gives the module that there is."""
        if not name.startswith("torchlike.") or target is not None or name not in sys.modules:
            return None
        return ModuleSpec(name, cls(sys.modules[name]))  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module that there is."""
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing: it ran. It keeps its own specification."""
        module.__spec__ = self.spec


sys.meta_path.insert(0, _Loaded)


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

    def load_library(self, path: Any) -> None:
        """The operators of torchvision and torchaudio for their libraries, whose code is not loaded; other libraries
        are refused.

        Raises:
            OSError: for a library whose operators torchlike has not.
        """
        from pathlib import Path

        if Path(path).parent.name == "torchvision" and Path(path).name.startswith("_C"):
            from torchlike.compat import _torchvision

            return _torchvision.register()
        if Path(path).parent.parent.name == "torchaudio" and "torchaudio" in Path(path).name:
            from torchlike.compat import _torchaudio

            return _torchaudio.register()
        raise OSError(f"{path}: torchlike cannot load libraries made for PyTorch")

    def __repr__(self) -> str:
        return "<module 'torch.ops' from '_ops.py'>"
