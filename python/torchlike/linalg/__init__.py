"""Linear algebra: the C functions of the op table."""

from torchlike import _C
from torchlike._C import _LinAlgError as LinAlgError
from torchlike._namespace import fill as _fill

_fill(globals(), _C, "_linalg")
