"""Questions and decorators of compilers. Nothing is compiled here: what is decorated runs as it is."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from torchlike import _absent, _lazy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "get_default_backend",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "list_backends",
    "load_cache_artifacts",
    "load_compiled_function",
    "nested_compile_region",
    "reset",
    "save_cache_artifacts",
    "set_default_backend",
    "set_enable_guard_collectives",
    "set_stance",
    "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "substitute_in_graph",
    "wrap_numpy",
]

config = _lazy.module("torchlike.compiler.config")
_backend: Any = "inductor"
_guard_collectives = False


def compile(*args: Any, **kwargs: Any) -> Any:
    """As `torch.compile`."""
    import torchlike

    return torchlike.compile(*args, **kwargs)


def set_default_backend(backend: Any) -> None:
    """Kept, without an effect; None is `inductor` again."""
    global _backend
    _backend = "inductor" if backend is None else backend


def get_default_backend() -> Any:
    """What `set_default_backend` was told last."""
    return _backend


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Kept, without an effect. Gives the setting before."""
    global _guard_collectives
    before, _guard_collectives = _guard_collectives, enabled
    return before


def save_cache_artifacts() -> None:
    """Nothing: nothing was compiled."""


_why = "nothing is compiled"
load_cache_artifacts = _absent.function(__name__, "load_cache_artifacts", _why)
load_compiled_function = _absent.function(__name__, "load_compiled_function", _why)


class _State(threading.local):
    exporting = False


_state = _State()


@contextlib.contextmanager
def exporting() -> Iterator[None]:
    """Inside, `is_exporting` and `is_compiling` answer that a program is being exported."""
    before, _state.exporting = _state.exporting, True
    try:
        yield
    finally:
        _state.exporting = before


def is_compiling() -> bool:
    """Whether `export` is tracing: nothing else compiles."""
    return _state.exporting


def is_dynamo_compiling() -> bool:
    """False."""
    return False


def is_exporting() -> bool:
    """Whether `export` is tracing."""
    return _state.exporting


def disable(fn: Any = None, recursive: bool = True, *, reason: Any = None) -> Any:
    """A decorator that changes nothing."""
    return fn if fn is not None else lambda f: f


def allow_in_graph(fn: Any) -> Any:
    """A decorator that changes nothing.

    Raises:
        AssertionError: if it is no function, or a list of them.
    """
    if isinstance(fn, list | tuple):
        return [allow_in_graph(f) for f in fn]
    assert callable(fn), "allow_in_graph expects a callable"
    return fn


def assume_constant_result(fn: Any) -> Any:
    """A decorator that changes nothing."""
    return fn


def nested_compile_region(
    fn: Any = None, *, options: Any = None, max_reuse_entries: int = 8, reuse_hash_fn: Any = None
) -> Any:
    """A decorator that changes nothing."""
    return fn if fn is not None else lambda f: f


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors that calls one of arrays, which share the tensors' memory."""
    import functools

    import numpy as np

    import torchlike
    from torchlike.utils import _pytree as pytree

    def array(tensor: Any) -> Any:
        return tensor.numpy()

    @functools.wraps(fn)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map_only(torchlike.Tensor, array, (args, kwargs))
        result = fn(*args, **kwargs)
        return pytree.tree_map_only((np.ndarray, np.generic), torchlike.as_tensor, result)

    return wrapped


def skip_all_guards_unsafe(guard_entries: Any) -> list[bool]:
    """For `options={"guard_filter_fn": ...}`: keeps no guard."""
    return [False for _ in guard_entries]


def skip_guard_on_globals_unsafe(guard_entries: Any) -> list[bool]:
    """For `options={"guard_filter_fn": ...}`: keeps guards of what is not global."""
    return [not entry.is_global for entry in guard_entries]


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries: Any) -> list[bool]:
    """For `options={"guard_filter_fn": ...}`: keeps no guard of the library's modules."""
    return [
        not entry.orig_guard.source.is_unspecialized_builtin_nn_module() for entry in guard_entries
    ]


def skip_guard_on_all_nn_modules_unsafe(guard_entries: Any) -> list[bool]:
    """For `options={"guard_filter_fn": ...}`: keeps no guard of a module."""
    return [not entry.orig_guard.source.is_unspecialized_nn_module() for entry in guard_entries]


def keep_tensor_guards_unsafe(guard_entries: Any, keep_parameters: bool = False) -> list[bool]:
    """For `options={"guard_filter_fn": ...}`: keeps guards of tensors, of parameters only if asked."""
    from torchlike.nn import Parameter

    return [
        entry.guard_type == "TENSOR_MATCH"
        and (keep_parameters or not isinstance(entry.value, Parameter))
        for entry in guard_entries
    ]


def keep_portable_guards_unsafe(guard_entries: Any) -> list[bool]:
    """For `options={"guard_filter_fn": ...}`: keeps guards of tensors, which mean the same elsewhere."""
    return keep_tensor_guards_unsafe(guard_entries, keep_parameters=True)


def substitute_in_graph(
    original_fn: Any, *, can_constant_fold_through: bool = False, skip_signature_check: bool = False
) -> Any:
    """A decorator that changes nothing: the original is called."""
    return lambda f: f


def cudagraph_mark_step_begin() -> None:
    """Nothing to mark."""


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """No backends."""
    return []


def reset() -> None:
    """Nothing to forget."""


class set_stance:
    """Accepted, without an effect."""

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: Any = None,
    ) -> None:
        self.stance = stance

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass

    def __call__(self, fn: Any) -> Any:
        return fn
