"""Comparing gradients with differences of values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike._C import Tensor
from torchlike.autograd._more_checks import (
    get_analytical_jacobian,
    get_numerical_jacobian,
    get_numerical_jacobian_wrt_specific_input,
)
from torchlike.autograd.function import Function

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "GradcheckError",
    "get_analytical_jacobian",
    "get_numerical_jacobian",
    "get_numerical_jacobian_wrt_specific_input",
    "gradcheck",
    "gradgradcheck",
]


class GradcheckError(RuntimeError):
    """A gradient is not what differences of values say."""


def _differentiable(t: Any) -> bool:
    return isinstance(t, Tensor) and t.requires_grad


def _tuple(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple | list) else (value,)


def _outputs(value: Any) -> tuple[Tensor, ...]:
    return tuple(o for o in _tuple(value) if _differentiable(o))


def _parts(t: Tensor) -> Tensor:
    """A row of real numbers: complex ones as pairs."""
    t = t.detach() if t.layout == torch.strided else t.detach().to_dense()
    t = t.resolve_conj().contiguous()
    return (torch.view_as_real(t) if t.is_complex() else t).reshape(-1)


def _numerical(
    func: Callable[..., Any], inputs: Sequence[Any], x: Tensor, eps: float
) -> list[Tensor]:
    """For each output the derivative by each number of one input: [numbers of x, of the output]."""
    with torch.no_grad():
        kept = x.detach().clone()
        # The numbers in memory, of which a lazy conjugate shows every second one negated.
        turned = x.is_conj()
        data = x.data.conj() if turned else x.data
        data = torch.view_as_real(data) if x.is_complex() else data
        rows: list[list[Tensor]] = []
        for place in _places(data.shape):
            both, looks = [], []
            for step in (eps, -eps):
                data[place] += -step if turned and place[-1] == 1 else step
                with torch.enable_grad():
                    made = _outputs(func(*inputs))
                both.append([_parts(o).clone() for o in made])
                looks.append([(o.shape, o.dtype) for o in made])
                x.data.copy_(kept)
            _check_alike(looks[0], looks[1], eps)
            rows.append([(a - b) / (2 * eps) for a, b in zip(*both, strict=True)])
    count = len(rows[0]) if rows else 0
    return [torch.stack([r[i] for r in rows]) for i in range(count)]


def _check_alike(first: list[Any], second: list[Any], eps: float) -> None:
    """Refuses outputs whose sizes or types depend on the values of the inputs."""
    for (shape, dtype), (other, type_) in zip(first, second, strict=True):
        if shape != other:
            raise AssertionError(
                "Expected `func` to return outputs with the same shape when inputs are perturbed by "
                f"{eps}, but got: shapes {shape} and {other}."
            )
        if dtype != type_:
            raise AssertionError(
                "Expected `func` to return outputs with the same dtype when inputs are perturbed by "
                f"{eps}, but got: dtypes {dtype} and {type_}."
            )


def _places(shape: Sequence[int]) -> list[tuple[int, ...]]:
    import itertools

    return list(itertools.product(*(range(n) for n in shape)))


def _analytical(outputs: Sequence[Tensor], inputs: Sequence[Tensor], i: int) -> list[Tensor]:
    """For each input the same matrix, by the gradients of one output."""
    out = outputs[i]
    columns: list[list[Tensor]] = [[] for _ in inputs]
    units = [1.0, 1.0j] if out.is_complex() else [1.0]
    for place in _places(out.shape):
        for unit in units:
            v = torch.zeros_like(out, memory_format=torch.contiguous_format).detach()
            v[place] = unit
            grads = torch.autograd.grad([out], inputs, [v], retain_graph=True, allow_unused=True)
            for j, (g, x) in enumerate(zip(grads, inputs, strict=True)):
                if g is not None and g.dtype != x.dtype:
                    raise GradcheckError(
                        f"Expected grad dtype {x.dtype} for input {j}, but got {g.dtype}"
                    )
                columns[j].append(_parts(torch.zeros_like(x) if g is None else g))
    return [
        torch.stack(c, dim=1) if c else torch.zeros(_parts(x).numel(), 0, dtype=torch.float64)
        for c, x in zip(columns, inputs, strict=True)
    ]


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Whether the gradients of ``func`` are what small differences of its values say.

    The inputs that require gradients are changed by ``eps``, an element at a time; they should be of double precision.
    ``fast_mode`` makes the whole check as well, and ``check_grad_dtypes`` is always checked. Of a sparse input all
    elements are changed, or with ``masked`` those that have entries.

    Args:
        check_forward_ad: tangents of forward mode are compared as well.
        check_batched_grad: gradients for a batch of cotangents at once are compared with one after the other.
        check_batched_forward_grad: the same of tangents.

    Raises:
        GradcheckError: with both matrices, if they differ by more than ``atol + rtol * |expected|``.
        ValueError: if no input requires gradients.
    """
    if not (check_forward_ad or check_backward_ad):
        raise AssertionError(
            "Expected at least one of check_forward_ad or check_backward_ad to be True"
        )
    if check_batched_grad and not check_backward_ad:
        raise AssertionError(
            "Setting check_batched_grad=True requires check_backward_ad to be True"
        )
    if check_batched_forward_grad and not check_forward_ad:
        raise AssertionError(
            "Setting check_batched_forward_grad=True requires check_forward_ad to be True"
        )
    items = _tuple(inputs)
    if any(_differentiable(x) and x.layout != torch.strided for x in items):
        from torchlike.autograd._more_checks import by_values

        func, items = by_values(func, items, bool(masked))
        inputs = items
    try:
        if check_backward_ad:
            _check(func, inputs, eps, atol, rtol, nondet_tol)
        if check_forward_ad:
            _check_forward(func, items, eps, atol, rtol)
        _check_batches(func, items, check_batched_grad, check_batched_forward_grad)
        if check_backward_ad:
            _check_multiplied(func, items, bool(masked))
        if check_backward_ad and check_undefined_grad:
            _check_undefined(func, items)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _check_forward(
    func: Callable[..., Any], items: Sequence[Any], eps: float, atol: float, rtol: float
) -> None:
    """Compares tangents with differences of values."""
    from torchlike.autograd._more_checks import forward_rows

    wanted = [x for x in items if _differentiable(x)]
    for j, x in enumerate(wanted):
        numerical = _numerical(func, items, x, eps)
        analytical = forward_rows(func, items, x, _outputs, _parts)
        for i, (a, n) in enumerate(zip(analytical, numerical, strict=True)):
            if not torch.allclose(a, n.to(a.dtype), rtol=rtol, atol=atol, equal_nan=True):
                raise GradcheckError(
                    f"Jacobian computed with forward mode mismatch for output {i} with respect to input {j},\n"
                    f"numerical:{n}\nanalytical:{a}\n"
                )


def _check_batches(
    func: Callable[..., Any], items: Sequence[Any], gradients: bool, tangents: bool
) -> None:
    """Compares what whole batches give with one example after the other."""
    if not (gradients or tangents):
        return
    from torchlike.autograd import _more_checks

    wanted = [x for x in items if _differentiable(x)]
    if gradients and _more_checks.batched_gradients_differ(_outputs(func(*items)), wanted):
        raise GradcheckError(
            "While computing batched gradients, got a result that is not that of one gradient after the other. "
            "gradcheck or gradgradcheck failed while testing batched gradient computation."
        )
    if tangents and _more_checks.batched_tangents_differ(func, items, wanted, _outputs):
        raise GradcheckError(
            "While computing batched gradients, got a result that is not that of one tangent after the other. "
            "gradcheck or gradgradcheck failed while testing batched forward gradient computation."
        )


def _check_multiplied(func: Callable[..., Any], items: Sequence[Any], masked: bool) -> None:
    """Gradients have to be multiples of those of the outputs: zeros, where these are, of the inputs' layout."""
    wanted, outputs = [x for x in items if _differentiable(x)], _outputs(func(*items))
    if not outputs:
        return
    zeros = [torch.zeros_like(o, memory_format=torch.contiguous_format) for o in outputs]
    for g, x in zip(
        torch.autograd.grad(outputs, wanted, zeros, allow_unused=True), wanted, strict=True
    ):
        if g is None:
            continue
        if g.layout not in (torch.strided, x.layout):
            raise GradcheckError(f"grad is incorrect layout ({g.layout} is not {x.layout})")
        dense = g if g.layout == torch.strided else g.to_dense()
        near = torch.allclose(dense, torch.zeros_like(dense)) if masked else not dense.any()
        if not near:
            raise GradcheckError("backward not multiplied by grad_output")


class _Undefined(Function):
    """The same values; no gradient comes back."""

    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        return t.view_as(t)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        return None


def _tell_of_undefined() -> None:
    import warnings

    warnings.warn(
        "Backwards compatibility: New undefined gradient support checking feature is enabled by default, but it may "
        "break existing callers of this function. If this is true for you, you can call this function with "
        '"check_undefined_grad=False" to disable the feature',
        stacklevel=4,
    )


def _check_undefined(func: Callable[..., Any], items: Sequence[Any]) -> None:
    """Gradients that did not arrive, of all outputs and of one at a time, have to count as zeros."""
    wanted = [x for x in items if _differentiable(x)]
    count = len(_outputs(func(*items)))
    cases = [set(range(count))] + ([{i} for i in range(count)] if count > 1 else [])
    for absent in cases if count else ():
        outputs = [
            _Undefined.apply(o) if i in absent else o for i, o in enumerate(_outputs(func(*items)))
        ]
        zeros = [torch.zeros_like(o, memory_format=torch.contiguous_format) for o in outputs]
        try:
            grads = torch.autograd.grad(outputs, wanted, zeros, allow_unused=True)
        except RuntimeError as error:
            _tell_of_undefined()
            raise GradcheckError(
                "Expected backward function to handle undefined output grads. Please look at "
                '"Notes about undefined output gradients" in "tools/autograd/derivatives.yaml"'
            ) from error
        if any(g is not None and not g.eq(0).all() for g in grads):
            _tell_of_undefined()
            raise GradcheckError(
                "Expected all input grads to be undefined or zero when all output grads are undefined "
                'or zero. Please look at "Notes about undefined output gradients" in '
                '"tools/autograd/derivatives.yaml"'
            )


def _check(
    func: Callable[..., Any], inputs: Any, eps: float, atol: float, rtol: float, nondet_tol: float
) -> None:
    items = _tuple(inputs)
    wanted = [x for x in items if _differentiable(x)]
    if not wanted:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of them have "
            "requires_grad=True."
        )
    for i, x in enumerate(items):
        if _differentiable(x):
            _check_input(i, x)
    outputs = _outputs(func(*items))
    if not outputs:
        for x in wanted:
            for n in _numerical_of_constant(func, items, x, eps):
                if n.abs().max() > atol:
                    raise GradcheckError("Numerical gradient for function expected to be zero")
        return
    numerical = [_numerical(func, items, x, eps) for x in wanted]
    for i in range(len(outputs)):
        analytical = _analytical(outputs, wanted, i)
        again = _analytical(outputs, wanted, i)
        for j, (a, b) in enumerate(zip(analytical, again, strict=True)):
            if not torch.allclose(a, b, rtol=0.0, atol=nondet_tol, equal_nan=True):
                raise GradcheckError(
                    "Backward is not reentrant, i.e., running backward with same input and grad_output "
                    "multiple times gives different values, although analytical gradient matches "
                    f"numerical gradient. The tolerance for nondeterminism was {nondet_tol}."
                )
            n = (numerical[j][i] if numerical[j] else a).to(a.dtype)
            for which, part in _parts_of_output(outputs[i]):
                if torch.allclose(a[:, part], n[:, part], rtol=rtol, atol=atol, equal_nan=True):
                    continue
                raise GradcheckError(
                    f"{which}Jacobian mismatch for output {i} with respect to input {j},\n"
                    f"numerical:{n[:, part]}\nanalytical:{a[:, part]}\n"
                )


def _parts_of_output(output: Tensor) -> list[tuple[str, slice]]:
    """The columns of a matrix by the parts of an output, and what is said of them."""
    if not output.is_complex():
        return [("", slice(None))]
    said = "While considering the {} part of complex outputs only, "
    return [(said.format("imaginary"), slice(1, None, 2)), (said.format("real"), slice(0, None, 2))]


def _numerical_of_constant(
    func: Callable[..., Any], items: Sequence[Any], x: Tensor, eps: float
) -> list[Tensor]:
    def floating(*given: Any) -> tuple[Tensor, ...]:
        made = _tuple(func(*given))
        return tuple(
            o.detach().requires_grad_()
            for o in made
            if isinstance(o, Tensor) and (o.is_floating_point() or o.is_complex())
        )

    return _numerical(floating, items, x, eps)


def _check_input(i: int, x: Tensor) -> None:
    if x.dtype not in (torch.float64, torch.complex128):
        import warnings

        warnings.warn(
            f"Input #{i} requires gradient and is not a double precision floating point or complex. "
            "This check will likely fail if all the inputs are not of double precision floating point or complex. ",
            stacklevel=5,
        )
    if any(s == 0 and n > 1 for s, n in zip(x.stride(), x.shape, strict=True)):
        raise RuntimeError(
            f"The {i}th input has a dimension with stride 0. gradcheck only supports inputs that are "
            "non-overlapping to be able to compute the numerical gradients correctly. You should call "
            ".contiguous on the input before passing it to gradcheck."
        )


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """As `gradcheck`, of the gradients of the gradients."""
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise AssertionError(
            "Expected at least one of check_fwd_over_rev or check_rev_over_rev to be True"
        )
    items = _tuple(inputs)
    outputs = _outputs(func(*items))
    if grad_outputs is None:
        given = tuple(_random_as(o, gen_non_contig_grad_outputs).requires_grad_() for o in outputs)
    else:
        given = _tuple(grad_outputs)
    count = len(given)
    # Tangents are computed of inputs without history: which ones want gradients is known before.
    wants = [_differentiable(x) for x in (*items, *given)]

    def first(*all_: Any) -> tuple[Tensor, ...]:
        all_ = tuple(x.requires_grad_() if w else x for x, w in zip(all_, wants, strict=True))
        xs, vs = all_[:-count], all_[-count:]
        wanted = tuple(x for x in xs if _differentiable(x))
        grads = torch.autograd.grad(
            _outputs(func(*xs)), wanted, vs, create_graph=True, allow_unused=True
        )
        return tuple(g for g in grads if g is not None)

    return gradcheck(
        first,
        items + given,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_batched_grad=check_batched_grad,
        check_forward_ad=check_fwd_over_rev,
        check_backward_ad=check_rev_over_rev,
    )


def _random_as(t: Tensor, gaps: bool) -> Tensor:
    """Random numbers of the shape of a tensor; with gaps, each second one of memory."""
    with torch.no_grad():
        return (
            torch.stack([torch.randn_like(t)] * 2, dim=-1)[..., 0] if gaps else torch.randn_like(t)
        )
