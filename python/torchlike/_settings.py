"""Questions about tensors and settings of the process that are not operators."""

from __future__ import annotations

import warnings
from typing import Any

from torchlike import _C
from torchlike._function import overridable
from torchlike._once import warn_once

__all__ = [
    "are_deterministic_algorithms_enabled",
    "asarray",
    "get_deterministic_debug_mode",
    "get_device",
    "get_float32_matmul_precision",
    "get_num_interop_threads",
    "is_anomaly_check_nan_enabled",
    "is_anomaly_enabled",
    "is_conj",
    "is_deterministic_algorithms_warn_only_enabled",
    "is_distributed",
    "is_inference",
    "is_neg",
    "is_same_size",
    "is_signed",
    "is_warn_always_enabled",
    "set_deterministic_debug_mode",
    "set_float32_matmul_precision",
    "set_flush_denormal",
    "set_num_interop_threads",
    "set_warn_always",
    "use_deterministic_algorithms",
]

_fill = True
_deterministic = (
    False,
    False,
)  # asked for, with warnings alone: kernels are deterministic in any case
_matmul_precision = "highest"
_interop_threads: int | None = None


def is_anomaly_enabled() -> bool:
    """Whether a backward pass that fails tells where the failing call was made."""
    return _C._anomaly()[0]


def is_anomaly_check_nan_enabled() -> bool:
    """Whether gradients that are no numbers are errors then; true until someone switches it off."""
    return _C._anomaly()[1]


@overridable
def is_conj(input: _C.Tensor) -> bool:
    """True if the tensor is a conjugate view."""
    return input.is_conj()


@overridable
def is_neg(input: _C.Tensor) -> bool:
    """True if the tensor is a negative view."""
    return input.is_neg()


@overridable
def is_inference(input: _C.Tensor) -> bool:
    """True if the tensor was made in inference mode."""
    return input.is_inference()


@overridable
def is_distributed(input: _C.Tensor) -> bool:
    """False: kept for old code."""
    return False


@overridable
def is_signed(input: _C.Tensor) -> bool:
    """True if the dtype has negative numbers."""
    return input.is_signed()


@overridable
def is_same_size(input: _C.Tensor, other: _C.Tensor) -> bool:
    """True if both tensors have one shape."""
    return input.shape == other.shape


@overridable
def get_device(input: _C.Tensor) -> int:
    """The index of the tensor's device, -1 for the CPU and meta."""
    return input.get_device()


def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool | None = None,
) -> _C.Tensor:
    """A tensor from a tensor, an array, a capsule of DLPack's, a buffer, a storage or a nested sequence.

    Memory is shared if possible. The bytes of a buffer are taken for elements of `dtype`, which is the default dtype if
    none is given; those of a storage then for int64. A tensor keeps its history of gradients, unless `requires_grad`
    says that it has none.

    Raises:
        ValueError: if the memory cannot be shared, and `copy=False` asks for it.
    """
    if isinstance(getattr(obj, "_untyped_storage", obj), _C.UntypedStorage):
        obj, dtype = _on_storage(obj, dtype), None
    made = _sharing(obj, dtype, copy)
    if made is None:
        if copy is False:
            raise ValueError("can't alias arbitrary sequence into a tensor.")
        made = _C.tensor(obj, dtype=dtype, device=device)
    elif copy is False:
        if device is not None and _C.device(device) != made.device:
            raise ValueError(
                f"can't alias tensor from device '{made.device}' to '{_C.device(device)}'."
            )
        if dtype not in (None, made.dtype):
            raise ValueError(
                f"can't alias tensor with dtype '{made.dtype._scalar_type}' into dtype '{dtype._scalar_type}'."
            )
    else:
        made = made.to(device=device or made.device, dtype=dtype or made.dtype, copy=bool(copy))
    if requires_grad is None and isinstance(obj, _C.Tensor) and obj.requires_grad:
        warn_once(
            "torch.asarray: unspecified requires_grad now defaults to obj.requires_grad instead of False. "
            "Pass requires_grad=False explicitly to get the old behavior and silence this warning."
        )
    if requires_grad and not made.requires_grad:
        return made.requires_grad_()
    return made.detach() if requires_grad is False and made.requires_grad else made


def _sharing(obj: Any, dtype: Any, copy: bool | None) -> _C.Tensor | None:
    """A tensor on the memory of the object; None if it is none that can share its memory."""
    if isinstance(obj, _C.Tensor):
        return obj
    if isinstance(obj, list | tuple | int | float | complex | str):
        return _of_numpy(obj, copy) if type(obj).__module__ == "numpy" else None
    if hasattr(obj, "__array__"):
        return _of_numpy(obj, copy)
    if type(obj).__name__ == "PyCapsule" or hasattr(obj, "__dlpack__"):
        from torchlike.utils.dlpack import from_dlpack

        return from_dlpack(obj)
    try:
        memoryview(obj)
    except TypeError:
        return None
    return _C.frombuffer(obj, dtype=_C.get_default_dtype() if dtype is None else dtype)


def _of_numpy(obj: Any, copy: bool | None) -> _C.Tensor:
    """A tensor on an array's memory; a number has none that could be shared."""
    import numpy as np

    if not isinstance(obj, np.generic):
        return _C.as_tensor(obj)
    if copy is False:
        raise RuntimeError(
            "can't alias NumPy scalars. Either remove copy=False or transform it in a ndarray. "
        )
    return _C.tensor(obj)


def _on_storage(storage: Any, dtype: Any) -> _C.Tensor:
    """All whole elements of a storage, as a tensor on it."""
    untyped = getattr(storage, "_untyped_storage", storage)
    if untyped is storage:
        dtype = _C.int64 if dtype is None else dtype
    elif dtype not in (None, storage.dtype):
        raise RuntimeError(
            f"Expected a Storage of type {dtype._scalar_type} or an UntypedStorage, "
            f"but got {storage.dtype._scalar_type}"
        )
    else:
        dtype = storage.dtype
    return _C._from_storage(untyped, dtype, (untyped.nbytes() // dtype.itemsize,), (1,), 0)


def set_flush_denormal(mode: bool) -> bool:
    """True if the mode is in force: denormal numbers are always kept."""
    if not isinstance(mode, bool):
        raise RuntimeError(f"flush_denormal expects a bool, but got {type(mode).__name__}")
    return not mode


def _say_deterministic(wish: tuple[bool, bool], fill: bool) -> None:
    global _deterministic, _fill
    _deterministic, _fill = wish, fill
    _C._set_fills_blanks(wish[0] and fill)


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Fills memory that nobody wrote (see `utils.deterministic`); the kernels are deterministic with and without it.

    Raises:
        TypeError: for what is no truth value.
    """
    for name, given in (("'mode' (position 1)", mode), ("'warn_only'", warn_only)):
        if not isinstance(given, bool):
            kind = type(given).__name__
            raise TypeError(
                f"_set_deterministic_algorithms(): argument {name} must be bool, not {kind}"
            )
    _say_deterministic((mode, warn_only), _fill)


def fills_memory() -> bool:
    """Whether that memory is filled while deterministic algorithms are asked for."""
    return _fill


def fill_memory(mode: bool) -> None:
    """Sets it.

    Raises:
        RuntimeError: if it is no truth value.
    """
    if not isinstance(mode, bool):
        raise RuntimeError(f"expected a bool, but got {type(mode).__name__}")
    _say_deterministic(_deterministic, mode)


def are_deterministic_algorithms_enabled() -> bool:
    """True if deterministic kernels were asked for."""
    return _deterministic[0]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """True if they were asked for with a warning in place of an error."""
    return _deterministic[1]


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """`default`, `warn` or `error`, or their numbers 0, 1, 2."""
    modes = {"default": 0, "warn": 1, "error": 2}
    if not isinstance(debug_mode, int | str):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in modes:
            raise RuntimeError(
                f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got {debug_mode}"
            )
        debug_mode = modes[debug_mode]
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(
            f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}"
        )
    _say_deterministic((debug_mode > 0, debug_mode == 1), _fill)


def get_deterministic_debug_mode() -> int:
    """The mode as a number."""
    wanted, warn_only = _deterministic
    return (1 if warn_only else 2) if wanted else 0


def set_float32_matmul_precision(precision: str) -> None:
    """Says how products of float32 matrices may be rounded on GPUs; the host computes them in float32."""
    global _matmul_precision
    if precision not in ("highest", "high", "medium"):
        warnings.warn(
            f"{precision} is not one of 'highest', 'high', or 'medium'; the current"
            f"setFloat32MatmulPrecision call has no effect.",
            stacklevel=2,
        )
        return
    _matmul_precision = precision
    _C._cuda_tf32(False, precision != "highest")


def get_float32_matmul_precision() -> str:
    """What `set_float32_matmul_precision` set."""
    return _matmul_precision


def set_num_interop_threads(num: int) -> None:
    """Remembers the number; operators run one after another."""
    global _interop_threads
    if not isinstance(num, int):
        raise RuntimeError(f"set_num_interop_threads expects an int, but got {type(num).__name__}")
    if num < 1:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
    _interop_threads = num


def get_num_interop_threads() -> int:
    """What `set_num_interop_threads` set, or the number of threads."""
    return _C.get_num_threads() if _interop_threads is None else _interop_threads


def set_warn_always(b: bool) -> None:
    """Sets whether warnings that are given once in a process are given every time."""
    _C._set_warn_always(bool(b))


def is_warn_always_enabled() -> bool:
    """What `set_warn_always` set."""
    return _C._is_warn_always()
