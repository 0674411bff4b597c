"""What observers share: schemes and ranges of integers, classes with some of their arguments, and the bases, the second
of which computes scales and zero points from the smallest and the largest values."""

from __future__ import annotations

import functools
import warnings
from abc import ABC, abstractmethod
from typing import Any

import torchlike as torch
from torchlike import Tensor, nn
from torchlike.ao.quantization.utils import scales_of

_HOME = (
    "torchlike.ao.quantization.observer"  # the module of the classes, where pickles look for them
)
EPS = torch.finfo(torch.float32).eps
PER_TENSOR = (torch.per_tensor_affine, torch.per_tensor_symmetric)
FLOAT_ZERO = torch.per_channel_affine_float_qparams
PER_CHANNEL = (torch.per_channel_affine, torch.per_channel_symmetric, FLOAT_ZERO)
SYMMETRIC = (torch.per_tensor_symmetric, torch.per_channel_symmetric)
_UNSIGNED = (torch.quint8, torch.uint8)
_RANGES = {
    torch.qint8: (-128, 127), torch.int8: (-128, 127), torch.quint8: (0, 255), torch.uint8: (0, 255),
    torch.qint32: (-(2**31), 2**31 - 1), torch.int32: (-(2**31), 2**31 - 1), torch.uint16: (0, 2**16 - 1),
    torch.int16: (-(2**15), 2**15 - 1), torch.quint4x2: (0, 15), torch.float8_e5m2: (0, 15),
    torch.float8_e4m3fn: (0, 15),
}  # fmt: skip


def limits(dtype: Any) -> tuple[int, int]:
    """The smallest and the largest integer of a dtype; those of 4 bits are kept in bytes."""
    return (0, 255) if dtype == torch.quint4x2 else _RANGES[dtype]


class Later:
    """A class with some of its arguments: called, it makes an instance with the rest."""

    __module__ = _HOME

    def __init__(self, p: functools.partial[Any]) -> None:
        self.p = p
        self.callable_args: dict[str, Any] = {}

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        made = {n: f() for n, f in self.callable_args.items() if n not in keywords}
        return self.p(*args, **{**made, **keywords})

    def __repr__(self) -> str:
        return repr(self.p) + repr(self.callable_args)

    def with_args(self, **kwargs: Any) -> Later:
        """The same with more arguments."""
        made = Later(functools.partial(self, **kwargs))
        made.callable_args = {**self.callable_args}
        return made

    def with_callable_args(self, **kwargs: Any) -> Later:
        """The same with arguments that are computed when an instance is made."""
        made = self.with_args()
        made.callable_args = {**self.callable_args, **kwargs}
        return made


def _with_args(cls: Any, /, **kwargs: Any) -> Later:
    """The class with some of its arguments."""
    return Later(functools.partial(cls, **kwargs))


def _with_callable_args(cls: Any, /, **kwargs: Any) -> Later:
    """The class with arguments that are computed when an instance is made."""
    return _with_args(cls).with_callable_args(**kwargs)


def _range(low: Any, high: Any, dtype: Any, reduce: bool) -> tuple[int, int]:
    """The smallest and largest integer; given ones are checked."""
    if low is None or high is None:
        first, last = _RANGES[dtype]
        if reduce and last - first == 255:
            return (first // 2, last // 2) if first else (0, 127)
        return first, last
    if not low <= 0 <= high:
        raise AssertionError("Used-specified quantization range must include 0.")
    if low >= high:
        raise AssertionError(
            "qmin must be strictly less than qmax for user-specified quantization range."
        )
    limit = {torch.qint8: 256, torch.int8: 256, torch.qint32: 2**32, torch.int32: 2**32}.get(dtype)
    if limit is not None and high - low + 1 > limit:
        raise AssertionError(
            f"quantization range should be positive and not exceed the maximum bit range (={limit})."
        )
    return (low // 2, high // 2) if reduce else (low, high)


class ObserverBase(ABC, nn.Module):
    """What looks at values to choose a scale."""

    __module__ = _HOME

    def __init__(self, dtype: Any, is_dynamic: bool = False) -> None:
        super().__init__()
        self.dtype = dtype
        self.is_dynamic = is_dynamic

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """Notes a tensor and gives it back."""

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> Any:
        """The scale and the zero point of what was noted."""

    with_args = classmethod(_with_args)
    with_callable_args = classmethod(_with_callable_args)


class UniformQuantizationObserverBase(ObserverBase):
    """What computes scales and zero points from the smallest and the largest values.

    Args:
        dtype: of the integers; `quant_min` and `quant_max` narrow their range, and `reduce_range` halves it.
        qscheme: one scale or one a channel, and whether zero stands in the middle.
        eps: the smallest scale.

    Raises:
        AssertionError: for other dtypes and schemes, or a range that is none.
    """

    __module__ = _HOME

    _version = 3
    eps: Tensor
    min_val: Tensor
    max_val: Tensor

    def __init__(
        self,
        dtype: Any = torch.quint8,
        qscheme: Any = torch.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: Any = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        if reduce_range:
            warnings.warn(
                "Please use quant_min and quant_max to specify the range for observers. "
                "reduce_range will be deprecated in a future release of PyTorch.",
                stacklevel=2,
            )
        if qscheme not in PER_TENSOR + PER_CHANNEL:
            raise AssertionError(
                "Default Observer only works for per_tensor_affine, per_tensor_symmetric, per_channel_affine, "
                "per_channel_symmetric and per_channel_float_qparams quantization scheme"
            )
        if dtype not in _RANGES:
            raise AssertionError(f"Default Observer only works for {tuple(_RANGES)} data type")
        self.qscheme = qscheme
        self.reduce_range = reduce_range
        self._factory = dict(factory_kwargs or {})
        self.register_buffer("eps", torch.tensor([eps], **self._factory))
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        self.quant_min, self.quant_max = _range(quant_min, quant_max, dtype, reduce_range)
        if qscheme in SYMMETRIC and reduce_range and dtype == torch.quint8:
            raise NotImplementedError("Cannot reduce range for symmetric quantization for quint8")

    def _calculate_qparams(self, min_val: Tensor, max_val: Tensor) -> tuple[Tensor, Tensor]:
        """Scales and zero points `[channels]`, or `[1]`; 1 and 0 where nothing was noted."""
        device = min_val.device
        if not _noted(min_val, max_val):
            return torch.tensor([1.0], device=device), torch.tensor([0], device=device)
        bounds = (self.quant_min, self.quant_max)
        middle = self._middle()
        scale, zero = scales_of(min_val, max_val, bounds, self.qscheme, self.eps, middle)
        return scale.reshape(-1), zero.reshape(-1)

    def _middle(self) -> int:
        """The integer that stands for zero in a symmetric scheme."""
        if self.dtype in _UNSIGNED:
            return (self.quant_min + self.quant_max) // 2 if self.has_customized_qrange else 128
        return 2**15 if self.dtype == torch.uint16 else 0

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """The scale and the zero point of what was noted."""
        return self._calculate_qparams(self.min_val, self.max_val)

    def reset_min_max_vals(self) -> None:
        """Forgets what was noted.

        Raises:
            NotImplementedError: for an observer that does not.
        """
        raise NotImplementedError("Cannot reset min/max values in the given observer.")

    def extra_repr(self) -> str:
        """The smallest and largest values."""
        return f"min_val={self.min_val}, max_val={self.max_val}"


def _noted(min_val: Tensor, max_val: Tensor) -> bool:
    """Whether anything was observed; says so if not.

    Raises:
        AssertionError: if a smallest value is larger than the largest.
    """
    nothing = min_val.numel() == 0 or max_val.numel() == 0
    if nothing or (min_val.numel() == 1 and bool(min_val.isinf()) and bool(max_val < min_val)):
        warnings.warn(
            "must run observer before calling calculate_qparams. Returning default values.",
            stacklevel=4,
        )
        return False
    if bool((min_val > max_val).any()):
        raise AssertionError(f"min {min_val} should be less than max {max_val}")
    return True
