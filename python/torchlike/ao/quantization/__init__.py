"""Models that are quantised: configurations, observers, rounding, and what prepares and converts models."""

from __future__ import annotations

from typing import Any

from torchlike import _absent, _lazy
from torchlike.ao.quantization.fake_quantize import *
from torchlike.ao.quantization.fuse_modules import *
from torchlike.ao.quantization.fuser_method_mappings import *
from torchlike.ao.quantization.observer import *
from torchlike.ao.quantization.qconfig import *
from torchlike.ao.quantization.quant_type import *
from torchlike.ao.quantization.quantization_mappings import *
from torchlike.ao.quantization.quantize import *
from torchlike.ao.quantization.stubs import *
from torchlike.ao.quantization.utils import MatchAllNode as MatchAllNode
from torchlike.ao.quantization.utils import Pattern as Pattern
from torchlike.ao.quantization.utils import get_combined_dict as get_combined_dict

_why = "models are quantised as they are, not as graphs"
globals().update(
    _absent.names(
        __name__,
        _why,
        "quantize_jit quantize_dynamic_jit convert_jit convert_dynamic_jit prepare_jit prepare_dynamic_jit "
        "fuse_conv_bn_jit script_qconfig script_qconfig_dict get_default_qconfig_mapping "
        "get_default_qat_qconfig_mapping QConfigMapping",
    )
)


def default_eval_fn(model: Any, calib_data: Any) -> None:
    """Runs a model on the first parts of examples."""
    for data, _ in calib_data:
        model(data)


__getattr__ = _lazy.submodules("ao.quantization", "utils")
