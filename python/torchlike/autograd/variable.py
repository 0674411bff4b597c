"""The old name of tensors that take part in gradients: every tensor may."""

from __future__ import annotations

from typing import Any

from torchlike import _C
from torchlike._C import Tensor

__all__ = ["Variable"]


class VariableMeta(type):
    """The type of :class:`Variable`: every tensor is an instance."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)


class ImperativeEngine:
    """Backward passes, as old code asks for them."""

    @staticmethod
    def queue_callback(f: Any) -> None:
        """Calls a function once the backward pass of this thread is done.

        Raises:
            RuntimeError: outside of one.
        """
        _C._queue_callback(f)


class Variable(metaclass=VariableMeta):
    """`Variable(data, requires_grad=False)`: the same numbers, without `data`'s history."""

    _execution_engine = ImperativeEngine()

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: Any = None) -> Any:
        """A tensor on the memory of `data`, or an empty one.

        Raises:
            TypeError: if `data` is no tensor.
        """
        if volatile:
            import warnings

            warnings.warn(
                "volatile was removed and now has no effect. Use `with torch.no_grad():` instead.",
                stacklevel=2,
            )
        if data is None:
            data = Tensor()
        elif not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)
