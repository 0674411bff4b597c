"""PyTorch's private parts of `vmap`, by their names.

Libraries whose trees of tensors are batched as one put three functions of their own here; `vmap` calls them then.
"""

from __future__ import annotations

from typing import Any

from torchlike import _vmap
from torchlike._C import Tensor
from torchlike._core._functorch import _add_batch_dim, _remove_batch_dim
from torchlike._vmap import name_of as _get_name
from torchlike.utils._pytree import _broadcast_to_and_flatten, tree_flatten, tree_unflatten

__all__ = [
    "Tensor",
    "_add_batch_dim",
    "_broadcast_to_and_flatten",
    "_get_name",
    "_maybe_remove_batch_dim",
    "_remove_batch_dim",
    "tree_flatten",
    "tree_unflatten",
]


# What a library may put here: `(in_dims, args, func)` to size, dimensions, leaves and structure; `(dimensions,
# leaves, level, structure)` to the inputs of one example; `(outputs, out_dims, level, size, func)` to those of all.
_process_batched_inputs: Any = None
_create_batched_inputs: Any = None
_unwrap_batched: Any = None


def run(
    func: Any, in_dims: Any, out_dims: Any, randomness: str, chunk_size: Any, args: Any, kwargs: Any
) -> Any:
    """A call of `vmap` by the functions of a library.

    Raises:
        NotImplementedError: for a part of the batch at a time.
    """
    size, dims, leaves, spec = _process_batched_inputs(in_dims, args, func)
    if chunk_size is not None and chunk_size < size:
        raise NotImplementedError("vmap(chunk_size=) by functions of a library is not supported")
    with _vmap.level(size, randomness) as level:
        outputs = func(*_create_batched_inputs(dims, leaves, level, spec), **kwargs)
        return _unwrap_batched(outputs, out_dims, level, size, func)


def _maybe_remove_batch_dim(
    name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: int | None
) -> Any:
    """All examples of an output; the output itself where `out_dim` is None."""
    return _vmap._shown(name, batched_output, out_dim, vmap_level, batch_size)
