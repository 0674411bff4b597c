"""Observers: modules that pass tensors on and note what their scale and zero point would be as integers."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import Tensor, _absent
from torchlike.ao.quantization._histogram_observer import HistogramObserver
from torchlike.ao.quantization._observer_base import (
    EPS,
    FLOAT_ZERO,
    PER_CHANNEL,
    PER_TENSOR,
    Later,  # noqa: F401  (where pickles look for it)
    ObserverBase,
    UniformQuantizationObserverBase,
    _with_args,  # noqa: F401  (where PyTorch has it)
    _with_callable_args,  # noqa: F401  (where PyTorch has it)
)

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

globals().update(
    _absent.names(
        __name__,
        "values have one scale, or one a channel",
        "AffineQuantizedObserverBase Granularity MappingType PerAxis PerBlock PerGroup PerRow PerTensor PerToken "
        "TorchAODType ZeroPointDomain get_block_size get_observer_state_dict load_observer_state_dict",
    )
)


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


def _is_activation_post_process(module: Any) -> bool:
    """Whether a module observes values, or rounds them."""
    from torchlike.ao.quantization.fake_quantize import FakeQuantizeBase

    return isinstance(module, ObserverBase | FakeQuantizeBase)
