"""The modes of recording, where PyTorch has them."""

from torchlike.autograd.graph import enforce_grad_layout_policy, set_multithreading_enabled
from torchlike.context import enable_grad, inference_mode, no_grad, set_grad_enabled

__all__ = [
    "enable_grad",
    "enforce_grad_layout_policy",
    "inference_mode",
    "no_grad",
    "set_grad_enabled",
    "set_multithreading_enabled",
]
