"""What libraries ask of tensors inside transforms."""

from __future__ import annotations

from typing import Any

from torchlike import _C


def is_batchedtensor(t: Any) -> bool:
    """Whether a tensor is an example of a batch."""
    return isinstance(t, _C.Tensor) and bool(_C._batch_whole(t)[0])


def is_legacy_batchedtensor(t: Any) -> bool:
    """False: there is one kind of them."""
    return False


def is_gradtrackingtensor(t: Any) -> bool:
    """False: tensors are not wrapped for gradients."""
    return False


def is_functorch_wrapped_tensor(t: Any) -> bool:
    """Whether a tensor is an example of a batch."""
    return is_batchedtensor(t)


def get_unwrapped(t: Any) -> Any:
    """All examples of the tensor's batches, the outermost first."""
    return _C._batch_whole(t)[1]


def maybe_get_level(t: Any) -> int:
    """How deep the innermost level is that a tensor is an example of; -1 for other tensors."""
    levels = _C._batch_whole(t)[0]
    return _C._batch_depth(levels[-1]) if levels else -1


def maybe_get_bdim(t: Any) -> int:
    """The dimension of the examples: 0, and -1 for other tensors."""
    return 0 if is_batchedtensor(t) else -1


def _add_batch_dim(t: Any, dim: int, level: int) -> Any:
    """One example of a tensor, for all along a dimension."""
    return _C._batch_hide(t, dim, level)


def _remove_batch_dim(t: Any, level: int, batch_size: int, out_dim: int) -> Any:
    """All examples of a level, along a dimension."""
    return _C._batch_show(t, out_dim, level, batch_size)


def _vmap_increment_nesting(batch_size: int, randomness: str) -> int:
    """Opens a level; its number."""
    return _C._batch_enter(batch_size, randomness)
