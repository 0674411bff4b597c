"""What libraries PyTorch may compute with: none of them here, so that switches have no effect."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Backend:
    """A library with switches."""

    def __init__(self, available: bool, **switches: Any) -> None:
        self._available = available
        self.__dict__.update(switches)

    def is_available(self) -> bool:
        """Whether PyTorch's name for it can be computed with here."""
        return self._available

    def is_built(self) -> bool:
        """As `is_available`."""
        return self._available

    @contextlib.contextmanager
    def flags(self, **switches: Any) -> Iterator[None]:
        """Sets switches inside."""
        before = {name: getattr(self, name, None) for name in switches}
        self.__dict__.update(switches)
        try:
            yield
        finally:
            self.__dict__.update(before)


class _Matmul:
    """How products on GPUs may be rounded; kept, without an effect."""

    allow_tf32 = False
    allow_fp16_reduced_precision_reduction = True
    allow_bf16_reduced_precision_reduction = True


cudnn = _Backend(
    False, enabled=True, benchmark=False, deterministic=False, allow_tf32=True, benchmark_limit=10
)
cuda = _Backend(False, matmul=_Matmul())
mps = _Backend(False)
mkl = _Backend(False)
mkldnn = _Backend(False, enabled=True, deterministic=False)
openmp = _Backend(False)
quantized = _Backend(False, engine="none", supported_engines=["none"])
