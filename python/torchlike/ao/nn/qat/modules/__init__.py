"""Layers that round their weights as quantised ones would."""

from torchlike.ao.nn.qat.modules.conv import Conv1d, Conv2d, Conv3d
from torchlike.ao.nn.qat.modules.embedding_ops import Embedding, EmbeddingBag
from torchlike.ao.nn.qat.modules.linear import Linear

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Embedding", "EmbeddingBag", "Linear"]
