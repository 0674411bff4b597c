"""Dispatch modes: code that sees every operator that calls come down to."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any, NoReturn

from torchlike import _C
from torchlike._ops import modes
from torchlike._tags import Tag

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "BaseTorchDispatchMode",
    "TorchDispatchMode",
    "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type",
    "transform_subclass",
]


def _refused(*_: Any) -> NoReturn:
    raise RuntimeError(
        "Defining your mode's `__torch_dispatch__` as a classmethod is not supported, please make it a plain method"
    )


class TorchDispatchMode:
    """Inside, every operator of this thread is shown to `__torch_dispatch__` of the mode.

    While a mode is asked it is switched off, so it may call operators itself.
    """

    supports_higher_order_operators = False

    def __init__(self, _dispatch_key: Any = None) -> None:
        self._dispatch_key = _dispatch_key

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if isinstance(vars(cls).get("__torch_dispatch__"), classmethod):
            cls.__torch_dispatch__ = _refused  # type: ignore[assignment, method-assign]

    def __enter__(self) -> TorchDispatchMode:
        modes.push(self)
        return self

    def __exit__(self, *exc: object) -> None:
        modes.pop()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> TorchDispatchMode:
        """An old spelling of the constructor."""
        warnings.warn(
            "`Mode.push()` is no longer necessary and can be replaced with just `with Mode()`",
            stacklevel=2,
        )
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls) -> bool:
        """False: modes that belong to the library itself say otherwise."""
        return False


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that calls what it is shown."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode() -> Any:
    stack = modes.stack()
    return stack[-1] if stack else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    return list(modes.stack())


@contextlib.contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """Inside, no mode is asked."""
    with modes.without() as gone:
        yield gone


def is_traceable_wrapper_subclass_type(t: Any) -> bool:
    """True for classes that say which tensors they hold."""
    return (
        isinstance(t, type)
        and issubclass(t, _C.Tensor)
        and t is not _C.Tensor
        and hasattr(t, "__tensor_flatten__")
        and hasattr(t, "__tensor_unflatten__")
    )


def is_traceable_wrapper_subclass(t: Any) -> bool:
    """True for objects of such classes."""
    return is_traceable_wrapper_subclass_type(type(t))


def transform_subclass(
    t: Any, callback: Any, outer_size: Any = None, outer_stride: Any = None
) -> Any:
    """The same wrapper around other tensors: `callback(name, tensor)` gives them."""
    names, context = t.__tensor_flatten__()
    inner = {n: callback(n, getattr(t, n)) for n in names}
    size = t.size() if outer_size is None else outer_size
    stride = t.stride() if outer_stride is None else outer_stride
    return type(t).__tensor_unflatten__(inner, context, size, stride)


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """The result of a handler; where the operator gives back what it has written, the argument itself."""
    schema = func._schema
    given = {**dict(zip(schema.positional, args, strict=False)), **(kwargs or {})}
    written = {
        a.alias_info.names: given.get(a.name)
        for a in schema.arguments
        if a.alias_info is not None and a.alias_info.is_write
    }
    if not written or not schema.returns:
        return out
    if Tag.inplace_view in func.tags:
        # What the wrapper holds has been viewed already: this is for the sizes that it says itself.
        _C._disabled_torch_dispatch_impl(func, (), args, kwargs)
    made = (out,) if len(schema.returns) == 1 else out
    results = [
        written.get(r.alias_info.names, value) if r.alias_info is not None else value
        for r, value in zip(schema.returns, made, strict=True)
    ]
    return results[0] if len(results) == 1 else type(out)(results)
