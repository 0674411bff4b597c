"""Functions that a quantised model would replace."""

from torchlike import _absent
from torchlike.ao.nn.quantized.modules import FloatFunctional, FXFloatFunctional

_why = "no model is quantised"
globals().update(
    _absent.names(
        __name__,
        _why,
        "BatchNorm2d BatchNorm3d Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d "
        "DeQuantize Dropout ELU Embedding EmbeddingBag GroupNorm Hardswish InstanceNorm1d InstanceNorm2d "
        "InstanceNorm3d LSTM LayerNorm LeakyReLU Linear MultiheadAttention PReLU QFunctional Quantize "
        "ReLU6 Sigmoid Softmax",
    )
)
