"""The `_foreach_` functions: an operator for every tensor of a list.

Each is the operator of its name, called for one tensor after the other; those that end with `_` write into the tensors.
What stands beside the tensors may be a list of as many tensors or numbers, or one for all.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import torchlike as torch
from torchlike import _C

Tensor = torch.Tensor

_UNARY = (
    "abs", "acos", "asin", "atan", "ceil", "clone", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor",
    "frac", "lgamma", "log", "log10", "log1p", "log2", "neg", "reciprocal", "round", "rsqrt", "sigmoid", "sign",
    "sin", "sinh", "sqrt", "tan", "tanh", "trunc",
)  # fmt: skip
_BINARY = (
    "add", "sub", "mul", "div", "clamp_max", "clamp_min", "maximum", "minimum", "pow",
)  # fmt: skip
_TERNARY = ("addcmul", "addcdiv")
# With numbers these are bounds: the operators of their names take tensors alone.
_OF_NUMBERS = {"maximum": "clamp_min", "minimum": "clamp_max"}


def _check(tensors: Any, *others: Any) -> None:
    if len(tensors) == 0:
        raise RuntimeError("Tensor list must have at least one tensor.")
    for other in others:
        if len(other) != len(tensors):
            raise RuntimeError(
                f"Tensor lists must have the same number of tensors, got {len(tensors)} and {len(other)}"
            )


def _beside(tensors: Any, other: Any) -> Any:
    """What stands beside each tensor."""
    if isinstance(other, Tensor):
        if other.dim() != 0:
            raise RuntimeError(
                f"scalar tensor expected to be 0 dim but it has {other.dim()} dimensions and "
                f"{other.numel()} elements."
            )
        return repeat(other, len(tensors))
    if not isinstance(other, Sequence):
        return repeat(other, len(tensors))
    if len(other) > 0 and isinstance(other[0], Tensor):
        _check(tensors, other)
    elif len(other) != len(tensors):
        raise RuntimeError("Tensor list must have same number of elements as scalar list.")
    return other


def _given(*choices: Any) -> Any:
    """The one argument that was given, under whichever of its names."""
    (given,) = (c for c in choices if c is not None)
    return given


def _method(name: str, in_place: bool) -> Callable[..., Any]:
    plain: Callable[..., Any] = getattr(Tensor, name)
    if not in_place:
        return plain
    return getattr(Tensor, f"{name}_", None) or (lambda x, *rest: x.copy_(plain(x, *rest)))


def _unary(name: str, in_place: bool) -> Callable[..., Any]:
    method = _method(name, in_place)

    def function(self: Any, **options: Any) -> Any:
        _check(self)
        made = [method(t, **options) for t in self]
        return self if in_place else tuple(made)

    return function


def _binary(name: str, in_place: bool) -> Callable[..., Any]:
    method = _method(name, in_place)
    of_numbers = _method(_OF_NUMBERS.get(name, name), in_place)

    def function(
        self: Any,
        other: Any = None,
        *,
        scalar: Any = None,
        scalars: Any = None,
        exponent: Any = None,
        **alpha: Any,
    ) -> Any:
        other = _given(other, scalar, scalars, exponent)
        if not isinstance(self, Sequence):
            _check(other)
            return tuple(torch.pow(self, t) for t in other)
        _check(self)
        pairs = zip(self, _beside(self, other), strict=True)
        made = [(method if isinstance(y, Tensor) else of_numbers)(x, y, **alpha) for x, y in pairs]
        return self if in_place else tuple(made)

    return function


def _ternary(name: str, in_place: bool) -> Callable[..., Any]:
    method = _method(name, in_place)

    def function(
        self: Any, tensor1: Any, tensor2: Any, value: Any = 1, *, scalars: Any = None
    ) -> Any:
        _check(self, tensor1, tensor2)
        value = value if scalars is None else scalars
        values = value.tolist() if isinstance(value, Tensor) and value.dim() else value
        lists = zip(self, tensor1, tensor2, _beside(self, values), strict=True)
        made = [
            method(x, y, z, value=v.item() if isinstance(v, Tensor) else v) for x, y, z, v in lists
        ]
        return self if in_place else tuple(made)

    return function


def _lerp(in_place: bool) -> Callable[..., Any]:
    method = _method("lerp", in_place)

    def function(self: Any, tensors1: Any, weight: Any = None, *, weights: Any = None) -> Any:
        _check(self, tensors1)
        lists = zip(self, tensors1, _beside(self, _given(weight, weights)), strict=True)
        made = [method(x, y, w) for x, y, w in lists]
        return self if in_place else tuple(made)

    return function


def _foreach_copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
    """Copies the values of each tensor of one list into that of the other."""
    _check(self, src)
    for to, value in zip(self, src, strict=True):
        to.copy_(value, non_blocking=non_blocking)
    return self


def _foreach_zero_(self: Any) -> Any:
    """Fills the tensors with zeros."""
    _check(self)
    for t in self:
        t.zero_()
    return self


def _foreach_norm(self: Any, ord: Any = 2, dtype: Any = None) -> Any:
    """The norm of each tensor."""
    _check(self)
    return tuple(torch.linalg.vector_norm(t, ord, dtype=dtype) for t in self)


def _foreach_powsum(self: Any, ord: Any = 2, dtype: Any = None) -> Any:
    """The sum of the powers of each tensor's absolute values."""
    _check(self)
    return tuple(t.abs().pow(ord).sum(dtype=dtype) for t in self)


def _foreach_max(self: Any) -> Any:
    """The largest element of each tensor."""
    _check(self)
    return tuple(t.max() for t in self)


def _foreach_mm(self: Any, mat2: Any) -> Any:
    """The products of pairs of matrices."""
    _check(self, mat2)
    return tuple(torch.mm(x, y) for x, y in zip(self, mat2, strict=True))


def _all() -> dict[str, Callable[..., Any]]:
    made: dict[str, Callable[..., Any]] = {}
    for names, make in ((_UNARY, _unary), (_BINARY, _binary), (_TERNARY, _ternary)):
        for name in names:
            made[f"_foreach_{name}"] = make(name, False)
            if name != "clone":
                made[f"_foreach_{name}_"] = make(name, True)
    made["_foreach_lerp"], made["_foreach_lerp_"] = _lerp(False), _lerp(True)
    for name, function in made.items():
        function.__name__ = function.__qualname__ = name
        function.__doc__ = f"`{name.removeprefix('_foreach_')}` for every tensor of a list."
    return made


def _shown(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which dispatch modes see as one operator."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        from torchlike._ops import modes

        if not modes.stack() or _C._dispatch_handlers(modes.tensors(args)):
            # Transforms take none of them for a write to what they captured.
            looking = _C._transforms_look(False)
            try:
                return function(*args, **kwargs)
            finally:
                _C._transforms_look(looking)
        made = getattr(torch.ops.aten, name)(*args, **kwargs)
        if name.endswith("_"):
            return args[0] if args else kwargs["self"]
        return tuple(made)

    return call


globals().update(_all())
__all__ = [name for name in globals() if name.startswith("_foreach")]
globals().update({name: _shown(name, globals()[name]) for name in __all__})
