"""The methods of Tensor that gradients have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchlike import _C

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike._C import Tensor
    from torchlike.nn._hooks import RemovableHandle


def backward(
    self: Tensor,
    gradient: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Adds the gradients of this tensor to the leaves that it was made of; see `autograd.backward`."""
    from torchlike import autograd

    autograd.backward(self, gradient, retain_graph, create_graph, inputs=inputs)


def register_hook(self: Tensor, hook: Callable[[Any], Any]) -> RemovableHandle:
    """Calls ``hook(grad)`` each time the gradient of this tensor is there; it may give another.

    Raises:
        RuntimeError: if the tensor does not require gradients.
    """
    from torchlike.autograd.graph import _add

    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    return _add(_C._tensor_hooks(self, False), hook)


def register_post_accumulate_grad_hook(
    self: Tensor, hook: Callable[[Any], None]
) -> RemovableHandle:
    """Calls ``hook(tensor)`` each time its gradient was gathered.

    Raises:
        RuntimeError: if it does not require gradients, or is no leaf.
    """
    from torchlike.autograd.graph import _add

    if not self.requires_grad:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if self.grad_fn is not None:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    return _add(_C._tensor_hooks(self, True), hook)
