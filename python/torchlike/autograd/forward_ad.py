"""Forward-mode gradients: dual tensors, which carry their derivative with them."""

from __future__ import annotations

from contextlib import ContextDecorator
from typing import TYPE_CHECKING, Any, NamedTuple

from torchlike import _C

if TYPE_CHECKING:
    from torchlike._C import Tensor

__all__ = [
    "UnpackedDualTensor",
    "dual_level",
    "enter_dual_level",
    "exit_dual_level",
    "make_dual",
    "unpack_dual",
]

# The number of the open level as users see it: 0, or -1 if there is none.
_current_level = -1
# Its number in the core, where levels nest and no number is used twice.
_number = 0


class UnpackedDualTensor(NamedTuple):
    """A tensor without its tangent, and the tangent."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Opens a level, and gives its number.

    Raises:
        RuntimeError: if one is open already.
    """
    global _current_level, _number
    if _current_level >= 0:
        raise RuntimeError("Nested forward mode AD is not supported at the moment")
    _number = _C._enter_dual_level()
    _current_level = 0
    return _current_level


def exit_dual_level(*, level: int | None = None) -> None:
    """Closes the level; tangents made since it was opened are gone.

    Raises:
        RuntimeError: if `level` is not the open one.
    """
    global _current_level
    if level is None:
        level = _current_level
    if level != _current_level:
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not "
            "supported."
        )
    if level < 0:
        raise RuntimeError("Dual level must be a positive number.")
    _C._exit_dual_level(_number)
    _current_level -= 1


def _checked(value: Any, name: str) -> None:
    if not (value.is_floating_point() or value.is_complex()):
        raise ValueError(f"Expected {name} to be floating point or complex, but got: {value.dtype}")


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A dual tensor: a view of `tensor` whose derivative is `tangent`, of the same size.

    Raises:
        RuntimeError: outside of a level, for a tangent of another size, and for a dual tensor.
        ValueError: for tensors of integers.
    """
    if level is None:
        level = _current_level
    if level < 0:
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD but no level exists, make sure to "
            "enter_dual_level() first."
        )
    _checked(tensor, "primal")
    _checked(tangent, "tangent")
    with _set_fwd_grad_enabled(False):
        view = tensor.view_as(tensor)
    if _C._without_tangent(tensor, _number)[1] is not None:
        view = tensor
    return _C._with_tangent(view, tangent, _number)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """A dual tensor's value and tangent; no tangent for any other tensor."""
    if level is None:
        level = _current_level
    if level < 0:
        return UnpackedDualTensor(tensor, None)
    return UnpackedDualTensor(*_C._without_tangent(tensor, _number))


class dual_level(ContextDecorator):
    """Inside, a level is open: dual tensors can be made, and their calls give dual tensors."""

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: object) -> None:
        exit_dual_level()


class _set_fwd_grad_enabled(ContextDecorator):
    """Inside, tangents are computed, or not."""

    def __init__(self, mode: bool) -> None:
        self._before = _C._set_fwd_grad_enabled(mode)
        self._mode = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        _C._set_fwd_grad_enabled(self._before)
