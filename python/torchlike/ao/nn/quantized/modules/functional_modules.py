"""Operations as modules, so that their results can be observed."""

from __future__ import annotations

from typing import Any, NoReturn

import torchlike
from torchlike import nn


class FloatFunctional(nn.Module):
    """Operations whose results pass the module `activation_post_process`."""

    def __init__(self) -> None:
        super().__init__()
        self.activation_post_process = nn.modules.linear.Identity()

    def forward(self, x: Any) -> NoReturn:
        """Not meant to be called.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "FloatFunctional is not intended to use the 'forward'. Please use the underlying operation"
        )

    def _observed(self, result: Any) -> Any:
        return self.activation_post_process(result)

    def add(self, x: Any, y: Any) -> Any:
        """The sum."""
        return self._observed(torchlike.add(x, y))

    def add_scalar(self, x: Any, y: float) -> Any:
        """The sum with a number, which is not observed."""
        return torchlike.add(x, y)

    def mul(self, x: Any, y: Any) -> Any:
        """The product."""
        return self._observed(torchlike.mul(x, y))

    def mul_scalar(self, x: Any, y: float) -> Any:
        """The product with a number, which is not observed."""
        return torchlike.mul(x, y)

    def cat(self, x: Any, dim: int = 0) -> Any:
        """The tensors side by side."""
        return self._observed(torchlike.cat(x, dim=dim))

    def add_relu(self, x: Any, y: Any) -> Any:
        """The sum, its negative elements set to zero."""
        return self._observed(nn.functional.relu(torchlike.add(x, y)))

    def matmul(self, x: Any, y: Any) -> Any:
        """The matrix product."""
        return self._observed(torchlike.matmul(x, y))


class FXFloatFunctional(nn.Module):
    """The operations as they are."""

    forward = FloatFunctional.forward

    def add(self, x: Any, y: Any) -> Any:
        """The sum."""
        return torchlike.add(x, y)

    add_scalar = add

    def mul(self, x: Any, y: Any) -> Any:
        """The product."""
        return torchlike.mul(x, y)

    mul_scalar = mul

    def cat(self, x: Any, dim: int = 0) -> Any:
        """The tensors side by side."""
        return torchlike.cat(x, dim=dim)

    def add_relu(self, x: Any, y: Any) -> Any:
        """The sum, its negative elements set to zero."""
        return nn.functional.relu(torchlike.add(x, y))

    def matmul(self, x: Any, y: Any) -> Any:
        """The matrix product."""
        return torchlike.matmul(x, y)
