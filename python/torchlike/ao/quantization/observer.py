"""Observers: modules that pass tensors on and note what their scale and zero point would be as integers."""

from __future__ import annotations

import functools
import warnings
from abc import ABC, abstractmethod
from typing import Any

import torchlike as torch
from torchlike import Tensor, _absent, nn
from torchlike.ao.quantization import _histogram

__all__ = [
    "FixedQParamsObserver",
    "HistogramObserver",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "NoopObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
    "RecordingObserver",
    "ReuseInputObserver",
    "UniformQuantizationObserverBase",
    "default_affine_fixed_qparams_observer",
    "default_debug_observer",
    "default_dynamic_quant_observer",
    "default_fixed_qparams_range_0to1_observer",
    "default_fixed_qparams_range_neg1to1_observer",
    "default_float_qparams_observer",
    "default_float_qparams_observer_4bit",
    "default_histogram_observer",
    "default_observer",
    "default_per_channel_weight_observer",
    "default_placeholder_observer",
    "default_reuse_input_observer",
    "default_symmetric_fixed_qparams_observer",
    "default_weight_observer",
    "per_channel_weight_observer_range_neg_127_to_127",
    "weight_observer_range_neg_127_to_127",
]

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


globals().update(
    _absent.names(
        __name__,
        "values have one scale, or one a channel",
        "AffineQuantizedObserverBase Granularity MappingType PerAxis PerBlock PerGroup PerRow PerTensor PerToken "
        "TorchAODType ZeroPointDomain get_block_size get_observer_state_dict load_observer_state_dict",
    )
)


class Later:
    """A class with some of its arguments: called, it makes an instance with the rest."""

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
        low, high = min_val.clamp(max=0), max_val.clamp(min=0)
        steps = float(self.quant_max - self.quant_min)
        zero: Tensor = torch.zeros(low.shape, dtype=torch.int64, device=device)
        if self.qscheme in SYMMETRIC:
            scale = torch.max(torch.max(-low, high) / (steps / 2), self.eps)
            zero = zero.new_full(zero.shape, self._middle())
        elif self.qscheme == FLOAT_ZERO:
            scale = (max_val - min_val) / steps
            scale = torch.where(scale > self.eps, scale, torch.ones_like(scale))
            zero = -1 * min_val / scale
        else:
            scale = torch.max((high - low) / steps, self.eps)
            zero = self.quant_min - torch.round(low / scale).to(torch.int32)
            zero = zero.clamp(self.quant_min, self.quant_max)
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


class MinMaxObserver(UniformQuantizationObserverBase):
    """Notes the smallest and the largest value of all tensors."""

    def __init__(
        self,
        dtype: Any = torch.quint8,
        qscheme: Any = torch.per_tensor_affine,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if qscheme not in PER_TENSOR:
            raise NotImplementedError(
                f"{type(self).__name__}'s qscheme only support torch.per_tensor_symmetric and torch.per_tensor_affine."
            )
        super().__init__(dtype, qscheme, *args, **kwargs)
        self.register_buffer("min_val", torch.tensor(float("inf"), **self._factory))
        self.register_buffer("max_val", torch.tensor(float("-inf"), **self._factory))

    def forward(self, x_orig: Tensor) -> Tensor:
        """Notes a tensor."""
        if x_orig.numel() > 0:
            low, high = torch.aminmax(x_orig.detach().to(self.min_val.dtype))
            self.min_val.copy_(self._joined(self.min_val, low, torch.min))
            self.max_val.copy_(self._joined(self.max_val, high, torch.max))
        return x_orig

    def _joined(self, old: Tensor, new: Tensor, extreme: Any) -> Tensor:
        """What is known after a tensor whose extreme is `new`."""
        made: Tensor = extreme(old, new)
        return made

    def reset_min_max_vals(self) -> None:
        """Forgets what was noted."""
        self.min_val.fill_(float("inf"))
        self.max_val.fill_(float("-inf"))


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Notes moving averages of the smallest and the largest values of tensors.

    Args:
        averaging_constant: how much each new tensor counts.
    """

    def __init__(
        self,
        averaging_constant: float = 0.01,
        dtype: Any = torch.quint8,
        qscheme: Any = torch.per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        if is_dynamic and averaging_constant != 1:
            raise NotImplementedError(
                "MovingAverageMinMaxObserver doesn't support dynamic quantization for averaging constant of "
                f"{averaging_constant}"
            )
        super().__init__(
            dtype,
            qscheme,
            reduce_range,
            quant_min,
            quant_max,
            eps=eps,
            is_dynamic=is_dynamic,
            **kwargs,
        )
        self.averaging_constant = averaging_constant

    def _joined(self, old: Tensor, new: Tensor, extreme: Any) -> Tensor:
        return _averaged(old, new, self.averaging_constant) if bool(old.isfinite()) else new


def _averaged(old: Tensor, new: Tensor, constant: float) -> Tensor:
    made: Tensor = old + constant * (new - old)
    return made


class PerChannelMinMaxObserver(UniformQuantizationObserverBase):
    """Notes the smallest and the largest value of each index of the dimension `ch_axis`."""

    def __init__(
        self,
        ch_axis: int = 0,
        dtype: Any = torch.quint8,
        qscheme: Any = torch.per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        factory_kwargs: Any = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        name = type(self).__name__
        if qscheme not in PER_CHANNEL:
            raise NotImplementedError(
                f"{name}'s qscheme only support torch.per_channel_symmetric, torch.per_channel_affine and "
                "torch.per_channel_affine_float_qparams."
            )
        if is_dynamic:
            raise NotImplementedError(f"{name} doesn't support dynamic quantization")
        super().__init__(
            dtype,
            qscheme,
            reduce_range,
            quant_min,
            quant_max,
            factory_kwargs,
            eps,
            is_dynamic,
            **kwargs,
        )
        self.ch_axis = ch_axis
        self.register_buffer("min_val", torch.tensor([], **self._factory))
        self.register_buffer("max_val", torch.tensor([], **self._factory))

    def forward(self, x_orig: Tensor) -> Tensor:
        """Notes a tensor."""
        if x_orig.numel() > 0:
            rows = x_orig.detach().transpose(0, self.ch_axis).to(self.min_val.dtype).flatten(1)
            low, high = torch.aminmax(rows, dim=1)
            if self.min_val.numel() > 0:
                low = self._joined(self.min_val, low, torch.min)
                high = self._joined(self.max_val, high, torch.max)
            self.min_val.resize_(low.shape).copy_(low)
            self.max_val.resize_(high.shape).copy_(high)
        return x_orig

    def _joined(self, old: Tensor, new: Tensor, extreme: Any) -> Tensor:
        """What is known after a tensor whose extremes are `new`."""
        made: Tensor = extreme(old, new)
        return made

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        for name in ("min_val", "max_val"):
            if prefix + name in state_dict:
                getattr(self, name).resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def reset_min_max_vals(self) -> None:
        """Forgets what was noted."""
        self.min_val = torch.empty(0)
        self.max_val = torch.empty(0)


class MovingAveragePerChannelMinMaxObserver(PerChannelMinMaxObserver):
    """Notes moving averages of the smallest and the largest values of each channel."""

    def __init__(
        self,
        averaging_constant: float = 0.01,
        ch_axis: int = 0,
        dtype: Any = torch.quint8,
        qscheme: Any = torch.per_channel_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = EPS,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            ch_axis,
            dtype,
            qscheme,
            reduce_range,
            quant_min,
            quant_max,
            eps=eps,
            is_dynamic=is_dynamic,
            **kwargs,
        )
        self.averaging_constant = averaging_constant

    def _joined(self, old: Tensor, new: Tensor, extreme: Any) -> Tensor:
        return _averaged(old, new, self.averaging_constant)


class HistogramObserver(UniformQuantizationObserverBase):
    """Notes how often values occur, and chooses the range that loses the least when it is rounded to integers.

    Args:
        bins: how many intervals of values are told apart.
    """

    histogram: Tensor

    def __init__(
        self,
        bins: int = 2048,
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
        if qscheme not in PER_TENSOR:
            raise NotImplementedError(
                "HistogramObserver's qscheme only support torch.per_tensor_symmetric and torch.per_tensor_affine."
            )
        if is_dynamic:
            raise NotImplementedError("HistogramObserver doesn't support dynamic quantization")
        super().__init__(
            dtype,
            qscheme,
            reduce_range,
            quant_min,
            quant_max,
            factory_kwargs,
            eps,
            is_dynamic,
            **kwargs,
        )
        self.bins = bins
        self.register_buffer("histogram", torch.zeros(bins, **self._factory))
        self.register_buffer("min_val", torch.tensor(float("inf"), **self._factory))
        self.register_buffer("max_val", torch.tensor(float("-inf"), **self._factory))
        self.dst_nbins = limits(dtype)[1] - limits(dtype)[0] + 1
        self.upsample_rate = 16

    def forward(self, x_orig: Tensor) -> Tensor:
        """Notes a tensor; infinite values are left out."""
        x = x_orig.detach().reshape(-1)
        if bool(x.isinf().any()):
            warnings.warn("torch.inf detected in input tensor, ignoring input", stacklevel=2)
            x = x[x.isfinite()]
        if x.numel() == 0:
            return x_orig
        low, high = torch.aminmax(x)
        if bool(self.min_val.isinf()):
            counts = torch.histc(x, self.bins, float(low), float(high))
        else:
            low, high = torch.min(self.min_val, low), torch.max(self.max_val, high)
            counts = torch.histc(x, self.bins, float(low), float(high))
            old = (self.histogram, self.min_val, self.max_val)
            counts = counts + _histogram.moved(old, low, high, self.upsample_rate)
        self.histogram.copy_(counts)
        self.min_val.copy_(low)
        self.max_val.copy_(high)
        return x_orig

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """The scale and the zero point of the range that loses the least."""
        if bool(self.min_val.isinf()):
            return self._calculate_qparams(self.min_val, self.max_val)
        if self.bins != len(self.histogram):
            raise AssertionError(
                "The number of bins in histogram should be equal to the number of bins supplied while making this "
                "observer"
            )
        ends = _histogram.best_range(self.histogram, self.min_val, self.max_val, self.dst_nbins)
        return self._calculate_qparams(*ends)


class FixedQParamsObserver(ObserverBase):
    """Passes tensors on; the scale and the zero point were given."""

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        scale: float,
        zero_point: int,
        dtype: Any = torch.quint8,
        qscheme: Any = torch.per_tensor_affine,
        quant_min: int = 0,
        quant_max: int = 255,
        is_dynamic: bool = False,
        **kwargs: Any,
    ) -> None:
        if is_dynamic:
            raise NotImplementedError("FixedQParamsObserver doesn't support dynamic quantization")
        super().__init__(dtype=dtype, is_dynamic=is_dynamic, **kwargs)
        self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
        self.register_buffer("scale", torch.tensor([scale], dtype=torch.float32))
        self.register_buffer("zero_point", torch.tensor([zero_point], dtype=torch.int32))

    def forward(self, X: Any) -> Any:
        """The input."""
        return X

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """What was given."""
        return self.scale, self.zero_point


class _Without(ObserverBase):
    """Passes tensors on and has no scale."""

    def forward(self, x: Any) -> Any:
        """The input."""
        return x

    def calculate_qparams(self, **kwargs: Any) -> Any:
        """Refused: nothing is noted.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(f"calculate_qparams should not be called for {type(self).__name__}")


class PlaceholderObserver(_Without):
    """Passes tensors on; it says a dtype and a range to whoever asks."""

    def __init__(
        self,
        dtype: Any = torch.float32,
        custom_op_name: str = "",
        compute_dtype: Any = None,
        quant_min: int | None = None,
        quant_max: int | None = None,
        qscheme: Any = None,
        eps: float | None = None,
        is_dynamic: bool = False,
    ) -> None:
        super().__init__(dtype=dtype, is_dynamic=is_dynamic or bool(compute_dtype))
        self.qscheme = torch.per_tensor_affine if qscheme is None else qscheme
        self.quant_min, self.quant_max = quant_min, quant_max
        self.eps = EPS if eps is None else eps
        self.custom_op = custom_op_name

    def extra_repr(self) -> str:
        """The dtype."""
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"


class NoopObserver(_Without):
    """Passes tensors on."""

    def __init__(self, dtype: Any = torch.float16, custom_op_name: str = "") -> None:
        super().__init__(dtype=dtype, is_dynamic=False)
        self.custom_op = custom_op_name


class ReuseInputObserver(_Without):
    """Passes tensors on: what is computed has the scale of its input."""

    def __init__(self) -> None:
        super().__init__(torch.quint8, is_dynamic=False)


class RecordingObserver(_Without):
    """Keeps copies of all tensors."""

    def __init__(self, dtype: Any = torch.quint8) -> None:
        super().__init__(dtype=dtype, is_dynamic=False)
        self.tensor_val: list[Tensor] = []

    def forward(self, x: Any) -> Any:
        """Keeps a copy."""
        self.tensor_val.append(x.clone())
        return x

    def get_tensor_value(self) -> list[Tensor]:
        """The copies."""
        return self.tensor_val


_WEIGHTS = {"dtype": torch.qint8, "qscheme": torch.per_tensor_symmetric}
_CHANNELS = {"dtype": torch.qint8, "qscheme": torch.per_channel_symmetric}
_127 = {"quant_min": -127, "quant_max": 127, "eps": 2**-12}
_BYTES = {"dtype": torch.quint8, "quant_min": 0, "quant_max": 255}
_FLOATING = {"qscheme": FLOAT_ZERO, "ch_axis": 0}

default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_debug_observer = RecordingObserver
default_weight_observer = MinMaxObserver.with_args(**_WEIGHTS)
weight_observer_range_neg_127_to_127 = MinMaxObserver.with_args(**_WEIGHTS, **_127)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(**_CHANNELS)
per_channel_weight_observer_range_neg_127_to_127 = PerChannelMinMaxObserver.with_args(
    **_CHANNELS, **_127
)
default_dynamic_quant_observer = PlaceholderObserver.with_args(**_BYTES, is_dynamic=True)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(dtype=torch.quint8, **_FLOATING)
default_float_qparams_observer_4bit = PerChannelMinMaxObserver.with_args(
    dtype=torch.quint4x2, **_FLOATING
)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(
    scale=2.0 / 256.0, zero_point=128, **_BYTES
)
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(
    scale=1.0 / 256.0, zero_point=0, **_BYTES
)
default_symmetric_fixed_qparams_observer = default_fixed_qparams_range_neg1to1_observer
default_affine_fixed_qparams_observer = default_fixed_qparams_range_0to1_observer
default_reuse_input_observer = ReuseInputObserver
