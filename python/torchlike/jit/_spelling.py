"""What functions of Python are called in code: operators by name, others by a function of the library."""

from __future__ import annotations

import functools
import math
from typing import Any

import torchlike
from torchlike import _C
from torchlike.jit import (
    _functions,
    _library,
    _library_activations,
    _library_attention,
    _library_images,
    _library_losses,
    _library_sequences,
    _library_sets,
)
from torchlike.jit._otherwise import WITHOUT_OPERATOR

_MODULES = {
    "torchlike": "", "torchlike.linalg": "linalg_", "torchlike.fft": "fft_", "torchlike.special": "special_",
    "torchlike._C": "", "torchlike._functions": "", "torchlike.functional": "",
}  # fmt: skip


@functools.cache
def _functional() -> dict[int, str]:
    """The names of the functions of `nn.functional`."""
    names = (n for n in dir(torchlike.nn.functional) if not n.startswith("_"))
    return {id(getattr(torchlike.nn.functional, n)): n for n in names}


@functools.cache
def _public() -> dict[int, str]:
    """The names of functions that are operators."""
    found: dict[int, str] = {}
    for space, prefix in (
        (torchlike, ""),
        (torchlike.linalg, "linalg_"),
        (torchlike.fft, "fft_"),
        (torchlike.special, "special_"),
    ):
        for name in dir(space):
            value = getattr(space, name, None)
            known = _functions.is_operator(prefix + name) or name in WITHOUT_OPERATOR
            if (
                callable(value)
                and not isinstance(value, type)
                and not name.startswith("_")
                and known
            ):
                found.setdefault(id(value), prefix + name)
    return found


_WRITTEN = (
    torchlike.unique,
    torchlike.unique_consecutive,
    torchlike.nn.utils.rnn.pack_padded_sequence,
    torchlike.nn.utils.rnn.pad_packed_sequence,
)


def written(function: Any) -> Any | None:
    """The function of the library that scripts call in place of one that takes arguments of several kinds."""
    return named(function.__name__) if function in _WRITTEN else None


def library(function: Any) -> Any | None:
    """The function of the library that stands for one of `nn.functional`, if there is one."""
    if function is torchlike._assert:
        return _library._assert
    name = _functional().get(id(function))
    return None if name is None else named(name)


def named(name: str) -> Any | None:
    """The function of the library of a name of `nn.functional`, if there is one."""
    homes = (
        *(_library, _library_activations, _library_attention),
        *(_library_images, _library_losses, _library_sequences, _library_sets),
    )
    found = (getattr(home, name, None) for home in homes)
    return next((f for f in found if f is not None), None)


def is_functional(function: Any) -> bool:
    """Whether a function is one of `nn.functional` alone, whose arguments may be others than its operator's."""
    return id(function) in _functional() and id(function) not in _public()


def operator(function: Any) -> str | None:
    """The name of the operator that a function is, as it stands behind `torch.` in code; `space::name` for others'."""
    if function is torchlike.nn.utils.rnn.pad_sequence:
        return "pad_sequence"
    if function is _C._set_grad_enabled:
        return "set_grad_enabled"
    packet = getattr(function, "_qualified_op_name", None)
    if isinstance(packet, str):
        return packet.removeprefix("aten::")
    name = _public().get(id(function))
    if name is not None:
        return name
    name = _functional().get(id(function))
    if name is not None and _functions.is_operator(name):
        return name
    last = getattr(function, "__name__", "")
    if last and getattr(math, last, None) is function:
        return str(last)
    return None


def path(operator: str) -> str:
    """The dotted name of an operator (`add`, `torchvision::nms`) in code."""
    space, _, name = operator.rpartition("::")
    return f"ops.{space}.{name}" if space not in ("", "aten") else f"torch.{name}"
