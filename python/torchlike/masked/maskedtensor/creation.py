"""How tensors with masks are made."""

from __future__ import annotations

from torchlike import Tensor
from torchlike.masked.maskedtensor.core import MaskedTensor

__all__ = ["as_masked_tensor", "masked_tensor"]


def masked_tensor(data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
    """Copies of a tensor and of a mask of its shape, true where an element counts: a leaf.

    Raises:
        TypeError: if one of them is no tensor, or of a dtype that is not taken.
        ValueError: if the shapes differ.
    """
    return MaskedTensor(data, mask, requires_grad)


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """As :func:`masked_tensor`, with the history of gradients that `data` has."""
    return MaskedTensor._from_values(data, mask)
