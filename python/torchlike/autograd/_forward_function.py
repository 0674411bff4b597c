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
        versions = [None if t is None else t._version for t in tangents]
        before = _C._set_fwd_grad_enabled(False)
        ctx._forward = True
        try:
            got = function.jvp(ctx, *tangents)
        finally:
            del ctx._forward
            _C._set_fwd_grad_enabled(before)
        got = got if isinstance(got, tuple | list) else (got,)
        if len(got) != len(outputs):
            raise RuntimeError(
                "Function's jvp returned an invalid number of forward gradients (expected "
                f"{len(outputs)} but got {len(got)})"
            )
        outputs = [
            _dual(ctx, i, o, t, list(zip(args, tangents, versions, strict=True)), level)
            for i, (o, t) in enumerate(zip(outputs, got, strict=True))
        ]
    return tuple(outputs) if isinstance(made, tuple) else outputs[0]


def _wanted(ctx: Any, a: Any) -> bool:
    """Whether an input without a tangent gets zeros."""
    return ctx._materialize and isinstance(a, Tensor) and _is_float(a)


def _dual(
    ctx: Any, i: int, output: Any, tangent: Any, given: Sequence[tuple[Any, Any, Any]], level: int
) -> Any:
    """An output with its tangent, which has to lie as the output does: written in place, or a view.

    Args:
        given: each argument, its tangent, and how often that had been written before `jvp`.
    """
    if tangent is None or not isinstance(output, Tensor):
        return output
    if not isinstance(tangent, Tensor):
        kind = type(tangent).__name__
        raise RuntimeError(f"expected Variable or None (got {kind}) for grad output {i}.")
    if any(output is t for t in ctx._constant) or not _is_float(output):
        raise RuntimeError(
            f"Function's jvp returned a gradient at position {i}, but  the corresponding forward output is not a "
            "differentiable Tensor.You should return None at that position instead."
        )
    for a, t, version in given:
        if a is output and t is not None:
            if t._version == version:
                raise RuntimeError(_NOT_WRITTEN)
            if not _is_same(t, tangent):
                raise RuntimeError(_NOT_AS_IS)
        if a is output:
            return output
    if output._is_view():
        _check_view(output, tangent, given)
    return _C._with_tangent(_C._without_tangent(output, level)[0], tangent, level)


_NOT_WRITTEN = (
    "An inplace custom Function is not modifying the forward mode gradients inplace. If the forward is modifying an "
    "input inplace, then the jvp function must modify the corresponding gradient inplace."
)
_NOT_AS_IS = (
    "An inplace custom Function is not returning the forward mode gradients as-is. If the forward is modifying an "
    "input inplace, then the jvp function must modify the gradient inplace and return it as-is."
)


def _check_view(output: Tensor, tangent: Tensor, given: Sequence[tuple[Any, Any, Any]]) -> None:
    """Refuses the tangent of a view of an input that is no view of that input's tangent."""
    for a, t, _ in given:
        if t is None or not isinstance(a, Tensor) or not _shares(a, output):
            continue
        if not tangent._is_view():
            raise RuntimeError(
                "A custom Function's forward is returning a view (or an input as-is) but the jvp is not returning a "
                "view."
            )
        if not _shares(t, tangent):
            # Tangents of views are views, those of dual tensors as they were made are not.
            of = "a view of the same base as" if t._is_view() else "a view of"
            raise RuntimeError(
                f"A custom Function is returning a view but the jvp is not returning {of} the given grad input."
            )


def _is_float(t: Tensor) -> bool:
    return t.is_floating_point() or t.is_complex()


def _is_same(a: Tensor, b: Tensor) -> bool:
    """Whether two handles are of one tensor."""
    return a is b or (
        _shares(a, b) and a.storage_offset() == b.storage_offset() and a.stride() == b.stride()
    )


def _shares(a: Tensor, b: Tensor) -> bool:
    return a.untyped_storage()._cdata == b.untyped_storage()._cdata
