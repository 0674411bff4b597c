"""The old name of `torch.ao.nn.intrinsic`."""

from torchlike.ao.nn import intrinsic as _intrinsic

globals().update({k: v for k, v in vars(_intrinsic).items() if not k.startswith("__")})
