"""Settings of the code generator: kept, without an effect."""

from __future__ import annotations

import types
from typing import Any

debug = False
fx_graph_cache = True
max_autotune = False
max_autotune_gemm = False
coordinate_descent_tuning = False
epilogue_fusion = True
freezing = False
cpp_wrapper = False
force_fuse_int_mm_with_mul = False
fallback_random = False
shape_padding = True
conv_1x1_as_mm = False
triton: Any = types.SimpleNamespace(cudagraphs=False, unique_kernel_names=True)
cpp: Any = types.SimpleNamespace(threads=-1)
