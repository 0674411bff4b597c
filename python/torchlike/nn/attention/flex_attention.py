"""Attention whose scores are changed, and masked, by functions of their places.

`flex_attention` is computed as it is written: the scores of all places, and a softmax. A `BlockMask` says the same of
blocks of places as PyTorch's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import torchlike
from torchlike.nn.attention._block_mask import (
    _DEFAULT_SPARSE_BLOCK_SIZE as _DEFAULT_SPARSE_BLOCK_SIZE,
)
from torchlike.nn.attention._block_mask import (
    BlockMask,
    create_block_mask,
    create_mask,
    noop_mask,
    over_places,
)

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "AuxOutput",
    "AuxRequest",
    "BlockMask",
    "FlexKernelOptions",
    "and_masks",
    "create_block_mask",
    "create_mask",
    "flex_attention",
    "noop_mask",
    "or_masks",
]


class FlexKernelOptions(TypedDict, total=False):
    """Settings of PyTorch's kernels; accepted, without an effect."""

    num_warps: int
    num_stages: int
    BLOCK_M: int
    BLOCK_N: int


class AuxRequest(NamedTuple):
    """What is wanted beside the result."""

    lse: bool = False
    max_scores: bool = False


class AuxOutput(NamedTuple):
    """What was wanted beside the result."""

    lse: Any = None
    max_scores: Any = None


def or_masks(*mask_mods: Callable[..., Any]) -> Callable[..., Any]:
    """A mask of what any of these masks lets through.

    Raises:
        RuntimeError: if one is no function.
    """
    if not all(callable(arg) for arg in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def or_mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result = b.new_zeros((), dtype=torchlike.bool)
        for mask in mask_mods:
            result = result | mask(b, h, q_idx, kv_idx)
        return result

    return or_mask


def and_masks(*mask_mods: Callable[..., Any]) -> Callable[..., Any]:
    """A mask of what all of these masks let through.

    Raises:
        RuntimeError: if one is no function.
    """
    if not all(callable(arg) for arg in mask_mods):
        raise RuntimeError(f"All inputs should be callable mask_mods: {mask_mods}")

    def and_mask(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
        result = b.new_ones((), dtype=torchlike.bool)
        for mask in mask_mods:
            result = result & mask(b, h, q_idx, kv_idx)
        return result

    return and_mask


def _check(query: Any, key: Any, value: Any, enable_gqa: bool, mask: Any) -> None:
    if query.dtype != key.dtype or query.dtype != value.dtype:
        raise ValueError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype}, key.dtype: {key.dtype}, and value.dtype: {value.dtype} instead."
        )
    if query.device != key.device or query.device != value.device:
        raise ValueError(
            "Expected query, key, and value to have the same device type, but got query.device: "
            f"{query.device}, key.device: {key.device}, and value.device: {value.device} instead."
        )
    if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
        raise NotImplementedError("NYI: query, key, and value must be 4D tensors")
    if not enable_gqa and query.size(-3) != key.size(-3):
        raise ValueError(
            "Expect query and key/value to have the same number of heads but got "
            f"Hq={query.size(-3)} and Hkv={key.size(-3)}. Try setting enable_gqa=True for GQA."
        )
    if enable_gqa and query.size(1) % key.size(1) != 0:
        raise ValueError(
            "Expect number of query heads to be a multiple of kv heads for GQA but got "
            f"Hq={query.size(1)} and Hkv={key.size(1)}."
        )
    if mask is not None and (
        mask.seq_lengths[0] < query.size(-2) or mask.seq_lengths[1] < key.size(-2)
    ):
        raise ValueError(
            f"block_mask was created for block_mask.shape={mask.shape} but got "
            f"q_len={query.size(-2)} and kv_len={key.size(-2)}. As the block mask was created for a smaller "
            "length than you're using it for, you likely need to create a new block mask."
        )


def flex_attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Callable[..., Any] | None = None,
    block_mask: BlockMask | None = None,
    scale: float | None = None,
    enable_gqa: bool = False,
    return_lse: bool = False,
    kernel_options: Any = None,
    *,
    return_aux: AuxRequest | None = None,
) -> Any:
    """Attention of queries `[B, Hq, L, E]` to keys `[B, H, S, E]` and values `[B, H, S, Ev]`.

    Args:
        score_mod: `score_mod(score, b, h, q, kv)` gives another score for each place.
        block_mask: what is attended to at all, made by `create_block_mask`.
        scale: what scores are multiplied by, `1 / sqrt(E)` unless told.
        enable_gqa: several heads of queries may share one of keys.
        return_lse: the logarithms of the sums of the exponentials, too.
        return_aux: which further results are wanted.

    Raises:
        ValueError: if shapes, dtypes or devices do not fit together.
    """
    _check(query, key, value, enable_gqa, block_mask)
    shared = query.size(1) // key.size(1)
    if shared > 1:
        key = torchlike.repeat_interleave(key, shared, dim=1)
        value = torchlike.repeat_interleave(value, shared, dim=1)
    scale = 1.0 / math.sqrt(query.size(-1)) if scale is None else scale
    working = torchlike.float64 if query.dtype == torchlike.float64 else torchlike.float32
    scores = (query @ key.transpose(-2, -1)).to(working) * scale
    sizes = (*scores.shape[:2], query.size(-2), key.size(-2))
    if score_mod is not None:
        scores = over_places(score_mod, sizes, query.device, scores)
    if block_mask is not None:
        mask = over_places(block_mask.mask_mod, sizes, query.device)
        scores = torchlike.where(mask, scores, scores.new_full((), -math.inf))
    lse = scores.logsumexp(-1)
    weights = torchlike.softmax(scores, dim=-1)
    if block_mask is not None or score_mod is not None:
        empty = torchlike.all(scores == -math.inf, dim=-1, keepdim=True)
        weights = torchlike.where(empty, weights.new_zeros(()), weights)
    out = (weights.to(query.dtype) @ value.to(query.dtype)).to(query.dtype)
    if return_aux is not None:
        return out, AuxOutput(
            lse=lse if return_aux.lse else None,
            max_scores=scores.amax(-1) if return_aux.max_scores else None,
        )
    return (out, lse) if return_lse else out
