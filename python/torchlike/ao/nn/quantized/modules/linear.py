"""Linear layers with quantised weights."""

from __future__ import annotations

from typing import Any, ClassVar

import torchlike as torch
from torchlike import nn
from torchlike._ops import ops
from torchlike.ao.nn.quantized.modules.utils import (
    WeightedQuantizedModule,
    _hide_packed_params_repr,
    _output,
    _quantize_weight,
)
from torchlike.nn.utils.fusion import fuse_linear_bn_weights
from torchlike.nn.utils.parametrize import type_before_parametrizations

layers: Any = nn


__all__ = ["Linear", "LinearPackedParams"]

_root: Any = torch


def empty_weight(size: list[int], dtype: Any) -> Any:
    """A weight of zeros: quantised, or of real numbers that are kept in half precision.

    Raises:
        RuntimeError: for other types.
    """
    if dtype == torch.qint8:
        zeros = torch.zeros(size, dtype=torch.int8)
        return _root._make_per_tensor_quantized_tensor(zeros, 1.0, 0)
    if dtype == torch.float16:
        return torch.zeros(size)
    raise RuntimeError("Unsupported dtype specified for quantized Linear!")


class LinearPackedParams(nn.Module):
    """The packed weight and bias of a linear layer."""

    _version = 3

    def __init__(self, dtype: Any = torch.qint8) -> None:
        super().__init__()
        self.dtype = dtype
        self.set_weight_bias(empty_weight([1, 1], dtype), None)

    def set_weight_bias(self, weight: Any, bias: Any) -> None:
        """Packs a weight and a bias.

        Raises:
            RuntimeError: if weights of this type are not packed.
        """
        if self.dtype == torch.qint8:
            self._packed_params = ops.quantized.linear_prepack(weight, bias)
        elif self.dtype == torch.float16:
            self._packed_params = ops.quantized.linear_prepack_fp16(weight, bias)
        else:
            raise RuntimeError("Unsupported dtype on dynamic quantized linear!")

    def _weight_bias(self) -> Any:
        return ops.quantized.linear_unpack(self._packed_params)

    def forward(self, x: Any) -> Any:
        """The input."""
        return x

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "dtype"] = self.dtype
        destination[prefix + "_packed_params"] = self._weight_bias()

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        version = local_metadata.get("version", None) or 1
        self.dtype = state_dict.pop(prefix + "dtype") if version >= 2 else torch.qint8
        if version >= 3:
            weight, bias = state_dict.pop(prefix + "_packed_params")
        else:
            weight, bias = state_dict.pop(prefix + "weight"), state_dict.pop(prefix + "bias")
        self.set_weight_bias(weight, bias)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *lists)

    def __repr__(self) -> str:
        return repr(self._weight_bias())


class Linear(WeightedQuantizedModule):
    """A linear layer of quantised tensors."""

    _version = 3
    _FLOAT_MODULE: ClassVar[Any] = (
        layers.Linear,
        nn.modules.linear.NonDynamicallyQuantizableLinear,
    )

    def __init__(
        self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = torch.qint8
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        bias = torch.zeros(out_features) if bias_ else None
        weight = empty_weight([out_features, in_features], dtype)
        self._packed_params = LinearPackedParams(dtype)
        self._packed_params.set_weight_bias(weight, bias)
        self.scale = 1.0
        self.zero_point = 0

    def _get_name(self) -> str:
        return "QuantizedLinear"

    def extra_repr(self) -> str:
        """Sizes and what the results are quantised by."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, scale={self.scale}, "
            f"zero_point={self.zero_point}, qscheme={self.weight().qscheme()}"
        )

    def __repr__(self) -> str:
        return _hide_packed_params_repr(self, LinearPackedParams)

    def forward(self, x: Any) -> Any:
        """The product with the weight, and the bias."""
        return ops.quantized.linear(
            x, self._packed_params._packed_params, self.scale, self.zero_point
        )

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = torch.tensor(self.scale)
        destination[prefix + "zero_point"] = torch.tensor(self.zero_point)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, *lists: Any
    ) -> None:
        self.scale = float(state_dict.pop(prefix + "scale"))
        self.zero_point = int(state_dict.pop(prefix + "zero_point"))
        version = local_metadata.get("version", None)
        if version is None or version == 1:
            for name in ("weight", "bias"):
                state_dict[f"{prefix}_packed_params.{name}"] = state_dict.pop(prefix + name)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, False, *lists)

    def _weight_bias(self) -> Any:
        return self._packed_params._weight_bias()

    def weight(self) -> Any:
        """The quantised weight."""
        return self._weight_bias()[0]

    def bias(self) -> Any:
        """The bias."""
        return self._weight_bias()[1]

    def set_weight_bias(self, w: Any, b: Any) -> None:
        """Packs a weight and a bias."""
        self._packed_params.set_weight_bias(w, b)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of an observed one, or of one that was trained with rounding.

        Raises:
            AssertionError: if it is no such layer.
        """
        from torchlike.ao.nn import intrinsic as nni
        from torchlike.ao.nn.intrinsic import qat as nniqat

        observed = mod
        if hasattr(mod, "weight_fake_quant"):
            if type_before_parametrizations(mod) is nniqat.LinearBn1d:
                mod.weight, mod.bias = mod._folded(fuse_linear_bn_weights)
            observer = mod.weight_fake_quant
        else:
            check_float(cls, mod)
            if type_before_parametrizations(mod) is nni.LinearReLU:
                mod = mod[0]
            observer = getattr(mod, "weight_fake_quant", None) or mod.qconfig.weight()
        if not use_precomputed_fake_quant:
            observer(mod.weight)
        scale, zero_point = _output(observed)
        if observer.dtype != torch.qint8:
            raise AssertionError(
                f"Weight observer must have dtype torch.qint8, got {observer.dtype}"
            )
        made = cls(mod.in_features, mod.out_features, dtype=observer.dtype)
        made.set_weight_bias(_quantize_weight(mod.weight.float(), observer), mod.bias)
        made.scale, made.zero_point = scale, zero_point
        return made

    @classmethod
    def from_reference(cls, ref_module: Any, output_scale: float, output_zero_point: int) -> Any:
        """The layer of a reference layer."""
        made = cls(ref_module.in_features, ref_module.out_features)
        made.set_weight_bias(ref_module.get_quantized_weight(), ref_module.bias)
        made.scale, made.zero_point = float(output_scale), int(output_zero_point)
        return made


def check_float(cls: Any, mod: Any) -> None:
    """Checks that a layer is one that `cls` can be made of, and has a configuration.

    Raises:
        AssertionError: if it is not.
    """
    kinds = cls._FLOAT_MODULE
    kinds = kinds if isinstance(kinds, list | tuple | set) else [kinds]
    if type_before_parametrizations(mod) not in kinds:
        names = ", ".join(kind.__name__ for kind in kinds)
        raise AssertionError(
            f"nnq.{cls.__name__}.from_float only works for {names}, but got: {type(mod)}"
        )
    if not hasattr(mod, "qconfig"):
        raise AssertionError("Input float module must have qconfig defined")
