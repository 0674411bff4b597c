"""TorchScript: code that is data. `load` reads archives without running anything in them, `script` and `trace`
compile what
is written in Python, `save` writes archives that PyTorch loads."""

from __future__ import annotations

import contextlib
import functools
from typing import TYPE_CHECKING, Any, Final

from torchlike import _absent
from torchlike.futures import Future
from torchlike.jit import _marks
from torchlike.jit._errors import CompilationUnitError as CompilationUnitError
from torchlike.jit._errors import Error as Error
from torchlike.jit._errors import NotSupportedError as NotSupportedError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "Attribute",
    "CompilationUnit",
    "CompilationUnitError",
    "Error",
    "Final",
    "Future",
    "NotSupportedError",
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "TopLevelTracedModule",
    "TracerWarning",
    "TracingCheckError",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "export_opnames",
    "fork",
    "freeze",
    "fuser",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "onednn_fusion_enabled",
    "optimize_for_inference",
    "optimized_execution",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "set_fusion_strategy",
    "strict_fusion",
    "trace",
    "trace_module",
    "unused",
    "wait",
]


def is_scripting() -> bool:
    """False in Python; compiled code has True in its place."""
    return False


def is_tracing() -> bool:
    """True while `jit.trace` watches this thread."""
    from torchlike.jit import _state

    return _state.watcher() is not None


def freeze(mod: Any, preserved_attrs: Any = None, optimize_numerics: bool = True) -> Any:
    """The module itself, which must be in evaluation mode; nothing is folded into its code."""
    if getattr(mod, "training", False):
        raise RuntimeError(
            "Freezing is currently only implemented for modules in eval mode. Please call .eval() on "
            "your module before freezing."
        )
    return mod


def optimize_for_inference(mod: Any, other_methods: Any = None) -> Any:
    """The module itself: what runs is the library's own operators, whatever the code looks like."""
    return mod


def ignore(drop: Any = False, **_: Any) -> Any:
    """A decorator for what compiled code does not call: with `drop=True` calls become errors when they run."""
    if callable(drop):
        return _marks.mark(drop, _marks.IGNORE)
    return lambda fn: _marks.mark(fn, _marks.UNUSED if drop else _marks.IGNORE)


def unused(fn: Any) -> Any:
    """A decorator: the function is not compiled, and calls of it in compiled code raise when they run."""
    return _marks.mark(fn, _marks.UNUSED)


def export(fn: Any) -> Any:
    """A decorator: the method is compiled with its module, even if nothing calls it."""
    return _marks.mark(fn, _marks.EXPORT)


def script_method(fn: Any) -> Any:
    """A decorator: the method of a class that derives from `ScriptModule` is compiled with each of its objects."""
    return _marks.ScriptMethodStub(fn)


def interface(obj: Any) -> Any:
    """The class itself; compiled code does not choose between modules by it."""
    return obj


def script_if_tracing(fn: Any) -> Any:
    """A decorator: the function is compiled when `jit.trace` meets it, and runs as Python otherwise."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if not is_tracing():
            return fn(*args, **kwargs)
        from torchlike.jit._script import script

        return script(fn)(*args, **kwargs)

    return call


_script_if_tracing = script_if_tracing


def _overload(fn: Any) -> Any:
    return fn


_overload_method = _marks.overload


def annotate(the_type: Any, the_value: Any) -> Any:
    """The value."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """As Python's, also for types with parameters, whose items are looked at."""
    from builtins import isinstance as plain
    from typing import get_args, get_origin

    if plain(target_type, tuple):
        return any(isinstance(obj, t) for t in target_type)
    origin, inner = get_origin(target_type), get_args(target_type)
    if origin is None:
        return plain(obj, target_type)
    if not plain(origin, type):
        return any(isinstance(obj, t) for t in inner)
    return plain(obj, origin) and _items_are(obj, origin, inner)


def _items_are(obj: Any, origin: Any, inner: tuple[Any, ...]) -> bool:
    """True if what a container holds is of the types in brackets."""
    if origin is dict:
        return all(isinstance(k, inner[0]) and isinstance(v, inner[1]) for k, v in obj.items())
    if origin is tuple:
        return len(obj) == len(inner) and all(map(isinstance, obj, inner))
    return all(isinstance(item, inner[0]) for item in obj)


class Attribute:
    """A value with a type, for attributes of modules."""

    def __init__(self, value: Any, type: Any) -> None:
        self.value = value
        self.type = type


def fork(func: Any, *args: Any, **kwargs: Any) -> Future:
    """Calls the function at once; `wait` gives its result."""
    future = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Future) -> Any:
    """The result of `fork`."""
    if future is None:
        raise RuntimeError("Future can't be None")
    return future.wait()


# the names that older code has for them
_fork, _wait = fork, wait


def _unwrap_optional(x: Any) -> Any:
    """The value, which is not to be None."""
    assert x is not None, "Unwrapping null optional"
    return x


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Accepted, without an effect."""
    yield


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """Accepted, without an effect."""
    yield


_onednn = False
_strategy = [("STATIC", 2), ("DYNAMIC", 10)]


def enable_onednn_fusion(enabled: bool) -> None:
    """Kept, without an effect: operators are not fused."""
    global _onednn
    _onednn = bool(enabled)


def onednn_fusion_enabled() -> bool:
    """What `enable_onednn_fusion` was told last."""
    return _onednn


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Kept, without an effect: operators are not fused. Gives the strategy before.

    Raises:
        ValueError: for a name that is neither `STATIC` nor `DYNAMIC`.
    """
    global _strategy
    for name, _ in strategy:
        if name not in ("STATIC", "DYNAMIC"):
            raise ValueError(f"FusionBehavior only supported 'STATIC' or 'DYNAMIC', got: {name}")
    before, _strategy = _strategy, [(name, int(depth)) for name, depth in strategy]
    return before


class strict_fusion:
    """A block in which all would have to be fused; Python runs it as it is, and says so."""

    def __init__(self) -> None:
        import warnings

        warnings.warn("Only works in script mode", stacklevel=2)

    def __enter__(self) -> None:
        pass

    def __exit__(self, type: Any, value: Any, tb: Any) -> None:
        pass


export_opnames = _absent.function(
    __name__, "export_opnames", "TorchScript for phones, which asks for operators, is not written"
)


_LAZY = {
    "load": "_read", "save": "_write", "script": "_script", "trace": "_trace", "trace_module": "_trace",
    "ScriptModule": "_module", "RecursiveScriptModule": "_module", "ScriptFunction": "_module",
    "TracedModule": "_module", "TopLevelTracedModule": "_module", "TracerWarning": "_trace",
    "TracingCheckError": "_trace", "CompilationUnit": "_compilation_unit",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """The compiler and the reader, which few programs use, are loaded with their first use."""
    from importlib import import_module

    if name in ("annotations", "frontend"):
        return import_module(f"torchlike.jit.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'torchlike.jit' has no attribute '{name}'")
    found = getattr(import_module(f"torchlike.jit.{_LAZY[name]}"), name)
    globals()[name] = found
    return found


import torchlike.jit.annotations  # noqa: E402  (in place of the future statement's name)
