"""PyTorch's compiler of Python code. Nothing is compiled: functions are given back, modules in a wrapper."""

from __future__ import annotations

import contextlib
from typing import Any

from torchlike import _absent
from torchlike._dynamo import config, eval_frame, exc, utils
from torchlike._dynamo.eval_frame import OptimizedModule, is_dynamo_supported
from torchlike.compiler import (
    allow_in_graph,
    assume_constant_result,
    disable,
    is_compiling,
    list_backends,
    reset,
    set_stance,
    substitute_in_graph,
)

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "disable",
    "disallow_in_graph",
    "error_on_graph_break",
    "explain",
    "export",
    "forbid_in_graph",
    "graph_break",
    "is_compiling",
    "is_dynamo_supported",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "maybe_mark_dynamic",
    "nonstrict_trace",
    "optimize",
    "optimize_assert",
    "register_backend",
    "reset",
    "run",
    "set_stance",
    "substitute_in_graph",
]


def graph_break(msg: str = "") -> None:
    """Nothing: there is no graph."""


def disallow_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


def forbid_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


def nonstrict_trace(traceable_fn: Any) -> Any:
    """The function itself."""
    return traceable_fn


def run(fn: Any = None) -> Any:
    """The function itself."""
    return fn if fn is not None else lambda f: f


@contextlib.contextmanager
def error_on_graph_break(error_on_graph_break: bool) -> Any:
    """A block in which nothing is different: there is no graph."""
    yield


def mark_dynamic(t: Any, index: Any, **_: Any) -> None:
    """Notes that sizes of a tensor may differ: nothing depends on it."""


def maybe_mark_dynamic(t: Any, index: Any) -> None:
    """Notes that sizes of a tensor may differ: nothing depends on it."""


def mark_static(t: Any, index: Any = None) -> None:
    """Notes that sizes of a tensor stay: nothing depends on it."""


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Notes that a tensor's memory stays where it is: nothing depends on it.

    Raises:
        TypeError: if it is no tensor.
    """
    import torchlike

    if not isinstance(t, torchlike.Tensor):
        raise TypeError(f"mark_static_address expects a tensor but received {type(t)}")
    t._dynamo_static_input_type = "guarded" if guard else "unguarded"  # type: ignore[attr-defined]


def register_backend(compiler_fn: Any = None, name: str | None = None, tags: Any = ()) -> Any:
    """Gives the function back: backends are never called."""
    return compiler_fn if compiler_fn is not None else lambda fn: fn


def optimize(backend: Any = "inductor", *, disable: bool = False, **_: Any) -> Any:
    """As `torch.compile` without a function: a decorator."""
    return (lambda fn: fn) if disable else eval_frame.OptimizeContext(backend)


optimize_assert = optimize
_why = "nothing is compiled"
explain = _absent.function(__name__, "explain", _why)
export = _absent.function(__name__, "export", _why + "; use torch.fx or torch.export")
lookup_backend = _absent.function(__name__, "lookup_backend", _why)
