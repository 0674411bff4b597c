"""Calls of modules whose backward pass gives a gradient for each example."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.nn.utils._expanded_weights import ExpandedWeight
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["call_for_per_sample_grads"]


def call_for_per_sample_grads(
    module: Any,
    *,
    batch_size: int | None = None,
    loss_reduction: str = "sum",
    batch_first: bool = True,
) -> Callable[..., Any]:
    """The forward pass of a module, after which a backward pass gives every parameter that wants a gradient those of
    all examples as `grad_sample`, `[batch, *parameter]`, and no `grad`. Of layers with weights there may be linear
    ones, convolutions, embeddings, and norms of layers, groups and instances.

    Args:
        batch_size: examples of a batch; by default the size that all inputs have.
        loss_reduction: "mean" if the loss is a mean over the examples; gradients are those of their sum then.
        batch_first: whether inputs are counted along the first dimension, or the second.

    Raises:
        RuntimeError: for another reduction, what is no module, parameters that have a `grad_sample` already, and,
            when it is called, inputs of several sizes or none.
    """
    if loss_reduction not in ("sum", "mean"):
        raise RuntimeError(
            f"Expected loss_reduction argument to be sum or mean, got {loss_reduction}"
        )
    if not isinstance(module, torchlike.nn.Module):
        raise RuntimeError(f"Module passed must be nn.Module, got {type(module).__name__}")
    if not isinstance(batch_size, int | None):
        raise RuntimeError(
            f"Batch size passed must be None or an integer, got {type(batch_size).__name__}"
        )
    if batch_size is not None and batch_size < 1:
        raise RuntimeError(f"Batch size must be positive, got {batch_size}")
    for weight in module.parameters():
        if getattr(weight, "grad_sample", None) is not None:
            raise RuntimeError(
                "Current Expanded Weights accumulates the gradients, which will be incorrect for multiple calls "
                f"without clearing gradients. Please clear out the grad_sample parameter of {weight}"
            )

    @functools.wraps(module.forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        count = batch_size or _counted(args, kwargs, 0 if batch_first else 1)
        parameters = {
            name: ExpandedWeight(p, count, loss_reduction) if p.requires_grad else p
            for name, p in module.named_parameters()
        }
        return torchlike.func.functional_call(module, parameters, args, kwargs)

    return forward


def _counted(args: Any, kwargs: Any, dim: int) -> int:
    """The size that all tensors among the arguments have along a dimension."""
    found = None
    for t in pytree.tree_leaves((args, kwargs)):
        if not isinstance(t, torchlike.Tensor):
            continue
        if found not in (None, t.shape[dim]):
            raise RuntimeError(
                f"When computing batch size, found at least one input with batch size {found} and one with batch size "
                f"{t.shape[dim]}. Please specify it explicitly using the batch size kwarg in call_for_per_sample_grads"
            )
        found = t.shape[dim]
    if found is None:
        raise RuntimeError(
            "Unable to find a tensor in the passed args and kwargs. They may not be pytree-able and so ExpandedWeights "
            "cannot compute the batch size from the inputs. Please specify it explicitly"
        )
    return int(found)
