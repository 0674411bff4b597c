"""Helpers for tests: comparing with tolerances, and making tensors."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from math import ceil, inf, isfinite, prod
from typing import Any

from torchlike import _C
from torchlike._limits import INTEGERS
from torchlike.testing._file_check import FileCheck

__all__ = ["FileCheck", "assert_allclose", "assert_close", "make_tensor"]

# the relative and absolute difference allowed by default; other dtypes have to be equal
_TOLERANCES = {
    _C.float16: (1e-3, 1e-5),
    _C.bfloat16: (1.6e-2, 1e-5),
    _C.float32: (1.3e-6, 1e-5),
    _C.float64: (1e-7, 1e-7),
    _C.complex32: (1e-3, 1e-5),
    _C.complex64: (1.3e-6, 1e-5),
    _C.complex128: (1e-7, 1e-7),
}
_OF_PYTHON = {float: _C.float64, complex: _C.complex128}


class _Mismatch(Exception):
    """A difference, and where it lies."""


class _Comparison:
    """The rules of one call of `assert_close`."""

    def __init__(
        self, rtol: float | None, atol: float | None, equal_nan: bool, **checks: bool
    ) -> None:
        if (rtol is None) != (atol is None):
            missing = "rtol" if rtol is None else "atol"
            raise ValueError(
                f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}."
            )
        self.given = None if rtol is None or atol is None else (rtol, atol)
        self.equal_nan = equal_nan
        self.checks = checks

    def found(self, actual: Any, expected: Any) -> str | None:
        """What differs, in words; None if nothing does."""
        try:
            self.any(actual, expected, ())
        except _Mismatch as difference:
            text, path = difference.args
        else:
            return None
        if not path:
            return str(text)
        item = "".join(f"[{p!r}]" for p in path)
        return f"{text}\n\nThe failure occurred for item {item}"

    def any(self, actual: Any, expected: Any, path: tuple[Any, ...]) -> None:
        """Compares two values, or the values in two containers."""
        if (
            _both(actual, expected, Sequence)
            and not isinstance(actual, str)
            and not isinstance(expected, str)
        ):
            if len(actual) != len(expected):
                lengths = f"{len(actual)} != {len(expected)}"
                raise _Mismatch(f"The length of the sequences mismatch: {lengths}", path)
            for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
                self.any(a, e, (*path, i))
        elif _both(actual, expected, Mapping):
            self.mappings(actual, expected, path)
        elif actual is None or expected is None:
            if actual is not expected:
                raise _Mismatch(f"None mismatch: {actual} is not {expected}", path)
        elif _both(actual, expected, _booleans()):
            if bool(actual) is not bool(expected):
                raise _Mismatch(f"Booleans mismatch: {bool(actual)} is not {bool(expected)}", path)
        elif _both(actual, expected, _numbers()):
            self.numbers(actual, expected, path)
        else:
            self.tensors(*self.as_tensors(actual, expected), path)

    def mappings(self, actual: Any, expected: Any, path: tuple[Any, ...]) -> None:
        missing = [k for k in expected if k not in actual]
        additional = [k for k in actual if k not in expected]
        if missing or additional:
            raise _Mismatch(
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {_sorted(missing)}\n"
                f"Additional keys in the actual mapping: {_sorted(additional)}",
                path,
            )
        for key in _sorted(actual):
            self.any(actual[key], expected[key], (*path, key))

    def tolerances(self, *dtypes: Any) -> tuple[float, float]:
        if self.given is not None:
            return self.given
        pairs = [_TOLERANCES.get(d, (0.0, 0.0)) for d in dtypes]
        return max(p[0] for p in pairs), max(p[1] for p in pairs)

    def numbers(self, actual: Any, expected: Any, path: tuple[Any, ...]) -> None:
        actual, expected = _plain(actual), _plain(expected)
        if self.checks["dtype"] and type(actual) is not type(expected):
            raise _Mismatch(f"The (d)types do not match: {type(actual)} != {type(expected)}.", path)
        dtypes = (_OF_PYTHON.get(type(actual)), _OF_PYTHON.get(type(expected)))
        rtol, atol = self.tolerances(*dtypes)
        both_nan = actual != actual and expected != expected
        if actual == expected or (self.equal_nan and both_nan):
            return
        distance = abs(actual - expected)
        if isfinite(distance) and distance <= atol + rtol * abs(expected):
            return
        raise _Mismatch(_scalars(actual, expected, rtol, atol), path)

    def as_tensors(self, actual: Any, expected: Any) -> tuple[Any, Any]:
        """Two tensors, from tensors or from arrays of one type."""
        related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
        if related and (self.checks["subclasses"] or type(actual) is type(expected)):
            made = [v if isinstance(v, _C.Tensor) else _array(v) for v in (actual, expected)]
            if None not in [m if m is None else 0 for m in made]:
                return made[0], made[1]
        raise TypeError(
            f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}."
        )

    def tensors(self, actual: Any, expected: Any, path: tuple[Any, ...]) -> None:
        def differ(name: str, a: Any, e: Any) -> _Mismatch:
            return _Mismatch(f"The values for attribute '{name}' do not match: {a} != {e}.", path)

        if actual.shape != expected.shape:
            raise differ("shape", actual.shape, expected.shape)
        for name in ("layout", "device", "dtype"):
            if self.checks[name] and getattr(actual, name) != getattr(expected, name):
                raise differ(name, getattr(actual, name), getattr(expected, name))
        if self.checks["stride"] and actual.stride() != expected.stride():
            raise differ("stride()", actual.stride(), expected.stride())
        if self.checks["metadata_only"] or actual.numel() == 0:
            return
        if actual.is_meta or expected.is_meta:
            raise NotImplementedError(
                "assert_close(): meta tensors have no values to compare; materialize them first, or pass "
                "metadata_only=True to compare shape, dtype, device and layout alone"
            )
        rtol, atol = self.tolerances(actual.dtype, expected.dtype)
        a, e = _comparable(actual.detach(), expected.detach())
        close = _close(a, e, rtol, atol, self.equal_nan)
        if close.all().item():
            return
        if a.ndim == 0:
            raise _Mismatch(_scalars(a.item(), e.item(), rtol, atol), path)
        raise _Mismatch(_elements(a, e, close, rtol, atol), path)


def _both(a: Any, b: Any, kind: Any) -> bool:
    return isinstance(a, kind) and isinstance(b, kind)


def _sorted(keys: Any) -> list[Any]:
    try:
        return sorted(keys)
    except TypeError:
        return list(keys)


def _booleans() -> tuple[type, ...]:
    import numpy as np

    return (bool, np.bool_)


def _numbers() -> tuple[type, ...]:
    import numpy as np

    return (int, float, complex, np.number)


def _plain(value: Any) -> Any:
    return (
        value
        if isinstance(value, int | float | complex) and type(value).__module__ == "builtins"
        else value.item()
    )


def _array(value: Any) -> Any:
    if hasattr(value, "__array__") or hasattr(value, "__dlpack__"):
        return _C.as_tensor(value)
    return None


def _comparable(a: Any, e: Any) -> tuple[Any, Any]:
    """Both on the CPU and in one dtype; integers in the widest."""
    a, e = (t.cpu() if t.device.type != "cpu" else t for t in (a, e))
    dtype = a.dtype if a.dtype == e.dtype else _C.promote_types(a.dtype, e.dtype)
    if not (dtype.is_floating_point or dtype.is_complex) and dtype != _C.uint64:
        dtype = _C.int64
    elif dtype.itemsize == 1:
        dtype = _C.float32
    return a.to(dtype), e.to(dtype)


def _computable(t: Any) -> Any:
    """The widest integers as doubles: they have no difference of their own."""
    return t.to(_C.float64) if t.dtype == _C.uint64 else t


def _close(a: Any, e: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    close = a == e
    if equal_nan and (a.is_floating_point() or a.is_complex()):
        close = close | ((a != a) & (e != e))
    if rtol == 0 and atol == 0:
        return close
    distance = (_computable(a) - _computable(e)).abs()
    allowed = _computable(e).abs() * rtol + atol
    return close | ((distance < inf) & (distance <= allowed))


def _allowed(tolerance: float) -> str:
    return f" (up to {tolerance} allowed)"


def _scalars(actual: Any, expected: Any, rtol: float, atol: float) -> str:
    equal = rtol == 0 and atol == 0
    distance = abs(actual - expected)
    relative = inf if expected == 0 else distance / abs(expected)
    return (
        f"Scalars are not {'equal' if equal else 'close'}!\n\n"
        f"Expected {expected} but got {actual}.\n"
        f"Absolute difference: {distance}{'' if equal else _allowed(atol)}\n"
        f"Relative difference: {relative}{'' if equal else _allowed(rtol)}"
    )


def _elements(a: Any, e: Any, close: Any, rtol: float, atol: float) -> str:
    equal = rtol == 0 and atol == 0
    wrong, total = int((~close).sum().item()), a.numel()
    distance = (_computable(a) - _computable(e)).abs()
    absolute = distance.masked_fill(close, 0)
    relative = (distance / _computable(e).abs()).masked_fill(close, 0)

    def greatest(values: Any) -> str:
        flat = values.reshape(-1)
        at = int(flat.argmax().item())
        return f"{flat[at].item()} at index {_unravel(at, a.shape)}"

    return (
        f"Tensor-likes are not {'equal' if equal else 'close'}!\n\n"
        f"Mismatched elements: {wrong} / {total} ({wrong / total:.1%})\n"
        f"Greatest absolute difference: {greatest(absolute)}{'' if equal else _allowed(atol)}\n"
        f"Greatest relative difference: {greatest(relative)}{'' if equal else _allowed(rtol)}"
    )


def _unravel(flat: int, shape: Any) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        flat, i = divmod(flat, size)
        index.append(i)
    return tuple(reversed(index))


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
    metadata_only: bool = False,
) -> None:
    """Raises AssertionError unless `actual` and `expected` agree.

    Values agree if they differ by at most `atol + rtol * abs(expected)`; the defaults depend on the dtype, and
    integers have to be equal. Sequences and mappings are compared item by item. Meta tensors have no values:
    comparing them raises, unless `metadata_only` asks for shapes, dtypes, devices and layouts alone.
    """
    __tracebackhide__ = True
    rules = _Comparison(
        rtol,
        atol,
        equal_nan,
        subclasses=allow_subclasses,
        device=check_device,
        dtype=check_dtype,
        layout=check_layout,
        stride=check_stride,
        metadata_only=metadata_only,
    )
    text = rules.found(actual, expected)
    if text is None:
        return
    if msg is not None:
        text = msg(text) if callable(msg) else msg
    raise AssertionError(text)


def assert_allclose(
    actual: Any,
    expected: Any,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = True,
    msg: str = "",
) -> None:
    """The older form of `assert_close`, which looks at the values only."""
    if not isinstance(actual, _C.Tensor):
        actual = _C.tensor(actual)
    if not isinstance(expected, _C.Tensor):
        expected = _C.tensor(expected, dtype=actual.dtype)
    if rtol is None and atol is None:
        pairs = [_TOLERANCES.get(t.dtype, (0.0, 0.0)) for t in (actual, expected)]
        rtol, atol = max(p[0] for p in pairs), max(p[1] for p in pairs)
    assert_close(
        actual,
        expected,
        rtol=rtol,
        atol=atol,
        equal_nan=equal_nan,
        check_device=True,
        check_dtype=False,
        msg=msg or None,
    )


def make_tensor(
    *shape: Any,
    dtype: Any,
    device: Any,
    low: float | None = None,
    high: float | None = None,
    requires_grad: bool = False,
    noncontiguous: bool = False,
    exclude_zero: bool = False,
    memory_format: Any = None,
) -> Any:
    """A tensor with random values in [`low`, `high`); by default within [-9, 9), integers within [-9, 10).

    Bounds beyond what the dtype holds are moved to its own.

    Raises:
        ValueError: for bounds that are no numbers or hold no value of the dtype, and options that exclude each other.
        TypeError: for dtypes without random values.
    """
    size = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else tuple(shape)
    if noncontiguous and memory_format is not None:
        raise ValueError(
            "The parameters `noncontiguous` and `memory_format` are mutually exclusive, "
            f"but got noncontiguous={noncontiguous!r} and memory_format={memory_format!r}"
        )
    inexact = dtype.is_floating_point or dtype.is_complex
    if requires_grad and not inexact:
        raise ValueError(
            f"`requires_grad=True` is not supported for boolean and integral dtypes, but got dtype={dtype!r}"
        )
    padded = size
    if noncontiguous and prod(size) > 1:
        padded = (*size[:-1], 2 * size[-1])
    made = _random(padded, dtype, device, *_bounds(dtype, low, high))
    if padded != size:
        made = made[..., 1::2]
    elif memory_format is not None:
        made = made.clone(memory_format=memory_format)
    if exclude_zero:
        from torchlike._limits import finfo

        made[made == 0] = finfo(dtype).tiny if inexact else 1
    return made.requires_grad_() if requires_grad else made


def _bounds(dtype: Any, low: float | None, high: float | None) -> tuple[Any, Any]:
    """The bounds of random values within what a dtype holds."""
    from torchlike._limits import finfo, iinfo

    inexact = dtype.is_floating_point or dtype.is_complex
    if inexact:
        least, most, usual = finfo(dtype).min, finfo(dtype).max, (-9, 9)
    elif dtype == _C.bool:
        least, most, usual = 0, 2, (0, 2)
    elif dtype in INTEGERS:
        # `randint` takes the limit itself as an int64.
        least, most, usual = iinfo(dtype).min, iinfo(dtype).max + (dtype != _C.int64), (-9, 10)
    else:
        raise TypeError(
            f"The requested dtype '{dtype}' is not supported by torch.testing.make_tensor(). "
            "To request support, file an issue at: https://github.com/pytorch/pytorch/issues"
        )
    low, high = usual[0] if low is None else low, usual[1] if high is None else high
    if low != low or high != high:
        raise ValueError(f"`low` and `high` cannot be NaN, but got {low=} and {high=}")
    if low == high and inexact:
        warnings.warn(
            "Passing `low==high` to `torch.testing.make_tensor` for floating or complex types is deprecated since 2.1 "
            "and will be removed in 2.3. Use `torch.full(...)` instead.",
            FutureWarning,
            stacklevel=3,
        )
    elif low >= high:
        raise ValueError(f"`low` must be less than `high`, but got {low} >= {high}")
    elif high < least or low >= most:
        raise ValueError(
            f"The value interval specified by `low` and `high` is [{low}, {high}), "
            f"but {dtype} only supports [{least}, {most})"
        )
    low, high = min(max(low, least), most), min(max(high, least), most)
    return (low, high) if inexact else (ceil(low), ceil(high))


def _random(size: tuple[int, ...], dtype: Any, device: Any, low: Any, high: Any) -> Any:
    root = _C._root
    if dtype == _C.bool or dtype in INTEGERS:
        return root.randint(low, high, size, device=device, dtype=dtype)
    wide = _C.float32 if dtype.itemsize == 1 else dtype
    made = root.empty(size, device=device, dtype=wide)
    real = root.view_as_real(made) if dtype.is_complex else made
    # `uniform_` refuses ranges that its dtype cannot hold.
    from torchlike._limits import finfo

    if high - low >= finfo(wide).max:
        real.uniform_(low / 2, high / 2).mul_(2)
    else:
        real.uniform_(low, high)
    return made.to(dtype)
