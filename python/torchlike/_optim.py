"""Steps of optimizers: the C functions of the op table that change lists of tensors."""

from torchlike import _C
from torchlike._namespace import fill as _fill

_fill(globals(), _C, "__optim")
