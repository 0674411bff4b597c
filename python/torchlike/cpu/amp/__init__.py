"""Automatic mixed precision on the CPU, under its old names."""

from torchlike.cpu.amp.autocast_mode import autocast
from torchlike.cpu.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast"]
