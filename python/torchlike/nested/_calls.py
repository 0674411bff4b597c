"""How the calls that jagged tensors answer are written down, and what several of them need."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torchlike import Tensor
from torchlike._symbolic import SymInt
from torchlike.nested import _names
from torchlike.nested._internal.nested_tensor import NestedTensor, wrapped

__all__ = ["answers", "check", "inner", "mismatch", "same_sequences", "sizes"]

_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "t": ("tensor", lambda v: isinstance(v, Tensor) and not isinstance(v, NestedTensor)),
    "jt": (
        "contiguous jagged layout NestedTensor",
        lambda v: isinstance(v, NestedTensor) and v._lengths is None and v._ragged_idx == 1,
    ),
    "jt_all": ("jagged layout NestedTensor", lambda v: isinstance(v, NestedTensor)),
    "any": ("<any type>", lambda v: True),
}


@functools.cache
def _kinds(of: str) -> list[list[str]]:
    """The names of arguments and their kinds."""
    _, _, text = of.partition("(")
    return [entry.split(": ") for entry in text.removesuffix(")").split(", ") if entry]


def check(of: str, *args: Any) -> None:
    """Checks that arguments are of the kinds that a text says, as `answers` takes it.

    Raises:
        ValueError: if one is not.
    """
    for (name, kind), value in zip(_kinds(of), args, strict=False):
        described, fits = _KINDS[kind.removesuffix("?")]
        if not (fits(value) or (kind.endswith("?") and value is None)):
            raise ValueError(f"NestedTensor {of}: expected {name} to be a {described}")


def answers(*names: str, of: str = "") -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function answers these calls of jagged tensors.

    `of` says in PyTorch's words which kinds of tensors the arguments are: `name(input: jt, weight: t, bias: t?)`.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            check(of, *args)
            return function(*args, **kwargs)

        del checked.__wrapped__
        NestedTensor._answers.update(dict.fromkeys(names, checked if of else function))
        return function

    return decorate


def inner(
    t: NestedTensor,
    dim: int,
    name: str,
    *,
    more: int = 0,
    ragged: bool = False,
    batch: bool = False,
) -> int:
    """The dimension of the values that a dimension of the whole is; `more`: of a result that has more of them.

    Raises:
        RuntimeError: for the batch and the ragged dimension, if they are not allowed.
    """
    dim = wrapped(t.dim() + more, dim)
    if dim == t._ragged_idx and not ragged:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on ragged dim")
    if dim == 0 and not batch:
        raise RuntimeError(f"{name}(): not supported for NestedTensor on dim=0")
    return t._ragged_idx - 1 if dim == 0 else dim - 1


def sizes(given: tuple[Any, ...]) -> list[Any]:
    """Sizes given one by one or as a sequence."""
    return list(given[0]) if len(given) == 1 and isinstance(given[0], list | tuple) else list(given)


def same_sequences(t: NestedTensor, size: Any) -> bool:
    """Whether a shape has the same sizes up to the ragged one; -1 stands for any."""
    end = t._ragged_idx + 1
    given = list(size[:end])
    return len(given) == end and all(
        a == b or (not isinstance(b, SymInt) and b == -1)
        for a, b in zip(t._size[:end], given, strict=True)
    )


def mismatch(name: str, args: Any, kwargs: Any, first: Any, second: Any) -> RuntimeError:
    """That two shapes do not go together."""
    operator = str(_names.operator(name, args, kwargs)).removeprefix("aten.")
    return RuntimeError(
        f"cannot call binary pointwise function {operator} with inputs of shapes {first} and {second}"
    )
