"""A fake copy of a model, on the device that a plan is for."""

from __future__ import annotations

import copy
import copyreg
import functools
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike._subclasses.fake_tensor import FakeCopyMode

if TYPE_CHECKING:
    from torchlike._subclasses.fake_tensor import FakeTensorMode

_ATOMS = frozenset(
    (int, float, bool, complex, str, bytes, type(None), torch.dtype, torch.device, torch.Size)
)
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_CONTAINERS = frozenset(("_kinds", "_non_persistent_buffers_set"))
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


def _is_atom(value: Any) -> bool:
    """Whether a value is its own copy."""
    cls = type(value)
    return cls in _ATOMS or (cls is tuple and all(map(_is_atom, value)))


class _Copier:
    """Copies modules as `copy.deepcopy` does, and makes what is registered fake, on a device."""

    def __init__(self, mode: FakeTensorMode, device: torch.device) -> None:
        self.mode, self.device = mode, device
        self.memo: dict[int, Any] = {}
        self.placed = True
        """Whether all that was copied is on the device."""

    def other(self, value: Any) -> Any:
        """A copy of something else, with fake tensors in it."""
        with FakeCopyMode(self.mode):
            return copy.deepcopy(value, self.memo)

    def module(self, m: Any) -> Any:
        """The copy of a module."""
        known = self.memo.get(id(m))
        if known is not None:
            return known
        cls: Any = type(m)
        if not _is_plain(cls):
            self.placed = False
            return self.other(m)
        made = self.memo[id(m)] = cls.__new__(cls)
        old, new = m._state_, made._state_
        kinds = old.get("_kinds", {})
        for name, value in old.items():
            if type(value) in _ATOMS:
                new[name] = value
                continue
            kind = kinds.get(name)
            if kind == "module":
                new[name] = self.module(value)
            elif kind is not None:
                new[name] = self.tensor(value)
            elif name in _CONTAINERS:
                new[name] = value.copy()
            else:
                new[name] = value if _is_atom(value) else self.other(value)
        return made

    def tensor(self, t: Any) -> Any:
        """The fake copy of what is registered; one that is to move is made where it goes."""
        known = self.memo.get(id(t))
        if known is not None:
            return known
        made = self.mode._core.placed(t, self.device)
        if made is None and type(t) in _TENSORS and t.device == self.device:
            made = self.mode.from_tensor(t)
        if made is None:
            self.placed = False
            return self.other(t)
        self.memo[id(t)] = made
        return made


def fake_copy(model: Any, mode: FakeTensorMode, device: torch.device) -> Any:
    """A model as it is, of fake tensors, whose parameters and buffers are on a device."""
    copier = _Copier(mode, device)
    made = copier.module(model)
    if not copier.placed:
        with mode:
            made = made.to(device)
    return made
