"""Attention layers of `nn` given nested tensors, and encoders that compute with the tokens alone that no mask hides."""

from __future__ import annotations

from typing import Any

import torchlike as torch
from torchlike import _C, Tensor
from torchlike.nested._strided import StridedNestedTensor, from_list
from torchlike.nn._native_attention import _native_multi_head_attention

__all__ = ["left_aligned", "self_attention", "unpadded", "without_gradients"]


def without_gradients(*tensors: Any) -> bool:
    """Whether nothing that is computed of these can want a gradient."""
    return not (torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors))


def _reason(module: Any, given: tuple[Any, Any, Any], masked: bool) -> str:
    """Why a layer does not take nested tensors as it is, or nothing."""
    query, key, value = given
    weight, bias = module.in_proj_weight, module.in_proj_bias
    dtypes = "dtypes of query ({}) and self.{} ({}) don't match"
    both = "supplying both src_key_padding_mask and src_mask at the same time is not supported with NestedTensor input"
    grad = "grad is enabled and at least one of query or the input/output projection weights or biases requires_grad"
    out = module.out_proj
    reasons = (
        (query.dim() != 3, f"input not batched; expected query.dim() of 3 but got {query.dim()}"),
        (
            query is not key or key is not value,
            "non-self attention was used (query, key, and value are not the same Tensor)",
        ),
        (weight is None, "in_proj_weight was None"),
        (
            weight is not None and query.dtype != weight.dtype,
            dtypes.format(query.dtype, "in_proj_weight", getattr(weight, "dtype", None)),
        ),
        (module.training, "training is enabled"),
        (module.num_heads % 2 != 0, "self.num_heads is not even"),
        (not module.batch_first, "batch_first was not True"),
        (module.bias_k is not None, "self.bias_k was not None"),
        (module.bias_v is not None, "self.bias_v was not None"),
        (module.add_zero_attn, "add_zero_attn was enabled"),
        (masked, both),
        (torch.is_autocast_enabled(), "autocast is enabled"),
        (
            not isinstance(query, StridedNestedTensor),
            "some Tensor argument has_torch_function",
        ),
        (not without_gradients(query, weight, bias, out.weight, out.bias), grad),
    )
    return next((reason for holds, reason in reasons if holds), "")


def self_attention(
    module: Any,
    given: tuple[Any, Any, Any],
    masked: bool,
    need_weights: bool,
    average: bool,
) -> tuple[Any, Any]:
    """What `nn.MultiheadAttention` gives for a nested tensor `[B, *, D]`, and weights padded to the longest part.

    Raises:
        AssertionError: where PyTorch has no way to compute it either.
    """
    why = _reason(module, given, masked)
    if why:
        raise AssertionError(
            "MultiheadAttention does not support NestedTensor outside of its fast path. "
            f"The fast path was not hit because {why}"
        )
    out = module.out_proj
    weights = (module.in_proj_weight, module.in_proj_bias, out.weight, out.bias)
    sizes = (module.embed_dim, module.num_heads)
    return _native_multi_head_attention(*given, *sizes, *weights, None, need_weights, average)


def left_aligned(mask: Tensor) -> bool:
    """Whether in each row of a mask `[B, S]` what is true comes first."""
    rows = torch.arange(mask.shape[1], device=mask.device)
    first: Tensor = rows < mask.sum(1, keepdim=True)
    return torch.equal(mask, first)


def _may_be_unpadded(encoder: Any, src: Any, padding: Any, mask: Any) -> bool:
    """Whether an encoder computes with nested tensors inside, as PyTorch's does."""
    layer = encoder.layers[0]
    if not encoder.use_nested_tensor or layer.training or padding is None or mask is not None:
        return False
    if src.is_nested or src.dim() != 3 or torch.is_autocast_enabled():
        return False
    # Where there is no data, nobody knows how many tokens a mask hides.
    if src.device.type not in ("cpu", "cuda") or _C._is_fake(padding) or padding.is_meta:
        return False
    return without_gradients(src, *layer.parameters())


def unpadded(encoder: Any, src: Any, padding: Any, mask: Any) -> Any:
    """The tokens `[B, *, D]` of a padded batch `[B, S, D]` that are not hidden, or None if they stay padded."""
    if not _may_be_unpadded(encoder, src, padding, mask):
        return None
    seen = padding.logical_not()
    if encoder.mask_check and not left_aligned(seen):
        return None
    return from_list([t[:n] for t, n in zip(src, seen.sum(1).tolist(), strict=True)])
