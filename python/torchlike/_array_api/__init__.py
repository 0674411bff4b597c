"""The array API, version 2024.12: what `Tensor.__array_namespace__` gives.

Names, parameters and types of results are the standard's where they differ from PyTorch's; everything else is the
function of the library. Source: the specification of the Consortium for Python Data API Standards.
"""

import math

import torchlike as torch
from torchlike._array_api import (
    _creation,
    _elementwise,
    _manipulation,
    _reductions,
    _searching,
    fft,
    linalg,
)
from torchlike._array_api._creation import *
from torchlike._array_api._elementwise import *
from torchlike._array_api._info import __array_namespace_info__
from torchlike._array_api._manipulation import *
from torchlike._array_api._reductions import *
from torchlike._array_api._searching import *
from torchlike._array_api._types import astype, can_cast, isdtype, result_type

__array_api_version__ = "2024.12"

e, inf, nan, pi = math.e, math.inf, math.nan, math.pi
newaxis = None

bool = torch.bool
int8, int16, int32, int64 = torch.int8, torch.int16, torch.int32, torch.int64
uint8, uint16, uint32, uint64 = torch.uint8, torch.uint16, torch.uint32, torch.uint64
float32, float64 = torch.float32, torch.float64
complex64, complex128 = torch.complex64, torch.complex128

# Functions that are the library's own.
_SAME = [
    "abs",
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atan2",
    "atanh",
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "ceil",
    "copysign",
    "cos",
    "cosh",
    "exp",
    "expm1",
    "floor",
    "hypot",
    "imag",
    "isfinite",
    "isinf",
    "isnan",
    "log",
    "log10",
    "log1p",
    "log2",
    "logaddexp",
    "logical_and",
    "logical_not",
    "logical_or",
    "logical_xor",
    "nextafter",
    "positive",
    "real",
    "reciprocal",
    "round",
    "sign",
    "signbit",
    "sin",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "tril",
    "triu",
    "trunc",
    "broadcast_to",
    "empty_like",
    "zeros_like",
    "ones_like",
    "full_like",
    "from_dlpack",
    "finfo",
    "iinfo",
]
for _name in _SAME:
    globals()[_name] = getattr(torch, _name)
for _name, _ours in {
    "bitwise_invert": "bitwise_not", "conj": "conj_physical", "equal": "eq", "greater": "gt", "greater_equal": "ge",
    "less": "lt", "less_equal": "le", "negative": "neg", "not_equal": "ne", "broadcast_arrays": "broadcast_tensors",
}.items():  # fmt: skip
    globals()[_name] = getattr(torch, _ours)
del _name, _ours

matmul, matrix_transpose, tensordot, vecdot = (
    linalg.matmul,
    linalg.matrix_transpose,
    linalg.tensordot,
    linalg.vecdot,
)

# Functions and classes are said to be of the standard's module, where pickles look for them.
for _part in (_creation, _elementwise, _manipulation, _reductions, _searching):
    for _name in _part.__all__:
        globals()[_name].__module__ = __name__
del _name, _part

__all__ = sorted(
    name for name in globals() if not name.startswith("_") and name not in ("math", "torch")
)
__all__ += ["__array_api_version__", "__array_namespace_info__"]
