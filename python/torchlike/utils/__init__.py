"""Tools around tensors and modules."""

from torchlike.utils import data, hooks

__all__ = ["data", "hooks"]
