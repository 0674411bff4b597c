"""Functions of neural networks: the C functions of the op table, and the few compositions."""

from torchlike import _C, _lazy
from torchlike._namespace import fill as _fill
from torchlike.nn import _reduction as _Reduction  # noqa: F401  (where PyTorch has it)
from torchlike.overrides import (  # noqa: F401  (where PyTorch has them)
    handle_torch_function,
    has_torch_function,
    has_torch_function_unary,
    has_torch_function_variadic,
)

_fill(globals(), _C, "_nn")
grad = _lazy.module("torchlike.nn.grad")  # where PyTorch has it

from torchlike.nn import _compositions  # noqa: E402  (its functions go before the table's)
from torchlike.nn._compositions import *  # noqa: E402, F403

for _name in _compositions.__all__:
    globals()[_name].__module__ = __name__
del _name
