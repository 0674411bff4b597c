"""What layers that round their weights ask of those that they are made of."""

from __future__ import annotations

from typing import Any

from torchlike.nn.utils.parametrize import type_before_parametrizations


def check_configured(qconfig: Any) -> None:
    """Refuses a layer without a configuration.

    Raises:
        AssertionError: if there is none.
    """
    if not qconfig:
        raise AssertionError("qconfig must be provided for QAT module")


def check_float(cls: Any, mod: Any) -> None:
    """Refuses layers of other classes, and those that are not configured.

    Raises:
        AssertionError: with what was expected.
    """
    kind = type_before_parametrizations(mod)
    if kind is not cls._FLOAT_MODULE:
        raise AssertionError(
            f"qat.{cls.__name__}.from_float only works for {cls._FLOAT_MODULE.__name__}, got {kind.__name__}"
        )
    if not hasattr(mod, "qconfig"):
        raise AssertionError("Input float module must have qconfig defined")
    if not mod.qconfig:
        raise AssertionError("Input float module must have a valid qconfig")
