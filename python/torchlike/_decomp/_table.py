"""The table of decompositions, and what its functions share."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, TypeVar

import torchlike
from torchlike._ops import ops
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

aten: Any = ops.aten
TABLE: dict[Any, Callable[..., Any]] = {}

_LOW = (torchlike.float16, torchlike.bfloat16)

F = TypeVar("F", bound="Callable[..., Any]")


def overload(name: str) -> Any:
    """The overload of a name like `glu.default`."""
    packet, _, which = name.partition(".")
    return getattr(getattr(aten, packet), which or "default")


def core(*names: str) -> Callable[[F], F]:
    """A decorator: the function is what these overloads come down to."""

    def note(function: F) -> F:
        for name in names:
            TABLE[overload(name)] = function
        return function

    return note


def register_decomposition(aten_op: Any, registry: dict[Any, Any] | None = None) -> Any:
    """A decorator that puts a function into a table, by overloads or all overloads of a name."""

    def note(function: F) -> F:
        for given in aten_op if isinstance(aten_op, list | tuple) else [aten_op]:
            for found in given.real() if hasattr(given, "real") else [given]:
                (TABLE if registry is None else registry)[found] = function
        return function

    return note


def in_single(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: what is computed of 16-bit floats is computed in single precision, and has their type."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        given = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torchlike.Tensor)]
        low = next((t.dtype for t in given if t.dtype in _LOW), None)
        if low is None or any(t.dtype.is_floating_point and t.dtype not in _LOW for t in given):
            return function(*args, **kwargs)

        def widen(t: Any) -> Any:
            return cast(t, torchlike.float32) if t.dtype in _LOW else t

        args, kwargs = pytree.tree_map_only(torchlike.Tensor, widen, (args, kwargs))
        made = function(*args, **kwargs)
        single = torchlike.float32
        return pytree.tree_map_only(
            torchlike.Tensor, lambda t: cast(t, low) if t.dtype == single else t, made
        )

    return run


def cast(x: Any, dtype: Any) -> Any:
    """In another type."""
    return x if x.dtype == dtype else aten._to_copy.default(x, dtype=dtype)


def full(sizes: Sequence[int], value: Any, like: Any) -> Any:
    """A tensor of one value, of the type and where another one is."""
    how = {"dtype": like.dtype, "layout": torchlike.strided, "device": like.device}
    return aten.full.default(list(sizes), value, **how, pin_memory=False)


def number(value: Any, like: Any) -> Any:
    """A number as a tensor of another one's type."""
    how = {"dtype": like.dtype, "layout": torchlike.strided, "device": like.device}
    return aten.scalar_tensor.default(value, **how)


def chosen(test: Any, then: Any, other: Any) -> Any:
    """Elements of one or the other, of which one may be a number."""
    if not isinstance(then, torchlike.Tensor):
        then = number(then, other)
    if not isinstance(other, torchlike.Tensor):
        other = number(other, then)
    return aten.where.self(test, then, other)


def counting(end: int, device: Any, start: int = 0, **how: Any) -> Any:
    """The numbers from `start` to `end`."""
    made = {"layout": torchlike.strided, "device": device, "pin_memory": False}
    return aten.arange.start_step(start, end, **how, **made)


def reduced(loss: Any, reduction: int) -> Any:
    """A loss of each element as what is asked for: 0 as it is, 1 the mean, 2 the sum."""
    if reduction == 1:
        return aten.mean.default(loss)
    return aten.sum.dim_IntList(loss, []) if reduction == 2 else loss


def wrapped(dim: int, ndim: int) -> int:
    """A dimension counted from the front."""
    return dim % ndim if ndim else 0
