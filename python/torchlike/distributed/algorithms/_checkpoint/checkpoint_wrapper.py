"""Modules whose activations are computed again in backward, or wait for it on the host."""

from __future__ import annotations

from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any

from torchlike.autograd.graph import save_on_cpu
from torchlike.distributed.fsdp import wrap
from torchlike.nn.modules.module import Module
from torchlike.utils.checkpoint import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torchlike.nn import Parameter

__all__ = [
    "ActivationWrapper",
    "CheckpointImpl",
    "CheckpointWrapper",
    "OffloadWrapper",
    "apply_activation_checkpointing",
    "checkpoint_wrapper",
    "offload_wrapper",
]

_CHECKPOINT_WRAPPED_MODULE = "_checkpoint_wrapped_module"
_CHECKPOINT_PREFIX = f"{_CHECKPOINT_WRAPPED_MODULE}."


class CheckpointImpl(Enum):
    """How activations are computed again."""

    REENTRANT = auto()
    NO_REENTRANT = auto()


class ActivationWrapper(Module):
    """A module around another, whose names are those of the other."""

    def __init__(self, mod: Module) -> None:
        super().__init__()
        self._checkpoint_wrapped_module = mod
        self._register_state_dict_hook(self._without_prefix)
        self.register_load_state_dict_pre_hook(self._with_prefix)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What kinds of wrappers say."""
        raise ValueError("Subclasses should implement forward().")

    def __getattr__(self, name: str) -> Any:
        try:
            return Module.__getattr__(self, name)
        except AttributeError:
            if name == _CHECKPOINT_WRAPPED_MODULE:
                raise
            return getattr(self._modules[_CHECKPOINT_WRAPPED_MODULE], name)

    def __getitem__(self, key: int) -> Any:
        wrapped: Any = self._checkpoint_wrapped_module
        return wrapped[key]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Parameter]]:
        """The parameters, under the names that they have unwrapped."""
        for name, p in super().named_parameters(*args, **kwargs):
            yield name.replace(_CHECKPOINT_PREFIX, ""), p

    @staticmethod
    def _without_prefix(_: Module, state: dict[str, Any], prefix: str, *__: Any) -> None:
        inner = prefix + _CHECKPOINT_PREFIX
        for key in [k for k in state if k.startswith(inner)]:
            state[prefix + key[len(inner) :]] = state.pop(key)

    @staticmethod
    def _with_prefix(_: Module, state: dict[str, Any], prefix: str, *__: Any) -> None:
        for key in [k for k in state if k.startswith(prefix)]:
            state[prefix + _CHECKPOINT_PREFIX + key[len(prefix) :]] = state.pop(key)


class OffloadWrapper(ActivationWrapper):
    """What the module saves for backward waits on the host."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        with save_on_cpu(pin_memory=True):
            return self._checkpoint_wrapped_module(*args, **kwargs)


class CheckpointWrapper(ActivationWrapper):
    """What the module saves for backward is computed again.

    Args:
        mod: the module.
        checkpoint_impl: which way of `torch.utils.checkpoint`.
        checkpoint_fn: what is called in its place.
        checkpoint_fn_kwargs: for either.
    """

    def __init__(
        self,
        mod: Module,
        checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
        checkpoint_fn: Any = None,
        **checkpoint_fn_kwargs: Any,
    ) -> None:
        super().__init__(mod)
        self.checkpoint_impl = checkpoint_impl
        if checkpoint_fn is None:
            reentrant = checkpoint_impl is CheckpointImpl.REENTRANT
            self.checkpoint_fn: Any = partial(
                checkpoint, use_reentrant=reentrant, **checkpoint_fn_kwargs
            )
        else:
            self.checkpoint_fn = partial(checkpoint_fn, **checkpoint_fn_kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """What the module computes."""
        wrapped = self._checkpoint_wrapped_module
        if self.checkpoint_impl is not CheckpointImpl.REENTRANT or not kwargs:
            return self.checkpoint_fn(wrapped, *args, **kwargs)
        # The older way passes positional arguments alone.
        names, count = tuple(kwargs), len(args)

        def called(*flat: Any) -> Any:
            return wrapped(*flat[:count], **dict(zip(names, flat[count:], strict=True)))

        return self.checkpoint_fn(called, *args, *kwargs.values())


def offload_wrapper(module: Module) -> Module:
    """A module whose saved tensors wait on the host."""
    return OffloadWrapper(module)


def checkpoint_wrapper(
    module: Module,
    checkpoint_impl: CheckpointImpl = CheckpointImpl.NO_REENTRANT,
    checkpoint_fn: Any = None,
    **checkpoint_fn_kwargs: Any,
) -> Module:
    """A module whose activations are computed again in backward."""
    return CheckpointWrapper(module, checkpoint_impl, checkpoint_fn, **checkpoint_fn_kwargs)


def apply_activation_checkpointing(
    model: Module,
    checkpoint_wrapper_fn: Callable[[Module], Module] = checkpoint_wrapper,
    check_fn: Callable[[Module], bool] = lambda _: True,
    auto_wrap_policy: Callable[..., bool] | None = None,
) -> None:
    """Wraps modules of a model, in place.

    Args:
        model: the model, which is not wrapped itself.
        checkpoint_wrapper_fn: what wraps.
        check_fn: which modules are wrapped.
        auto_wrap_policy: the same as a policy of `FullyShardedDataParallel`.
    """
    if auto_wrap_policy is None:
        auto_wrap_policy = partial(wrap.lambda_auto_wrap_policy, lambda_fn=check_fn)
    wrap._recursive_wrap(
        model, auto_wrap_policy, checkpoint_wrapper_fn, set(), set(), only_wrap_children=True
    )
