"""Which quantised layer takes the place of which."""

from __future__ import annotations

from typing import Any

from torchlike import nn
from torchlike._ops import ops
from torchlike.ao.nn import intrinsic as nni
from torchlike.ao.nn import qat as nnqat
from torchlike.ao.nn import quantized as nnq
from torchlike.ao.nn.intrinsic import qat as nniqat
from torchlike.ao.nn.intrinsic import quantized as nniq
from torchlike.ao.nn.intrinsic.quantized import dynamic as nniqd
from torchlike.ao.nn.quantized import dynamic as nnqd
from torchlike.ao.quantization.fake_quantize import (
    default_fixed_qparams_range_0to1_fake_quant,
    default_fixed_qparams_range_neg1to1_fake_quant,
)
from torchlike.ao.quantization.stubs import DeQuantStub, QuantStub
from torchlike.nn import functional
from torchlike.nn.utils.parametrize import type_before_parametrizations

layers: Any = nn


__all__ = [
    "DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS",
    "DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS",
    "DEFAULT_MODULE_TO_ACT_POST_PROCESS",
    "DEFAULT_QAT_MODULE_MAPPINGS",
    "DEFAULT_STATIC_QUANT_MODULE_MAPPINGS",
    "get_default_compare_output_module_list",
    "get_default_dynamic_quant_module_mappings",
    "get_default_float_to_quantized_operator_mappings",
    "get_default_qat_module_mappings",
    "get_default_qconfig_propagation_list",
    "get_default_static_quant_module_mappings",
    "get_dynamic_quant_module_class",
    "get_embedding_qat_module_mappings",
    "get_embedding_static_quant_module_mappings",
    "get_quantized_operator",
    "get_static_quant_module_class",
    "no_observer_set",
]

F: Any = functional
_Uncased: Any = nn.modules.linear.NonDynamicallyQuantizableLinear
# Layers whose quantised form has their name.
_SAME = (
    "BatchNorm2d BatchNorm3d Dropout Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d ELU "
    "Embedding EmbeddingBag GroupNorm Hardswish InstanceNorm1d InstanceNorm2d InstanceNorm3d LayerNorm LeakyReLU "
    "Linear ReLU6 PReLU"
)
_SAME_FUSED = "BNReLU2d BNReLU3d ConvReLU1d ConvReLU2d ConvReLU3d LinearReLU"

DEFAULT_STATIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    QuantStub: nnq.Quantize,
    DeQuantStub: nnq.DeQuantize,
    **{getattr(nn, name): getattr(nnq, name) for name in _SAME.split()},
    _Uncased: nnq.Linear,
    nnq.FloatFunctional: nnq.QFunctional,
    **{getattr(nni, name): getattr(nniq, name) for name in _SAME_FUSED.split()},
    **{getattr(nniqat, f"ConvBn{n}d"): getattr(nnq, f"Conv{n}d") for n in (1, 2, 3)},
    **{getattr(nniqat, f"ConvBnReLU{n}d"): getattr(nniq, f"ConvReLU{n}d") for n in (1, 2, 3)},
    nniqat.ConvReLU2d: nniq.ConvReLU2d,
    nniqat.ConvReLU3d: nniq.ConvReLU3d,
    nniqat.LinearReLU: nniq.LinearReLU,
    nniqat.LinearBn1d: nnq.Linear,
    nnqat.Linear: nnq.Linear,
    nnqat.Conv2d: nnq.Conv2d,
    nnqat.Conv3d: nnq.Conv3d,
}

DEFAULT_QAT_MODULE_MAPPINGS: dict[Any, Any] = {
    layers.Conv2d: nnqat.Conv2d,
    layers.Conv3d: nnqat.Conv3d,
    layers.Linear: nnqat.Linear,
    _Uncased: nnqat.Linear,
    **{getattr(nni, f"ConvBn{n}d"): getattr(nniqat, f"ConvBn{n}d") for n in (1, 2, 3)},
    **{getattr(nni, f"ConvBnReLU{n}d"): getattr(nniqat, f"ConvBnReLU{n}d") for n in (1, 2, 3)},
    nni.ConvReLU2d: nniqat.ConvReLU2d,
    nni.ConvReLU3d: nniqat.ConvReLU3d,
    nni.LinearReLU: nniqat.LinearReLU,
    nni.LinearBn1d: nniqat.LinearBn1d,
}

DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS: dict[Any, Any] = {
    layers.GRUCell: nnqd.GRUCell,
    layers.Linear: nnqd.Linear,
    nnqat.dynamic.Linear: nnqd.Linear,
    _Uncased: nnqd.Linear,
    layers.LSTM: nnqd.LSTM,
    layers.GRU: nnqd.GRU,
    layers.LSTMCell: nnqd.LSTMCell,
    layers.RNNCell: nnqd.RNNCell,
    nni.LinearReLU: nniqd.LinearReLU,
    layers.EmbeddingBag: nnq.EmbeddingBag,
    layers.Embedding: nnq.Embedding,
}

_INCLUDE_QCONFIG_PROPAGATE_LIST: set[Any] = {layers.Sequential}

DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS: dict[Any, Any] = {
    getattr(F, name): getattr(ops.quantized, name)
    for name in ("elu", "hardswish", "instance_norm", "layer_norm", "leaky_relu", "dropout")
}

DEFAULT_MODULE_TO_ACT_POST_PROCESS: dict[Any, Any] = {
    layers.Hardsigmoid: default_fixed_qparams_range_0to1_fake_quant,
    layers.Sigmoid: default_fixed_qparams_range_0to1_fake_quant,
    layers.Softmax: default_fixed_qparams_range_0to1_fake_quant,
    layers.Tanh: default_fixed_qparams_range_neg1to1_fake_quant,
}


def no_observer_set() -> set[Any]:
    """Layers whose results are not observed: none."""
    return set()


def get_default_static_quant_module_mappings() -> dict[Any, Any]:
    """The layers of models that are quantised by what was observed."""
    return dict(DEFAULT_STATIC_QUANT_MODULE_MAPPINGS)


def get_embedding_static_quant_module_mappings() -> dict[Any, Any]:
    """The same, with embeddings that were trained with rounding."""
    further = {nnqat.EmbeddingBag: nnq.EmbeddingBag, nnqat.Embedding: nnq.Embedding}
    return {**DEFAULT_STATIC_QUANT_MODULE_MAPPINGS, **further}


def get_default_qat_module_mappings() -> dict[Any, Any]:
    """The layers of models that are trained with rounding."""
    return dict(DEFAULT_QAT_MODULE_MAPPINGS)


def get_embedding_qat_module_mappings() -> dict[Any, Any]:
    """The same, with embeddings."""
    further = {layers.EmbeddingBag: nnqat.EmbeddingBag, layers.Embedding: nnqat.Embedding}
    return {**DEFAULT_QAT_MODULE_MAPPINGS, **further}


def get_default_dynamic_quant_module_mappings() -> dict[Any, Any]:
    """The layers of models whose weights alone are quantised beforehand."""
    return DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS


def _class_for(kind: Any, known: dict[Any, Any], further: Any) -> Any:
    found = {**known, **(further or {})}.get(kind)
    if found is None:
        raise AssertionError(
            f"Floating point module class {kind} does not have a corresponding quantized module class"
        )
    return found


def get_static_quant_module_class(
    float_module_class: Any, additional_static_quant_mapping: Any = None, is_reference: bool = False
) -> Any:
    """The quantised layer in place of one of real numbers.

    Raises:
        AssertionError: if there is none.
        NotImplementedError: for reference layers.
    """
    if is_reference:
        raise NotImplementedError("reference layers are not supported by torchlike")
    known = DEFAULT_STATIC_QUANT_MODULE_MAPPINGS
    return _class_for(float_module_class, known, additional_static_quant_mapping)


def get_dynamic_quant_module_class(
    float_module_class: Any, additional_dynamic_quant_mapping: Any = None
) -> Any:
    """The layer with a quantised weight in place of one of real numbers.

    Raises:
        AssertionError: if there is none.
    """
    known = DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS
    return _class_for(float_module_class, known, additional_dynamic_quant_mapping)


def get_default_qconfig_propagation_list() -> set[Any]:
    """The layers that are observed."""
    return {
        *DEFAULT_STATIC_QUANT_MODULE_MAPPINGS,
        *DEFAULT_QAT_MODULE_MAPPINGS,
        *DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS,
        *_INCLUDE_QCONFIG_PROPAGATE_LIST,
    }


def get_default_compare_output_module_list() -> set[Any]:
    """The layers before and after, whose results may be compared."""
    return {
        *DEFAULT_STATIC_QUANT_MODULE_MAPPINGS.values(),
        *DEFAULT_QAT_MODULE_MAPPINGS.values(),
        *DEFAULT_DYNAMIC_QUANT_MODULE_MAPPINGS.values(),
        *get_default_qconfig_propagation_list(),
    }


def get_default_float_to_quantized_operator_mappings() -> dict[Any, Any]:
    """The quantised operators in place of functions."""
    return dict(DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS)


def get_quantized_operator(float_op: Any) -> Any:
    """The quantised operator in place of a function.

    Raises:
        AssertionError: if there is none.
    """
    found = DEFAULT_FLOAT_TO_QUANTIZED_OPERATOR_MAPPINGS.get(float_op)
    if found is None:
        raise AssertionError(f"Operator {float_op} does not have corresponding quantized op")
    return found


def _get_special_act_post_process(module: Any) -> Any:
    """What observes the results of a layer whose range is known; None for others."""
    return DEFAULT_MODULE_TO_ACT_POST_PROCESS.get(type_before_parametrizations(module))


def _has_special_act_post_process(module: Any) -> bool:
    return module.training and type(module) in DEFAULT_MODULE_TO_ACT_POST_PROCESS
