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


@functools.cache
def _is_plain(cls: type) -> bool:
    """Whether the copy of a module of this class is a new one with the copies of its attributes."""
    alike = ("__reduce_ex__", "__reduce__", "__getstate__")
    return (
        not hasattr(cls, "__deepcopy__")
        and all(getattr(cls, n, None) is getattr(object, n, None) for n in alike)
        and cls.__setstate__ is torch.nn.Module.__setstate__  # type: ignore[attr-defined]
        and not copyreg._slotnames(cls)  # type: ignore[attr-defined]
    )


class _Copier:
    """Copies modules as `copy.deepcopy` does, and makes what is registered fake."""

    def __init__(self, mode: FakeTensorMode, device: torch.device) -> None:
        self.mode, self.device = mode, device
        self.memo: dict[int, Any] = {}

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
        if not isinstance(m, torch.nn.Module) or not _is_plain(cls):
            return self.other(m)
        made = self.memo[id(m)] = cls.__new__(cls)
        state, kinds = made.__dict__, m.__dict__.get("_kinds", {})
        for name, value in m.__dict__.items():
            kind = kinds.get(name)
            if type(value) in _ATOMS:
                state[name] = value
            elif kind == "module":
                state[name] = self.module(value)
            elif kind is not None:
                state[name] = self.tensor(value)
            elif name in ("_kinds", "_non_persistent_buffers_set"):
                state[name] = value.copy()
            else:
                state[name] = self.other(value)
        return made

    def tensor(self, t: Any) -> Any:
        """The fake copy of what is registered; one that is to move is made where it goes."""
        known = self.memo.get(id(t))
        if known is not None:
            return known
        strided = type(t) in (torch.nn.Parameter, torch.Tensor) and t.layout is torch.strided
        if not strided or t.device == self.device or t.grad is not None or not t.is_leaf:
            return self.other(t)
        with self.mode:
            made = torch.empty_like(t.detach(), device=self.device)
        if type(t) is torch.nn.Parameter:
            made = torch.nn.Parameter(made, t.requires_grad)
        else:
            made.requires_grad_(t.requires_grad)
        self.memo[id(t)] = made
        return made


def fake_copy(model: Any, mode: FakeTensorMode, device: torch.device) -> Any:
    """A model as it is, of fake tensors, whose parameters and buffers are on a device."""
    made = _Copier(mode, device).module(model)
    with mode:
        return made.to(device)
