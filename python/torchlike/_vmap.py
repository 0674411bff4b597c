"""`vmap`: functions of one example on batches of them."""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C, _lazy
from torchlike._C import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# Importing torchlike makes `vmap`, but not what it needs once it runs.
_pytree = _lazy.module("torchlike.utils._pytree")


@contextlib.contextmanager
def level(size: int, randomness: str) -> Iterator[int]:
    """Inside, a level for so many examples is open; gives its number."""
    number = _C._batch_enter(size, randomness)
    try:
        yield number
    finally:
        _C._batch_exit(number)


def name_of(func: Any) -> str:
    """What messages call a function."""
    if isinstance(func, functools.partial):
        return f"functools.partial({name_of(func.func)}, ...)"
    return getattr(func, "__name__", None) or repr(func)


def check_randomness(randomness: Any) -> None:
    if randomness not in ("error", "different", "same"):
        raise RuntimeError(
            f"Only allowed values for randomness are 'error', 'different', or 'same'. Got {randomness}"
        )


def vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """The function `func` of one example, for a batch of them.

    Args:
        in_dims: along which dimension of each input the examples lie, None for what is the same for all; a number,
            or nested as the inputs are.
        out_dims: along which dimension of the outputs they shall lie.
        randomness: what random operators do: 'error', 'different' or 'same' numbers for each example.
        chunk_size: how many examples run at a time; all by default.

    Raises:
        ValueError: if dimensions do not fit inputs or outputs, or outputs are no tensors.
        RuntimeError: where the function decides by the value of an example.
    """
    check_randomness(randomness)
    if not (chunk_size is None or chunk_size > 0):
        raise ValueError(f"vmap: chunk_size should be None or greater than 0. (got {chunk_size})")

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        replaced = sys.modules.get("torchlike._functorch.vmap")
        if replaced is not None and replaced._process_batched_inputs is not None:
            return replaced.run(func, in_dims, out_dims, randomness, chunk_size, args, kwargs)
        leaves, dims, spec, size = inputs(func, in_dims, args)
        if chunk_size is None or size <= chunk_size:
            return _run(func, leaves, dims, spec, size, out_dims, randomness, kwargs)
        pieces = []
        drawn = torch.get_rng_state() if randomness == "same" else None
        for start in range(0, size, chunk_size):
            if drawn is not None:
                torch.set_rng_state(drawn)
            count = min(chunk_size, size - start)
            part = [
                x if d is None else x.narrow(d, start, count)
                for x, d in zip(leaves, dims, strict=True)
            ]
            made = _run(func, part, dims, spec, count, out_dims, randomness, kwargs)
            pieces.append(_pytree.tree_flatten(made))
        return _joined(pieces, out_dims)

    return wrapped


vmap.__module__ = "torchlike.func"  # where PyTorch has it


def _joined(pieces: list[tuple[list[Any], Any]], out_dims: Any) -> Any:
    spec = pieces[0][1]
    dims = _pytree._broadcast_to_and_flatten(out_dims, spec)
    columns = zip(*(leaves for leaves, _ in pieces), strict=True)
    made = [
        parts[0] if d is None else torch.cat(parts, dim=d)
        for parts, d in zip(columns, dims, strict=True)
    ]
    return _pytree.tree_unflatten(made, spec)


def inputs(func: Any, in_dims: Any, args: tuple[Any, ...]) -> tuple[list[Any], list[Any], Any, int]:
    """The flattened inputs with their dimensions, how they nest, and how many examples there are."""
    where = f"vmap({name_of(func)}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, int | tuple):
        raise ValueError(
            f"{where}: expected `in_dims` to be int or a (potentially nested) tuple matching the structure of "
            f"inputs, got: {type(in_dims)}."
        )
    if len(args) == 0:
        raise ValueError(
            f"vmap({name_of(func)})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are "
            "trying to vmap over a function with no inputs. The latter is unsupported."
        )
    leaves, spec = _pytree.tree_flatten(args)
    dims = _pytree._broadcast_to_and_flatten(in_dims, spec)
    if dims is None:
        raise ValueError(
            f"{where}: in_dims is not compatible with the structure of `inputs`. in_dims has structure "
            f"{_pytree.tree_flatten(in_dims)[1]} but inputs has structure {spec}."
        )
    for i, (x, dim) in enumerate(zip(leaves, dims, strict=True)):
        if dim is None:
            continue
        if not isinstance(dim, int):
            raise ValueError(
                f"{where}: Got in_dim={dim} for an input but in_dim must be either an integer dimension or None."
            )
        if not isinstance(x, Tensor):
            raise ValueError(
                f"{where}: Got in_dim={dim} for an input but the input is of type {type(x)}. We cannot vmap over "
                "non-Tensor arguments, please use None as the respective in_dim"
            )
        if not -x.dim() <= dim < x.dim():
            raise ValueError(
                f"{where}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality {x.dim()} "
                f"so expected in_dim to satisfy -{x.dim()} <= in_dim < {x.dim()}."
            )
        dims[i] = dim % x.dim()
    sizes = [x.size(d) for x, d in zip(leaves, dims, strict=True) if d is not None]
    if not sizes:
        raise ValueError("vmap: Expected at least one Tensor to vmap over")
    if any(n != sizes[0] for n in sizes):
        raise ValueError(
            "vmap: Expected all tensors to have the same size in the mapped dimension, got sizes "
            f"{sizes} for the mapped dimension"
        )
    return leaves, dims, spec, sizes[0]


def _run(
    func: Any,
    leaves: Sequence[Any],
    dims: Sequence[Any],
    spec: Any,
    size: int,
    out_dims: Any,
    randomness: str,
    kwargs: dict[str, Any],
) -> Any:
    _check_out_dims(func, out_dims)
    with level(size, randomness) as number:
        examples = [
            x if d is None else _C._batch_hide(x, d, number)
            for x, d in zip(leaves, dims, strict=True)
        ]
        made = func(*_pytree.tree_unflatten(examples, spec), **kwargs)
        return _outputs(func, made, out_dims, number, size)


def _check_out_dims(func: Any, out_dims: Any) -> None:
    if out_dims.__class__ is int:
        return
    if not all(isinstance(d, int) or d is None for d in _pytree.tree_leaves(out_dims)):
        raise ValueError(
            f"vmap({name_of(func)}, ..., out_dims={out_dims}): `out_dims` must be an int, None or a python collection "
            "of ints representing where in the outputs the vmapped dimension should appear."
        )


def _outputs(func: Any, made: Any, out_dims: Any, level: int, size: int) -> Any:
    """The outputs with all examples along their dimensions."""
    leaves, spec = _pytree.tree_flatten(made)
    name = name_of(func)

    def incompatible() -> ValueError:
        return ValueError(
            f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the structure of "
            f"`outputs`. out_dims has structure {_pytree.tree_flatten(out_dims)[1]} but outputs has structure {spec}."
        )

    if isinstance(made, Tensor):
        if isinstance(out_dims, int) or out_dims is None:
            dims = [out_dims]
        elif isinstance(out_dims, tuple) and len(out_dims) == 1:
            dims = list(out_dims)
        else:
            raise incompatible()
    else:
        found = _pytree._broadcast_to_and_flatten(out_dims, spec)
        if found is None:
            raise incompatible()
        dims = found
    return _pytree.tree_unflatten(
        [_shown(name, x, d, level, size) for x, d in zip(leaves, dims, strict=True)], spec
    )


def _shown(name: str, x: Any, dim: int | None, level: int, size: int) -> Any:
    if dim is None:
        if isinstance(x, Tensor) and _C._batch_is_at(x, level):
            raise ValueError(
                f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None"
            )
        return x
    if not isinstance(x, Tensor):
        raise ValueError(
            f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(x)}. Did you mean to set "
            "out_dims= to None for output?"
        )
    return _C._batch_show(x, dim, level, size)
