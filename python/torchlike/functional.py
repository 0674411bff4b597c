"""Functions whose calling conventions need Python: each prepares its arguments for an op of the core."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torchlike import _C
from torchlike._C import Tensor
from torchlike._function import overridable
from torchlike._functions import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block_diag,
    broadcast_tensors,
    cartesian_prod,
    cdist,
    chain_matmul,
    istft,
    lu,
    norm,
    split,
    stft,
    unique,
    unique_consecutive,
    unravel_index,
)
from torchlike._lowrank import pca_lowrank, svd_lowrank

F: Any
"""`torchlike.nn.functional`, which comes after this module and is set then."""

__all__ = [
    "atleast_1d",
    "atleast_2d",
    "atleast_3d",
    "block_diag",
    "broadcast_shapes",
    "broadcast_tensors",
    "cartesian_prod",
    "cdist",
    "chain_matmul",
    "einsum",
    "istft",
    "lu",
    "meshgrid",
    "norm",
    "pca_lowrank",
    "split",
    "stft",
    "svd_lowrank",
    "tensordot",
    "unique",
    "unique_consecutive",
    "unravel_index",
]


@overridable
def meshgrid(*tensors: Any, indexing: str | None = None) -> Any:
    """Coordinates of the points of a grid, a tensor for each dimension."""
    return _C._root.meshgrid(*tensors, indexing=indexing)


@overridable
def einsum(*args: Any) -> Any:
    """Sums of products of elements, as the equation says."""
    if len(args) < 2:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, "
            "or at least one operand and its subscripts list"
        )
    if isinstance(args[0], Tensor):
        equation, operands = _from_lists(args)
    else:
        equation, operands = args[0], args[1:]
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        return einsum(equation, *operands[0])
    return _C._root.einsum(equation, list(operands))


def _from_lists(args: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """The equation of a call with lists of numbers instead of letters."""

    def text(subscripts: Any) -> str:
        return "".join("..." if s is Ellipsis else _letter(s) for s in subscripts)

    equation = ",".join(text(s) for s in args[1::2])
    if len(args) % 2 == 1:
        equation += "->" + text(args[-1])
        return equation, args[:-1:2]
    return equation, args[::2]


def _letter(n: int) -> str:
    if 0 <= n < 26:
        return chr(ord("A") + n)
    if 26 <= n < 52:
        return chr(ord("a") + n - 26)
    raise ValueError("einsum(): subscript in subscript list is not within the valid range [0, 52)")


@overridable
def tensordot(a: Any, b: Any, dims: Any = 2, out: Any = None) -> Any:
    """Sums of products over `dims` dimensions, or over the dimensions that two lists name."""
    if not isinstance(dims, int | tuple | list | Tensor):
        raise RuntimeError(
            "tensordot expects dims to be int or "
            "tuple[list[int], list[int]] or "
            f"list[list[int]] containing two lists, but got dims={dims}"
        )
    if isinstance(dims, Tensor):
        if dims.numel() > 1:
            first, second = dims.tolist()
        else:
            dims = int(dims.item())
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.dim(), b.dim()):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims}")
        first, second = list(range(-dims, 0)), list(range(dims))
    elif isinstance(dims, list | tuple):
        first, second = (d if isinstance(d, list | tuple) else [d] for d in dims)
    if out is None:
        return _C._root.tensordot(a, b, list(first), list(second))
    return _C._root.tensordot(a, b, list(first), list(second), out=out)


def broadcast_shapes(*shapes: Any) -> Any:
    """The shape that all the shapes broadcast to."""
    from torchlike._size import Size

    given = [(s,) if isinstance(s, int) else s for s in shapes if s is not None]
    for shape in given:
        if not isinstance(shape, Sequence):
            raise RuntimeError(
                f"Input shapes should be of type ints, a tuple of ints, or a list of ints, got {shape}"
            )
    result = [1] * max(map(len, given), default=0)
    for at, shape in enumerate(given):
        for i in range(-1, -1 - len(shape), -1):
            if shape[i] == 1 or shape[i] == result[i]:
                continue
            if result[i] != 1:
                raise RuntimeError(
                    f"Attempting to broadcast a dimension of length {shape[i]} at {i}! "
                    f"Mismatching argument at index {at} had {shape}; "
                    f"but expected shape should be broadcastable to {result}"
                )
            if shape[i] < 0:
                raise ValueError("Attempting to broadcast a dimension with negative length!")
            result[i] = shape[i]
    return Size(result)


@overridable
def norm_except_dim(v: Any, pow: int = 2, dim: int = 0) -> Any:
    """The norm over all dimensions but one, which stays; with `dim` -1 over all."""
    if dim == -1:
        return v.norm(pow)
    if dim == 0:
        shape = [v.shape[0]] + [1] * (v.ndim - 1)
        return v.contiguous().view(v.shape[0], -1).norm(pow, 1).view(shape)
    if dim == v.ndim - 1:
        shape = [1] * (v.ndim - 1) + [v.shape[-1]]
        return v.contiguous().view(-1, v.shape[-1]).norm(pow, 0).view(shape)
    return norm_except_dim(v.transpose(0, dim), pow, 0).transpose(0, dim)


def _weight_norm(v: Any, g: Any, dim: int = 0) -> Any:
    """`v` with norms `g` over all dimensions but one."""
    return v * (g / norm_except_dim(v, 2, dim))


def resize_as_(input: Any, the_template: Any, *, memory_format: Any = None) -> Any:
    """Gives `input` the shape of another tensor, in place."""
    return input.resize_as_(the_template, memory_format=memory_format)
