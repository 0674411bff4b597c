"""Switches of GPUs and of attention; kept, without an effect."""

from __future__ import annotations

import enum
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike import _C, _absent

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "SDPAParams",
    "allow_fp16_bf16_reduction_math_sdp",
    "can_use_cudnn_attention",
    "can_use_efficient_attention",
    "can_use_flash_attention",
    "cudnn_sdp_enabled",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "fp16_bf16_reduction_math_sdp_allowed",
    "is_built",
    "is_flash_attention_available",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "preferred_blas_library",
    "preferred_linalg_library",
    "sdp_kernel",
]

fp32_precision = "none"


class cuBLASModule:
    """How products on GPUs may be rounded; all but `allow_tf32` is kept without an effect."""

    @property
    def allow_tf32(self) -> bool:
        """Whether operands of single precision may be rounded to 10 bits of mantissa."""
        return _C._cuda_tf32(False)

    @allow_tf32.setter
    def allow_tf32(self, allow: bool) -> None:
        _C._cuda_tf32(False, allow)

    def __init__(self) -> None:
        self.allow_fp16_reduced_precision_reduction = True
        self.allow_bf16_reduced_precision_reduction = True
        self.allow_fp16_accumulation = False
        self.fp32_precision = "none"


matmul = cuBLASModule()


def is_built() -> bool:
    """Whether GPUs could be used if there were any."""
    return torchlike.cuda.is_available()


class _LinalgBackend(enum.Enum):
    Default = 0
    Cusolver = 1
    Magma = 2


class _BlasBackend(enum.Enum):
    Default = 0
    Cublas = 1
    Cublaslt = 2
    Ck = 3


def preferred_linalg_library(backend: Any = None) -> Any:
    """The library for linear algebra on GPUs: there is no choice."""
    return _LinalgBackend.Default


def preferred_blas_library(backend: Any = None) -> Any:
    """The library for products on GPUs: there is no choice."""
    return _BlasBackend.Cublas


_attention = {"flash": True, "mem_efficient": True, "math": True, "cudnn": True}
_reduction = False


def flash_sdp_enabled() -> bool:
    """Whether this implementation of attention may be used."""
    return _attention["flash"]


def enable_flash_sdp(enabled: bool) -> None:
    """Sets whether this implementation of attention may be used."""
    _attention["flash"] = enabled


def mem_efficient_sdp_enabled() -> bool:
    """Whether this implementation of attention may be used."""
    return _attention["mem_efficient"]


def enable_mem_efficient_sdp(enabled: bool) -> None:
    """Sets whether this implementation of attention may be used."""
    _attention["mem_efficient"] = enabled


def math_sdp_enabled() -> bool:
    """Whether this implementation of attention may be used."""
    return _attention["math"]


def enable_math_sdp(enabled: bool) -> None:
    """Sets whether this implementation of attention may be used."""
    _attention["math"] = enabled


def cudnn_sdp_enabled() -> bool:
    """Whether this implementation of attention may be used."""
    return _attention["cudnn"]


def enable_cudnn_sdp(enabled: bool) -> None:
    """Sets whether this implementation of attention may be used."""
    _attention["cudnn"] = enabled


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """Whether sums may be of half precision."""
    return _reduction


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Sets whether sums may be of half precision. They never are."""
    global _reduction
    _reduction = enabled


def is_flash_attention_available() -> bool:
    """False: there is one implementation of attention."""
    return False


SDPAParams = _absent.kind(__name__, "SDPAParams", "there is one implementation of attention")


def can_use_flash_attention(params: Any, debug: bool = False) -> bool:
    """False."""
    return False


def can_use_efficient_attention(params: Any, debug: bool = False) -> bool:
    """False."""
    return False


def can_use_cudnn_attention(params: Any, debug: bool = False) -> bool:
    """False."""
    return False


@contextmanager
def sdp_kernel(
    enable_flash: bool = True,
    enable_math: bool = True,
    enable_mem_efficient: bool = True,
    enable_cudnn: bool = True,
) -> Iterator[None]:
    """Allows implementations of attention inside."""
    warnings.warn(
        "`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager will be removed. "
        "Please see `torch.nn.attention.sdpa_kernel()` for the new context manager, with updated signature.",
        FutureWarning,
        stacklevel=3,
    )
    before = dict(_attention)
    _attention.update(
        flash=enable_flash, math=enable_math, mem_efficient=enable_mem_efficient, cudnn=enable_cudnn
    )
    try:
        yield
    finally:
        _attention.update(before)


class _PlanCache:
    """Plans of transforms on GPUs: none are kept."""

    size = 0
    max_size = 0

    def clear(self) -> None:
        """Nothing to forget."""

    def __getitem__(self, device: Any) -> _PlanCache:
        return self


cufft_plan_cache = _PlanCache()
