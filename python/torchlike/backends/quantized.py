"""Engines of quantised computation: one computes, under the names of PyTorch's."""

from __future__ import annotations

import sys
import types

_ENGINES = ["qnnpack", "onednn", "x86", "fbgemm"]


class _Engines(types.ModuleType):
    """The module, whose engine can be set to one of the names."""

    _engine = "x86"

    @property
    def engine(self) -> str:
        """The name that was chosen last."""
        return self._engine

    @engine.setter
    def engine(self, name: str) -> None:
        if name not in _ENGINES:
            raise RuntimeError(f"quantized engine {name} is not supported")
        self._engine = name

    @property
    def supported_engines(self) -> list[str]:
        """The names."""
        return list(_ENGINES)


sys.modules[__name__].__class__ = _Engines
