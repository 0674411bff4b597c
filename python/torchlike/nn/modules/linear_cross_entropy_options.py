"""How a linear layer and cross-entropy in one may be computed."""

from __future__ import annotations

from collections import namedtuple
from typing import TYPE_CHECKING, Any

import torchlike as torch

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["LinearCrossEntropyOptions"]

_POLICIES = ("accurate", "balanced", "compact", "auto")
_ACCUMULATORS = (None, torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _is_method(name: str | None) -> bool:
    """Whether a way to choose the size of pieces is known: one of three words, the last with a factor if wanted."""
    if name in (None, "auto", "aspect_ratio"):
        return True
    factor = name.removeprefix("aspect_ratio:")
    return factor != name and factor.isdecimal() and int(factor) > 0


class LinearCrossEntropyOptions(
    namedtuple(
        "LinearCrossEntropyOptions",
        ["allow_retain_graph", "batch_chunk_size", "chunking_method", "acc_policy", "acc_dtype"],
    )
):
    """How the loss may be computed in pieces; results do not depend on it."""

    __slots__ = ()

    def __new__(
        cls,
        allow_retain_graph: bool = False,
        batch_chunk_size: int | None = None,
        chunking_method: str | None = "auto",
        acc_policy: str = "auto",
        acc_dtype: Any = None,
    ) -> Self:
        if acc_policy not in _POLICIES:
            raise ValueError(f"invalid acc_policy: {acc_policy!r}")
        if not _is_method(chunking_method):
            raise ValueError(f"invalid chunking_method: {chunking_method!r}")
        size = batch_chunk_size
        if size is not None and not (isinstance(size, int) and size > 0):
            raise ValueError(f"batch_chunk_size must be positive int or None, got {size!r}")
        if acc_dtype not in _ACCUMULATORS:
            known = ", ".join(str(kind) for kind in _ACCUMULATORS)
            raise ValueError(
                f"acc_dtype must be one of {{{known}}}, got {acc_dtype}. "
                "Pass acc_dtype=None to let the op pick automatically."
            )
        return super().__new__(
            cls, allow_retain_graph, size, chunking_method, acc_policy, acc_dtype
        )
