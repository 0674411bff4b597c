"""Functions of the user's in forward mode: tangents by their `jvp`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike._C import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence


def with_tangents(
    function: Any, ctx: Any, args: Sequence[Any], made: Any, levels: Sequence[int]
) -> Any:
    """The outputs of a function, with tangents for the levels that its inputs have some of.

    Raises:
        NotImplementedError: if the function has no `jvp`.
        RuntimeError: if what that gives does not fit the outputs.
    """
    outputs = list(made) if isinstance(made, tuple) else [made]
    for level in levels:
        given = [_C._without_tangent(a, level)[1] if isinstance(a, Tensor) else None for a in args]
        if all(t is None for t in given):
            continue
        tangents = [
            torch.zeros_like(a.detach()) if t is None and _wanted(ctx, a) else t
            for a, t in zip(args, given, strict=True)
        ]
        before = _C._set_fwd_grad_enabled(False)
        try:
            got = function.jvp(ctx, *tangents)
        finally:
            _C._set_fwd_grad_enabled(before)
        got = got if isinstance(got, tuple | list) else (got,)
        if len(got) != len(outputs):
            raise RuntimeError(
                "Function's jvp returned an invalid number of forward gradients (expected "
                f"{len(outputs)} but got {len(got)})"
            )
        outputs = [
            _dual(i, o, t, args, tangents, level)
            for i, (o, t) in enumerate(zip(outputs, got, strict=True))
        ]
    return tuple(outputs) if isinstance(made, tuple) else outputs[0]


def _wanted(ctx: Any, a: Any) -> bool:
    """Whether an input without a tangent gets zeros."""
    return ctx._materialize and isinstance(a, Tensor) and (a.is_floating_point() or a.is_complex())


def _dual(
    i: int, output: Any, tangent: Any, args: Sequence[Any], tangents: Sequence[Any], level: int
) -> Any:
    """An output with its tangent, which has to lie as the output does: written in place, or a view."""
    if tangent is None or not isinstance(output, Tensor):
        return output
    if not isinstance(tangent, Tensor):
        kind = type(tangent).__name__
        raise RuntimeError(f"expected Variable or None (got {kind}) for grad output {i}.")
    for a, t in zip(args, tangents, strict=True):
        if a is output and t is not None and tangent is not t:
            raise RuntimeError(
                "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is "
                "modifying an input inplace, then the jvp function must modify the corresponding gradient inplace."
            )
        if a is output:
            return output
        shares = isinstance(a, Tensor) and a is not output and _shares(a, output)
        if shares and t is not None and output._is_view() and not _shares(t, tangent):
            raise RuntimeError(
                "A custom Function is returning a view but the jvp is not returning a view of the given grad input."
            )
    return _C._with_tangent(_C._without_tangent(output, level)[0], tangent, level)


def _shares(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata
