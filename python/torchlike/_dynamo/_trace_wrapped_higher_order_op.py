"""Indexing by tensors of one element, under `vmap`."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike.overrides import TorchFunctionMode


class TransformGetItemToIndex(TorchFunctionMode):
    """Inside, `t[i]` with integer tensors `i` of no dimension gathers instead of reading the numbers."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torchlike.Tensor.__getitem__ and len(args) == 2:
            index = args[1] if isinstance(args[1], tuple) else (args[1],)
            if index and all(
                isinstance(i, torchlike.Tensor) and i.dim() == 0 and not i.is_floating_point()
                for i in index
            ):
                # a dimension, so that no number is read
                rows = torchlike.ops.aten.index(args[0], [i.unsqueeze(0) for i in index])
                return rows.squeeze(0)
        return func(*args, **(kwargs or {}))
