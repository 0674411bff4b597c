"""Automatic mixed precision on GPUs, under its old names."""

from torchlike.cuda.amp.autocast_mode import autocast, custom_bwd, custom_fwd
from torchlike.cuda.amp.common import amp_definitely_not_available
from torchlike.cuda.amp.grad_scaler import GradScaler

__all__ = ["GradScaler", "amp_definitely_not_available", "autocast", "custom_bwd", "custom_fwd"]
