"""The functions of `torch.fft`: the C functions of the op table."""

from torchlike import _C
from torchlike._namespace import fill as _fill

_fill(globals(), _C, "_fft")

__all__ = [name for name in globals() if not name.startswith("_")]
