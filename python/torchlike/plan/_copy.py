"""A fake copy of a model, on the device that a plan is for."""

from __future__ import annotations

import copy
import copyreg
import functools
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike._subclasses.fake_tensor import FakeCopyMode
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchlike._subclasses.fake_tensor import FakeTensorMode

# What has to be as it is in `object`, and what as it is in `Module`.
_OF_OBJECT = ("__reduce_ex__", "__reduce__")
_OF_MODULE = ("__getstate__", "__setstate__", "__setattr__", "_apply", "to")


@functools.cache
def _is_plain(cls: type) -> bool:
    """Whether the copy of a module of this class is a new one with the copies of its attributes."""
    return (
        issubclass(cls, torch.nn.Module)
        and not hasattr(cls, "__deepcopy__")
        and all(getattr(cls, n) is getattr(object, n) for n in _OF_OBJECT)
        and all(getattr(cls, n) is getattr(torch.nn.Module, n) for n in _OF_MODULE)
        and not copyreg._slotnames(cls)  # type: ignore[attr-defined]
    )


def _unregistered(module: torch.nn.Module) -> list[tuple[str, Any]]:
    """What a module has besides its parameters, buffers and modules."""
    own = {*module._parameters, *module._buffers, *module._modules}
    return [(name, value) for name, value in vars(module).items() if name not in own]


def _held(value: Any) -> list[Any]:
    """The tensors of a value, and those that the modules of one have."""
    values = [value]
    if isinstance(value, torch.nn.Module):
        values = [part for module in value.modules() for part in vars(module).values()]
    return [t for t in pytree.tree_leaves(values) if isinstance(t, _C.Tensor)]


def _replaced(value: Any, made: Callable[[Any], Any]) -> Any:
    """A value with others in place of its tensors; lists and dictionaries, which several may hold, stay the same."""
    if isinstance(value, list):
        value[:] = [_replaced(part, made) for part in value]
    elif isinstance(value, dict):
        value.update((key, _replaced(part, made)) for key, part in [*value.items()])
    else:
        return pytree.tree_map(made, value)
    return value


def _quantized(t: Any, mode: FakeTensorMode) -> Any:
    """A quantised tensor over fake integers."""
    integers = mode.from_tensor(_C._integers(t))
    root: Any = torch
    with mode:
        if t.qscheme() is torch.per_tensor_affine:
            return root._make_per_tensor_quantized_tensor(integers, t.q_scale(), t.q_zero_point())
        numbers = t.q_per_channel_scales(), t.q_per_channel_zero_points()
        return root._make_per_channel_quantized_tensor(
            integers, *map(mode.from_tensor, numbers), t.q_per_channel_axis()
        )


def fake_copy(
    model: Any, mode: FakeTensorMode, device: torch.device, loose: list[Any] | None = None
) -> Any:
    """A model as it is, of fake tensors, whose parameters and buffers are on a device.

    Tensors that are plain attributes stay where they are, and are on the device if they are on meta; `loose` gets them.
    """
    memo: dict[int, Any] = {}
    moved: dict[int, tuple[Any, Any]] = {}

    def there(t: Any) -> Any:
        if not isinstance(t, _C.Tensor) or isinstance(t, torch.nn.Parameter):
            return t
        if id(t) not in moved:
            on = t.detach().to(device).requires_grad_(t.requires_grad) if t.is_meta else t
            moved[id(t)] = (t, on)
            moved[id(on)] = (on, on)
            if loose is not None:
                loose.append(on)
        return moved[id(t)][1]

    def twin(t: Any) -> Any:
        if t.is_quantized:
            return _quantized(t, mode)
        # A result that a module holds on to would bring its history along.
        return mode.from_tensor(t if t.is_leaf else t.detach())

    def placed_in(value: Any) -> Any:
        if not any(isinstance(t, _C.Tensor) for t in pytree.tree_leaves(value)):
            return value
        with mode:
            return _replaced(value, there)

    def other(value: Any) -> Any:
        for t in _held(value):
            if (t.is_quantized or not t.is_leaf) and id(t) not in memo:
                memo[id(t)] = twin(t)
        with FakeCopyMode(mode):
            made = copy.deepcopy(value, memo)
        for module in made.modules() if isinstance(made, torch.nn.Module) else ():
            for name, part in _unregistered(module):
                vars(module)[name] = placed_in(part)
        return placed_in(made)

    made, placed = _C._fake_copy(model, mode._core, device, memo, _is_plain, twin, other)
    if not placed:
        with mode:
            made = made.to(device)
    return made
