"""The operators `quantized_decomposed` where PyTorch has them."""

from torchlike._ops.quantized_decomposed import (  # noqa: F401  (where PyTorch has them)
    choose_qparams_per_token,
    choose_qparams_per_token_asymmetric,
    dequantize_per_channel,
    dequantize_per_channel_group,
    dequantize_per_tensor,
    dequantize_per_token,
    fake_quant_per_channel,
    quantize_per_channel,
    quantize_per_channel_group,
    quantize_per_tensor,
    quantize_per_token,
)
from torchlike.library import Library

quantized_decomposed_lib = Library("quantized_decomposed", "FRAGMENT")
