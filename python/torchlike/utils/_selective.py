"""Choosing, operator by operator, what a checkpointed part keeps and what it computes again."""

from __future__ import annotations

import enum
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike._C import Tensor
from torchlike.utils._python_dispatch import TorchDispatchMode
from torchlike.utils._pytree import tree_map

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "SAC_IGNORED_OPS",
    "CheckpointPolicy",
    "SelectiveCheckpointContext",
    "create_selective_checkpoint_contexts",
]

SAC_IGNORED_OPS = {torch.ops.aten.detach.default}


class CheckpointPolicy(enum.Enum):
    """What becomes of an operator's results; eager execution treats "prefer" as "must"."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3


class SelectiveCheckpointContext:
    """What a policy is told beside the operator: whether it is computed again."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


def _saves(policy: Any) -> bool:
    if isinstance(policy, bool):
        return policy
    return policy in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)


class _Version:
    """A result, which must not be written until it is needed."""

    def __init__(self, value: Any, mutable: bool) -> None:
        tensor = isinstance(value, Tensor)
        self.value = value.detach() if tensor else value
        self.version = value._version if tensor and not mutable else None

    def get(self) -> Any:
        """The result."""
        if self.version is not None and self.value._version != self.version:
            raise RuntimeError(
                "Tensor cached during selective activation checkpoint has been mutated"
            )
        return self.value


_Storage = dict[Any, list[Any]]


class _Selective(TorchDispatchMode):
    _recompute = False

    def __init__(self, policy: Callable[..., Any], storage: _Storage, mutable: bool) -> None:
        super().__init__()
        self.policy = policy
        self.storage = storage
        self.mutable = mutable

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {} if kwargs is None else kwargs
        if func in SAC_IGNORED_OPS:
            return func(*args, **kwargs)
        context = SelectiveCheckpointContext(is_recompute=self._recompute)
        return self._call(func, args, kwargs, _saves(self.policy(context, func, *args, **kwargs)))

    def _call(self, func: Any, args: Any, kwargs: Any, saves: bool) -> Any:
        raise NotImplementedError


class _Caching(_Selective):
    """The first run: keeps the results that the policy names."""

    def _call(self, func: Any, args: Any, kwargs: Any, saves: bool) -> Any:
        made = func(*args, **kwargs)
        if saves:
            self.storage[func].append(tree_map(lambda v: _Version(v, self.mutable), made))
        return made


class _Cached(_Selective):
    """The other run: takes them from there."""

    _recompute = True

    def _call(self, func: Any, args: Any, kwargs: Any, saves: bool) -> Any:
        if not saves:
            return func(*args, **kwargs)
        if func not in self.storage:
            raise RuntimeError(f"{func} encountered during backward, but not found in storage")
        if not self.storage[func]:
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward once on any region "
                "computed under selective activation checkpoint."
            )
        return tree_map(_Version.get, self.storage[func].pop(0))


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False
) -> tuple[Any, Any]:
    """The contexts for `checkpoint(context_fn=...)` that keep what a policy names.

    Args:
        policy_fn_or_list: operators that are kept, or ``policy(context, operator, *args, **kwargs)``.
        allow_cache_entry_mutation: what is kept may be written in between.
    """
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            if not isinstance(op, torch._ops.OpOverload):
                extra = (
                    "Please update the OpOverloadPacket to a specific OpOverload."
                    if isinstance(op, torch._ops.OpOverloadPacket)
                    else ""
                )
                raise ValueError(
                    f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}. {extra}"
                )
        kept = set(policy_fn_or_list)

        def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            return CheckpointPolicy.MUST_SAVE if op in kept else CheckpointPolicy.PREFER_RECOMPUTE

    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    storage: _Storage = defaultdict(list)
    return (
        _Caching(policy, storage, allow_cache_entry_mutation),
        _Cached(policy, storage, allow_cache_entry_mutation),
    )
