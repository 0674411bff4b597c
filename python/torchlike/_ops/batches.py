"""Operators of Python under `vmap`: by the rule that was registered, or one example after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C, _lazy

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike._ops import OpOverload
    from torchlike.autograd import _batched_function
else:
    _batched_function = _lazy.module("torchlike.autograd._batched_function")

RULE = "FuncTorchBatched"


def run(
    overload: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], levels: list[int]
) -> Any:
    """The result of a call with examples of some levels of `vmap`.

    Raises:
        RuntimeError: if there is no rule, and the operator takes or gives lists, or writes.
    """
    rule = overload.kernels.get(RULE) or _one_by_one(overload)
    told = RULE in overload.kernels
    return _batched_function.by_rule(overload.name(), rule, args, kwargs, levels, told)


def _one_by_one(overload: OpOverload) -> Callable[..., Any]:
    schema, name = overload._schema, overload.name()
    if schema.is_mutable or overload.is_view:
        raise RuntimeError(
            f"Batching rule not implemented for {name}; the fallback path doesn't work on out= or view ops."
        )
    several = [a.base == "Tensor" and a.is_list for a in (*schema.arguments, *schema.returns)]
    if any(several) or not schema.returns:
        raise RuntimeError(
            f"Batching rule not implemented for {name}. We could not generate a fallback."
        )

    def rule(info: Any, in_dims: tuple[Any, ...], *args: Any, **kwargs: Any) -> Any:
        _C._batch_warn(name)
        made = [
            overload(
                *(a if d is None else a[i] for a, d in zip(args, in_dims, strict=True)), **kwargs
            )
            for i in range(info.batch_size)
        ]
        if len(schema.returns) == 1:
            return torch.stack(made), 0
        return tuple(torch.stack(column) for column in zip(*made, strict=True)), 0

    return rule
