"""Modules that round values as integers would, and learn the scale while they do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import torchlike as torch
from torchlike import Tensor, nn
from torchlike.ao.quantization import observer as observers
from torchlike.ao.quantization._observer_base import (
    EPS,
    FLOAT_ZERO,
    PER_CHANNEL,
    PER_TENSOR,
    SYMMETRIC,
    Later,
    limits,
)
from torchlike.ao.quantization.observer import (
    HistogramObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
)

__all__ = [
    "FakeQuantize",
    "FakeQuantizeBase",
    "FixedQParamsFakeQuantize",
    "FusedMovingAvgObsFakeQuantize",
    "default_affine_fixed_qparams_fake_quant",
    "default_dynamic_fake_quant",
    "default_embedding_fake_quant",
    "default_embedding_fake_quant_4bit",
    "default_fake_quant",
    "default_fixed_qparams_range_0to1_fake_quant",
    "default_fixed_qparams_range_neg1to1_fake_quant",
    "default_fused_act_fake_quant",
    "default_fused_per_channel_wt_fake_quant",
    "default_fused_wt_fake_quant",
    "default_histogram_fake_quant",
    "default_per_channel_weight_fake_quant",
    "default_symmetric_fixed_qparams_fake_quant",
    "default_weight_fake_quant",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "fused_per_channel_wt_fake_quant_range_neg_127_to_127",
    "fused_wt_fake_quant_range_neg_127_to_127",
]


class FakeQuantizeBase(ABC, nn.Module):
    """What rounds values as a quantised model would; rounding and observing can be switched off."""

    fake_quant_enabled: Tensor
    observer_enabled: Tensor
    scale: Tensor
    zero_point: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fake_quant_enabled", torch.tensor([1], dtype=torch.uint8))
        self.register_buffer("observer_enabled", torch.tensor([1], dtype=torch.uint8))

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """The rounded values."""

    @abstractmethod
    def calculate_qparams(self, **kwargs: Any) -> Any:
        """The scale and the zero point."""

    def enable_fake_quant(self, enabled: bool = True) -> None:
        """Says whether values are rounded."""
        self.fake_quant_enabled[0] = int(enabled)

    def disable_fake_quant(self) -> None:
        """Values pass as they are."""
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        """Says whether values are noted."""
        self.observer_enabled[0] = int(enabled)

    def disable_observer(self) -> None:
        """The scale stays as it is."""
        self.enable_observer(False)

    @classmethod
    def with_args(cls, **kwargs: Any) -> Later:
        """The class with some of its arguments."""
        return observers._with_args(cls, **kwargs)


class FakeQuantize(FakeQuantizeBase):
    """Rounds by what an observer noted: `(clamp(round(x / scale + zero_point), min, max) - zero_point) * scale`.

    Args:
        observer: makes the observer, with the other arguments.

    Raises:
        AssertionError: for a range that is none, or goes beyond the dtype.
    """

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        is_dynamic: bool = False,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__()
        if quant_min is not None and quant_max is not None:
            if quant_min > quant_max:
                raise AssertionError("quant_min must be less than or equal to quant_max")
            dtype = observer_kwargs.get("dtype", torch.quint8)
            if isinstance(observer, Later):
                dtype = observer.p.keywords.get("dtype", dtype)
            least, most = limits(dtype)
            if least > quant_min:
                raise AssertionError("quant_min out of bound")
            if quant_max > most:
                raise AssertionError("quant_max out of bound")
            observer_kwargs.update(quant_min=quant_min, quant_max=quant_max)
        seen = self.activation_post_process = observer(is_dynamic=is_dynamic, **observer_kwargs)
        self.quant_min, self.quant_max = seen.quant_min, seen.quant_max
        self.is_dynamic, self.dtype, self.qscheme = seen.is_dynamic, seen.dtype, seen.qscheme
        if self.qscheme not in PER_TENSOR + PER_CHANNEL:
            raise AssertionError(
                "Only per channel and per tensor quantization are supported in fake quantize got qscheme: "
                f"{self.qscheme}"
            )
        of_zero = torch.float32 if self.qscheme == FLOAT_ZERO else torch.int32
        self.register_buffer("scale", torch.tensor([1.0], dtype=torch.float32))
        self.register_buffer("zero_point", torch.tensor([0], dtype=of_zero))
        self.ch_axis = getattr(seen, "ch_axis", -1)
        self.is_per_channel = self.qscheme in PER_CHANNEL

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """The scale and the zero point of what was noted."""
        return self.activation_post_process.calculate_qparams()

    def forward(self, X: Tensor) -> Tensor:
        """Notes the values, and rounds them."""
        if bool(self.observer_enabled[0]):
            self.activation_post_process(X.detach())
            scale, zero = self.calculate_qparams()
            self.scale.resize_(scale.shape).copy_(scale)
            self.zero_point.resize_(zero.shape).copy_(zero)
        return self._rounded(X) if bool(self.fake_quant_enabled[0]) else X

    def _rounded(self, x: Tensor) -> Tensor:
        bounds = (self.activation_post_process.quant_min, self.activation_post_process.quant_max)
        if self.is_per_channel:
            return torch.fake_quantize_per_channel_affine(
                x, self.scale, self.zero_point, self.ch_axis, *bounds
            )
        return torch.fake_quantize_per_tensor_affine(x, self.scale, self.zero_point, *bounds)

    def _shown(self) -> str:
        seen = self.activation_post_process
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, "
            f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}, quant_min={seen.quant_min}, "
            f"quant_max={seen.quant_max}, qscheme={self.qscheme}"
        )

    def extra_repr(self) -> str:
        """What is switched on, the range, the scale and the zero point."""
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, observer_enabled={self.observer_enabled}, "
            f"quant_min={self.activation_post_process.quant_min}, quant_max={self.activation_post_process.quant_max}, "
            f"dtype={self.dtype}, qscheme={self.qscheme}, ch_axis={self.ch_axis}, scale={self.scale}, "
            f"zero_point={self.zero_point}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        for name in ("scale", "zero_point"):
            if prefix + name in state_dict:
                getattr(self, name).resize_(state_dict[prefix + name].shape)
        super()._load_from_state_dict(state_dict, prefix, *rest)


class FixedQParamsFakeQuantize(FakeQuantize):
    """Rounds by a scale and a zero point that were given.

    Raises:
        AssertionError: if the observer has none.
    """

    def __init__(self, observer: Any) -> None:
        super().__init__(observer=observer)
        seen = self.activation_post_process
        if type(seen) is not observers.FixedQParamsObserver:
            raise AssertionError(f"{type(self).__name__}'s observer must be a FixedQParamsObserver")
        if self.qscheme not in PER_TENSOR:
            raise AssertionError(
                f"Only per tensor quantization is supported FixedQParamsFakeQuantize module, got qscheme:{self.qscheme}"
            )
        self._observer_ctr = observer
        self.scale, self.zero_point = seen.scale, seen.zero_point

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """What was given."""
        return self.scale, self.zero_point

    def extra_repr(self) -> str:
        """What is switched on, the scale and the zero point, and the range."""
        return self._shown()


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """Rounds by moving averages of the smallest and the largest values.

    Raises:
        AssertionError: for another observer.
    """

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int = 0,
        quant_max: int = 255,
        **observer_kwargs: Any,
    ) -> None:
        super().__init__(observer, quant_min, quant_max, **observer_kwargs)
        moving = (MovingAverageMinMaxObserver, MovingAveragePerChannelMinMaxObserver)
        if not isinstance(self.activation_post_process, moving):
            raise AssertionError(
                "Fused observer+fake_quant module only works with MovingAverageMinMaxObserver"
            )
        self.register_buffer("fake_quant_enabled", torch.tensor([1], dtype=torch.int64))
        self.register_buffer("observer_enabled", torch.tensor([1], dtype=torch.int64))
        self.is_symmetric_quant = self.qscheme in SYMMETRIC

    def calculate_qparams(self) -> Any:  # type: ignore[override]
        """The scale and the zero point; a symmetric range has one integer more below zero than above."""
        seen = self.activation_post_process
        if not self.is_symmetric_quant or not seen.min_val.isfinite().all():
            return super().calculate_qparams()
        half = (seen.quant_max - seen.quant_min) // 2
        low, high = seen.min_val.clamp(max=0), seen.max_val.clamp(min=0)
        scale = torch.max(-low / (half + 1), high / half).clamp(min=EPS).reshape(-1)
        zero = seen.quant_min + half + 1
        return scale, torch.full_like(scale, zero, dtype=torch.int32)

    def extra_repr(self) -> str:
        """What is switched on, the range, the scale and the zero point."""
        return f"{self._shown()}, reduce_range={self.activation_post_process.reduce_range}"


def _switch(name: str, words: str) -> Any:
    def switch(mod: Any) -> None:
        if isinstance(mod, FakeQuantizeBase):
            getattr(mod, name)()

    switch.__name__ = switch.__qualname__ = name
    switch.__doc__ = f"{words}, for a module that rounds; for `model.apply`."
    return switch


disable_fake_quant = _switch("disable_fake_quant", "Values pass as they are")
enable_fake_quant = _switch("enable_fake_quant", "Values are rounded")
disable_observer = _switch("disable_observer", "Values are not noted")
enable_observer = _switch("enable_observer", "Values are noted")

_BYTES = {"quant_min": 0, "quant_max": 255, "dtype": torch.quint8}
_SIGNED = {"quant_min": -128, "quant_max": 127, "dtype": torch.qint8}
_127 = {"quant_min": -127, "quant_max": 127, "dtype": torch.qint8, "eps": 2**-12}
_TENSOR = {"observer": MovingAverageMinMaxObserver}
_CHANNEL = {"observer": MovingAveragePerChannelMinMaxObserver}
_SAME = {"qscheme": torch.per_tensor_symmetric}
_SAME_EACH = {"qscheme": torch.per_channel_symmetric}
_EMBEDDING = {**_CHANNEL, "qscheme": FLOAT_ZERO, "ch_axis": 0, "averaging_constant": 1}
_fused = FusedMovingAvgObsFakeQuantize.with_args

default_fake_quant = FakeQuantize.with_args(
    **_TENSOR, **_BYTES, qscheme=torch.per_tensor_affine, reduce_range=True
)
default_weight_fake_quant = FakeQuantize.with_args(**_TENSOR, **_SIGNED, **_SAME)
default_dynamic_fake_quant = FakeQuantize.with_args(
    **_TENSOR, **_BYTES, is_dynamic=True, averaging_constant=1
)
default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=observers.default_fixed_qparams_range_neg1to1_observer
)
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=observers.default_fixed_qparams_range_0to1_observer
)
default_symmetric_fixed_qparams_fake_quant = default_fixed_qparams_range_neg1to1_fake_quant
default_affine_fixed_qparams_fake_quant = default_fixed_qparams_range_0to1_fake_quant
default_per_channel_weight_fake_quant = FakeQuantize.with_args(
    **_CHANNEL, **_SIGNED, **_SAME_EACH, ch_axis=0
)
default_embedding_fake_quant = FakeQuantize.with_args(**_EMBEDDING, **_BYTES)
default_embedding_fake_quant_4bit = FakeQuantize.with_args(**_EMBEDDING, dtype=torch.quint4x2)
default_histogram_fake_quant = FakeQuantize.with_args(
    observer=HistogramObserver, **_BYTES, qscheme=torch.per_tensor_affine, reduce_range=True
)
default_fused_act_fake_quant = _fused(**_TENSOR, **_BYTES)
default_fused_wt_fake_quant = _fused(**_TENSOR, **_SIGNED, **_SAME)
default_fused_per_channel_wt_fake_quant = _fused(**_CHANNEL, **_SIGNED, **_SAME_EACH)
fused_wt_fake_quant_range_neg_127_to_127 = _fused(**_TENSOR, **_127, **_SAME)
fused_per_channel_wt_fake_quant_range_neg_127_to_127 = _fused(**_CHANNEL, **_127, **_SAME_EACH)
