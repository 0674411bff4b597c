"""As `torch.utils.benchmark`, where PyTorch has the names."""

from torchlike.utils.benchmark import (
    Compare,
)

__all__ = [
    "Compare",
]
