"""Quasirandom sequences: `quasirandom.SobolEngine`."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import _sobol

__all__ = ["SobolEngine"]


class SobolEngine:
    """Draws the points of a Sobol sequence in the unit cube, one after the other.

    Args:
        dimension: of the cube, 1111 at most; PyTorch has direction numbers for 21,201.
        scramble: whether the sequence is scrambled at random.
        seed: of the generator that scrambles; without one the default generator does.

    Attributes:
        sobolstate: the direction numbers, `(dimension, 30)`.
        shift: the digital shift, 30 bits a dimension.
        quasi: the last point's integers.
        num_generated: how many points were drawn.

    Raises:
        ValueError: for other dimensions.
    """

    MAXBIT = _sobol.BITS
    MAXDIM = _sobol.DIMENSIONS

    def __init__(self, dimension: int, scramble: bool = False, seed: int | None = None) -> None:
        if dimension > self.MAXDIM or dimension < 1:
            raise ValueError(
                f"Supported range of dimensionality for SobolEngine is [1, {self.MAXDIM}]"
            )
        self.seed, self.scramble, self.dimension = seed, scramble, dimension
        self.sobolstate = _sobol.directions(dimension)
        if scramble:
            self._scramble()
        else:
            self.shift = torch.zeros(dimension, device="cpu", dtype=torch.int64)
        self.quasi = self.shift.clone()
        self._first_point = (self.quasi / 2**self.MAXBIT).reshape(1, -1)
        self.num_generated = 0

    def draw(self, n: int = 1, out: Any = None, dtype: Any = None) -> Any:
        """The next `n` points: `(n, dimension)`, of the default type unless another is asked for."""
        dtype = torch.get_default_dtype() if dtype is None else dtype
        first = self.num_generated == 0
        index = max(self.num_generated - 1, 0)
        result = _sobol.points(self.quasi, n - first, self.sobolstate, index, dtype)
        _sobol.skip(self.quasi, n - first, self.sobolstate, index)
        if first:
            result = torch.cat((self._first_point.to(dtype), result))
        self.num_generated += n
        if out is None:
            return result
        return out.resize_as_(result).copy_(result)

    def draw_base2(self, m: int, out: Any = None, dtype: Any = None) -> Any:
        """The next `2**m` points.

        Raises:
            ValueError: if with them the number of points drawn is no power of two.
        """
        n = 2**m
        total = self.num_generated + n
        if total & (total - 1):
            raise ValueError(
                "The balance properties of Sobol' points require n to be a power of 2. "
                f"{self.num_generated} points have been previously generated, then: "
                f"n={self.num_generated}+2**{m}={total}. If you still want to do this, please "
                "use 'SobolEngine.draw()' instead."
            )
        return self.draw(n=n, out=out, dtype=dtype)

    def reset(self) -> SobolEngine:
        """Goes back to the first point."""
        self.quasi.copy_(self.shift)
        self.num_generated = 0
        return self

    def fast_forward(self, n: int) -> SobolEngine:
        """Leaves `n` points out."""
        first = self.num_generated == 0
        _sobol.skip(self.quasi, n - first, self.sobolstate, max(self.num_generated - 1, 0))
        self.num_generated += n
        return self

    def _scramble(self) -> None:
        """Draws the shift and the matrices, as many numbers and in the order that PyTorch draws them."""
        generator = None
        if self.seed is not None:
            generator = torch.Generator()
            generator.manual_seed(self.seed)
        size = (self.dimension, self.MAXBIT)
        like: dict[str, Any] = {"device": "cpu", "generator": generator}
        bits = torch.randint(2, size, **like)
        self.shift = (bits << torch.arange(self.MAXBIT, device="cpu")).sum(-1)
        matrices = torch.randint(2, (*size, self.MAXBIT), **like).tril()
        self.sobolstate = _sobol.scrambled(self.sobolstate, matrices)

    def __repr__(self) -> str:
        said = [f"dimension={self.dimension}"]
        if self.scramble:
            said.append("scramble=True")
        if self.seed is not None:
            said.append(f"seed={self.seed}")
        return f"{type(self).__name__}({', '.join(said)})"
