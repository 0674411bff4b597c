"""Operations as modules, so that their results can be observed."""

from __future__ import annotations

from typing import Any, NoReturn

import torchlike
from torchlike import nn
from torchlike._ops import ops


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


class QFunctional(nn.Module):
    """Operations of quantised tensors, whose results have the scale and zero point of the module."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 1.0
        self.zero_point = 0
        self.activation_post_process = nn.modules.linear.Identity()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = torchlike.tensor(self.scale)
        destination[prefix + "zero_point"] = torchlike.tensor(self.zero_point)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        self.scale = float(state_dict.pop(prefix + "scale"))
        self.zero_point = int(state_dict.pop(prefix + "zero_point"))
        metadata, _, *lists = rest
        super()._load_from_state_dict(state_dict, prefix, metadata, False, *lists)

    def _get_name(self) -> str:
        return "QFunctional"

    def extra_repr(self) -> str:
        """The scale and the zero point."""
        return f"scale={self.scale}, zero_point={self.zero_point}"

    def forward(self, x: Any) -> NoReturn:
        """Not meant to be called.

        Raises:
            RuntimeError: always.
        """
        raise RuntimeError(
            "Functional is not intended to use the 'forward'. Please use the underlying operation"
        )

    def _observed(self, result: Any) -> Any:
        return self.activation_post_process(result)

    def add(self, x: Any, y: Any) -> Any:
        """The sum."""
        return self._observed(ops.quantized.add(x, y, self.scale, self.zero_point))

    def add_scalar(self, x: Any, y: float) -> Any:
        """The sum with a number."""
        return ops.quantized.add_scalar(x, y)

    def mul(self, x: Any, y: Any) -> Any:
        """The product."""
        return self._observed(ops.quantized.mul(x, y, self.scale, self.zero_point))

    def mul_scalar(self, x: Any, y: float) -> Any:
        """The product with a number."""
        return ops.quantized.mul_scalar(x, y)

    def cat(self, x: Any, dim: int = 0) -> Any:
        """The tensors side by side."""
        return self._observed(ops.quantized.cat(x, dim, self.scale, self.zero_point))

    def add_relu(self, x: Any, y: Any) -> Any:
        """The sum, its negative elements set to zero."""
        return self._observed(ops.quantized.add_relu(x, y, self.scale, self.zero_point))

    def matmul(self, x: Any, y: Any) -> Any:
        """The matrix product."""
        # Without an observer in between, as PyTorch's.
        return ops.quantized.matmul(x, y, self.scale, self.zero_point)

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> QFunctional:
        """The same operations by what was observed of their results.

        Raises:
            AssertionError: if it is no `FloatFunctional`.
        """
        if type(mod) is not FloatFunctional:
            raise AssertionError("QFunctional.from_float expects an instance of FloatFunctional")
        scale, zero_point = mod.activation_post_process.calculate_qparams()
        made = cls()
        made.scale, made.zero_point = float(scale), int(zero_point)
        return made
