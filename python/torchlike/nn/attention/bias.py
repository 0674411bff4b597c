"""Masks that let each place see those before it, for queries and keys of different lengths."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import Any

import torchlike as torch
from torchlike._C import Tensor

__all__ = ["CausalBias", "CausalVariant", "causal_lower_right", "causal_upper_left"]


class CausalVariant(IntEnum):
    """From which corner the diagonal goes."""

    UPPER_LEFT = auto()
    LOWER_RIGHT = auto()


class CausalBias(Tensor):
    """A causal mask for `scaled_dot_product_attention`, made when it is used.

    Args:
        variant: from which corner the diagonal goes.
        seq_len_q: how many queries there are.
        seq_len_kv: how many keys.

    Raises:
        AssertionError: for something else than a `CausalVariant`.
    """

    variant: CausalVariant
    seq_len_q: int
    seq_len_kv: int

    def __new__(cls, variant: CausalVariant, seq_len_q: int, seq_len_kv: int) -> CausalBias:
        """An empty tensor that stands for the mask."""
        if not isinstance(variant, CausalVariant):
            raise AssertionError(f"variant must be a CausalVariant, got {type(variant).__name__}")
        made: CausalBias = torch.empty(0).as_subclass(cls)
        made.variant, made.seq_len_q, made.seq_len_kv = variant, seq_len_q, seq_len_kv
        return made

    def __init__(self, *_: Any) -> None:
        super().__init__()

    def _materialize(self, device: Any = None) -> Tensor:
        """The mask, true where a key is seen."""
        offset = 0
        if self.variant is CausalVariant.LOWER_RIGHT:
            offset = self.seq_len_kv - self.seq_len_q
        whole = torch.ones(self.seq_len_q, self.seq_len_kv, device=device, dtype=torch.bool)
        return torch.tril(whole, diagonal=offset)

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Attention takes the mask; everything else sees a tensor."""
        kwargs = kwargs or {}
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return super().__torch_function__(func, types, args, kwargs)
        args = list(args)
        given = dict(
            zip(
                ("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False
            )
        )
        given.update(kwargs)
        mask = given["attn_mask"]
        if given.get("is_causal"):
            raise ValueError("CausalBias should not be used with causal=True")
        square = mask.variant is CausalVariant.UPPER_LEFT or mask.seq_len_q == mask.seq_len_kv
        given["attn_mask"] = None if square else mask._materialize(given["query"].device)
        given["is_causal"] = square
        return func(**given)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self._materialize())


def _lengths(size: tuple[int, ...], name: str) -> tuple[int, int]:
    if len(size) != 2:
        raise AssertionError(f"{name} only supports 2D tensors")
    return size[0], size[1]


def causal_upper_left(*size: int) -> CausalBias:
    """The mask of so many queries and keys whose diagonal begins at the first of both."""
    return CausalBias(CausalVariant.UPPER_LEFT, *_lengths(size, "causal_upper_left"))


def causal_lower_right(*size: int) -> CausalBias:
    """The mask of so many queries and keys whose diagonal ends at the last of both."""
    return CausalBias(CausalVariant.LOWER_RIGHT, *_lengths(size, "causal_lower_right"))
