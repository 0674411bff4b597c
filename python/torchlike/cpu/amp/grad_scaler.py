"""The scaler of gradients under its old name."""

from torchlike.amp.grad_scaler import _OldGradScaler

__all__ = ["GradScaler"]


class GradScaler(_OldGradScaler):
    """`torchlike.amp.GradScaler("cpu", ...)`."""

    _of = "cpu"
