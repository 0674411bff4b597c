"""Attention with several heads as TorchScript, in the operators that PyTorch has for its steps."""

from __future__ import annotations

import torchlike
from torchlike import Tensor

aten = torchlike.ops.aten


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    heads: int,
    weights: list[Tensor],
    bias: Tensor | None,
    out_weight: Tensor,
    out_bias: Tensor | None,
    dropout: float,
    batch_first: bool,
    key_padding_mask: Tensor | None,
    need_weights: bool,
    attn_mask: Tensor | None,
    average: bool,
    is_causal: bool,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
) -> tuple[Tensor, Tensor | None]:
    batched = query.dim() == 3
    if not batched:
        query = aten.unsqueeze(query, 0)
        key = aten.unsqueeze(key, 0)
        value = aten.unsqueeze(value, 0)
    elif not batch_first:
        query = aten.transpose(query, 0, 1)
        key = aten.transpose(key, 0, 1)
        value = aten.transpose(value, 0, 1)
    batch = query.size(0)
    length = query.size(1)
    q = aten.linear(query, weights[0])
    k = aten.linear(key, weights[1])
    v = aten.linear(value, weights[2])
    if bias is not None:
        parts = aten.chunk(bias, 3)
        q = aten.add(q, parts[0])
        k = aten.add(k, parts[1])
        v = aten.add(v, parts[2])
    added = 0
    if bias_k is not None and bias_v is not None:
        k = aten.cat([k, aten.expand(bias_k, [batch, 1, -1])], 1)
        v = aten.cat([v, aten.expand(bias_v, [batch, 1, -1])], 1)
        added += 1
    if add_zero_attn:
        k = aten.constant_pad_nd(k, [0, 0, 0, 1])
        v = aten.constant_pad_nd(v, [0, 0, 0, 1])
        added += 1
    source = k.size(1)
    width = q.size(2)
    q = aten.transpose(q.reshape([batch, length, heads, width // heads]), 1, 2)
    k = aten.transpose(k.reshape([batch, source, heads, k.size(2) // heads]), 1, 2)
    v = aten.transpose(v.reshape([batch, source, heads, v.size(2) // heads]), 1, 2)
    scores = aten.matmul(aten.div(q, float(width // heads) ** 0.5), aten.transpose(k, 2, 3))
    if attn_mask is not None:
        mask = attn_mask
        if added > 0:
            mask = aten.constant_pad_nd(mask, [0, added])
        if mask.dim() == 3:
            mask = mask.reshape([batch, heads, length, source])
        if mask.is_floating_point():
            scores = aten.add(scores, mask)
        else:
            scores = aten.masked_fill(scores, mask, float("-inf"))
    if key_padding_mask is not None:
        padding = key_padding_mask
        if added > 0:
            padding = aten.constant_pad_nd(padding, [0, added])
        padding = padding.reshape([batch, 1, 1, source])
        if padding.is_floating_point():
            scores = aten.add(scores, padding)
        else:
            scores = aten.masked_fill(scores, padding, float("-inf"))
    probabilities = aten.softmax(scores, -1)
    if dropout > 0.0:
        probabilities = aten.dropout(probabilities, dropout, True)
    out = aten.transpose(aten.matmul(probabilities, v), 1, 2).reshape(
        [batch, length, v.size(1) * v.size(3)]
    )
    out = aten.linear(out, out_weight, out_bias)
    shown: Tensor | None = None
    if need_weights:
        shown = aten.mean(probabilities, [1]) if average else probabilities
    if not batched:
        out = aten.squeeze(out, 0)
        if shown is not None:
            shown = aten.squeeze(shown, 0)
    elif not batch_first:
        out = aten.transpose(out, 0, 1)
    return out, shown


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    assert static_k is None, "static_k is not supported in TorchScript"
    assert static_v is None, "static_v is not supported in TorchScript"
    assert query.size(-1) == embed_dim_to_check, "the embedding dimension is another one"
    weights: list[Tensor] = []
    if use_separate_proj_weight:
        assert q_proj_weight is not None, "q_proj_weight is None"
        assert k_proj_weight is not None, "k_proj_weight is None"
        assert v_proj_weight is not None, "v_proj_weight is None"
        weights = [q_proj_weight, k_proj_weight, v_proj_weight]
    else:
        assert in_proj_weight is not None, "in_proj_weight is None"
        weights = aten.chunk(in_proj_weight, 3)
    return multi_head_attention(
        query,
        key,
        value,
        num_heads,
        weights,
        in_proj_bias,
        out_proj_weight,
        out_proj_bias,
        dropout_p if training else 0.0,
        False,
        key_padding_mask,
        need_weights,
        attn_mask,
        average_attn_weights,
        is_causal,
        bias_k,
        bias_v,
        add_zero_attn,
    )
