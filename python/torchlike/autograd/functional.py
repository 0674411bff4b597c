"""Derivatives of functions: products with vectors, and whole Jacobians and Hessians."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike._C import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]


def _as_tuple(value: Any, what: str, where: str) -> tuple[bool, tuple[Tensor, ...]]:
    """Whether there are several, and all of them."""
    several = isinstance(value, tuple)
    items = value if several else (value,)
    for i, item in enumerate(items):
        if not isinstance(item, Tensor):
            found = f"value at index {i}" if several else f"given {what}"
            raise TypeError(
                f"The {what} given to {where} must be either a Tensor or a tuple of Tensors but the "
                f"{found} has type {type(item)}."
            )
    return several, items


def _outputs(value: Any, where: str) -> tuple[bool, tuple[Tensor, ...]]:
    return _as_tuple(value, "outputs of the user-provided function", where)


def _scalar(value: Any, where: str) -> tuple[Tensor, ...]:
    """The output of a function that has to give one number."""
    many, outputs = _outputs(value, where)
    if many:
        raise RuntimeError(f"The function given to {where} should return a single Tensor")
    if outputs[0].nelement() != 1:
        raise RuntimeError(
            f"The Tensor returned by the function given to {where} should contain a single element"
        )
    return outputs


def _fresh(inputs: tuple[Tensor, ...], create_graph: bool) -> tuple[Tensor, ...]:
    """The inputs as the start of a graph of their own; part of the old one if that is to be differentiated."""
    if _C._transforms_record():
        # What the transform differentiates would not lead to them.
        raise RuntimeError(
            "You are attempting to call Tensor.requires_grad_() (or perhaps using torch.autograd.functional.* APIs) "
            "inside of a function being transformed by a functorch transform. This is unsupported, please attempt to "
            "use the functorch transforms (e.g. grad, vjp, jacrev, jacfwd, hessian) or call requires_grad_() outside "
            "of a function being transformed instead."
        )
    if create_graph:
        return tuple(
            i.view_as(i) if i.requires_grad else i.detach().requires_grad_() for i in inputs
        )
    return tuple(i.detach().requires_grad_() for i in inputs)


def _result(value: tuple[Tensor, ...], several: bool, create_graph: bool) -> Any:
    made = value if create_graph else tuple(v.detach() for v in value)
    return made if several else made[0]


def _direction(v: Any, other: tuple[Tensor, ...], many: bool, where: str) -> tuple[Tensor, ...]:
    """The vector that was given, which has to look like the others; without one 1, if they are one number."""
    if v is None:
        what = _FUNCTION if where == "vjp" else _INPUT
        if len(other) != 1 or other[0].nelement() != 1:
            raise RuntimeError(
                f"The vector v can only be None if {what} a single Tensor with a single element."
            )
        return (torch.ones_like(other[0]),)
    _, given = _as_tuple(v, "v", where)
    if len(given) != len(other):
        if many:
            raise RuntimeError(
                f"v is a tuple of invalid length: should be {len(other)} but got {len(given)}."
            )
        raise RuntimeError("The given v should contain a single Tensor.")
    for i, (a, b) in enumerate(zip(given, other, strict=True)):
        if a.size() != b.size():
            prefix = f"Entry {i} in " if many else ""
            raise RuntimeError(
                f"{prefix}v has invalid size: should be {b.size()} but got {a.size()}."
            )
    return given


def _strictly(
    grads: tuple[Tensor | None, ...],
    inputs: tuple[Tensor, ...],
    strict: bool,
    text: str,
    constant: str | None = None,
) -> tuple[Tensor, ...]:
    """Zeros for what does not depend on an input; in strict mode an error, and if it is ``constant``."""
    made = []
    for i, (g, x) in enumerate(zip(grads, inputs, strict=True)):
        if g is None:
            if strict:
                raise RuntimeError(text.format(i))
            g = torch.zeros_like(x)
        elif strict and constant is not None and not g.requires_grad:
            raise RuntimeError(constant.format(i))
        made.append(g)
    return tuple(made)


def _grad(
    outputs: Any, inputs: Any, grads: Any = None, create_graph: bool = False
) -> tuple[Tensor | None, ...]:
    pairs = [
        (o, g)
        for o, g in zip(outputs, grads or (None,) * len(outputs), strict=True)
        if o is not None and o.requires_grad
    ]
    if not pairs:
        return (None,) * len(inputs)
    return torch.autograd.grad(
        [o for o, _ in pairs],
        inputs,
        [g for _, g in pairs],
        allow_unused=True,
        create_graph=create_graph,
        retain_graph=True,
    )


def _differentiably(values: tuple[Any, ...], strict: bool, text: str) -> None:
    """Refuses, in strict mode, what is not there or cannot be differentiated."""
    for i, value in enumerate(values if strict else ()):
        if value is None or not value.requires_grad:
            raise RuntimeError((_INDEPENDENT if value is None else text).format(i))


_FUNCTION = "the user-provided function returns"
_INPUT = "the input to the user-provided function is"
_INDEPENDENT = (
    "The output of the user-provided function is independent of input {}. "
    "This is not allowed in strict mode."
)


_NOT_DIFFERENTIABLE = (
    "Output {} of the user-provided function does not require gradients. The outputs must be computed in a "
    "differentiable manner from the input when running in strict mode."
)
_SLOPE_INDEPENDENT = (
    "While computing the hessian, found that the jacobian of the user-provided function with respect to "
    "input {} is independent of the input. This is not allowed in strict mode. You should ensure that your "
    "function is twice differentiable and that the jacobian depends on the inputs (this would be violated "
    "by a linear function for example)."
)
_CONSTANT = (
    "The {} of the user-provided function is independent of input {{}}. This is not allowed in strict "
    "mode when create_graph=True."
)
_CONSTANT_JACOBIAN, _CONSTANT_HESSIAN = _CONSTANT.format("jacobian"), _CONSTANT.format("hessian")
_CONSTANT_GRADIENT = (
    "The gradient with respect to input {} is independent of the inputs of the user-provided function. "
    "This is not allowed in strict mode."
)
_LINEAR_IN_NOTHING = (
    "The gradient with respect to the input is independent of entry {} in the grad_outputs when using the double "
    "backward trick to compute forward mode gradients. This is not allowed in strict mode."
)
_NO_SLOPE = (
    "The jacobian of the user-provided function is independent of input {}. "
    "This is not allowed in strict mode."
)


def vjp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The outputs of ``func``, and the product of ``v`` with its Jacobian.

    Raises:
        RuntimeError: if ``v`` does not look like the outputs, or is missing where they are no single number.
    """
    with torch.enable_grad():
        several, items = _as_tuple(inputs, "inputs", "vjp")
        items = _fresh(items, create_graph)
        many, outputs = _outputs(func(*items), "vjp")
        _differentiably(outputs, strict, _NOT_DIFFERENTIABLE)
        given = _direction(v, outputs, many, "vjp")
        grads = _grad(outputs, items, given, create_graph)
        constant = _CONSTANT_JACOBIAN if create_graph else None
        made = _strictly(grads, items, strict, _INDEPENDENT, constant)
    return _result(outputs, many, create_graph), _result(made, several, create_graph)


def jvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The outputs of ``func``, and the product of its Jacobian with ``v``."""
    with torch.enable_grad():
        several, items = _as_tuple(inputs, "inputs", "jvp")
        items = _fresh(items, create_graph)
        given = _direction(v, items, several, "jvp")
        many, outputs = _outputs(func(*items), "jvp")
        _differentiably(outputs, strict, _NOT_DIFFERENTIABLE)
        # The gradient is linear in what it is multiplied with: its own gradient is the product wanted.
        along = tuple(torch.zeros_like(o, requires_grad=True) for o in outputs)
        grads = _grad(outputs, items, along, create_graph=True)
        _differentiably(grads, strict, _CONSTANT_GRADIENT)
        made = _grad(grads, along, given, create_graph)
        constant = _CONSTANT_JACOBIAN if create_graph else None
        tangents = _strictly(made, outputs, strict, _LINEAR_IN_NOTHING, constant)
    return _result(outputs, many, create_graph), _result(tangents, many, create_graph)


def _by_columns(strategy: str, vectorize: bool, hint: str = "") -> bool:
    """Whether a Jacobian is computed by columns, forward, and not by rows."""
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(
            f'Expected strategy to be either "forward-mode" or "reverse-mode".{hint}'
        )
    if strategy == "forward-mode" and not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian isonly implemented for "
            "`vectorize=True`."
        )
    return strategy == "forward-mode"


def _columns(func: Callable[..., Any], inputs: Any, create_graph: bool) -> Any:
    """The Jacobian, a column after the other."""
    several, items = _as_tuple(inputs, "inputs", "jacobian")
    many = False
    parts: list[list[list[Tensor]]] = []
    for i, x in enumerate(items):
        found: list[list[Tensor]] = []
        for j in range(x.nelement()):
            along = tuple(torch.zeros_like(other) for other in items)
            along[i].view(-1)[j] = 1
            outputs, tangents = jvp(func, items, along, create_graph)
            many = isinstance(outputs, tuple)
            found.append(list(tangents) if many else [tangents])
        parts.append(found)
    rows = tuple(
        tuple(
            torch.stack([column[k] for column in found], dim=-1).view(found[0][k].size() + x.size())
            for found, x in zip(parts, items, strict=True)
        )
        for k in range(len(parts[0][0]))
    )
    made = tuple(_result(r, several, create_graph) for r in rows)
    return made if many else made[0]


def jacobian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The derivative of every output element by every input element.

    For each output and input a tensor of the output's shape followed by the input's.

    Args:
        vectorize: changes nothing: one row, or column, is computed after the other.
        strategy: by rows ("reverse-mode") or by columns ("forward-mode", which needs ``vectorize``).
    """
    forward = _by_columns(
        strategy,
        vectorize,
        ' Hint: If your function has more outputs than inputs, "forward-mode" tends to be more '
        'performant. Otherwise, prefer to use "reverse-mode".',
    )
    if strict and vectorize:
        raise RuntimeError(
            "torch.autograd.functional.jacobian: `strict=True` and `vectorized=True` are not supported "
            "together. Please either set `strict=False` or `vectorize=False`."
        )
    if forward:
        return _columns(func, inputs, create_graph)
    with torch.enable_grad():
        several, items = _as_tuple(inputs, "inputs", "jacobian")
        items = _fresh(items, create_graph)
        many, outputs = _outputs(func(*items), "jacobian")
        _differentiably(outputs, strict, _NOT_DIFFERENTIABLE)
        rows = []
        for k, out in enumerate(outputs):
            parts: list[list[Tensor]] = [[] for _ in items]
            text = _INDEPENDENT.replace("The output", f"Output {k}", 1)
            for j in range(out.nelement()):
                grads = _grad((out.reshape(-1)[j],), items, None, create_graph)
                constant = _CONSTANT_JACOBIAN if create_graph else None
                for i, g in enumerate(_strictly(grads, items, strict, text, constant)):
                    parts[i].append(g)
            rows.append(
                tuple(
                    torch.stack(p, dim=0).view(out.size() + x.size())
                    if p
                    else x.new_zeros(out.size() + x.size())
                    for p, x in zip(parts, items, strict=True)
                )
            )
    made = tuple(_result(r, several, create_graph) for r in rows)
    return made if many else made[0]


def hessian(
    func: Callable[..., Any],
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The second derivatives of a function whose output is one number.

    Args:
        vectorize: changes nothing: one row, or column, is computed after the other.
        outer_jacobian_strategy: as `strategy` of `jacobian`.
    """
    _by_columns(outer_jacobian_strategy, vectorize)
    several, items = _as_tuple(inputs, "inputs", "hessian")

    def slope(*given: Tensor) -> tuple[Tensor, ...]:
        outputs = _scalar(func(*given), "hessian")
        _differentiably(outputs, strict, _NOT_DIFFERENTIABLE)
        grads = _grad(outputs, given, None, create_graph=True)
        slopes = _strictly(grads, given, False, _INDEPENDENT)
        _differentiably(slopes, strict, _SLOPE_INDEPENDENT)
        return slopes

    made = jacobian(slope, items, create_graph, strict, vectorize, outer_jacobian_strategy)
    return made if several else made[0][0]


def _second(
    func: Callable[..., Any], inputs: Any, v: Any, create_graph: bool, strict: bool, where: str
) -> tuple[Any, Any]:
    with torch.enable_grad():
        several, items = _as_tuple(inputs, "inputs", where)
        items = _fresh(items, create_graph)
        given = _direction(v, items, several, where)
        outputs = _scalar(func(*items), where)
        _differentiably(outputs, strict, _NOT_DIFFERENTIABLE)
        grads = _grad(outputs, items, None, create_graph=True)
        _differentiably(grads, strict, _SLOPE_INDEPENDENT)
        slopes = _strictly(grads, items, strict, _INDEPENDENT)
        constant = _CONSTANT_HESSIAN if create_graph else None
        made = _strictly(
            _grad(slopes, items, given, create_graph), items, strict, _NO_SLOPE, constant
        )
    return _result(outputs, False, create_graph), _result(made, several, create_graph)


def vhp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The output of ``func``, one number, and the product of ``v`` with its Hessian."""
    return _second(func, inputs, v, create_graph, strict, "vhp")


def hvp(
    func: Callable[..., Any],
    inputs: Any,
    v: Any = None,
    create_graph: bool = False,
    strict: bool = False,
) -> tuple[Any, Any]:
    """The output of ``func``, one number, and the product of its Hessian with ``v``."""
    return _second(func, inputs, v, create_graph, strict, "hvp")
