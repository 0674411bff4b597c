"""Parameters whose gradients are kept apart for each example of a batch, as `grad_sample`."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike import Tensor
from torchlike.autograd import Function
from torchlike.nn import functional as F

__all__ = ["ExpandedWeight"]

_NAMES = ("linear", "conv1d", "conv2d", "conv3d", "embedding", "layer_norm", "group_norm", "instance_norm")  # fmt: skip
_KNOWN = {getattr(F, name): name for name in _NAMES} | {
    getattr(torchlike, name): name for name in _NAMES if hasattr(torchlike, name)
}


# Where `instance_norm` has its running statistics.
_STATISTICS = (1, 2, "running_mean", "running_var")


class ExpandedWeight(Tensor):
    """A parameter beside a batch: functions of `nn.functional` that take it give what they would give, and their
    backward pass puts the gradient of every example, `[batch, *parameter]`, into `orig_weight.grad_sample`.

    Args:
        orig_weight: the parameter.
        batch_size: examples of a batch.
        loss_reduction: "mean" if the loss is a mean over the examples; gradients are those of a sum then.

    Raises:
        RuntimeError: for what is no tensor that wants a gradient.
    """

    orig_weight: Tensor
    batch_size: int
    loss_reduction: str

    def __new__(cls, orig_weight: Any, batch_size: int, loss_reduction: str) -> ExpandedWeight:
        if not isinstance(orig_weight, Tensor):
            raise RuntimeError(
                f"Can only make Expanded Weights of Tensors, got {type(orig_weight).__name__}"
            )
        if not orig_weight.requires_grad:
            raise RuntimeError(
                "Can only build ExpandedWeights objects of tensors that requires_grad"
            )
        made: ExpandedWeight = Tensor._make_subclass(cls, orig_weight, True)
        made.orig_weight, made.batch_size = orig_weight, batch_size
        made.loss_reduction = loss_reduction
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.__name__ == "__get__":
            return super().__torch_function__(func, types, args, kwargs or {})
        if func not in _KNOWN:
            raise RuntimeError(
                f"Expanded Weights encountered but cannot handle function {func.__name__}"
            )
        return _call(func, _KNOWN[func], args, kwargs or {})


def _call(func: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call with expanded weights, whose first argument is a batch."""
    given: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
    first = 0 if args else "input"
    batch = given.pop(first, None)
    expanded = {place: v for place, v in given.items() if isinstance(v, ExpandedWeight)}
    _check(name, batch, list(expanded.values()))
    if any(
        isinstance(v, Tensor) and v.requires_grad for p, v in given.items() if p not in expanded
    ):
        raise RuntimeError(
            "ExpandedWeights currently does not support a mixture of ExpandedWeight parameters and normal Parameters."
        )

    def forward(x: Any, *weights: Any, without: tuple[Any, ...] = ()) -> Any:
        now: dict[Any, Any] = {first: x, **given, **dict(zip(expanded, weights, strict=True))}
        now.update({place: None for place in without if place in now})
        in_order = [now[i] for i in range(len(args))]
        return func(*in_order, **{n: v for n, v in now.items() if isinstance(n, str)})

    originals = [w.orig_weight for w in expanded.values()]
    return _PerSample.apply(forward, name, tuple(expanded.values()), batch, *originals)


def _check(name: str, batch: Any, weights: list[ExpandedWeight]) -> None:
    if isinstance(batch, ExpandedWeight) or not isinstance(batch, Tensor):
        raise RuntimeError(
            f"Expanded Weights requires a Tensor as the first input to get the batch dimension, got "
            f"{type(batch).__name__} in function {name}"
        )
    if batch.dim() < 2 and name == "embedding":
        raise RuntimeError(
            f"Expanded Weights needs an input with a batch size, got a {batch.dim()}D tensor, {batch}"
        )
    if batch.dim() < 2:
        raise RuntimeError(
            "Input does not have a batch dimension. Expanded Weights expected input of at least rank 2, got of rank "
            f"{batch.dim()}"
        )
    if batch.shape[0] == 0:
        raise RuntimeError(
            f"0 is not a valid batch size for Expanded Weights but got input tensor of {batch} in function {name}"
        )
    for w in weights:
        if w.batch_size != batch.shape[0]:
            raise RuntimeError(
                "Expected ExpandedWeights to have batch size matching input but got input batch size of "
                f"{batch.shape[0]} with ExpandedWeight of batch size {w.batch_size}"
            )
        if w.loss_reduction != weights[0].loss_reduction:
            raise RuntimeError(
                "Expected ExpandedWeights to all have the same loss_reduction argument but got one with "
                f"{weights[0].loss_reduction} and one with {w.loss_reduction}"
            )


class _PerSample(Function):
    """A call whose weights get no gradient, but one for each example as an attribute."""

    @staticmethod
    def forward(ctx: Any, call: Any, name: str, expanded: Any, x: Any, *weights: Any) -> Any:
        ctx.call, ctx.expanded = call, expanded
        # What a call adds to running statistics is added once, and no gradient needs them.
        ctx.without = _STATISTICS if name == "instance_norm" else ()
        ctx.save_for_backward(x, *weights)
        return call(x, *weights)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, *weights = ctx.saved_tensors
        func = torchlike.func

        def one(example: Any, of: Any) -> Any:
            def forward(*w: Any) -> Any:
                return ctx.call(example.unsqueeze(0), *w, without=ctx.without)

            return func.vjp(forward, *weights)[1](of.unsqueeze(0))

        for weight, made in zip(ctx.expanded, func.vmap(one)(x, grad), strict=True):
            if weight.loss_reduction == "mean":
                made = made * weight.batch_size
            before = getattr(weight.orig_weight, "grad_sample", None)
            weight.orig_weight.grad_sample = made if before is None else before + made
        own = None
        if ctx.needs_input_grad[3]:
            back = func.vjp(lambda v: ctx.call(v, *weights, without=ctx.without), x)[1]
            (own,) = back(grad)
        return None, None, None, own, *[None] * len(weights)
