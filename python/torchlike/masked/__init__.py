"""Tensors with masks: reductions and normalisations of what a mask lets through, and tensors that keep a mask."""

from torchlike.masked._ops import *
from torchlike.masked._ops import __all__ as _functions
from torchlike.masked.maskedtensor import (
    MaskedTensor,
    as_masked_tensor,
    is_masked_tensor,
    masked_tensor,
)

__all__ = [*_functions, "MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]
