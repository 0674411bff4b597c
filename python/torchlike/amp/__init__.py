"""Automatic mixed precision: `autocast` chooses types for calls, `GradScaler` keeps small gradients from vanishing."""

from torchlike.amp.autocast_mode import (
    _enter_autocast,
    _exit_autocast,
    autocast,
    custom_bwd,
    custom_fwd,
    is_autocast_available,
)
from torchlike.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]
