"""Functions that stand beside methods or newer functions of the same meaning."""

from __future__ import annotations

from typing import Any

import torchlike
from torchlike._function import overridable
from torchlike._once import warn_once

__all__ = [
    "detach_",
    "frobenius_norm",
    "has_lapack",
    "has_mkl",
    "has_openmp",
    "has_spectral",
    "int_repr",
    "is_vulkan_available",
    "nuclear_norm",
    "q_per_channel_axis",
    "q_per_channel_scales",
    "q_per_channel_zero_points",
    "q_scale",
    "q_zero_point",
]

#: The factorisations and transforms are our own, and so are the threads.
has_lapack = has_spectral = True
has_mkl = has_openmp = False

_OLD = (
    "at::{} is deprecated and it is just left for JIT compatibility. It will be removed in a future PyTorch release. "
    "Please use `linalg.{}, dim, keepdim)` instead"
)


@overridable
def nuclear_norm(input: Any, dim: Any = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The sums of the singular values of matrices: those in the dimensions `dim`, or in the last two.

    Raises:
        RuntimeError: for vectors, and other than two dimensions.
    """
    warn_once(_OLD.format("nuclear_norm", "matrix_norm(A, 'nuc'"))
    dims = (-2, -1) if dim is None else tuple(dim)
    return torchlike.linalg.matrix_norm(input, "nuc", dims, keepdim, out=out)


@overridable
def frobenius_norm(input: Any, dim: Any, keepdim: bool = False, *, out: Any = None) -> Any:
    """The square roots of the sums of squares over dimensions."""
    warn_once(_OLD.format("frobenius_norm", "vector_norm(A, 2."))
    return torchlike.linalg.vector_norm(input, 2.0, dim, keepdim, out=out)


@overridable
def detach_(input: Any) -> Any:
    """The tensor itself, without its history of gradients from now on."""
    return input.detach_()


@overridable
def int_repr(input: Any) -> Any:
    """The integers of a quantized tensor."""
    return input.int_repr()


@overridable
def q_scale(input: Any) -> float:
    """The scale of a tensor that is quantized as a whole."""
    return input.q_scale()


@overridable
def q_zero_point(input: Any) -> int:
    """The integer that stands for zero in a tensor that is quantized as a whole."""
    return input.q_zero_point()


@overridable
def q_per_channel_scales(input: Any) -> Any:
    """The scales of a tensor that is quantized channel by channel."""
    return input.q_per_channel_scales()


@overridable
def q_per_channel_zero_points(input: Any) -> Any:
    """The integers that stand for zero in a tensor that is quantized channel by channel."""
    return input.q_per_channel_zero_points()


@overridable
def q_per_channel_axis(input: Any) -> int:
    """The dimension of the channels of a tensor that is quantized channel by channel."""
    return input.q_per_channel_axis()


def is_vulkan_available() -> bool:
    """False: there are no such devices here."""
    return False
