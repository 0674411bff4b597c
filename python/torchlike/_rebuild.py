"""Objects that checkpoints hold besides tensors, made from plain data without importing or calling what a file names.

The tables below say which names have a meaning here. Each maps to a function of ours that checks its arguments and
builds the object; a name that is in no table is refused, or kept as an `Opaque`.
"""

from __future__ import annotations

import sys
from typing import Any

from torchlike._opaque import OpaqueClass
from torchlike._rebuild_builders import OpaqueBuilder, Refused, UserBuilder, member_of
from torchlike._rebuild_stdlib import SAFE_TYPES, STDLIB

# What has no meaning here although it is Python's (of any version), NumPy's or PyTorch's is refused by name, and so
# are the libraries whose objects stand for code.
OWN = frozenset(
    (
        *("torch", "torchlike", "numpy", "functorch", "caffe2", "distutils", "nt", "posix"),
        *("__builtin__", "exceptions", "copy_reg", "commands", "UserDict"),
        *("cloudpickle", "dill", "joblib", "pip", "setuptools", "pkg_resources"),
    )
)


# PyTorch's packages whose classes hold data and nothing that runs by itself: optimizers, schedulers, scalers,
# distributions, datasets, observers, and layers that torchlike has not.
DATA = (
    "torch.optim",
    "torch.amp",
    "torch.cuda.amp",
    "torch.distributions",
    "torch.utils.data",
    "torch.ao",
    "torch.nn",
)


def _builtin_values(name: str) -> Any:
    if name in SAFE_TYPES:
        return SAFE_TYPES[name]
    others = {
        "Ellipsis": ...,
        "NotImplemented": NotImplemented,
        "object": object,
        "range": range,
        "slice": slice,
    }
    return others.get(name, Refused)


def own(module: str, name: str) -> Any:
    """The builder of a name that torchlike itself knows, or None."""
    if module in STDLIB:
        return STDLIB[module](name)
    root = module.partition(".")[0]
    if root == "numpy":
        from torchlike import _rebuild_numpy

        return _rebuild_numpy.builder(module, name)
    if root == "torch":
        from torchlike import _rebuild_torch

        return _rebuild_torch.builder(module, name)
    return None


def keeps(module: str) -> bool:
    """True for modules whose objects are kept as data: other people's and some of PyTorch's."""
    if any(module == package or module.startswith(package + ".") for package in DATA):
        return True
    root = module.partition(".")[0]
    return root not in sys.stdlib_module_names and root not in OWN


def loaded_class(module: str, name: str) -> Any:
    """The class that the program has under a name, or None. Nothing is imported, and no attribute is asked for."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = vars(found).get(part) if hasattr(found, "__dict__") else None
    return found if isinstance(found, type) else None


# What a class may not have of its own if an object of it is to be made, and kept in a set, without running its code.
_RUN = ("__setstate__", "__reduce__", "__reduce_ex__", "__getattribute__", "__eq__", "__hash__")


def loaded(module: str, name: str) -> Any:
    """How objects are made of a class of modules or of an enumeration that the program itself has, without running any
    of the class's own code; None where that cannot be.
    """
    found = loaded_class(module, name)
    if found is None:
        return None
    import enum

    from torchlike.nn.modules.module import Module, _by_getattr

    if issubclass(found, enum.Enum):
        return member_of(found)
    if not issubclass(found, Module) or hasattr(found, "__del__"):
        return None
    # Modules give a class that has a `__getattr__` a `__getattribute__` of theirs.
    if any(getattr(found, n) not in (getattr(Module, n), _by_getattr) for n in _RUN):
        return None
    from torchlike import _rebuild_torch

    return _rebuild_torch.of_modules(found)


def builder(module: str, name: str, allowed: dict[str, Any], full: bool) -> Any:
    """How objects of this name are made, or None where they are refused."""
    found = own(module, name)
    if found is not None:
        return found
    if f"{module}.{name}" in allowed:
        given = allowed[f"{module}.{name}"]
        return given if isinstance(given, OpaqueBuilder) else UserBuilder(given)
    if full and keeps(module):
        found = loaded(module, name)
        if found is not None:
            return found
    # Classes are capitalised; what a function would return nobody can know without calling it.
    if full and keeps(module) and name.rpartition(".")[2].lstrip("_")[:1].isupper():
        return OpaqueBuilder(module, name)
    return None


def value(module: str, name: str, allowed: dict[str, Any], full: bool) -> Any:
    """The value that a name stands for where nothing calls it, or `Refused`."""
    if f"{module}.{name}" in allowed:
        return allowed[f"{module}.{name}"]
    root = module.partition(".")[0]
    found: Any = Refused
    if module == "builtins":
        found = _builtin_values(name)
    elif module in ("math", "cmath"):
        import importlib

        found = getattr(importlib.import_module(module), name, Refused)
    elif module == "collections" and name in ("OrderedDict", "Counter"):
        import collections

        found = getattr(collections, name)
    elif root == "torch":
        from torchlike import _rebuild_torch

        found = _rebuild_torch.value(module, name)
    elif root == "numpy":
        from torchlike import _rebuild_numpy

        found = _rebuild_numpy.value(module, name)
    elif (module, name) == ("array", "array"):
        found = OpaqueClass(module, name)
    named = full and (keeps(module) or module == "builtins")
    return OpaqueClass(module, name) if found is Refused and named else found
