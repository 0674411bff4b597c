"""Linear algebra: the C functions of the op table."""

from torchlike import _C
from torchlike._C import LinAlgError as LinAlgError
from torchlike._namespace import fill

fill(globals(), _C, "_linalg")
