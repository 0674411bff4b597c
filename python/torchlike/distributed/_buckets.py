"""Gradients that are exchanged together."""

from __future__ import annotations

from typing import Any

import torchlike as torch


class GradBucket:
    """The gradients of some parameters as one flat tensor, for a hook to reduce."""

    def __init__(self, index: int, parameters: list[Any], is_last: bool) -> None:
        self._index, self._parameters, self._is_last = index, parameters, is_last
        grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        self._buffer = torch.cat([g.reshape(-1) for g in grads])

    def index(self) -> int:
        """Its place among all."""
        return self._index

    def buffer(self) -> Any:
        """The gradients, one after the other."""
        return self._buffer

    def set_buffer(self, buffer: Any) -> None:
        """Puts another tensor in place of the gradients."""
        self._buffer = buffer

    def gradients(self) -> list[Any]:
        """The gradients as the parameters' shapes."""
        counts = [p.numel() for p in self._parameters]
        parts = zip(self._buffer.split(counts), self._parameters, strict=True)
        return [part.view(p.shape) for part, p in parts]

    def is_last(self) -> bool:
        """Whether no other comes after it."""
        return self._is_last

    def parameters(self) -> list[Any]:
        """The parameters."""
        return list(self._parameters)

    def give(self, reduced: Any) -> None:
        """Gives the parameters what was made of the gradients."""
        counts = [p.numel() for p in self._parameters]
        for part, p in zip(reduced.view(-1).split(counts), self._parameters, strict=True):
            if p.grad is None:
                p.grad = torch.zeros_like(p)
            p.grad.copy_(part.view(p.shape))
