"""Functions of `nn.functional` as TorchScript: what each comes down to in PyTorch's operators. They are
compiled when code calls them."""

from __future__ import annotations

import torchlike
from torchlike import Tensor

aten = torchlike.ops.aten


def _assert(condition: bool, message: str) -> None:
    assert condition, message


def _each(sizes: list[int], count: int) -> list[int]:
    return [sizes[0] for i in range(count)] if len(sizes) == 1 else sizes


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    return aten.batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps, True
    )


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    return aten.instance_norm(
        input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps, True
    )


def layer_norm(
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    return aten.layer_norm(input, normalized_shape, weight, bias, eps, True)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    return aten.group_norm(input, num_groups, weight, bias, eps, True)


def rms_norm(
    input: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    return aten.rms_norm(input, normalized_shape, weight, eps)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    squares = aten.unsqueeze(aten.mul(input, input), 1)
    if input.dim() == 3:
        squares = aten.pad(squares, [0, 0, size // 2, (size - 1) // 2], "constant", 0.0)
        squares = aten.squeeze(aten.avg_pool2d(squares, [size, 1], [1]), 1)
    else:
        sizes = input.size()
        squares = squares.view([sizes[0], 1, sizes[1], sizes[2], -1])
        squares = aten.pad(squares, [0, 0, 0, 0, size // 2, (size - 1) // 2], "constant", 0.0)
        squares = aten.squeeze(aten.avg_pool3d(squares, [size, 1, 1], [1]), 1).view(sizes)
    return input / aten.pow(aten.add(aten.mul(squares, alpha), k), beta)


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    if max_norm is not None:
        aten.embedding_renorm_(weight.detach(), input.contiguous(), max_norm, norm_type)
    index = -1 if padding_idx is None else padding_idx
    if padding_idx is not None and padding_idx < 0:
        index = weight.size(0) + padding_idx
    return aten.embedding(weight, input, index, scale_grad_by_freq, sparse)


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    if max_norm is not None:
        aten.embedding_renorm_(weight.detach(), input.contiguous(), max_norm, norm_type)
    kind = 1
    if mode == "sum":
        kind = 0
    elif mode == "max":
        kind = 2
    flat = input
    starts = offsets
    scales = per_sample_weights
    if input.dim() == 2:
        starts = aten.arange(
            0, input.numel(), input.size(1), dtype=input.dtype, device=input.device
        )
        flat = input.reshape(-1)
        if per_sample_weights is not None:
            scales = per_sample_weights.reshape(-1)
    if starts is None:
        raise ValueError("offsets has to be a 1D Tensor but got None")
    return aten.embedding_bag(
        weight,
        flat,
        starts,
        scale_grad_by_freq,
        kind,
        sparse,
        scales,
        include_last_offset,
        padding_idx,
    )[0]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return aten.linear(input, weight, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return aten.bilinear(input1, input2, weight, bias)


def normalize(input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Tensor:
    return input / aten.expand_as(aten.clamp_min(aten.norm(input, p, [dim], True), eps), input)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    return aten.one_hot(tensor, num_classes)


def pad(
    input: Tensor, pad: list[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    return aten.pad(input, pad, mode, value)


def fold(
    input: Tensor,
    output_size: list[int],
    kernel_size: list[int],
    dilation: list[int] = [1, 1],  # noqa: B006
    padding: list[int] = [0, 0],  # noqa: B006
    stride: list[int] = [1, 1],  # noqa: B006
) -> Tensor:
    return aten.col2im(
        input,
        _each(output_size, 2),
        _each(kernel_size, 2),
        _each(dilation, 2),
        _each(padding, 2),
        _each(stride, 2),
    )


def unfold(
    input: Tensor,
    kernel_size: list[int],
    dilation: list[int] = [1, 1],  # noqa: B006
    padding: list[int] = [0, 0],  # noqa: B006
    stride: list[int] = [1, 1],  # noqa: B006
) -> Tensor:
    return aten.im2col(
        input, _each(kernel_size, 2), _each(dilation, 2), _each(padding, 2), _each(stride, 2)
    )


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    return aten.cosine_similarity(x1, x2, dim, eps)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    return aten.pairwise_distance(x1, x2, p, eps, keepdim)


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    return aten.pixel_shuffle(input, upscale_factor)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    return aten.pixel_unshuffle(input, downscale_factor)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    return aten.channel_shuffle(input, groups)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    return aten.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


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
