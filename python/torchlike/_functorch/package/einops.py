"""`functorch.einops`."""

from torchlike.func._rearrange import rearrange

__all__ = ["rearrange"]
