"""Checks that programs make of themselves: `_assert`, `_check` and its kin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike import _C

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "_assert",
    "_assert_async",
    "_assert_scalar",
    "_assert_tensor_metadata",
    "_check",
    "_check_index",
    "_check_is_size",
    "_check_not_implemented",
    "_check_tensor_all",
    "_check_tensor_all_with",
    "_check_type",
    "_check_value",
    "_check_with",
    "_has_compatible_shallow_copy_type",
    "_is_functional_tensor",
    "sym_constrain_range",
    "sym_constrain_range_for_size",
]

Message = Any


def _assert(condition: Any, message: str) -> None:
    """Raises: AssertionError with the message, unless the condition holds."""
    assert condition, message


def _assert_async(input: Any, assert_msg: str = "") -> None:
    """Raises: RuntimeError if the one element of a tensor is zero; a tensor without values passes."""
    if not input.is_meta and not input:
        text = "Expected Tensor with single nonzero value, but got zero"
        raise RuntimeError(assert_msg or text)


def _assert_scalar(scalar: Any, assert_msg: str) -> None:
    """Raises: RuntimeError with the message if a number is zero."""
    if not scalar:
        raise RuntimeError(assert_msg)


def _assert_tensor_metadata(
    a: Any,
    size: Any = None,
    stride: Any = None,
    dtype: Any = None,
    *,
    device: Any = None,
    layout: Any = None,
) -> None:
    """Raises: RuntimeError if a tensor has another shape, stride, type, device or layout than those that are given."""
    compared = (
        ("sizes", None if size is None else list(size), list(a.shape)),
        ("strides", None if stride is None else list(stride), stride and list(a.stride())),
        ("dtype", dtype, a.dtype),
        ("device", None if device is None else _C.device(device), a.device),
        ("layout", layout, a.layout),
    )
    for what, wanted, found in compared:
        if wanted is not None and wanted != found:
            raise RuntimeError(f"Tensor {what} mismatch! Expected: {wanted}, Got: {found}")


def sym_constrain_range(size: Any, *, min: Any = None, max: Any = None) -> None:
    """Raises: RuntimeError if a number is not in a range, or the range is empty."""
    low, high = -(1 << 63) if min is None else min, (1 << 63) - 1 if max is None else max
    if high < low:
        raise RuntimeError(f"Max must be greater than or equal to min. Got min={low} max={high}")
    if not low <= size <= high:
        raise RuntimeError(f"Invalid value range for {size} between [{low}, {high}].")


def sym_constrain_range_for_size(size: Any, *, min: Any = None, max: Any = None) -> None:
    """Raises: RuntimeError if a size is not in a range, which has to end above 2."""
    if max is not None and max <= 2:
        raise RuntimeError(
            f"Max value to constrain_range_for_size must be greater than 2. got: {max}"
        )
    sym_constrain_range(size, min=0 if min is None else min, max=max)


def _check_with(error_type: type[Exception], cond: bool, message: Callable[[], str] | None) -> None:
    """Raises an exception of a type unless a truth value holds; `message` gives its text."""
    if not isinstance(cond, bool):
        hint = ""
        if isinstance(cond, _C.Tensor):
            hint = " For tensor conditions, use torch._check_tensor_all() to assert that all elements are true."
            raise TypeError(f"cond must be a bool, but got a Tensor.{hint}")
        raise TypeError(f"cond must be a bool, but got {type(cond)}")
    if cond:
        return
    if message is None:
        text = (
            "Expected cond to be True, but got False. (Could this error "
            "message be improved? If so, please report an enhancement request to PyTorch.)"
        )
    elif callable(message):
        text = str(message())
    else:
        raise TypeError("message must be a callable")
    raise error_type(text)


def _check(cond: Any, message: Message = None) -> None:
    """Raises: RuntimeError unless a truth value holds."""
    _check_with(RuntimeError, cond, message)


def _check_index(cond: Any, message: Message = None) -> None:
    """Raises: IndexError unless a truth value holds."""
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: Message = None) -> None:
    """Raises: ValueError unless a truth value holds."""
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: Message = None) -> None:
    """Raises: TypeError unless a truth value holds."""
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Message = None) -> None:
    """Raises: NotImplementedError unless a truth value holds."""
    _check_with(NotImplementedError, cond, message)


def _check_is_size(i: int, message: Message = None, *, max: int | None = None) -> None:
    """Raises: RuntimeError unless a number can be a size (of at most `max`)."""
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_tensor_all_with(error_type: type[Exception], cond: Any, message: Message = None) -> None:
    """Raises an exception of a type unless all elements are true."""
    if not isinstance(cond, _C.Tensor):
        raise TypeError(f"cond must be a tensor, but got {type(cond)}")
    if cond.dtype != _C.bool:
        raise TypeError(f"cond tensor must have dtype torch.bool, but got {cond.dtype}")
    _check_with(error_type, bool(cond.all().item()), message)


def _check_tensor_all(cond: Any, message: Message = None) -> None:
    """Raises: RuntimeError unless all elements are true."""
    _check_tensor_all_with(RuntimeError, cond, message)


def _is_functional_tensor(t: Any) -> bool:
    """False: tensors are never wrapped."""
    return False


def _has_compatible_shallow_copy_type(a: Any, b: Any) -> bool:
    """Whether a tensor can take over what another consists of: they have the same kind of device and layout."""
    return a.device.type == b.device.type and a.layout == b.layout
