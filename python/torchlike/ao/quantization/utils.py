"""Questions about schemes, types and configurations."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike.ao.quantization.quant_type import QuantType

__all__ = [
    "DEPRECATION_WARNING",
    "MatchAllNode",
    "NodePattern",
    "Pattern",
    "activation_dtype",
    "activation_is_dynamically_quantized",
    "activation_is_int8_quantized",
    "activation_is_int32_quantized",
    "activation_is_statically_quantized",
    "calculate_qmin_qmax",
    "check_min_max_valid",
    "determine_qparams",
    "get_combined_dict",
    "get_qconfig_dtypes",
    "get_qparam_dict",
    "get_quant_type",
    "get_swapped_custom_module_class",
    "getattr_from_fqn",
    "has_no_children_ignoring_parametrizations",
    "is_per_channel",
    "is_per_tensor",
    "op_is_int8_dynamically_quantized",
    "to_underlying_dtype",
    "validate_qmin_qmax",
    "weight_dtype",
    "weight_is_quantized",
    "weight_is_statically_quantized",
]

NodePattern = Any
Pattern = Any
DEPRECATION_WARNING = (
    "torch.ao.quantization is deprecated and will be removed in 2.10. \n"
    "For migrations of users: \n"
    "1. Eager mode quantization (torch.ao.quantization.quantize, torch.ao.quantization.quantize_dynamic), please "
    "migrate to use torchao eager mode quantize_ API instead \n"
    "2. FX graph mode quantization (torch.ao.quantization.quantize_fx.prepare_fx,torch.ao.quantization.quantize_fx."
    "convert_fx, please migrate to use torchao pt2e quantization API instead (prepare_pt2e, convert_pt2e) \n"
    "3. pt2e quantization has been migrated to torchao (https://github.com/pytorch/ao/tree/main/torchao/quantization/"
    "pt2e) \n"
    "see https://github.com/pytorch/ao/issues/2259 for more details"
)
_STATIC = (torch.quint8, torch.qint8, torch.qint32, torch.float16, torch.uint8, torch.int8)
_BYTES = (torch.quint8, torch.qint8, torch.uint8, torch.int8)


class MatchAllNode:
    """Stands for any node of a pattern."""


def get_combined_dict(default_dict: dict[Any, Any], additional_dict: dict[Any, Any]) -> Any:
    """The entries of both; the second's count."""
    return {**default_dict, **additional_dict}


def is_per_tensor(qscheme: Any) -> bool:
    """Whether all elements have one scale."""
    return qscheme in (torch.per_tensor_affine, torch.per_tensor_symmetric)


def is_per_channel(qscheme: Any) -> bool:
    """Whether each channel has a scale."""
    return qscheme in (
        torch.per_channel_affine,
        torch.per_channel_affine_float_qparams,
        torch.per_channel_symmetric,
    )


def getattr_from_fqn(obj: Any, fqn: str) -> Any:
    """The attribute at the end of a path."""
    for name in fqn.split("."):
        obj = getattr(obj, name)
    return obj


def to_underlying_dtype(qdtype: Any) -> Any:
    """The integers that a quantised type stores.

    Raises:
        AssertionError: for other types.
    """
    kinds = {
        torch.quint8: torch.uint8,
        torch.qint8: torch.int8,
        torch.qint32: torch.int32,
        torch.quint4x2: torch.uint8,
        torch.quint2x4: torch.uint8,
        torch.uint8: torch.uint8,
        torch.int8: torch.int8,
        torch.int32: torch.int32,
    }
    if qdtype not in kinds:
        raise AssertionError("Unsupported dtype: " + str(qdtype))
    return kinds[qdtype]


def get_qparam_dict(observer_or_fake_quant: Any) -> dict[str, Any]:
    """The scheme and type of an observer, and the numbers that it saw."""
    of: Any = observer_or_fake_quant
    made: dict[str, Any] = {"qscheme": getattr(of, "qscheme", None), "dtype": of.dtype}
    if not made["qscheme"] or (hasattr(of, "is_dynamic") and of.is_dynamic):
        return {"qscheme": None, "dtype": of.dtype}
    if is_per_tensor(made["qscheme"]):
        made["qscheme"] = torch.per_tensor_affine
    elif is_per_channel(made["qscheme"]):
        if made["qscheme"] == torch.per_channel_symmetric:
            made["qscheme"] = torch.per_channel_affine
        made["axis"] = of.ch_axis
    else:
        raise RuntimeError(f"Unrecognized qscheme: {made['qscheme']}")
    made["scale"], made["zero_point"] = of.calculate_qparams()
    made["quant_min"], made["quant_max"] = (
        getattr(of, f"quant_{end}", None) for end in ("min", "max")
    )
    return made


def get_swapped_custom_module_class(
    custom_module: Any, custom_module_class_mapping: Any, qconfig: Any
) -> Any:
    """The class that takes the place of a module's.

    Raises:
        AssertionError: if there is none.
    """
    mapping = custom_module_class_mapping.get(get_quant_type(qconfig), {})
    if type(custom_module) not in mapping:
        raise AssertionError(
            f"did not find corresponding observed module class for {type(custom_module)}"
        )
    return mapping[type(custom_module)]


def activation_dtype(qconfig: Any) -> Any:
    """The type of activations."""
    return qconfig.activation().dtype


def weight_dtype(qconfig: Any) -> Any:
    """The type of weights."""
    return qconfig.weight().dtype


def activation_is_statically_quantized(qconfig: Any) -> bool:
    """Whether activations are quantised by what was observed."""
    observer = qconfig.activation()
    return observer.dtype in _STATIC and not getattr(observer, "is_dynamic", False)


def activation_is_dynamically_quantized(qconfig: Any) -> bool:
    """Whether activations are quantised by their own range."""
    return bool(getattr(qconfig.activation(), "is_dynamic", False))


def activation_is_int8_quantized(qconfig: Any) -> bool:
    """Whether activations are bytes."""
    return activation_dtype(qconfig) in _BYTES


def activation_is_int32_quantized(qconfig: Any) -> bool:
    """Whether activations are integers of 32 bits."""
    return activation_dtype(qconfig) in (torch.qint32, torch.int32)


def weight_is_quantized(qconfig: Any) -> bool:
    """Whether weights are quantised."""
    return weight_dtype(qconfig) in _STATIC


def weight_is_statically_quantized(qconfig: Any) -> bool:
    """Whether weights are bytes."""
    return weight_dtype(qconfig) in _BYTES


def op_is_int8_dynamically_quantized(qconfig: Any) -> bool:
    """Whether activations are quantised by their own range, and weights are bytes."""
    dtype = activation_dtype(qconfig)
    dynamic = dtype in (torch.quint8, torch.uint8) and activation_is_dynamically_quantized(qconfig)
    return dynamic and weight_dtype(qconfig) in (torch.qint8, torch.int8)


def get_qconfig_dtypes(qconfig: Any) -> tuple[Any, Any, bool]:
    """The types of activations and weights, and whether activations are quantised by their own range."""
    activation = qconfig.activation()
    return activation.dtype, qconfig.weight().dtype, getattr(activation, "is_dynamic", False)


def get_quant_type(qconfig: Any) -> QuantType:
    """When a configuration quantises.

    Raises:
        RuntimeError: if it does not.
    """
    activation, weight = qconfig.activation(), qconfig.weight()
    if weight.dtype in _STATIC and getattr(activation, "is_dynamic", False):
        return QuantType.DYNAMIC
    if activation.dtype in _STATIC:
        return (
            QuantType.STATIC
            if weight.dtype in _STATIC or activation.dtype == torch.float16
            else QuantType.WEIGHT_ONLY
        )
    if weight.dtype in _STATIC:
        return QuantType.WEIGHT_ONLY
    raise RuntimeError(
        f"Unrecognized dtype combination in get_quant_type: activation({activation.dtype}),"
        f"weight({weight.dtype})"
    )


def check_min_max_valid(min_val: Any, max_val: Any) -> bool:
    """Whether something was observed.

    Raises:
        AssertionError: if the smallest is larger than the largest.
    """
    if min_val.numel() == 0 or max_val.numel() == 0:
        return False
    if bool((min_val == float("inf")).all()) and bool((max_val == float("-inf")).all()):
        return False
    if not bool((min_val <= max_val).all()):
        raise AssertionError(f"min {min_val} should be less than max {max_val}")
    return True


def scales_of(
    lowest: Any, highest: Any, bounds: tuple[int, int], qscheme: Any, eps: Any, middle: int
) -> tuple[Any, Any]:
    """Scales and zero points for numbers between these, by the scheme; `middle` is a symmetric one's zero."""
    low, high = lowest.clamp(max=0), highest.clamp(min=0)
    steps = float(bounds[1] - bounds[0])
    if qscheme in (torch.per_tensor_symmetric, torch.per_channel_symmetric):
        scale = torch.max(torch.max(-low, high) / (steps / 2), eps)
        return scale, torch.full(low.shape, middle, dtype=torch.int64, device=low.device)
    if qscheme == torch.per_channel_affine_float_qparams:
        scale = (highest - lowest) / steps
        scale = torch.where(scale > eps, scale, torch.ones_like(scale))
        return scale, -1 * lowest / scale
    scale = torch.max((high - low) / steps, eps)
    zero = bounds[0] - torch.round(low / scale).to(torch.int32)
    return scale, zero.clamp(*bounds)


def validate_qmin_qmax(quant_min: int, quant_max: int) -> None:
    """Checks a range of integers.

    Raises:
        AssertionError: if zero is not in it, or it has no two integers.
    """
    if not quant_min <= 0 <= quant_max:
        raise AssertionError("Used-specified quantization range must include 0.")
    if quant_min >= quant_max:
        raise AssertionError(
            "qmin must be strictly less than qmax for user-specified quantization range."
        )


def determine_qparams(
    min_val: Any,
    max_val: Any,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    eps: Any,
    has_customized_qrange: bool,
    qscheme: Any = torch.per_tensor_affine,
) -> tuple[Any, Any]:
    """Scales in double precision and zero points for numbers between these, each of one dimension or more."""
    device = min_val.device
    if not check_min_max_valid(min_val, max_val):
        return torch.tensor([1.0], device=device), torch.tensor([0], device=device)
    middle = 0
    if dtype in (torch.uint8, torch.quint8):
        middle = (quant_min + quant_max) // 2 if has_customized_qrange else 128
    bounds = (quant_min, quant_max)
    scale, zero = scales_of(min_val, max_val, bounds, qscheme, eps.to(device), middle)
    scale, zero = torch.atleast_1d(scale), torch.atleast_1d(zero)
    return scale.to(torch.double), zero.to(torch.int64)


def calculate_qmin_qmax(
    quant_min: int | None,
    quant_max: int | None,
    has_customized_qrange: bool,
    dtype: Any,
    reduce_range: bool,
) -> tuple[int, int]:
    """The smallest and largest integer."""
    if has_customized_qrange:
        low, high = quant_min or 0, quant_max or 0
        return (low // 2, high // 2) if reduce_range else (low, high)
    if dtype in (torch.qint8, torch.int8):
        return (-64, 63) if reduce_range else (-128, 127)
    if dtype in (torch.quint8, torch.uint8):
        return (0, 127) if reduce_range else (0, 255)
    if dtype in (torch.qint32, torch.int32):
        return -(2**31), 2**31 - 1
    return 0, 15


def has_no_children_ignoring_parametrizations(module: Any) -> bool:
    """Whether a module has no parts but those that compute its parameters."""
    names = [name for name, _ in module.named_children()]
    return not names or names == ["parametrizations"]
