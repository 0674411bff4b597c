"""The op functions of the module root: the C functions themselves, made from the op table."""

from torchlike import _C
from torchlike._namespace import fill as _fill

_fill(globals(), _C, "_root")
__all__ = [name for name in globals() if not name.startswith("__") and name not in ("_C", "_fill")]
