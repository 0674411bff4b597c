"""Which observers look at activations and weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import torchlike as torch
from torchlike import nn
from torchlike.ao.quantization import fake_quantize as fake
from torchlike.ao.quantization import observer as seen
from torchlike.nn.modules.linear import Identity

layers: Any = nn


__all__ = [
    "QConfig",
    "QConfigAny",
    "default_activation_only_qconfig",
    "default_debug_qconfig",
    "default_dynamic_qat_qconfig",
    "default_dynamic_qconfig",
    "default_embedding_qat_qconfig",
    "default_embedding_qat_qconfig_4bit",
    "default_per_channel_qconfig",
    "default_per_channel_symmetric_qnnpack_qat_qconfig",
    "default_per_channel_symmetric_qnnpack_qconfig",
    "default_qat_qconfig",
    "default_qat_qconfig_v2",
    "default_qconfig",
    "default_quint8_weight_qconfig",
    "default_reuse_input_qconfig",
    "default_symmetric_qnnpack_qat_qconfig",
    "default_symmetric_qnnpack_qconfig",
    "default_weight_only_qconfig",
    "float16_dynamic_qconfig",
    "float16_static_qconfig",
    "float_qparams_weight_only_qconfig",
    "float_qparams_weight_only_qconfig_4bit",
    "get_default_qat_qconfig",
    "get_default_qconfig",
    "per_channel_dynamic_qconfig",
    "qconfig_equals",
]


class QConfig(NamedTuple):
    """What makes the observers of activations and of weights."""

    activation: Any
    weight: Any


default_qconfig = QConfig(seen.default_observer, seen.default_weight_observer)
default_per_channel_qconfig = QConfig(
    seen.default_observer, seen.default_per_channel_weight_observer
)
default_dynamic_qconfig = QConfig(seen.default_dynamic_quant_observer, seen.default_weight_observer)
default_qat_qconfig = QConfig(fake.default_fake_quant, fake.default_weight_fake_quant)

default_debug_qconfig = QConfig(seen.default_debug_observer, seen.default_weight_observer)
per_channel_dynamic_qconfig = QConfig(
    seen.default_dynamic_quant_observer, seen.default_per_channel_weight_observer
)
float_qparams_weight_only_qconfig = QConfig(
    seen.default_placeholder_observer, seen.default_float_qparams_observer
)
float_qparams_weight_only_qconfig_4bit = QConfig(
    seen.default_placeholder_observer, seen.default_float_qparams_observer_4bit
)
_half = seen.PlaceholderObserver.with_args(dtype=torch.float16)
_half_later = seen.PlaceholderObserver.with_args(dtype=torch.float16, is_dynamic=True)
float16_dynamic_qconfig = QConfig(_half_later, _half)
float16_static_qconfig = QConfig(_half, _half)
default_quint8_weight_qconfig = QConfig(seen.HistogramObserver, seen.MinMaxObserver)
default_reuse_input_qconfig = QConfig(seen.default_reuse_input_observer, seen.NoopObserver)
default_dynamic_qat_qconfig = QConfig(
    fake.default_dynamic_fake_quant, fake.default_weight_fake_quant
)
default_qat_qconfig_v2 = QConfig(
    fake.default_fused_act_fake_quant, fake.default_fused_wt_fake_quant
)
default_weight_only_qconfig = QConfig(Identity, fake.default_weight_fake_quant)
default_activation_only_qconfig = QConfig(fake.default_fake_quant, Identity)
_floats = seen.NoopObserver.with_args(dtype=torch.float32)
default_embedding_qat_qconfig = QConfig(_floats, fake.default_embedding_fake_quant)
default_embedding_qat_qconfig_4bit = QConfig(_floats, fake.default_embedding_fake_quant_4bit)
_signed = seen.HistogramObserver.with_args(dtype=torch.qint8, reduce_range=False, eps=2**-12)
default_symmetric_qnnpack_qconfig = QConfig(_signed, seen.weight_observer_range_neg_127_to_127)
default_per_channel_symmetric_qnnpack_qconfig = QConfig(
    _signed, seen.per_channel_weight_observer_range_neg_127_to_127
)
_signed_qat = fake.FusedMovingAvgObsFakeQuantize.with_args(
    observer=seen.MovingAverageMinMaxObserver,
    quant_min=-128,
    quant_max=127,
    dtype=torch.qint8,
    reduce_range=False,
    eps=2**-12,
)
default_symmetric_qnnpack_qat_qconfig = QConfig(
    _signed_qat, fake.fused_wt_fake_quant_range_neg_127_to_127
)
default_per_channel_symmetric_qnnpack_qat_qconfig = QConfig(
    _signed_qat, fake.fused_per_channel_wt_fake_quant_range_neg_127_to_127
)

_BACKENDS = ["fbgemm", "x86", "qnnpack", "onednn"]


def _check(backend: str) -> None:
    if backend not in _BACKENDS:
        raise AssertionError(
            f"backend: {backend} not supported. backend must be one of {_BACKENDS}"
        )


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """The observers that PyTorch takes for a backend.

    Raises:
        AssertionError: for another backend or version.
    """
    _check(backend)
    if version != 0:
        raise AssertionError(
            f"Version number: {version} in get_default_qconfig is not supported. Version number must be 0"
        )
    halved = backend in ("fbgemm", "x86")
    one_scale = backend == "qnnpack"
    return QConfig(
        seen.HistogramObserver.with_args(reduce_range=halved),
        seen.default_weight_observer if one_scale else seen.default_per_channel_weight_observer,
    )


def get_default_qat_qconfig(backend: str = "x86", version: int | None = 1) -> QConfig:
    """The rounding modules that PyTorch takes for a backend in training.

    Raises:
        AssertionError: for another backend or version.
    """
    _check(backend)
    if version not in (0, 1, None):
        raise AssertionError(
            f"Version number: {version} in get_default_qat_qconfig is not supported. Version number must be 0 or 1"
        )
    plain, one_scale = not version, backend == "qnnpack"
    kind: Any = fake.FakeQuantize if plain else fake.FusedMovingAvgObsFakeQuantize
    activation = kind.with_args(
        observer=seen.MovingAverageMinMaxObserver,
        quant_min=0,
        quant_max=255,
        reduce_range=backend in ("fbgemm", "x86"),
    )
    if plain:
        each, one = fake.default_per_channel_weight_fake_quant, fake.default_weight_fake_quant
    else:
        each, one = fake.default_fused_per_channel_wt_fake_quant, fake.default_fused_wt_fake_quant
    if backend == "onednn" and plain:
        activation = kind.with_args(
            observer=seen.MovingAverageMinMaxObserver, quant_min=0, quant_max=255
        )
    return QConfig(activation, one if one_scale else each)


def _assert_valid_qconfig(qconfig: Any, mod: Any) -> None:
    """Refuses a scale for each channel where the weight has its channels elsewhere.

    Raises:
        AssertionError: if a transposed convolution would have one.
    """
    turned = layers.ConvTranspose1d | layers.ConvTranspose2d | layers.ConvTranspose3d
    if qconfig is None or not isinstance(mod, turned) or qconfig.weight is None:
        return
    each = seen.PerChannelMinMaxObserver | seen.MovingAveragePerChannelMinMaxObserver
    if isinstance(qconfig.weight(), each):
        raise AssertionError(
            "Per channel weight observer is not supported yet for ConvTranspose{n}d."
        )


def _activation_is_memoryless(qconfig: Any) -> bool:
    """Whether activations are observed anew each time, so that inputs are what counts."""
    observer = qconfig.activation()
    if isinstance(observer, fake.FakeQuantizeBase):
        observer = getattr(observer, "activation_post_process", observer)
    return getattr(observer, "averaging_constant", None) == 1


def qconfig_equals(q1: Any, q2: Any) -> bool:
    """Whether two configurations make the same observers."""
    if q1 is None or q2 is None:
        return q1 is q2
    return all(_same_maker(a, b) for a, b in zip(q1, q2, strict=True))


def _same_maker(a: Any, b: Any) -> bool:
    if hasattr(a, "p") and hasattr(b, "p"):
        made = (a.p.func, a.p.args, a.p.keywords), (b.p.func, b.p.args, b.p.keywords)
        return made[0] == made[1]
    return bool(a == b)


QConfigAny = Any
