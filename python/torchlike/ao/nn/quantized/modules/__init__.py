"""Layers of quantised tensors."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import _C, _absent, nn
from torchlike.ao.nn.quantized.modules.activation import (
    ELU,
    Hardswish,
    LeakyReLU,
    PReLU,
    ReLU6,
    Sigmoid,
    Softmax,
)
from torchlike.ao.nn.quantized.modules.batchnorm import BatchNorm2d, BatchNorm3d
from torchlike.ao.nn.quantized.modules.conv import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from torchlike.ao.nn.quantized.modules.dropout import Dropout
from torchlike.ao.nn.quantized.modules.embedding_ops import Embedding, EmbeddingBag
from torchlike.ao.nn.quantized.modules.functional_modules import (
    FloatFunctional,
    FXFloatFunctional,
    QFunctional,
)
from torchlike.ao.nn.quantized.modules.linear import Linear
from torchlike.ao.nn.quantized.modules.normalization import (
    GroupNorm,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
    LayerNorm,
)
from torchlike.nn.modules.pooling import MaxPool2d as MaxPool2d

__all__ = [
    "ELU",
    "LSTM",
    "BatchNorm2d",
    "BatchNorm3d",
    "Conv1d",
    "Conv2d",
    "Conv3d",
    "ConvTranspose1d",
    "ConvTranspose2d",
    "ConvTranspose3d",
    "DeQuantize",
    "Dropout",
    "Embedding",
    "EmbeddingBag",
    "FXFloatFunctional",
    "FloatFunctional",
    "GroupNorm",
    "Hardswish",
    "InstanceNorm1d",
    "InstanceNorm2d",
    "InstanceNorm3d",
    "LayerNorm",
    "LeakyReLU",
    "Linear",
    "MultiheadAttention",
    "PReLU",
    "QFunctional",
    "Quantize",
    "ReLU6",
    "Sigmoid",
    "Softmax",
]

_root: Any = torch
_absent_kinds = _absent.names(
    __name__,
    "recurrent layers and attention are quantised dynamically alone",
    "LSTM MultiheadAttention",
)
LSTM, MultiheadAttention = _absent_kinds["LSTM"], _absent_kinds["MultiheadAttention"]


class Quantize(nn.Module):
    """Quantises tensors of real numbers."""

    def __init__(
        self, scale: float, zero_point: int, dtype: Any, factory_kwargs: Any = None
    ) -> None:
        super().__init__()
        options = nn.factory_kwargs(factory_kwargs)
        self.register_buffer("scale", torch.tensor([scale], **options))
        options.pop("dtype", None)
        self.register_buffer("zero_point", torch.tensor([zero_point], dtype=torch.long, **options))
        self.dtype = dtype

    def forward(self, X: Any) -> Any:
        """The quantised tensor."""
        own: Any = self
        if _C._is_fake(own.scale):  # what it holds is not known
            return _root.quantize_per_tensor(X, own.scale, own.zero_point, self.dtype)
        return _root.quantize_per_tensor(X, float(own.scale), int(own.zero_point), self.dtype)

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> Quantize:
        """What quantises as was observed.

        Raises:
            AssertionError: if nothing observed.
        """
        if not hasattr(mod, "activation_post_process"):
            raise AssertionError(
                f"Module {type(mod).__name__} must have activation_post_process attribute"
            )
        observer = mod.activation_post_process
        scale, zero_point = observer.calculate_qparams()
        return Quantize(scale.float().item(), zero_point.long().item(), observer.dtype)

    def extra_repr(self) -> str:
        """The scale, the zero point and the type."""
        return f"scale={self.scale}, zero_point={self.zero_point}, dtype={self.dtype}"


class DeQuantize(nn.Module):
    """Gives the real numbers of quantised tensors."""

    def forward(self, Xq: Any) -> Any:
        """The real numbers."""
        return Xq.dequantize()

    @staticmethod
    def from_float(mod: Any, use_precomputed_fake_quant: bool = False) -> DeQuantize:
        """The same for any module."""
        return DeQuantize()
