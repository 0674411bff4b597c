"""`chunk_vmap`, under PyTorch's private name for the module of `functorch`'s functions."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from torchlike import _vmap
from torchlike.func import grad, grad_and_value, vmap

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["chunk_vmap", "grad", "grad_and_value", "vmap"]


def chunk_vmap(
    func: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    chunks: int = 2,
) -> Callable[..., Any]:
    """`vmap` that runs the examples in so many parts, one after the other.

    Args:
        func: the function of one example.
        in_dims: as for `vmap`.
        out_dims: as for `vmap`.
        randomness: as for `vmap`.
        chunks: how many parts.

    Raises:
        RuntimeError: if `randomness` is no mode of `vmap`.
    """
    _vmap.check_randomness(randomness)

    @functools.wraps(func)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        *_, size = _vmap.inputs(func, in_dims, args)
        part = max(1, -(-size // chunks))
        run = vmap(func, in_dims, out_dims, randomness, chunk_size=part)
        return run(*args, **kwargs)

    return wrapped
