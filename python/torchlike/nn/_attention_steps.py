"""The steps of ``multi_head_attention_forward``: checks of shapes, projections, masks, and attention itself.

Queries, keys and values are `[length, batch, features]` until their heads are told apart, and then
`[batch * heads, length, features of a head]`, as masks are.
"""

from __future__ import annotations

import math
from typing import Any

import torchlike as torch
from torchlike.nn import functional

F: Any = functional  # its stub imports the module that imports this one: the type checker knows no names of it yet


def check_shapes(query: Any, key: Any, value: Any, padding: Any, mask: Any, num_heads: int) -> bool:
    """Whether there is a batch dimension; raises where the numbers of dimensions disagree."""
    dims = query.dim()
    if dims not in (2, 3):
        raise AssertionError(
            f"query should be unbatched 2D or batched 3D tensor but received {dims}-D query tensor"
        )
    word = "batched" if dims == 3 else "unbatched"
    if key.dim() != dims or value.dim() != dims:
        raise AssertionError(
            f"For {word} ({dims}-D) `query`, expected `key` and `value` to be {dims}-D"
            f" but found {key.dim()}-D and {value.dim()}-D tensors respectively"
        )
    if padding is not None and padding.dim() != dims - 1:
        raise AssertionError(
            f"For {word} ({dims}-D) `query`, expected `key_padding_mask` to be `None` or "
            f"{dims - 1}-D but found {padding.dim()}-D tensor instead"
        )
    if mask is not None:
        if mask.dim() not in (2, 3):
            raise AssertionError(
                f"For {word} ({dims}-D) `query`, expected `attn_mask` to be `None`, 2-D or 3-D"
                f" but found {mask.dim()}-D tensor instead"
            )
        if dims == 2 and mask.dim() == 3:
            expected = (num_heads, query.shape[0], key.shape[0])
            if mask.shape != expected:
                raise AssertionError(
                    f"Expected `attn_mask` shape to be {expected} but got {mask.shape}"
                )
    return bool(dims == 3)


def size_of_heads(embed_dim: int, expected: int, num_heads: int) -> int:
    """How many features each head has; raises unless heads of one size make up the expected ones."""
    if embed_dim != expected:
        raise AssertionError(
            f"was expecting embedding dimension of {expected}, but got {embed_dim}"
        )
    head_dim = embed_dim // num_heads
    if head_dim * num_heads != embed_dim:
        raise AssertionError(f"embed_dim {embed_dim} not divisible by num_heads {num_heads}")
    return head_dim


def _projected(inputs: Any, weights: Any, bias: Any) -> list[Any]:
    biases = (None, None, None) if bias is None else bias.chunk(3)
    return [F.linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True)]


def projected_together(q: Any, k: Any, v: Any, weight: Any, bias: Any) -> Any:
    """Query, key and value through one stacked weight, in as few products as possible."""
    if k.shape != v.shape:
        raise AssertionError(f"key shape {k.shape} does not match value shape {v.shape}")
    if weight is None:
        raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
    width = q.size(-1)

    def parts(x: Any, n: int, w: Any, b: Any) -> Any:
        out = F.linear(x, w, b).unflatten(-1, (n, width)).unsqueeze(0)
        out = out.transpose(0, -2).squeeze(-2).contiguous()
        return [out[i] for i in range(n)]

    if k is v:
        if q is k:
            return parts(q, 3, weight, bias)
        w_q, w_kv = weight.split([width, width * 2])
        b_q, b_kv = (None, None) if bias is None else bias.split([width, width * 2])
        return [F.linear(q, w_q, b_q), *parts(k, 2, w_kv, b_kv)]
    return _projected((q, k, v), weight.chunk(3), bias)


def projected_apart(q: Any, k: Any, v: Any, weights: tuple[Any, Any, Any], bias: Any) -> Any:
    """Query, key and value through a weight each."""
    if k.shape[:2] != v.shape[:2]:
        raise AssertionError(
            f"key's sequence and batch dims {k.shape[:2]} do not match value's {v.shape[:2]}"
        )
    for name, w in zip("qkv", weights, strict=True):
        if w is None:
            raise AssertionError(f"use_separate_proj_weight is True but {name}_proj_weight is None")
    width = q.size(-1)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    names = ("query", "key", "value")
    for name, x, w in zip(names, (q, k, v), weights, strict=True):
        _expect(w, (width, x.size(-1)), f"{name} weights")
    for name, b in zip(names, biases, strict=True):
        if b is not None:
            _expect(b, (width,), f"{name} bias")
    return [F.linear(x, w, b) for x, w, b in zip((q, k, v), weights, biases, strict=True)]


def _expect(tensor: Any, shape: tuple[int, ...], name: str) -> None:
    if tensor.shape != shape:
        raise AssertionError(f"expecting {name} shape of {shape}, but got {tensor.shape}")


def mask_for_heads(mask: Any, batch_heads: int, tgt_len: int, src_len: int) -> Any:
    """A mask of scores with a dimension for heads; one of two dimensions is the same for all of them."""
    if mask is None:
        return None
    if mask.dim() not in (2, 3):
        raise RuntimeError(f"attn_mask's dimension {mask.dim()} is not supported")
    whole = (batch_heads, tgt_len, src_len)
    expected = whole[-mask.dim() :]
    if mask.shape != expected:
        raise RuntimeError(
            f"The shape of the {mask.dim()}D attn_mask is {mask.shape}, but should be {expected}."
        )
    return mask.unsqueeze(0) if mask.dim() == 2 else mask


def one_more(mask: Any) -> Any:
    """A mask with one more key that may be attended to."""
    return None if mask is None else F.pad(mask, (0, 1))


def heads_apart(x: Any, length: int, batch_heads: int, head_dim: int) -> Any:
    """What was projected, head by head."""
    return x.view(length, batch_heads, head_dim).transpose(0, 1)


def heads_or_given(x: Any, given: Any, name: str, batch_heads: int, head_dim: int) -> Any:
    """Keys or values head by head; those that the caller has taken apart instead, if there are any of these sizes."""
    if given is None:
        return heads_apart(x, x.shape[0], batch_heads, head_dim)
    for i, size in ((0, batch_heads), (2, head_dim)):
        if given.size(i) != size:
            raise AssertionError(f"expecting {name}.size({i}) of {size}, but got {given.size(i)}")
    return given


def with_bias(k: Any, v: Any, bias_k: Any, bias_v: Any, static: tuple[Any, Any]) -> Any:
    """Keys and values, and one more of each that every example has."""
    for name, given in zip(("key", "value"), static, strict=True):
        if given is not None:
            raise AssertionError(f"bias cannot be added to static {name}.")
    batch = k.shape[1]
    return torch.cat([k, bias_k.repeat(1, batch, 1)]), torch.cat([v, bias_v.repeat(1, batch, 1)])


def with_zeros(x: Any, batch_heads: int, head_dim: int) -> Any:
    """Keys or values, and zeros as one more."""
    zeros = torch.zeros((batch_heads, 1, head_dim), dtype=x.dtype, device=x.device)
    return torch.cat([x, zeros], dim=1)


def with_padding(mask: Any, padding: Any, bsz: int, num_heads: int, src_len: int) -> Any:
    """A mask of scores, if there is one, and the keys that are padding in one."""
    for i, size in enumerate((bsz, src_len)):
        if padding.shape[i] != size:
            raise AssertionError(
                f"Expected key_padded_mask.shape[{i}] to be {size}, but got {padding.shape[i]}"
            )
    spread = (
        padding.view(bsz, 1, 1, src_len)
        .expand(-1, num_heads, -1, -1)
        .reshape(bsz * num_heads, 1, src_len)
    )
    return spread if mask is None else mask + spread


def attended_with_weights(q: Any, k: Any, v: Any, mask: Any, dropout_p: float) -> tuple[Any, Any]:
    """What queries find, `[length, batch * heads, features of a head]`, and the weights of keys."""
    scaled = q * math.sqrt(1.0 / float(q.shape[-1]))
    if mask is not None:
        weights = torch.baddbmm(mask, scaled, k.transpose(-2, -1))
    else:
        weights = torch.bmm(scaled, k.transpose(-2, -1))
    weights = F.softmax(weights, dim=-1)
    if dropout_p > 0.0:
        weights = F.dropout(weights, p=dropout_p)
    return torch.bmm(weights, v).transpose(0, 1), weights


def attended(
    q: Any, k: Any, v: Any, mask: Any, bsz: int, num_heads: int, dropout_p: float, is_causal: bool
) -> Any:
    """What queries find, `[length, batch, heads, features of a head]`, where nobody asks for weights."""
    _, tgt_len, head_dim = q.shape
    src_len = k.size(1)
    if mask is not None:
        if mask.size(0) == 1 and mask.dim() == 3:
            mask = mask.unsqueeze(0)
        else:
            mask = mask.view(bsz, num_heads, -1, src_len)
    q = q.view(bsz, num_heads, tgt_len, head_dim)
    k = k.view(bsz, num_heads, src_len, head_dim)
    v = v.view(bsz, num_heads, src_len, head_dim)
    out = F.scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal)
    return out.permute(2, 0, 1, 3)
