"""PyTorch's module paths (``nn.modules.conv`` and the like) for the files in ``nn.layers``."""

import sys

from torchlike import nn
from torchlike.nn import _hooks, module
from torchlike.nn.layers import (
    _tuples,
    activation,
    adaptive,
    attention,
    batchnorm,
    container,
    conv,
    dropout,
    lazy,
    linear,
    loss,
    normalization,
    padding,
    pooling,
    rnn,
    shape,
    sparse,
    transformer,
)

_FILES = {
    "activation": activation,
    "adaptive": adaptive,
    "attention": attention,
    "batchnorm": batchnorm,
    "container": container,
    "conv": conv,
    "distance": shape,
    "dropout": dropout,
    "flatten": shape,
    "fold": shape,
    "instancenorm": batchnorm,
    "lazy": lazy,
    "linear": linear,
    "loss": loss,
    "module": module,
    "normalization": normalization,
    "padding": padding,
    "pixelshuffle": shape,
    "pooling": pooling,
    "rnn": rnn,
    "sparse": sparse,
    "transformer": transformer,
    "upsampling": shape,
    "utils": _tuples,
}
for _name, _file in _FILES.items():
    sys.modules[f"{__name__}.{_name}"] = _file
    globals()[_name] = _file
activation.MultiheadAttention = attention.MultiheadAttention  # type: ignore[attr-defined]
globals().update({name: value for name, value in vars(nn).items() if isinstance(value, type)})
for _name in (
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
):
    setattr(module, _name, getattr(_hooks, _name))
