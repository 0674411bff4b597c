"""Tensors that keep a mask: elements that it holds back take no part in what is computed."""

from torchlike.masked.maskedtensor.core import MaskedTensor, is_masked_tensor
from torchlike.masked.maskedtensor.creation import as_masked_tensor, masked_tensor

__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]
