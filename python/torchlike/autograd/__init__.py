"""Reverse-mode gradients: walking the graph of recorded calls back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C, _lazy
from torchlike._C import Tensor
from torchlike.autograd import graph
from torchlike.autograd.anomaly_mode import detect_anomaly, set_detect_anomaly
from torchlike.autograd.function import Function
from torchlike.autograd.gradcheck import gradcheck, gradgradcheck
from torchlike.autograd.graph import (
    enforce_grad_layout_policy,
    is_multithreading_enabled,
    set_multithreading_enabled,
)
from torchlike.autograd.variable import Variable
from torchlike.context import enable_grad, inference_mode, no_grad, set_grad_enabled

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Function",
    "Variable",
    "backward",
    "detect_anomaly",
    "enable_grad",
    "enforce_grad_layout_policy",
    "grad",
    "gradcheck",
    "gradgradcheck",
    "graph",
    "inference_mode",
    "is_multithreading_enabled",
    "no_grad",
    "set_detect_anomaly",
    "set_grad_enabled",
    "set_multithreading_enabled",
]


def _profiler_enabled() -> bool:
    """Whether a profiler is entered."""
    return bool(profiler._noting)


def _disable_profiler() -> None:
    """Has the profilers that are entered end."""
    for entered in reversed(profiler._noting):
        entered.__exit__()


forward_ad = _lazy.module("torchlike.autograd.forward_ad")
functional = _lazy.module("torchlike.autograd.functional")
grad_mode = _lazy.module("torchlike.autograd.grad_mode")
profiler = _lazy.module("torchlike.autograd.profiler")
profiler_util = _lazy.module("torchlike.autograd.profiler_util")


def _check_given(output: Any, grad: Tensor, i: int) -> None:
    """A gradient that was given has to look like its output."""
    if _C._looks_alike(output, grad):
        return
    of, name = output, "output"
    if isinstance(output, graph.GradientEdge):
        of, name = output.node._input_metadata[output.output_nr], "GradientEdge"
    if grad.shape != of.shape:
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {grad.shape} and {name}[{i}] "
            f"has a shape of {of.shape}."
        )
    if of.dtype.is_complex != grad.dtype.is_complex:
        raise RuntimeError(
            "For complex Tensors, both grad_output and output are required to have the same dtype."
            f" Mismatch in dtype: grad_output[{i}] has a dtype of {grad.dtype} and {name}[{i}] "
            f"has a dtype of {of.dtype}."
        )


def _first_grad(output: Any) -> Tensor | None:
    """The gradient of a result that none was given for: one, if it is a number."""
    if isinstance(output, graph.GradientEdge):
        meta = output.node._input_metadata[output.output_nr]
        size, dtype = meta.shape.numel(), meta.dtype
    elif not isinstance(output, Tensor):
        raise AssertionError("Expected output to be a torch.Tensor")
    elif not output.requires_grad:
        return None
    else:
        size, dtype = output.numel(), output.dtype
    if size != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    if not dtype.is_floating_point:
        raise RuntimeError(
            f"grad can be implicitly created only for real scalar outputs but got {dtype}"
        )
    if isinstance(output, graph.GradientEdge):
        return torch.ones(meta.shape, dtype=dtype, device=meta.device)
    return torch.ones_like(output, memory_format=torch.preserve_format)


def _make_grads(outputs: Sequence[Any], grads: Sequence[Any]) -> tuple[Any, ...]:
    made: list[Any] = []
    for i, (output, grad) in enumerate(zip(outputs, grads, strict=False)):
        if isinstance(grad, Tensor):
            _check_given(output, grad, i)
            made.append(grad)
        elif grad is None:
            made.append(_first_grad(output))
        else:
            kind = type(grad).__name__
            raise TypeError(f"gradients can be either Tensors or None, but got {kind}")
    if len(outputs) != len(grads):
        raise RuntimeError(f"got {len(outputs)} tensors and {len(grads)} gradients")
    return tuple(made)


# A tuple, as a union would be made anew with every look.
_ALONE = (Tensor, graph.GradientEdge)


def _tuple(value: Any) -> tuple[Any, ...]:
    alone = isinstance(value, _ALONE) or hasattr(value, "__torch_function__")
    return (value,) if alone else tuple(value)


def _is_taken_over(asked: tuple[Any, ...]) -> bool:
    """Whether a mode or one of these takes a call over."""
    if not _C._watched(asked, {}):
        return False
    from torchlike.overrides import _is_passed_over

    return not _is_passed_over()


def _given(grads: Any, count: int) -> tuple[Any, ...]:
    if grads is None:
        return (None,) * count
    return (grads,) if isinstance(grads, Tensor) else tuple(grads)


def backward(
    tensors: Any,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Any = None,
) -> None:
    """Adds the gradients of the sum of ``tensors`` to the leaves that they were made of.

    Args:
        grad_tensors: the gradient of each, of its shape; None for a number means 1.
        retain_graph: the graph stays for another walk; by default if ``create_graph``.
        create_graph: the walk is recorded, for gradients of gradients.
        inputs: only the gradients of these are gathered.

    Raises:
        RuntimeError: if a tensor does not require gradients, what the graph needs is gone, or a function is being
            transformed by `torchlike.func`.
    """
    if _C._transforms_active():
        raise RuntimeError(
            "backward() called inside a functorch transform. This is not supported, please use functorch.grad or "
            "functorch.vjp instead or call backward() outside of functorch transforms."
        )
    if inputs is not None and isinstance(inputs, list | tuple) and len(inputs) == 0:
        raise RuntimeError("`inputs` argument to `backward()` cannot be empty.")
    if grad_variables is not None:
        import warnings

        warnings.warn(
            "`grad_variables` is deprecated. Use `grad_tensors` instead.",
            FutureWarning,
            stacklevel=2,
        )
        if grad_tensors is not None:
            raise RuntimeError(
                "`grad_tensors` and `grad_variables` (deprecated) arguments both passed to "
                "`backward()`. Please only use `grad_tensors`."
            )
        grad_tensors = grad_variables
    outputs = _tuple(tensors)
    wanted = () if inputs is None else _tuple(inputs)
    if _is_taken_over((*outputs, *wanted)):
        options = {
            "grad_tensors": grad_tensors,
            "retain_graph": retain_graph,
            "create_graph": create_graph,
            "inputs": inputs,
        }
        asked = (*outputs, *wanted)
        return _C._handle(backward, "torch.autograd.backward", asked, (outputs,), options)
    grads = _make_grads(outputs, _given(grad_tensors, len(outputs)))
    keep = create_graph if retain_graph is None else retain_graph
    _C._run_backward(outputs, grads, bool(keep), bool(create_graph), wanted, True, True)


def _batched(
    outputs: tuple[Any, ...],
    grads: tuple[Any, ...],
    keep: bool,
    create: bool,
    wanted: tuple[Any, ...],
    allow: bool | None,
) -> tuple[Any, ...]:
    """The gradients for each of a batch of gradients of the outputs, stacked."""
    for i, (output, grad) in enumerate(zip(outputs, grads, strict=False)):
        if grad is None or grad.ndim == 0:
            raise RuntimeError("is_grads_batched=True needs a batch of gradients for every output")
        if grad.shape[1:] != output.shape:
            raise RuntimeError(_MISMATCH.format(i, grad.shape[2:], output.shape))
    size = grads[0].shape[0]
    from torchlike._vmap import level

    with level(size, "error") as number:
        examples = tuple(_C._batch_hide(g, 0, number) for g in grads)
        made = _C._run_backward(
            outputs, _make_grads(outputs, examples), keep, create, wanted, bool(allow), False
        )
        return tuple(None if g is None else _C._batch_show(g, 0, number, size) for g in made)


_MISMATCH = (
    "If `is_grads_batched=True`, we interpret the first dimension of each grad_output as the batch dimension. "
    "The sizes of the remaining dimensions are expected to match the shape of corresponding output, but a "
    "mismatch was detected: grad_output[{0}] has a shape of {1} and output[{0}] has a shape of {2}. If you only "
    "want some tensors in `grad_output` to be considered batched, consider using vmap."
)


def grad(
    outputs: Any,
    inputs: Any,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Any, ...]:
    """The gradients of the sum of ``outputs`` with respect to ``inputs``; nothing is gathered.

    Args:
        grad_outputs: the gradient of each output, of its shape; None for a number means 1.
        is_grads_batched: the gradients have a first dimension more; the results are stacked along it.
        allow_unused: inputs that the outputs do not depend on give None instead of an error.
        materialize_grads: they give zeros.

    Raises:
        RuntimeError: if an output or input does not require gradients, or an input was not used.
    """
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, "
            "but got: allow_unused=False."
        )
    allow = materialize_grads if allow_unused is None else allow_unused
    results = _tuple(outputs)
    wanted = _tuple(inputs)
    if _is_taken_over((*results, *wanted)):
        options = {
            "grad_outputs": grad_outputs,
            "retain_graph": retain_graph,
            "create_graph": create_graph,
            "only_inputs": only_inputs,
            "allow_unused": allow,
            "is_grads_batched": is_grads_batched,
            "materialize_grads": materialize_grads,
        }
        asked = (*results, *wanted)
        made: tuple[Any, ...] = _C._handle(
            grad, "torch.autograd.grad", asked, (results, wanted), options
        )
        return made
    if not wanted:
        raise RuntimeError("`inputs` argument to `grad()` cannot be empty.")
    if not only_inputs:
        import warnings

        warnings.warn(
            "only_inputs argument is deprecated and is ignored now (defaults to True). To accumulate"
            " gradient for other parts of the graph, please use torch.autograd.backward.",
            FutureWarning,
            stacklevel=2,
        )
    given = _given(grad_outputs, len(results))
    keep = create_graph if retain_graph is None else retain_graph
    if is_grads_batched:
        made = _batched(results, given, bool(keep), bool(create_graph), wanted, allow)
    else:
        grads = _make_grads(results, given)
        made = _C._run_backward(
            results, grads, bool(keep), bool(create_graph), wanted, bool(allow), False
        )
    if materialize_grads:
        if any(
            g is None and isinstance(i, graph.GradientEdge)
            for g, i in zip(made, wanted, strict=True)
        ):
            raise RuntimeError(
                "materialize_grads cannot be used when the given input is a GradientEdge"
            )
        return tuple(
            torch.zeros_like(i, requires_grad=create_graph) if g is None else g
            for g, i in zip(made, wanted, strict=True)
        )
    return made
