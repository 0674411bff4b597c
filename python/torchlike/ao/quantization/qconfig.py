"""Which observers look at activations and weights."""

from __future__ import annotations

from typing import Any, NamedTuple

from torchlike.ao.quantization import fake_quantize as fake
from torchlike.ao.quantization import observer as seen

__all__ = [
    "QConfig",
    "default_dynamic_qconfig",
    "default_per_channel_qconfig",
    "default_qat_qconfig",
    "default_qconfig",
    "get_default_qat_qconfig",
    "get_default_qconfig",
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
