"""Sobol sequences: direction numbers, points by their Gray code, and random linear scrambling.

The numbers are those that Joe and Kuo found by the search criterion D(6) ("Constructing Sobol sequences with better
two-dimensional projections", SIAM J. Sci. Comput. 30, 2008; https://web.maths.unsw.edu.au/~fkuo/sobol/), of primitive
polynomials of degree 13 at most.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import numpy as np

import torchlike as torch

BITS = 30
DIMENSIONS = 1111
_BLOCK = 1 << 16  # integers that are moved together: what a core keeps near


@cache
def _table() -> tuple[Any, Any]:
    """The polynomials of the dimensions after the first, and the numbers that each one starts with."""
    with (resources.files("torchlike") / "_sobol_numbers.npz").open("rb") as f:
        table = np.load(f)
        return table["polynomials"].astype(np.int64), table["numbers"]


def directions(dimension: int) -> Any:
    """The direction numbers of the first dimensions, integers of 30 bits: `(dimension, 30)`.

    The recurrence of Bratley and Fox ("Algorithm 659", ACM TOMS 14, 1988), for all polynomials of a degree at once.
    """
    found = np.empty((dimension, BITS), np.int64)
    found[:1] = 1
    polynomials, numbers = (part[: dimension - 1] for part in _table())
    degrees = np.frexp(polynomials)[1] - 1
    for degree in np.unique(degrees):
        of = np.flatnonzero(degrees == degree)
        rows, low = np.empty((len(of), BITS), np.int64), polynomials[of]
        rows[:, :degree] = numbers[of, :degree]
        for j in range(degree, BITS):
            rows[:, j] = rows[:, j - degree]
            for k in range(1, degree + 1):
                rows[:, j] ^= (low >> (degree - k) & 1) * rows[:, j - k] << k
        found[of + 1] = rows
    return torch.from_numpy(found << np.arange(BITS - 1, -1, -1))


def _moved(state: Any, index: int) -> Any:
    """What a point's position in the sequence adds to the first one's integers, one a dimension."""
    gray = index ^ index >> 1
    total = torch.zeros_like(state[:, 0])
    for bit in range(gray.bit_length()):
        if gray >> bit & 1:
            total ^= state[:, bit]
    return total


def skip(quasi: Any, count: int, state: Any, index: int) -> None:
    """Moves a point at `index` of the sequence on by `count` points, in place."""
    quasi ^= _moved(state, index + count) ^ _moved(state, index)


def points(quasi: Any, count: int, state: Any, index: int, dtype: Any) -> Any:
    """The `count` points that follow the one at `index`, whose integers are given: `(count, dimension)`.

    A point's bits depend linearly on its index's, so that a table of the low bits' part is doubled bit by bit, and the
    high bits add a constant to each aligned part of it.
    """
    low = min(count, max(_BLOCK // len(quasi), 1)).bit_length()
    table = torch.zeros(1 << low, len(quasi), dtype=torch.int32, device="cpu")
    for bit in range(low):
        half = 1 << bit
        torch.bitwise_xor(table[:half], _moved(state, half).int(), out=table[half : 2 * half])
    result = torch.empty(count, len(quasi), dtype=dtype, device="cpu")
    start = quasi ^ _moved(state, index)
    first, end = index + 1, index + 1 + count
    at = first
    while at < end:
        high = at >> low << low
        stop = min(end, high + (1 << low))
        part = table[at - high : stop - high] ^ (start ^ _moved(state, high)).int()
        torch.mul(part.to(dtype), 2.0**-BITS, out=result[at - first : stop - first])
        at = stop
    return result


def scrambled(state: Any, matrices: Any) -> Any:
    """Direction numbers times lower triangular matrices of bits, one a dimension, whose diagonals are taken for ones.

    Owen's linear scrambling ("Scrambling Sobol and Niederreiter-Xing points", J. Complexity 14, 1998).
    """
    matrices = matrices.clone()
    matrices.diagonal(0, -2, -1).fill_(1)
    shifts = torch.arange(BITS - 1, -1, -1, device="cpu")
    bits = state.unsqueeze(-1) >> shifts & 1
    return ((bits @ matrices.mT % 2) << shifts).sum(-1)
