"""The old name of `torch.ao.nn.qat`."""

from torchlike import _lazy
from torchlike.ao.nn.qat import *

_lazy.renamed("nn.qat", "ao.nn.qat")
__getattr__ = _lazy.submodules("ao.nn.qat", "dynamic", "modules")
