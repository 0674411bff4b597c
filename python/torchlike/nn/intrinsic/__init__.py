"""The old name of `torch.ao.nn.intrinsic`."""

from torchlike import _lazy
from torchlike.ao.nn.intrinsic import *
from torchlike.ao.nn.intrinsic import _FusedModule as _FusedModule

_lazy.renamed("nn.intrinsic", "ao.nn.intrinsic")
__getattr__ = _lazy.submodules("ao.nn.intrinsic", "modules", "qat", "quantized")
