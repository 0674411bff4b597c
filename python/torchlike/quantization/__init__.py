"""The old name of `torch.ao.quantization`."""

from torchlike import _lazy
from torchlike.ao import quantization as _quantization

_lazy.renamed("quantization", "ao.quantization")
globals().update({k: v for k, v in vars(_quantization).items() if not k.startswith("_")})
