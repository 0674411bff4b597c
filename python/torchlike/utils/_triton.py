"""Whether kernels in Triton can be run: they cannot."""

from __future__ import annotations


def has_triton_package() -> bool:
    """False: kernels here are compiled by NVRTC."""
    return False


has_triton = has_triton_tma = has_triton_tma_device = has_triton_package
has_triton_stable_tma_api = has_triton_tensor_descriptor_host_tma = has_triton_package
