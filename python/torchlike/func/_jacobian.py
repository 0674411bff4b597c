"""Jacobians and Hessians of functions, all rows or columns at a time."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike._vmap import vmap
from torchlike.func._grad import chosen, jvp, replaced, tensors_alone, vjp
from torchlike.utils._pytree import tree_flatten, tree_map, tree_unflatten

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torchlike._C import Tensor


def _total(tensors: Sequence[Tensor]) -> int:
    return sum(t.numel() for t in tensors)


def _basis(tensors: Sequence[Tensor]) -> list[Tensor]:
    """For each tensor all unit vectors of all of them together: [elements of all, *its shape]."""
    total = _total(tensors)
    made, start = [], 0
    for t in tensors:
        rows = torch.zeros(total, t.numel(), dtype=t.dtype, device=t.device)
        rows.diagonal(-start).fill_(1)
        made.append(rows.view(total, *t.shape))
        start += t.numel()
    return made


def _split(rows: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
    """Rows of all elements as those of each tensor, in its shape."""
    parts = rows.split([t.numel() for t in tensors], dim=0)
    return [p.reshape((*t.shape, *rows.shape[1:])) for p, t in zip(parts, tensors, strict=True)]


def _check_real(where: str, what: str, values: Any) -> None:
    for i, x in enumerate(tree_flatten(values)[0]):
        if isinstance(x, torch.Tensor) and x.is_complex():
            raise RuntimeError(
                f"{where}: Expected all {what} to be real but received complex tensor at flattened input idx: {i}"
            )


def jacrev(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """The Jacobian of a function by `argnums`, row by row.

    For each output and input it has a tensor of the output's shape followed by the input's.

    Args:
        has_aux: the function returns its output and something else, which is passed on.
        chunk_size: how many rows are computed at a time; all by default. One at a time goes without `vmap`.
        _preallocate_and_copy: accepted for PyTorch's sake; chunks are always put together once.
    """
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError("jacrev: `chunk_size` should be greater than 0.")

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        _check_real("jacrev", "inputs", args)
        primals = chosen(args, argnums)

        def of_chosen(*values: Any) -> Any:
            _C._transform_give(tree_flatten((args, kwargs))[0])
            given = values[0] if isinstance(argnums, int) else values
            return func(*replaced(args, argnums, given), **kwargs)

        inputs = (primals,) if isinstance(argnums, int) else primals
        value, back, *aux = vjp(of_chosen, *inputs, has_aux=has_aux)
        outputs, shape = tensors_alone(value, "vjp(f, *primals)")
        _check_real("jacrev", "outputs", outputs)
        basis, basis_size = tree_unflatten(_basis(outputs), shape), _total(outputs)
        if chunk_size == 1 and basis_size > 0:  # without `vmap`, and so without its limits
            rows = [back(tree_map(lambda x, i=i: x[i], basis)) for i in range(basis_size)]
            made = tree_map(lambda *parts: torch.stack(parts), *rows)
        else:
            made = vmap(back, chunk_size=chunk_size)(basis)
        leaves, spec = tree_flatten(made[0] if isinstance(argnums, int) else made)
        # By input and output; wanted by output and input.
        table = [_split(rows, outputs) for rows in leaves]
        each = [tree_unflatten([column[i] for column in table], spec) for i in range(len(outputs))]
        result = tree_unflatten(each, shape)
        return (result, aux[0]) if has_aux else result

    return wrapper


def jacfwd(
    func: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Callable[..., Any]:
    """The Jacobian of a function by `argnums`, column by column, in forward mode; see `jacrev`."""

    @functools.wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        _check_real("jacfwd", "inputs", args)
        primals = chosen(args, argnums)
        inputs = (primals,) if isinstance(argnums, int) else primals

        def of_chosen(*values: Any) -> Any:
            _C._transform_give(tree_flatten((args, kwargs))[0])
            given = values[0] if isinstance(argnums, int) else values
            return func(*replaced(args, argnums, given), **kwargs)

        leaves, spec = tree_flatten(inputs)
        for x in leaves:
            if not (x.is_floating_point() or x.is_complex()):
                raise ValueError(
                    f"Expected primal to be floating point or complex, but got: {x.dtype}"
                )

        def push(tangents: Any) -> Any:
            if randomness != "different":
                _C._batch_differ_in_tangents()
            made = jvp(of_chosen, inputs, tangents, has_aux=has_aux)
            return (made[1], made[2]) if has_aux else made[1]

        basis = tree_unflatten(_basis(leaves), spec)
        made = vmap(push, randomness=randomness)(basis)
        aux = None
        if has_aux:
            made, aux = made
            aux = tree_map(lambda x: x[0], aux)
        outputs, shape = tree_flatten(made)
        _check_real("jacfwd", "outputs", outputs)
        each = []
        for rows in outputs:
            columns = _split(rows, leaves)
            turned = [
                c.movedim(tuple(range(x.dim())), tuple(range(-x.dim(), 0))) if x.dim() else c
                for c, x in zip(columns, leaves, strict=True)
            ]
            by_input = tree_unflatten(turned, spec)
            each.append(by_input[0] if isinstance(argnums, int) else by_input)
        result = tree_unflatten(each, shape)
        return (result, aux) if has_aux else result

    return wrapper


def hessian(func: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """The second derivatives of a function by `argnums`: forward mode over reverse mode."""
    return jacfwd(jacrev(func, argnums), argnums)
