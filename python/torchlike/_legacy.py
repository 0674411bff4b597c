"""The old tensor types: `FloatTensor(2, 3)`, `isinstance(t, LongTensor)`."""

from __future__ import annotations

from typing import Any

from torchlike import _C

__all__ = [
    "BFloat16Tensor",
    "BoolTensor",
    "ByteTensor",
    "CharTensor",
    "DoubleTensor",
    "FloatTensor",
    "HalfTensor",
    "IntTensor",
    "LongTensor",
    "ShortTensor",
]


class tensortype(type):
    """The type of the old tensor types: calling one makes a CPU tensor of its dtype."""

    dtype: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.pop("device", None)
        if kwargs:
            raise TypeError(
                f"{cls.__name__}(): got an unexpected keyword argument '{next(iter(kwargs))}'"
            )
        if device is not None and _C.device(device).type != "cpu":
            raise RuntimeError(
                f"legacy constructor expects device type: cpu but device type: {_C.device(device).type} was passed"
            )
        return _C._legacy(args, cls.dtype)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _C.Tensor) and (
            instance.dtype == cls.dtype and instance.device.type == "cpu"
        )

    @property
    def is_cuda(cls) -> bool:
        return False

    @property
    def layout(cls) -> Any:
        return _C.strided


def _type(name: str, dtype: Any) -> Any:
    return tensortype(name, (), {"dtype": dtype, "__module__": "torchlike"})


BFloat16Tensor = _type("BFloat16Tensor", _C.bfloat16)
BoolTensor = _type("BoolTensor", _C.bool)
ByteTensor = _type("ByteTensor", _C.uint8)
CharTensor = _type("CharTensor", _C.int8)
DoubleTensor = _type("DoubleTensor", _C.float64)
FloatTensor = _type("FloatTensor", _C.float32)
HalfTensor = _type("HalfTensor", _C.float16)
IntTensor = _type("IntTensor", _C.int32)
LongTensor = _type("LongTensor", _C.int64)
ShortTensor = _type("ShortTensor", _C.int16)
