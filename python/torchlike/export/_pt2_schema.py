"""Numbers and names that archives of programs have for types, layouts and devices."""

from __future__ import annotations

import operator
from typing import Any

import torchlike

_DTYPES = {
    "uint8": 1, "int8": 2, "int16": 3, "int32": 4, "int64": 5, "float16": 6, "float32": 7,
    "float64": 8, "complex32": 9, "complex64": 10, "complex128": 11, "bool": 12, "bfloat16": 13,
    "uint16": 28, "float8_e4m3fn": 29, "float8_e5m2": 30, "float8_e4m3fnuz": 31,
    "float8_e5m2fnuz": 32, "float8_e8m0fnu": 33, "uint32": 34, "uint64": 35,
}  # fmt: skip
DTYPE_NUMBERS: dict[Any, int] = {
    getattr(torchlike, name): number for name, number in _DTYPES.items() if hasattr(torchlike, name)
}
DTYPES = {number: dtype for dtype, number in DTYPE_NUMBERS.items()}
FORMAT_NUMBERS: dict[Any, int] = {
    torchlike.contiguous_format: 1,
    torchlike.channels_last: 2,
    torchlike.channels_last_3d: 3,
    torchlike.preserve_format: 4,
}
FORMATS = {number: kind for kind, number in FORMAT_NUMBERS.items()}
STRIDED = 7
# functions of sizes; a program calls no others by Python's names
SIZE_FUNCTIONS: dict[str, Any] = {
    f"_operator.{name}": getattr(operator, name)
    for name in (
        *("add", "sub", "mul", "floordiv", "mod", "neg", "pow"),
        *("eq", "ge", "gt", "le", "lt", "ne"),
    )
}
SIZE_NAMES = {function: name for name, function in SIZE_FUNCTIONS.items()}
# calls that check what is known of a program, and give nothing
_CHECKS = "_assert_tensor_metadata _assert_scalar sym_constrain_range sym_constrain_range_for_size"
CHECKS = {f"torch.ops.aten.{name}.default" for name in _CHECKS.split()}
CHECKS |= {"torch.ops.aten._assert_async.msg", "torch.ops.aten._assert_async.default"}
MAJOR, MINOR = 8, 20


def device_data(device: Any) -> dict[str, Any]:
    """A device as data."""
    return {"type": device.type, "index": device.index}
