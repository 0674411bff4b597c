"""As `torch.utils.benchmark`, where PyTorch has the names."""

from torchlike.utils.benchmark import (
    Language,
    Timer,
    timer,
)

__all__ = [
    "Language",
    "Timer",
    "timer",
]
