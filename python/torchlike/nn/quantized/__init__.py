"""The old name of `torch.ao.nn.quantized`."""

from torchlike.ao.nn import quantized as _quantized
from torchlike.ao.nn.quantized import FloatFunctional as FloatFunctional

globals().update({k: v for k, v in vars(_quantized).items() if not k.startswith("_")})
