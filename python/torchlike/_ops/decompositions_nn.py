"""Functions of networks that PyTorch makes of other operators."""

from __future__ import annotations

import math
from typing import Any

from torchlike import _C
from torchlike._ops import ops
from torchlike._ops.decompositions import batched, of, reduced
from torchlike._ops.schema import REDUCTIONS

aten: Any = ops.aten
_N = "nn.functional."


@of(_N + "linear")
def linear(input: Any, weight: Any, bias: Any = None) -> Any:
    """`t`, then one product; batches become rows."""
    if input.dim() == 2:
        turned = aten.t(weight)
        return aten.mm(input, turned) if bias is None else aten.addmm(bias, input, turned)
    if input.dim() == 1 or weight.dim() == 1:
        return NotImplemented
    sizes = [*input.shape[:-1], weight.shape[0]]
    if bias is None:
        turned = aten.t(weight)
        rows = aten.view(input, [-1, input.shape[-1]])
        return aten._unsafe_view(aten.mm(rows, turned), sizes)
    rows = aten.view(input, [-1, input.shape[-1]])
    return aten.view(aten.addmm(bias, rows, aten.t(weight)), sizes)


def _mask(input: Any, p: float, mask: Any) -> Any:
    aten.bernoulli_.float(mask, 1 - p)
    return aten.mul.Tensor(input, aten.div_.Scalar(mask, 1 - p))


@of(_N + "dropout", "dropout")
def dropout(input: Any, p: float = 0.5, training: Any = None, train: Any = None, **how: Any) -> Any:
    """A mask of draws, scaled."""
    on = train if training is None else training
    if how.get("inplace") or p in (0, 1) or not on:
        return NotImplemented
    return _mask(input, p, aten.empty_like(input))


@of(_N + "dropout1d", _N + "dropout2d", _N + "dropout3d")
def feature_dropout(
    input: Any, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    """A mask of one draw a channel, scaled."""
    if inplace or p in (0, 1) or not training:
        return NotImplemented
    shape = [*input.shape[:2], *[1] * (input.dim() - 2)]
    return _mask(input, p, aten.new_empty(input, shape))


@of(_N + "layer_norm", "layer_norm")
def layer_norm(
    input: Any,
    normalized_shape: Any,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    **_: Any,
) -> Any:
    """The first result of the operator that also gives mean and deviation."""
    return aten.native_layer_norm(input, list(normalized_shape), weight, bias, eps)[0]


@of(_N + "group_norm", "group_norm")
def group_norm(
    input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, **_: Any
) -> Any:
    """The first result of the operator that also gives mean and deviation."""
    n, channels = input.shape[:2]
    rest = input.numel() // (n * channels) if n * channels else 0
    return aten.native_group_norm(input, weight, bias, n, channels, rest, num_groups, eps)[0]


@of(_N + "batch_norm")
def batch_norm(
    input: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """The first result of the operator that also gives what backward needs; its reserve is made first."""
    aten.empty.memory_format([0], dtype=_C.uint8, device=input.device)
    return aten.native_batch_norm(
        input, weight, bias, running_mean, running_var, training, momentum, eps
    )[0]


@of("softmax", _N + "softmax", "log_softmax", _N + "log_softmax")
def softmax(self: Any, dim: Any = None, dtype: Any = None, name: str = "", **_: Any) -> Any:
    """In another dtype after a conversion."""
    if dim is None:
        return NotImplemented
    if dtype is not None and dtype != self.dtype:
        self = aten._to_copy(self, dtype=dtype)
    made = aten._log_softmax if "log" in name else aten._softmax
    return made(self, dim, False)


@of(_N + "cross_entropy")
def cross_entropy(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    **_: Any,
) -> Any:
    """Logarithms, then the loss of the classes."""
    if target.is_floating_point() or label_smoothing or input.dim() > 2 or input.dim() == 0:
        return NotImplemented
    logs = aten._log_softmax(input, input.dim() - 1, False)
    return nll_loss(logs, target, weight, ignore_index, reduction)


@of(_N + "nll_loss")
def nll_loss(
    input: Any,
    target: Any,
    weight: Any = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    **_: Any,
) -> Any:
    """The first result of the operator that also gives the weights' sum."""
    if input.dim() not in (1, 2):
        return NotImplemented
    return aten.nll_loss_forward(input, target, weight, REDUCTIONS[reduction], ignore_index)[0]


@of(_N + "l1_loss")
def l1_loss(input: Any, target: Any, reduction: str = "mean", **_: Any) -> Any:
    """The mean or sum of absolute differences."""
    return reduced(aten.abs(aten.sub.Tensor(input, target)), reduction)


@of(_N + "kl_div")
def kl_div(
    input: Any, target: Any, reduction: str = "mean", log_target: bool = False, **_: Any
) -> Any:
    """target * (log target - input)."""
    if log_target or reduction == "batchmean":
        return NotImplemented
    product = aten.mul.Tensor(target, input)
    return reduced(aten.sub.Tensor(aten.xlogy.Tensor(target, target), product), reduction)


@of(_N + "poisson_nll_loss")
def poisson_nll_loss(
    input: Any,
    target: Any,
    log_input: bool = True,
    full: bool = False,
    reduction: str = "mean",
    **_: Any,
) -> Any:
    """exp(input) - target * input."""
    if not log_input or full:
        return NotImplemented
    product = aten.mul.Tensor(target, input)
    return reduced(aten.sub.Tensor(aten.exp(input), product), reduction)


@of(_N + "normalize")
def normalize(input: Any, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, **_: Any) -> Any:
    """Divides by the norms, which are kept from zero."""
    norms = aten.linalg_vector_norm(input, p, [dim] if isinstance(dim, int) else dim, True)
    floor = aten.clamp_min(norms, eps)
    return aten.div.Tensor(input, aten.expand(floor, list(input.shape)))


@of(_N + "softsign")
def softsign(input: Any = None, self: Any = None, **_: Any) -> Any:
    """x / (1 + |x|)."""
    x = self if input is None else input
    return aten.div.Tensor(x, aten.add.Tensor(aten.abs(x), 1))


@of(_N + "relu6")
def relu6(self: Any = None, inplace: bool = False, input: Any = None) -> Any:
    """Between 0 and 6."""
    x = input if self is None else self
    return aten.hardtanh_(x, 0, 6) if inplace else aten.hardtanh(x, 0, 6)


@of(_N + "prelu")
def prelu(self: Any, weight: Any) -> Any:
    """A slope a channel, in the tensor's dimensions."""
    if weight.dim() != self.dim():
        shape = [1] * self.dim()
        if self.dim() > 1:
            shape[1] = weight.numel()
        weight = aten.view(weight, shape)
    return aten._prelu_kernel(self, weight)


@of(_N + "one_hot")
def one_hot(tensor: Any, num_classes: int = -1) -> Any:
    """Compares with every class."""
    if num_classes < 0:
        return NotImplemented
    classes = aten.arange(num_classes, dtype=tensor.dtype, device=tensor.device)
    return aten._to_copy(aten.eq.Tensor(aten.unsqueeze(tensor, -1), classes), dtype=_C.int64)


@of(_N + "embedding")
def embedding(
    input: Any,
    weight: Any,
    padding_idx: Any = None,
    max_norm: Any = None,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
    **_: Any,
) -> Any:
    """The operator, which takes the table first."""
    if max_norm is not None:
        return NotImplemented
    at = -1 if padding_idx is None else padding_idx
    return aten.embedding(weight, input, at, scale_grad_by_freq, sparse)


def _convolution(dims: int, transposed: bool) -> Any:
    def made(
        input: Any,
        weight: Any,
        bias: Any = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        output_padding: Any = 0,
    ) -> Any:
        if input.dim() != dims + 2:
            return NotImplemented
        stride, dilation, output_padding = (
            [v] * dims if isinstance(v, int) else list(v)
            for v in (stride, dilation, output_padding)
        )
        if isinstance(padding, str):
            input, padding = _same(input, weight, padding, dilation, dims)
        padding = [padding] * dims if isinstance(padding, int) else list(padding)
        return aten.convolution(
            input, weight, bias, stride, padding, dilation, transposed, output_padding, groups
        )

    return made


def _same(input: Any, weight: Any, padding: str, dilation: Any, dims: int) -> Any:
    if padding == "valid":
        return input, 0
    total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    before = [t // 2 for t in total]
    odd = [t - 2 * b for t, b in zip(total, before, strict=True)]
    if any(odd):
        extra = [v for o in reversed(odd) for v in (0, o)]
        input = aten.constant_pad_nd(input, extra, 0)
    return input, before


for _dims in (1, 2, 3):
    of(f"conv{_dims}d", f"{_N}conv{_dims}d")(_convolution(_dims, False))
    of(f"conv_transpose{_dims}d", f"{_N}conv_transpose{_dims}d")(_convolution(_dims, True))


@of(_N + "max_pool2d", _N + "max_pool2d_with_indices", "max_pool2d")
def max_pool2d(
    input: Any = None,
    kernel_size: Any = 1,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: Any = None,
    name: str = "",
    self: Any = None,
) -> Any:
    """The operator that also gives the places."""
    both = aten.max_pool2d_with_indices(
        self if input is None else input, kernel_size, stride or [], padding, dilation, ceil_mode
    )
    return both if return_indices or "with_indices" in name else both[0]


@of(_N + "adaptive_avg_pool2d")
def adaptive_avg_pool2d(input: Any, output_size: Any) -> Any:
    """The operator, or a mean where one number is left."""
    sizes = [output_size] * 2 if isinstance(output_size, int) else list(output_size)
    sizes = sizes * 2 if len(sizes) == 1 else sizes
    sizes = [n if s is None else s for s, n in zip(sizes, input.shape[-2:], strict=True)]
    if sizes == [1, 1]:
        return aten.mean.dim(input, [-1, -2], True)
    return aten._adaptive_avg_pool2d(input, sizes)


@of(_N + "adaptive_avg_pool1d", "adaptive_avg_pool1d")
def adaptive_avg_pool1d(input: Any = None, output_size: Any = 1, self: Any = None) -> Any:
    """That of images of height one."""
    x = self if input is None else input
    size = output_size if isinstance(output_size, int) else output_size[0]
    return aten.squeeze.dim(aten._adaptive_avg_pool2d(aten.unsqueeze(x, -2), [1, size]), -2)


@of(_N + "pad")
def pad(input: Any, pad: Any, mode: str = "constant", value: Any = None) -> Any:
    """A constant around the tensor."""
    if mode != "constant":
        return NotImplemented
    return aten.constant_pad_nd(input, list(pad), value or 0)


@of(_N + "interpolate")
def interpolate(
    input: Any, size: Any = None, scale_factor: Any = None, mode: str = "nearest", **_: Any
) -> Any:
    """The operator of the mode, for images."""
    if mode != "nearest" or input.dim() != 4 or (size is not None and scale_factor is not None):
        return NotImplemented
    if size is not None:
        return aten.upsample_nearest2d.default(
            input, [size] * 2 if isinstance(size, int) else list(size)
        )
    factors = list(scale_factor) * (1 if len(scale_factor) == 2 else 2)
    sizes = [int(n * f) for n, f in zip(input.shape[2:], factors, strict=True)]
    return aten.upsample_nearest2d.default(input, sizes, *factors)


@of(_N + "scaled_dot_product_attention")
def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Any:
    """Scaled products, a mask, a softmax, and products again."""
    if dropout_p or enable_gqa or query.dim() < 3 or key.dim() < 3 or value.dim() < 3:
        return NotImplemented
    root = math.sqrt(1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        q = aten.mul.Scalar(query, root)
        shape = [query.shape[-2], key.shape[-2]]
        attn_mask = aten.tril(aten.ones(shape, dtype=_C.bool, device=query.device))
        attn_mask = _as_numbers(attn_mask, query)
    else:
        if attn_mask is not None and attn_mask.dtype == _C.bool:
            attn_mask = _as_numbers(attn_mask, query)
        q = aten.mul.Scalar(query, root)
    scores = batched(q, aten.mul.Scalar(aten.transpose.int(key, -2, -1), root))
    if attn_mask is not None:
        scores = aten.add.Tensor(scores, attn_mask)
    return batched(aten._safe_softmax(scores, -1), value)


def _as_numbers(mask: Any, like: Any) -> Any:
    low = aten.scalar_tensor(-math.inf, dtype=like.dtype, device=like.device)
    zero = aten.scalar_tensor(0.0, dtype=like.dtype, device=like.device)
    return aten.where.self(mask, zero, low)


@of(_N + "unfold")
def unfold(
    input: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1
) -> Any:
    """Patches as columns."""
    both = [
        [v] * 2 if isinstance(v, int) else list(v) for v in (kernel_size, dilation, padding, stride)
    ]
    return aten.im2col(input, *both)


@of(_N + "grid_sample")
def grid_sample(
    input: Any,
    grid: Any,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: Any = None,
) -> Any:
    """The operator for images."""
    if input.dim() != 4:
        return NotImplemented
    how = ("bilinear", "nearest", "bicubic").index(mode)
    outside = ("zeros", "border", "reflection").index(padding_mode)
    return aten.grid_sampler_2d(input, grid, how, outside, bool(align_corners))


@of(_N + "affine_grid")
def affine_grid(theta: Any, size: Any, align_corners: Any = None) -> Any:
    """The operator."""
    return aten.affine_grid_generator(theta, list(size), bool(align_corners))
