"""Conjugation and signs that tensors only note: operators that do not know of them get copies without."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike._ops import modes, ops

if TYPE_CHECKING:
    from torchlike._ops import OpOverload

aten: Any = ops.aten

# Operators that read such tensors themselves, besides those that make views.
_READ = frozenset(
    (
        "_conj_physical",
        "_linalg_svd",
        "addmm",
        "baddbmm",
        "bmm",
        "clone",
        "conj_physical",
        "conj_physical_",
        "copy_",
        "dot",
        "empty_like",
        "full_like",
        "linalg_solve_triangular",
        "mm",
        "repeat_interleave",
        "requires_grad_",
        "set_",
        "vdot",
        "view_as_real",
    )
)

# The same in place: only how a tensor is looked at changes.
_VIEWS = frozenset(("detach_", "squeeze_", "t_", "transpose_", "unsqueeze_"))


def _noted(value: Any) -> bool:
    return isinstance(value, _C.Tensor) and (value.is_conj() or value.is_neg())


def ask(overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The answer of those who watch, who see such operands copied first, and what was written copied back."""
    name, arguments = overload._opname, overload._schema.arguments
    writes = [a.alias_info is not None and a.alias_info.is_write for a in arguments]
    makes_view = not any(writes) and any(a.alias_info is not None for a in arguments)
    if makes_view or name in _READ or name in _VIEWS:
        return modes.answer(overload, args, kwargs)

    def plain(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return type(value)(plain(v) for v in value)
        return aten.clone(value) if _noted(value) else value

    copies = tuple(plain(value) for value in args)
    answer = modes.answer(overload, copies, {n: plain(value) for n, value in kwargs.items()})
    for written, given, copy in zip(writes, args, copies, strict=False):
        if written and copy is not given:
            aten.copy_(given, copy)
            answer = given if answer is copy else answer
    return answer
