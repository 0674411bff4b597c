"""What stands between a wrapped module and its passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import nn
from torchlike.distributed.fsdp._flat import FlatGroup, FlatParam, Ranks
from torchlike.distributed.fsdp._fully_shard._param import Place
from torchlike.distributed.fsdp._fully_shard._state import State, _to

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True)
class Policy:
    """The dtypes of a wrapper, as its hooks ask for them."""

    param_dtype: Any
    reduce_dtype: Any
    buffer_dtype: Any
    cast_forward_inputs: bool
    cast_root_forward_inputs: bool
    output_dtype: Any = None

    @classmethod
    def of(cls, mixed: Any) -> Policy:
        """That of a `MixedPrecision`."""
        if mixed is None:
            return cls(None, None, None, False, False)
        if mixed.keep_low_precision_grads:
            raise NotImplementedError(
                "torch.distributed.fsdp.MixedPrecision: keep_low_precision_grads is not supported by torchlike"
            )
        return cls(
            mixed.param_dtype,
            mixed.reduce_dtype,
            mixed.buffer_dtype,
            mixed.cast_forward_inputs,
            mixed.cast_root_forward_inputs,
        )


class WrappedState(State):
    """The hooks of one wrapper."""

    policy: Policy
    group: FlatGroup | None

    def __init__(self, wrapper: nn.Module, policy: Policy) -> None:
        super().__init__((wrapper,), policy, True)
        self._buffers_cast = policy.buffer_dtype is None

    def prepare(self) -> None:
        """Finds the wrappers below, and casts buffers."""
        super().prepare()
        if not self._buffers_cast:
            self._buffers_cast = True
            for module in own_modules(self.modules[0]):
                for name, b in module.named_buffers(recurse=False):
                    if b.is_floating_point():
                        module._buffers[name] = b.to(self.policy.buffer_dtype)

    def _cast(self, values: Any) -> Any:
        policy = self.policy
        casts = policy.cast_forward_inputs or (self.is_root and policy.cast_root_forward_inputs)
        return _to(values, policy.param_dtype) if casts and policy.param_dtype else values


def own_modules(root: nn.Module) -> Iterator[nn.Module]:
    """A wrapper's modules, without those of wrappers below."""
    from torchlike.distributed.fsdp._fully_shard._state import state_of

    seen: set[int] = set()

    def visit(module: nn.Module) -> Iterator[nn.Module]:
        if id(module) in seen:
            return
        seen.add(id(module))
        yield module
        for child in module.children():
            if state_of(child) is None:
                yield from visit(child)

    yield from visit(root)


def own_parameters(root: nn.Module, ignored: set[int]) -> list[tuple[nn.Parameter, Place]]:
    """The parameters that a wrapper takes, in order, and where each is used."""
    places: dict[int, tuple[nn.Parameter, Place]] = {}
    for module in own_modules(root):
        for name, p in module.named_parameters(recurse=False, remove_duplicate=False):
            if id(p) in ignored:
                continue
            if id(p) in places:
                places[id(p)][1].add(module, name)
            else:
                places[id(p)] = (p, Place(module, name))
    return list(places.values())


def make_real(root: nn.Module, param_init_fn: Any, device: Any) -> None:
    """Gives a wrapper's meta parameters values: those of their sources, or of `param_init_fn`, or of
    `reset_parameters`.

    Raises:
        ValueError: if a module has no such method.
    """
    found = [
        m
        for m in own_modules(root)
        if any(t.is_meta for t in (*m.parameters(False), *m.buffers(False)))
    ]
    if not found:
        return
    if param_init_fn is not None:
        if not callable(param_init_fn):
            raise ValueError(
                f"Expected {param_init_fn} to be callable but got {type(param_init_fn)}"
            )
        for m in found:
            param_init_fn(m)
        return
    for m in found:
        meta = [t for t in (*m.parameters(False), *m.buffers(False)) if t.is_meta]
        if all(t.source is not None for t in meta):
            torch.materialize(meta)
            continue
        m.to_empty(device=device or "cpu", recurse=False)
        if not hasattr(m, "reset_parameters"):
            raise ValueError(
                f"Unable to call `reset_parameters()` for module on meta device: {type(m).__name__} has none. "
                "Please ensure that your module implements it."
            )
        with torch.no_grad():
            m.reset_parameters()


def group_for(
    wrapper: nn.Module,
    ranks: Ranks,
    policy: Policy,
    use_orig: bool,
    reshards: bool,
    ignored: Iterable[nn.Parameter],
) -> FlatGroup | None:
    """The flat tensor of what a wrapper takes; None if that is nothing."""
    root: Any = wrapper._modules["_fsdp_wrapped_module"]
    found = own_parameters(root, {id(p) for p in ignored})
    if not found:
        return None
    return FlatGroup(FlatParam(found, root, ranks, policy, use_orig), (wrapper,), reshards)
