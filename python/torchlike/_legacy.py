"""The old tensor types: `FloatTensor(2, 3)`, `isinstance(t, LongTensor)`."""

from __future__ import annotations

from typing import Any

from torchlike import _C

_DTYPES = {
    "BFloat16Tensor": _C.bfloat16,
    "BoolTensor": _C.bool,
    "ByteTensor": _C.uint8,
    "CharTensor": _C.int8,
    "DoubleTensor": _C.float64,
    "FloatTensor": _C.float32,
    "HalfTensor": _C.float16,
    "IntTensor": _C.int32,
    "LongTensor": _C.int64,
    "ShortTensor": _C.int16,
}


class tensortype(type):
    """The type of the old tensor types: calling one makes a CPU tensor of its dtype."""

    dtype: Any

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        device = kwargs.pop("device", None)
        if kwargs:
            raise TypeError(f"{cls.__name__}(): got an unexpected keyword argument '{next(iter(kwargs))}'")
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


def _fill(names: dict[str, Any]) -> None:
    for name, dtype in _DTYPES.items():
        names[name] = tensortype(name, (), {"dtype": dtype, "__module__": "torchlike"})
