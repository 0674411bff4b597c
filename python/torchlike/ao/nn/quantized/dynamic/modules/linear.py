"""A linear layer of real numbers with a quantised weight."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import nn
from torchlike._ops import ops
from torchlike.ao.nn.quantized.modules import linear
from torchlike.ao.nn.quantized.modules.utils import _quantize_weight

layers: Any = nn


__all__ = ["Linear"]


class Linear(linear.Linear):
    """A linear layer that quantises its input by its own range, or has a weight in half precision."""

    _version = 4

    def __init__(
        self, in_features: int, out_features: int, bias_: bool = True, dtype: Any = torch.qint8
    ) -> None:
        super().__init__(in_features, out_features, bias_, dtype=dtype)
        self.version: int | None = 4

    def forward(self, x: Any) -> Any:
        """The product with the weight, and the bias."""
        packed = self._packed_params
        if packed.dtype == torch.float16:
            made = ops.quantized.linear_dynamic_fp16(x, packed._packed_params)
        else:
            # Layers of long ago used the whole range of a byte.
            reduced = self.version is not None and self.version >= 4
            made = ops.quantized.linear_dynamic(x, packed._packed_params, reduced)
        return made if made.dtype == x.dtype else made.to(x.dtype)

    def _get_name(self) -> str:
        return "DynamicQuantizedLinear"

    def extra_repr(self) -> str:
        """Sizes, the type of the weight and its scheme."""
        dtype = self._packed_params.dtype
        shown = f"in_features={self.in_features}, out_features={self.out_features}, dtype={dtype}"
        return f"{shown}, qscheme={self.weight().qscheme()}" if dtype == torch.qint8 else shown

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        self.version = local_metadata.get("version", None)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> Any:
        """The layer of one of real numbers.

        Raises:
            AssertionError: if it is no linear layer, or configured otherwise.
        """
        from torchlike.ao.nn import intrinsic as nni
        from torchlike.ao.nn import qat

        kinds = [
            layers.Linear,
            nn.modules.linear.NonDynamicallyQuantizableLinear,
            nni.LinearReLU,
            qat.dynamic.Linear,
        ]
        if type(mod) not in kinds:
            raise AssertionError(
                f"nn.quantized.dynamic.Linear.from_float only works for one of{[k.__name__ for k in kinds]}, "
                f"got {type(mod)}"
            )
        if not hasattr(mod, "qconfig"):
            raise AssertionError("Input float module must have qconfig defined")
        if type(mod) is nni.LinearReLU:
            mod = mod[0]
        observer = weight_observer(mod)()
        if observer.dtype not in (torch.qint8, torch.float16):
            raise AssertionError(
                "The only supported dtypes for dynamic quantized linear are qint8 and float16, got: "
                f"{observer.dtype}"
            )
        observer(mod.weight)
        weight = mod.weight.float()
        if observer.dtype == torch.qint8:
            weight = _quantize_weight(weight, observer)
        made = cls(mod.in_features, mod.out_features, dtype=observer.dtype)
        made.set_weight_bias(weight, mod.bias)
        return made

    @classmethod
    def from_reference(cls, ref_qlinear: Any, *_: Any) -> Any:
        """The layer of a reference layer."""
        dtype = ref_qlinear.weight_dtype
        made = cls(ref_qlinear.in_features, ref_qlinear.out_features, dtype=dtype)
        made.set_weight_bias(ref_qlinear.get_quantized_weight(), ref_qlinear.bias)
        return made


def weight_observer(mod: Any) -> Any:
    """What makes the observer of a layer's weight: that of its configuration, or the usual one."""
    from torchlike.ao.quantization.qconfig import default_dynamic_qconfig

    told = mod.qconfig is not None and mod.qconfig.weight is not None
    return (mod.qconfig if told else default_dynamic_qconfig).weight
