"""Helpers of functions that say how operators are exported: they can be declared, not used."""

from __future__ import annotations

from typing import Any

from torchlike import _absent

_why = "torchlike writes no ONNX files"


def parse_args(*arg_descriptors: str) -> Any:
    """A decorator that keeps the descriptors beside the function."""

    def decorate(fn: Any) -> Any:
        fn._arg_descriptors = arg_descriptors
        return fn

    return decorate


def quantized_args(*arg_q_descriptors: bool, **_: Any) -> Any:
    """A decorator that changes nothing."""
    return lambda fn: fn


cast_pytorch_to_onnx = {
    "Byte": 2,
    "Char": 3,
    "Double": 11,
    "Float": 1,
    "Half": 10,
    "Int": 6,
    "Long": 7,
    "Short": 5,
    "Bool": 9,
    "ComplexFloat": 14,
    "ComplexDouble": 15,
    "BFloat16": 16,
    "Undefined": 0,
}

globals().update(
    _absent.names(
        __name__,
        _why,
        "_get_tensor_sizes _get_tensor_dim_size _get_tensor_rank _is_none _is_value _maybe_get_const _unimplemented "
        "_squeeze_helper _unsqueeze_helper check_training_mode dequantize_helper quantize_helper args_have_same_dtype",
    )
)
