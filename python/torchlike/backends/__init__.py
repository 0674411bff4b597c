"""What PyTorch may compute with, and its switches.

None of these libraries is used on the CPU; switches are kept and can be read back. Those of cuDNN and cuBLAS
that say what may be rounded have an effect on GPUs.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType


class _Switches:
    """The switches of a library: variables of its module, set for a while by `flags`."""

    def __init__(self, module: ModuleType, *names: str) -> None:
        self.module = module
        self.names = names

    def set_flags(self, **values: Any) -> tuple[Any, ...]:
        """Sets switches (those that are not None); returns what all of them were."""
        before = tuple(getattr(self.module, name) for name in self.names)
        for name, value in values.items():
            if name not in self.names:
                raise TypeError(f"set_flags() got an unexpected keyword argument '{name}'")
            if value is not None:
                setattr(self.module, name, value)
        return before

    @contextmanager
    def flags(self, *args: Any, **values: Any) -> Iterator[None]:
        """Sets switches inside."""
        values = {**dict(zip(self.names, args, strict=False)), **values}
        before = self.set_flags(**values)
        try:
            yield
        finally:
            for name, value in zip(self.names, before, strict=True):
                setattr(self.module, name, value)


fp32_precision = "none"

_frozen = False


def disable_global_flags() -> None:
    """From now on switches are set with `flags` only. Kept, without an effect."""
    global _frozen
    _frozen = True


def flags_frozen() -> bool:
    """Whether `disable_global_flags` was called."""
    return _frozen


from torchlike.backends import (  # noqa: E402  (they use the class above)
    cpu,
    cuda,
    cudnn,
    cusparselt,
    kleidiai,
    mha,
    miopen,
    mkl,
    mkldnn,
    mps,
    nnpack,
    openmp,
    opt_einsum,
    quantized,
)
