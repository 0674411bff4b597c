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


def affine_grid(theta: Tensor, size: list[int], align_corners: bool | None = None) -> Tensor:
    return aten.affine_grid_generator(
        theta, size, False if align_corners is None else align_corners
    )


def gumbel_softmax(
    logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    gumbels = aten.neg(aten.log(aten.exponential_(aten.empty_like(logits))))
    soft = aten.softmax(aten.div(aten.add(logits, gumbels), tau), dim)
    if not hard:
        return soft
    index = aten.argmax(soft, dim, True)
    ones = aten.scatter(aten.zeros_like(logits), dim, index, 1.0)
    return aten.add(aten.sub(ones, aten.detach(soft)), soft)
