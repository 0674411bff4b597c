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
            if loose is not None:
                loose.append(on)
        return moved[id(t)][1]

    def other(value: Any) -> Any:
        with FakeCopyMode(mode):
            made = copy.deepcopy(value, memo)
        if not any(isinstance(t, _C.Tensor) for t in pytree.tree_leaves(made)):
            return made
        with mode:
            return pytree.tree_map(there, made)

    made, placed = _C._fake_copy(
        model, mode._core, device, memo, _is_plain, mode.from_tensor, other
    )
    if not placed:
        with mode:
            made = made.to(device)
    return made
