"""TorchScript's type of tensors, as annotations of old code have it."""

from __future__ import annotations


class TensorType:
    """Any tensor."""

    @classmethod
    def get(cls) -> TensorType:
        """The type."""
        return cls()

    def __repr__(self) -> str:
        return "Tensor"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorType)

    def __hash__(self) -> int:
        return hash(TensorType)


class ScriptModule:
    """TorchScript's own objects, below those of `torch.jit.ScriptModule`: there are none here."""
