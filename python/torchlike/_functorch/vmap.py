"""PyTorch's private parts of `vmap`, by their names; replacing them changes nothing here."""

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


def _maybe_remove_batch_dim(
    name: str, batched_output: Any, vmap_level: int, batch_size: int, out_dim: int | None
) -> Any:
    """All examples of an output; the output itself where `out_dim` is None."""
    return _vmap._shown(name, batched_output, out_dim, vmap_level, batch_size)
