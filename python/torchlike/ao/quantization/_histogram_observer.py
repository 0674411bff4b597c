"""The observer of histograms, whose arithmetic is in `_histogram.py`."""

from __future__ import annotations

import warnings
from typing import Any

import torchlike as torch
from torchlike import Tensor
from torchlike.ao.quantization import _histogram
from torchlike.ao.quantization._observer_base import (
    EPS,
    PER_TENSOR,
    UniformQuantizationObserverBase,
    limits,
)


class HistogramObserver(UniformQuantizationObserverBase):
    """Notes how often values occur, and chooses the range that loses the least when it is rounded to integers.

    Args:
        bins: how many intervals of values are told apart.
    """

    __module__ = "torchlike.ao.quantization.observer"  # where PyTorch has it, and pickles say it is

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
