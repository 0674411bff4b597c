"""Distances and angles between vectors."""

from __future__ import annotations

import torchlike as torch
from torchlike.nn import functional as F
from torchlike.nn.modules.module import Module

__all__ = ["CosineSimilarity", "PairwiseDistance"]

Tensor = torch.Tensor


class PairwiseDistance(Module):
    """p-norm of the difference of two vectors."""

    def __init__(self, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False) -> None:
        super().__init__()
        self.norm = p
        self.eps = eps
        self.keepdim = keepdim

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.pairwise_distance(x1, x2, self.norm, self.eps, self.keepdim)


class CosineSimilarity(Module):
    """Cosine of the angle between two vectors."""

    def __init__(self, dim: int = 1, eps: float = 1e-8) -> None:
        super().__init__()
        self.dim = dim
        self.eps = eps

    def forward(self, x1: Tensor, x2: Tensor) -> Tensor:
        return F.cosine_similarity(x1, x2, self.dim, self.eps)
