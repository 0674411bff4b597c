"""Gradient modes under PyTorch's names; torchlike does not compute gradients yet."""

from torchlike.context import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = ["enable_grad", "inference_mode", "no_grad", "set_grad_enabled"]
