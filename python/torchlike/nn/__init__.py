"""Layers, containers, losses and the functions they are made of."""

from typing import Any as _Any

from torchlike import _lazy
from torchlike.nn import common_types, functional, init, modules, parameter
from torchlike.nn.modules import *
from torchlike.nn.parameter import (
    Buffer,
    Parameter,
    UninitializedBuffer,
    UninitializedParameter,
)

from torchlike.nn import _reduction, attention, parallel, utils  # isort: skip  (they use the names above)
from torchlike.nn.parallel import DataParallel  # isort: skip


def factory_kwargs(kwargs: dict[str, _Any] | None) -> dict[str, _Any]:
    """What of a layer's keywords goes to factory functions such as ``empty``; others are refused."""
    if kwargs is None:
        return {}
    known = ("device", "dtype", "memory_format")
    unknown = kwargs.keys() - {*known, "factory_kwargs"}
    if unknown:
        raise TypeError(f"unexpected kwargs {unknown}")
    made = dict(kwargs.get("factory_kwargs", {}))
    for name in known:
        if name in kwargs:
            if name in made:
                raise TypeError(f"{name} specified twice, in **kwargs and in factory_kwargs")
            made[name] = kwargs[name]
    return made


grad = _lazy.module("torchlike.nn.grad")
intrinsic = _lazy.module("torchlike.nn.intrinsic")
qat = _lazy.module("torchlike.nn.qat")
quantized = _lazy.module("torchlike.nn.quantized")
