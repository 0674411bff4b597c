"""The old name of `torch.ao.nn.quantized`."""

from torchlike import _lazy
from torchlike.ao.nn.quantized import *

_lazy.renamed("nn.quantized", "ao.nn.quantized")
__getattr__ = _lazy.submodules("ao.nn.quantized", "dynamic", "functional", "modules")
