"""Functions of ``nn.functional`` that are made of other functions."""

from __future__ import annotations

import enum
from typing import Any

import torchlike as torch
from torchlike._function import overridable
from torchlike.nn import _attention_steps as steps
from torchlike.nn import functional

__all__ = [
    "ScalingType",
    "SwizzleType",
    "_canonical_mask",
    "_none_or_dtype",
    "grouped_mm",
    "gumbel_softmax",
    "linear_cross_entropy",
    "multi_head_attention_forward",
    "scaled_mm",
    "triplet_margin_with_distance_loss",
]

rows: Any = torch  # those that begin with an underscore are in no stub
F: Any = functional  # its stub imports this module: the type checker knows no names of it yet


def _none_or_dtype(input: Any) -> Any:
    """The dtype of a mask, if there is one."""
    if input is None:
        return None
    if isinstance(input, torch.Tensor):
        return input.dtype
    raise RuntimeError("input to _none_or_dtype() must be None or torch.Tensor")


def _canonical_mask(
    mask: Any,
    mask_name: str,
    other_type: Any,
    other_name: str,
    target_type: Any,
    check_other: bool = True,
) -> Any:
    """A mask to add to scores: booleans become minus infinity where they are true."""
    if mask is None:
        return None
    dtype = mask.dtype
    if dtype != torch.bool and not dtype.is_floating_point:
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and dtype != other_type:
        import warnings

        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} "
            "is deprecated. Use same type for both instead.",
            stacklevel=2,
        )
    if dtype == torch.bool:
        zeros = torch.zeros_like(mask, dtype=target_type)
        return zeros.masked_fill_(mask, float("-inf"))
    return mask


@overridable
def gumbel_softmax(
    logits: Any, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Any:
    """Draws from a softened categorical distribution; ``hard`` gives one-hot results."""
    if eps != 1e-10:
        import warnings

        warnings.warn("`eps` parameter is deprecated and has no effect.", stacklevel=2)
    noise = torch.empty_like(logits, memory_format=torch.legacy_contiguous_format)
    noise = -noise.exponential_().log()
    soft = ((logits + noise) / tau).softmax(dim)
    if not hard:
        return soft
    index = soft.max(dim, keepdim=True)[1]
    one_hot = torch.zeros_like(logits, memory_format=torch.legacy_contiguous_format)
    one_hot.scatter_(dim, index, 1.0)
    return one_hot - soft.detach() + soft


@overridable
def linear_cross_entropy(
    input: Any,
    linear_weight: Any,
    target: Any,
    *,
    linear_bias: Any = None,
    weight: Any = None,
    reduction: str = "mean",
    ignore_index: int | None = None,
    label_smoothing: float = 0.0,
    options: Any = None,
) -> Any:
    """Cross-entropy of what a linear layer makes of ``input``.

    ``linear_weight`` is (classes, features) or (classes, d_1, ..., features) for targets with more dimensions.
    """
    _check_linear(input, linear_weight, linear_bias)
    outputs = tuple(linear_weight.shape[:-1])
    bias = None if linear_bias is None else linear_bias.flatten()
    scores = F.linear(input, linear_weight.flatten(0, -2), bias)
    scores = scores.view(*scores.shape[:-1], *outputs)
    if ignore_index is not None and target.shape == scores.shape:
        raise RuntimeError("ignore_index cannot be specified when target contains probabilities")
    return F.cross_entropy(
        scores,
        target,
        weight=weight,
        ignore_index=-100 if ignore_index is None else ignore_index,
        reduction=reduction,
        label_smoothing=label_smoothing,
    )


def _check_linear(input: Any, weight: Any, bias: Any) -> None:
    """Whether the layer of `linear_cross_entropy` fits its input."""
    if input.ndim not in (1, 2):
        raise RuntimeError(f"expected input with dimensionality 1 or 2, got {input.ndim}")
    if weight.ndim < 2:
        raise RuntimeError(
            f"expected linear_weight with dimensionality at least 2, got {weight.ndim}"
        )
    size, wanted = input.shape[-1], weight.shape[-1]
    if size != wanted:
        raise RuntimeError(
            "expected equal input and linear_weight last dimensions (in_features), "
            f"got {size} and {wanted}, respectively"
        )
    if weight.ndim > 2 and input.ndim == 1:
        raise RuntimeError(
            f"K-dimensional loss defined by linear_weight shape {tuple(weight.shape)} requires "
            f"batched input, (N, {wanted}), got unbatched input with shape {tuple(input.shape)}"
        )
    if bias is not None and bias.numel() != weight[..., 0].numel():
        raise RuntimeError(
            f"expected linear_bias shape {tuple(weight.shape[:-1])}, got {tuple(bias.shape)}"
        )


@overridable
def triplet_margin_with_distance_loss(
    anchor: Any,
    positive: Any,
    negative: Any,
    *,
    distance_function: Any = None,
    margin: float = 1.0,
    swap: bool = False,
    reduction: str = "mean",
) -> Any:
    """Triplet loss under any distance."""
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    if margin <= 0:
        raise ValueError(f"margin must be greater than 0, got {margin}")
    distance = F.pairwise_distance if distance_function is None else distance_function
    dims = (anchor.ndim, positive.ndim, negative.ndim)
    if not dims[0] == dims[1] == dims[2]:
        raise RuntimeError(
            "The anchor, positive, and negative tensors are expected to have "
            f"the same number of dimensions, but got: anchor {dims[0]}D, "
            f"positive {dims[1]}D, and negative {dims[2]}D inputs"
        )
    near = distance(anchor, positive)
    far = distance(anchor, negative)
    if swap:
        far = torch.minimum(far, distance(positive, negative))
    loss = torch.clamp_min(margin + near - far, 0)
    if reduction == "sum":
        return torch.sum(loss)
    return torch.mean(loss) if reduction == "mean" else loss


@overridable
def multi_head_attention_forward(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Any = None,
    need_weights: bool = True,
    attn_mask: Any = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """Attention with projections before and after, on sequence-first tensors."""
    batched = steps.check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        query, key, value = query.unsqueeze(1), key.unsqueeze(1), value.unsqueeze(1)
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    tgt_len, bsz, embed_dim = query.shape
    src_len = key.shape[0]
    key_padding_mask = _canonical_mask(
        key_padding_mask, "key_padding_mask", _none_or_dtype(attn_mask), "attn_mask", query.dtype
    )
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask."
        )
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None
    else:
        attn_mask = _canonical_mask(attn_mask, "attn_mask", None, "", query.dtype, False)
        if key_padding_mask is not None:
            is_causal = False
    head_dim = steps.size_of_heads(embed_dim, embed_dim_to_check, num_heads)
    if use_separate_proj_weight:
        separate = (q_proj_weight, k_proj_weight, v_proj_weight)
        q, k, v = steps.projected_apart(query, key, value, separate, in_proj_bias)
    else:
        q, k, v = steps.projected_together(query, key, value, in_proj_weight, in_proj_bias)
    batch_heads = bsz * num_heads
    attn_mask = steps.mask_for_heads(attn_mask, batch_heads, tgt_len, src_len)
    if bias_k is not None and bias_v is not None:
        k, v = steps.with_bias(k, v, bias_k, bias_v, (static_k, static_v))
        attn_mask, key_padding_mask = steps.one_more(attn_mask), steps.one_more(key_padding_mask)
    elif bias_k is not None or bias_v is not None:
        given, missing = "kv" if bias_v is None else "vk"
        raise AssertionError(f"bias_{given} is set but bias_{missing} is None")
    q = steps.heads_apart(q, tgt_len, batch_heads, head_dim)
    k = steps.heads_or_given(k, static_k, "static_k", batch_heads, head_dim)
    v = steps.heads_or_given(v, static_v, "static_v", batch_heads, head_dim)
    if add_zero_attn:
        k = steps.with_zeros(k, batch_heads, head_dim)
        v = steps.with_zeros(v, batch_heads, head_dim)
        attn_mask, key_padding_mask = steps.one_more(attn_mask), steps.one_more(key_padding_mask)
    src_len = k.size(1)
    if key_padding_mask is not None:
        attn_mask = steps.with_padding(attn_mask, key_padding_mask, bsz, num_heads, src_len)

    if not training:
        dropout_p = 0.0
    weights = None
    if need_weights:
        out, weights = steps.attended_with_weights(q, k, v, attn_mask, dropout_p)
    else:
        out = steps.attended(q, k, v, attn_mask, bsz, num_heads, dropout_p, is_causal)
    out = out.reshape(tgt_len * bsz, embed_dim)  # a copy, which takes the place of what was copied
    out = F.linear(out, out_proj_weight, out_proj_bias)
    out = out.view(tgt_len, bsz, out.size(1))
    if weights is not None:
        weights = weights.view(bsz, num_heads, tgt_len, src_len)
        if average_attn_weights:
            weights = weights.mean(dim=1)
    if batched:
        return out, weights
    return out.squeeze(1), (None if weights is None else weights.squeeze(0))


@overridable
def grouped_mm(
    mat_a: Any, mat_b: Any, *, offs: Any = None, bias: Any = None, out_dtype: Any = None
) -> Any:
    """The products of groups, which end at ``offs``: of rows of ``mat_a`` ``[rows, k]`` with a matrix of ``mat_b``
    ``[groups, k, n]`` each; of matrices with columns of ``mat_b`` ``[k, columns]``; or of parts of ``k``, where both
    are matrices. Without ``offs`` both have three dimensions."""
    return rows._grouped_mm(mat_a, mat_b, offs=offs, bias=bias, out_dtype=out_dtype)


class ScalingType(enum.IntEnum):
    """What a scale of a matrix of eight-bit floats belongs to."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


class SwizzleType(enum.IntEnum):
    """How scales lie."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


@overridable
def scaled_mm(
    mat_a: Any,
    mat_b: Any,
    scale_a: Any,
    scale_recipe_a: Any,
    scale_b: Any,
    scale_recipe_b: Any,
    swizzle_a: Any = None,
    swizzle_b: Any = None,
    bias: Any = None,
    output_dtype: Any = torch.bfloat16,
    contraction_dim: Any = (),
    use_fast_accum: bool = False,
) -> Any:
    """The product of two matrices of eight-bit floats with one scale each, or one for every row of ``mat_a`` and column
    of ``mat_b``; other recipes raise ``NotImplementedError``, as no kernel on the host has them."""

    def one(value: Any) -> Any:
        return value[0] if isinstance(value, list | tuple) and len(value) == 1 else value

    recipes = (one(scale_recipe_a), one(scale_recipe_b))
    both = {ScalingType.TensorWise, ScalingType.RowWise}
    if recipes[0] != recipes[1] or recipes[0] not in both:
        raise NotImplementedError(
            f"scaled_mm on the CPU has scales of whole matrices or of rows, not {recipes[0]!r} and {recipes[1]!r}"
        )
    if any(one(s) not in (None, SwizzleType.NO_SWIZZLE) for s in (swizzle_a, swizzle_b)):
        raise NotImplementedError("scaled_mm on the CPU has no swizzled scales")
    if len(contraction_dim) > 0:
        raise NotImplementedError("scaled_mm on the CPU has no contraction_dim")
    a, b = one(scale_a), one(scale_b)
    if recipes[0] == ScalingType.RowWise:
        a, b = a.reshape(-1, 1), b.reshape(1, -1)
    return rows._scaled_mm(
        mat_a, mat_b, a, b, bias=bias, out_dtype=output_dtype, use_fast_accum=use_fast_accum
    )
