"""Attention and encoder layers in one call, as archives of scripted transformers and programs for inference make them.

PyTorch calls these where nothing asks for gradients; they compute what the layers compute step by step.
"""

from __future__ import annotations

import math
from typing import Any

import torchlike as torch
from torchlike._function import overridable
from torchlike.nn import functional

F: Any = functional

__all__ = [
    "_native_multi_head_attention",
    "_nested_tensor_from_mask",
    "_nested_tensor_from_mask_left_aligned",
    "_transformer_encoder_layer_fwd",
]

# The mask of keys, `[N, S]`; others are broadcast as they are.
_OF_KEYS = 1


@overridable
def _native_multi_head_attention(
    query: Any,
    key: Any,
    value: Any,
    embed_dim: int,
    num_head: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    mask: Any = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Any, Any]:
    """Attention with several heads of batches `[N, L, E]`; the weights are `[N, L, S]`, or `[N, H, L, S]`.

    Of nested tensors every part is a sequence of its own, and the weights are padded to the longest ones.

    Args:
        mask: true where a query does not see a key; its shape is what `mask_type` says (0: `[L, S]`, 1: `[N, S]`,
            2: `[N, H, L, S]`).

    Raises:
        RuntimeError: for sizes that do not fit.
    """
    if query.dim() != 3 or query.size(2) != embed_dim:
        raise RuntimeError(
            f"expected 3-D `query` of {embed_dim} features, got a tensor of the shape {list(query.shape)}"
        )
    torch._check(embed_dim % num_head == 0, lambda: "embed_dim % num_head has to be 0")
    weights = qkv_weight.chunk(3)
    biases = (None,) * 3 if qkv_bias is None else qkv_bias.chunk(3)
    inputs = zip((query, key, value), weights, biases, strict=True)
    projected = tuple(F.linear(x, w, b) for x, w, b in inputs)
    if query.is_nested:
        if mask is not None:
            raise RuntimeError("NestedTensor with mask is not supported yet")
        out, attention = _of_parts(projected, num_head, need_weights)
        out = F.linear(out, proj_weight, proj_bias)
        return out, attention.mean(1) if need_weights and average_attn_weights else attention
    q, k, v = (x.unflatten(-1, (num_head, -1)).transpose(1, 2) for x in projected)
    scores = (q / math.sqrt(q.size(-1))) @ k.transpose(-2, -1)
    if mask is not None:
        if mask_type == _OF_KEYS:
            mask = mask[:, None, None, :]
        scores = scores.masked_fill(
            mask.bool(), -math.inf
        )  # of masks that are added only -inf counts
    attention = scores.softmax(-1)
    out = F.linear((attention @ v).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return out, None
    return out, attention.mean(1) if average_attn_weights else attention


def _of_parts(projected: tuple[Any, ...], num_head: int, need_weights: bool) -> tuple[Any, Any]:
    """The attention of each part of nested tensors, and its weights `[N, H, L, S]` if they are needed."""
    outs, weights = [], []
    for parts in zip(*(x.unbind() for x in projected), strict=True):
        q, k, v = (part.unflatten(-1, (num_head, -1)).transpose(0, 1) for part in parts)
        outs.append(F.scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1))
        if need_weights:
            weights.append(torch.softmax(q @ k.mT / math.sqrt(q.shape[-1]), -1))
    out = torch.nested.as_nested_tensor(outs)
    if not need_weights:
        return out, None
    return out, torch.nested.to_padded_tensor(torch.nested.as_nested_tensor(weights), 0.0)


@overridable
def _transformer_encoder_layer_fwd(
    src: Any,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Any,
    qkv_bias: Any,
    proj_weight: Any,
    proj_bias: Any,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Any,
    norm_bias_1: Any,
    norm_weight_2: Any,
    norm_bias_2: Any,
    ffn_weight_1: Any,
    ffn_bias_1: Any,
    ffn_weight_2: Any,
    ffn_bias_2: Any,
    mask: Any = None,
    mask_type: int | None = None,
) -> Any:
    """An encoder layer of a transformer for batches `[N, L, E]`: attention, and a network of two layers.

    Of a nested tensor every part is a sequence of its own.
    """
    if src.is_nested:
        lengths = [part.size(0) for part in src.unbind()]
        padded = torch.nested.to_padded_tensor(src, 0.0)
        past = torch.arange(padded.size(1)) >= torch.tensor(lengths)[:, None]
        rest = (qkv_weight, qkv_bias, proj_weight, proj_bias, use_gelu, norm_first, eps)
        norms = (norm_weight_1, norm_bias_1, norm_weight_2, norm_bias_2)
        network = (ffn_weight_1, ffn_bias_1, ffn_weight_2, ffn_bias_2)
        out = _transformer_encoder_layer_fwd(
            padded, embed_dim, num_heads, *rest, *norms, *network, past, _OF_KEYS
        )
        return torch.nested.as_nested_tensor(
            [row[:n] for row, n in zip(out.unbind(), lengths, strict=True)]
        )

    def attended(x: Any) -> Any:
        parts = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return _native_multi_head_attention(
            x, x, x, embed_dim, num_heads, *parts, mask, False, True, mask_type
        )[0]

    def fed(x: Any) -> Any:
        inner = F.linear(x, ffn_weight_1, ffn_bias_1)
        return F.linear(F.gelu(inner) if use_gelu else F.relu(inner), ffn_weight_2, ffn_bias_2)

    def first(x: Any) -> Any:
        return F.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: Any) -> Any:
        return F.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if norm_first:
        x = src + attended(first(src))
        return x + fed(second(x))
    x = first(src + attended(src))
    return second(x + fed(x))


def _nested_tensor_from_mask_left_aligned(t: Any, mask: Any) -> bool:
    """Whether what a mask `[N, L]` keeps stands at the beginning of each row, and somewhere."""
    starts = mask.long().cummin(1).values.bool()
    return bool((starts == mask).all() and mask.any(1).all())


def _nested_tensor_from_mask(t: Any, mask: Any, mask_check: bool = True) -> Any:
    """The rows of `[N, L, E]` as far as a mask `[N, L]` keeps them, as a nested tensor.

    Raises:
        RuntimeError: if what is kept does not stand at the beginning of each row, unless nothing checks that.
    """
    if mask_check and not _nested_tensor_from_mask_left_aligned(t, mask):
        raise RuntimeError("Mask must be left-aligned without gaps")
    lengths = mask.sum(1).tolist()
    return torch.nested.as_nested_tensor(
        [row[:n] for row, n in zip(t.unbind(), lengths, strict=True)]
    )
