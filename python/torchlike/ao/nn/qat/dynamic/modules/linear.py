"""A linear layer for training whose input will be quantised by its own range."""

from __future__ import annotations

from typing import Any

from torchlike.ao.nn.qat.modules import linear

__all__ = ["Linear"]


class Linear(linear.Linear):
    """A linear layer whose weight is rounded.

    Raises:
        ValueError: if activations are observed for more than one call.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        qconfig: Any = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        from torchlike.ao.quantization.qconfig import _activation_is_memoryless

        super().__init__(in_features, out_features, bias, qconfig, device, dtype)
        if not _activation_is_memoryless(qconfig):
            raise ValueError(
                "Dynamic QAT requires a memoryless observer.This means a MovingAverage observer with averaging "
                "constant equal to 1"
            )
