"""Operators of PyTorch that have no public function: what they compute, by the functions that users call."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torchlike as torch
from torchlike import _C
from torchlike._ops.schema import REDUCTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

WORDS = tuple(REDUCTIONS)
_ALL = slice(None)
_TABLE: dict[str, Callable[..., Any]] = {}
F: Any = torch.nn.functional


def by_hand(function: Callable[..., Any]) -> Callable[..., Any]:
    """A decorator: the function is the operator of its name (`_softmax`)."""
    _TABLE[function.__name__] = function
    return function


@functools.cache
def _filled() -> dict[str, Callable[..., Any]]:
    from torchlike._ops import by_hand_composites, by_hand_linalg  # noqa: F401 (they fill the table)

    return _TABLE


def function(name: str) -> Callable[..., Any] | None:
    """What an operator computes, if that is written here."""
    return _filled().get(name)


def row(name: str, *args: Any, **kwargs: Any) -> Any:
    """A call of a row of the table, which need not have a public name."""
    return _C._call_row(name, False, args, kwargs)


@by_hand
def _softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    return torch.softmax(self, dim)


@by_hand
def _native_batch_norm_legit_no_training(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    momentum: float,
    eps: float,
) -> Any:
    stats = running_mean, running_var
    return torch.native_batch_norm(input, weight, bias, *stats, False, momentum, eps)


@by_hand
def _native_batch_norm_legit_functional(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    stats = running_mean.clone(), running_var.clone()
    made = torch.native_batch_norm(input, weight, bias, *stats, training, momentum, eps)
    return (*made, *stats)


@by_hand
def lift_fresh_copy(self: Any) -> Any:
    return torch.ops.aten.lift_fresh.default(self).clone()


@by_hand
def _log_softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    return torch.log_softmax(self, dim)


@by_hand
def gelu(self: Any, approximate: str = "none") -> Any:
    return F.gelu(self, approximate=approximate)


@by_hand
def elu(self: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    return row("_nn.elu", self, alpha, scale, input_scale)


@by_hand
def embedding(
    weight: Any, indices: Any, padding_idx: int, scale_grad_by_freq: bool, sparse: bool
) -> Any:
    # A number that is no row leaves none out, where it is an error or counts from the end for users.
    left_out = padding_idx if 0 <= padding_idx < weight.shape[0] else None
    return F.embedding(
        indices, weight, left_out, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse
    )


@by_hand
def where(condition: Any, self: Any = None, other: Any = None) -> Any:
    return torch.where(condition) if self is None else torch.where(condition, self, other)


@by_hand
def index(self: Any, indices: Any) -> Any:
    return self[tuple(_ALL if i is None else i for i in indices)]


@by_hand
def index_put(self: Any, indices: Any, values: Any, accumulate: bool) -> Any:
    return torch.index_put(self, tuple(indices), values, accumulate)


@by_hand
def sym_size(self: Any, dim: Any = None) -> Any:
    return self.size() if dim is None else self.size(dim)


@by_hand
def size(self: Any, dim: Any = None) -> Any:
    return list(self.size()) if dim is None else self.size(dim)


@by_hand
def sym_stride(self: Any, dim: Any = None) -> Any:
    return self.stride() if dim is None else self.stride(dim)


@by_hand
def _assert_async(self: Any, assert_msg: str = "") -> None:
    torch._assert_async(self, assert_msg)


@by_hand
def _assert_scalar(self: Any, assert_msg: str) -> None:
    torch._assert_scalar(self, assert_msg)


@by_hand
def _assert_tensor_metadata(*args: Any, **kwargs: Any) -> None:
    torch._assert_tensor_metadata(*args, **kwargs)


@by_hand
def sym_numel(self: Any) -> Any:
    return self.numel()


@by_hand
def _local_scalar_dense(self: Any) -> Any:
    return self.item()


@by_hand
def scalar_tensor(s: Any, dtype: Any, layout: Any, device: Any, pin_memory: Any) -> Any:
    return torch.full((), s, dtype=dtype or torch.get_default_dtype(), device=device)


@by_hand
def _pin_memory(self: Any, device: Any) -> Any:
    return self.pin_memory()


@by_hand
def _sparse_addmm(self: Any, mat1: Any, mat2: Any, beta: Any, alpha: Any) -> Any:
    return torch.sparse.addmm(self, mat1, mat2, beta=beta, alpha=alpha)


@by_hand
def _to_copy(
    self: Any,
    dtype: Any,
    layout: Any,
    device: Any,
    pin_memory: Any,
    non_blocking: bool,
    memory_format: Any,
) -> Any:
    kept = memory_format or torch.preserve_format
    return self.to(device or self.device, dtype or self.dtype, copy=True, memory_format=kept)


@by_hand
def nll_loss_forward(self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    return row("_nn.nll_loss", self, target, weight, reduction, ignore_index)


_TABLE["nll_loss2d_forward"] = nll_loss_forward


@by_hand
def cross_entropy_loss(
    self: Any, target: Any, weight: Any, reduction: int, ignore_index: int, label_smoothing: float
) -> Any:
    return F.cross_entropy(
        self,
        target,
        weight,
        ignore_index=ignore_index,
        reduction=WORDS[reduction],
        label_smoothing=label_smoothing,
    )


@by_hand
def convolution(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    transposed: bool,
    output_padding: Any,
    groups: int,
) -> Any:
    n = weight.dim() - 2
    if transposed:
        function = getattr(F, f"conv_transpose{n}d")
        return function(input, weight, bias, stride, padding, output_padding, groups, dilation)
    return getattr(F, f"conv{n}d")(input, weight, bias, stride, padding, dilation, groups)


@by_hand
def max_pool2d_with_indices(
    self: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    return F.max_pool2d(
        self, kernel_size, stride or None, padding, dilation, ceil_mode, return_indices=True
    )


@by_hand
def _prelu_kernel(self: Any, weight: Any) -> Any:
    return row("_nn.prelu", self, weight)


@by_hand
def im2col(self: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> Any:
    return F.unfold(self, kernel_size, dilation, padding, stride)


@by_hand
def copy(self: Any, src: Any, non_blocking: bool = False) -> Any:
    return src.to(self.dtype).expand(self.shape).clone()


@by_hand
def _safe_softmax(self: Any, dim: int, dtype: Any = None) -> Any:
    return row("_safe_softmax", self, dim, dtype)


@by_hand
def _trilinear(
    i1: Any,
    i2: Any,
    i3: Any,
    expand1: Any,
    expand2: Any,
    expand3: Any,
    sumdim: Any,
    unroll_dim: int = 1,
) -> Any:
    """The sum over some dimensions of the product of three tensors, each with dimensions put in."""
    parts = []
    for t, dims in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for d in dims:
            t = t.unsqueeze(d)
        parts.append(t)
    product = parts[0] * parts[1] * parts[2]
    return product.sum(sumdim) if sumdim else product


@by_hand
def _adaptive_avg_pool2d(self: Any, output_size: Any) -> Any:
    return F.adaptive_avg_pool2d(self, output_size)


@by_hand
def constant_pad_nd(self: Any, pad: Any, value: Any) -> Any:
    return F.pad(self, pad, value=value)


def _upsampling(name: str, mode: str, dims: int) -> None:
    """Notes an operator that changes the size of `dims` dimensions."""

    def made(*how: Any, **named: Any) -> Any:
        given = list(how)
        x = given.pop(0) if given else named.pop("self" if "self" in named else "input")
        size = given.pop(0) if given else named.pop("output_size", None)
        aligned = mode.endswith(("linear", "cubic"))
        align = named.pop("align_corners", given[0] if aligned and given else False)
        scales = [*given[aligned:], *named.values()]
        if len(scales) == 1 and isinstance(scales[0], list | tuple):
            scales = list(scales[0])
        known = [] if None in scales or len(scales) < dims else scales
        if size is None:  # a list of factors in place of a size
            if not known:
                raise RuntimeError("Must specify exactly one of output_size and scale_factors")
            size = [int(n * s) for n, s in zip(x.shape[2:], known, strict=True)]
        if name.endswith("_aa"):
            return row(name, x, list(size), align, *known)
        return row("_upsample", x, list(size), mode, align, False, known)

    _TABLE[name] = made


for _name, _mode, _dims in (
    ("upsample_nearest1d", "nearest", 1),
    ("upsample_nearest2d", "nearest", 2),
    ("upsample_nearest3d", "nearest", 3),
    ("_upsample_nearest_exact1d", "nearest-exact", 1),
    ("_upsample_nearest_exact2d", "nearest-exact", 2),
    ("_upsample_nearest_exact3d", "nearest-exact", 3),
    ("upsample_linear1d", "linear", 1),
    ("upsample_bilinear2d", "bilinear", 2),
    ("upsample_trilinear3d", "trilinear", 3),
    ("upsample_bicubic2d", "bicubic", 2),
    ("_upsample_bilinear2d_aa", "bilinear", 2),
    ("_upsample_bicubic2d_aa", "bicubic", 2),
):
    _upsampling(_name, _mode, _dims)


def _padding(name: str, mode: str) -> None:
    """Notes an operator that repeats elements around a tensor."""

    def made(self: Any, padding: Any) -> Any:
        return row("_pad_mode", self, list(padding), mode)

    _TABLE[name] = made


for _dims in (1, 2, 3):
    _padding(f"reflection_pad{_dims}d", "reflect")
    _padding(f"replication_pad{_dims}d", "replicate")


def _bag(weight: Any, indices: Any, offsets: Any, padding_idx: int = -1, **how: Any) -> Any:
    padding = None if padding_idx == -1 else padding_idx
    return row("embedding_bag", weight, indices, offsets, padding_idx=padding, **how)


_TABLE["_embedding_bag"] = _TABLE["_embedding_bag_forward_only"] = _bag


@by_hand
def _ctc_loss_backward(
    grad: Any, log_probs: Any, targets: Any, input_lengths: Any, *rest: Any, **named: Any
) -> Any:
    kind = "#tensors" if isinstance(input_lengths, torch.Tensor) else ""
    name = "_grad._ctc_loss_backward" + kind
    return row(name, grad, log_probs, targets, input_lengths, *rest, **named)


@by_hand
def col2im(
    self: Any, output_size: Any, kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> Any:
    return F.fold(self, output_size, kernel_size, dilation, padding, stride)


@by_hand
def max_pool3d_with_indices(
    self: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Any:
    return F.max_pool3d(
        self, kernel_size, stride or None, padding, dilation, ceil_mode, return_indices=True
    )


@by_hand
def _adaptive_avg_pool3d(self: Any, output_size: Any) -> Any:
    return F.adaptive_avg_pool3d(self, output_size)


@by_hand
def adaptive_max_pool2d(self: Any, output_size: Any) -> Any:
    return F.adaptive_max_pool2d(self, output_size, return_indices=True)


@by_hand
def adaptive_max_pool3d(self: Any, output_size: Any) -> Any:
    return F.adaptive_max_pool3d(self, output_size, return_indices=True)


@by_hand
def unique_consecutive(
    self: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    made = torch.unique_consecutive(self, return_inverse, return_counts, dim)
    given = iter((made,) if isinstance(made, torch.Tensor) else made)
    empty = torch.empty(0, dtype=torch.int64, device=self.device)
    return tuple(next(given) if on else empty for on in (True, return_inverse, return_counts))


@by_hand
def repeat_interleave(repeats: Any, self: Any = None, dim: Any = None, *, output_size: Any) -> Any:
    if self is None:
        return torch.repeat_interleave(repeats, output_size=output_size)
    return torch.repeat_interleave(self, repeats, dim, output_size=output_size)


@by_hand
def elu_(self: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    return self.copy_(elu(self, alpha, scale, input_scale))


@by_hand
def _conj_physical(self: Any) -> Any:
    return torch.conj_physical(self)


@by_hand
def log_sigmoid(self: Any) -> Any:
    return F.logsigmoid(self)


@by_hand
def log_sigmoid_forward(self: Any) -> Any:
    return F.logsigmoid(self), self.new_empty(0)


@by_hand
def rrelu_with_noise(
    self: Any, noise: Any, lower: Any, upper: Any, training: bool, generator: Any
) -> Any:
    if not training:
        return torch.rrelu(self, lower, upper, False, generator)
    result, factors = row("_nn.rrelu", self, float(lower), float(upper), generator=generator)
    noise.resize_as_(factors).copy_(factors)
    return result


@by_hand
def rrelu_with_noise_(
    self: Any, noise: Any, lower: Any, upper: Any, training: bool, generator: Any
) -> Any:
    if not training:
        return torch.rrelu_(self, lower, upper, False, generator)
    return self.copy_(rrelu_with_noise(self, noise, lower, upper, training, generator))


@by_hand
def multilabel_margin_loss_forward(self: Any, target: Any, reduction: int) -> Any:
    return row("_nn.multilabel_margin_loss", self, target, reduction)


@by_hand
def unsafe_split(self: Any, split_size: int, dim: int = 0) -> Any:
    return torch.unsafe_split(self, split_size, dim)


@by_hand
def max_unpool2d(self: Any, indices: Any, output_size: Any) -> Any:
    return row("_max_unpool", self, indices, output_size)


@by_hand
def max_unpool3d(self: Any, indices: Any, output_size: Any, stride: Any, padding: Any) -> Any:
    return row("_max_unpool", self, indices, output_size)


@by_hand
def fractional_max_pool2d(
    self: Any, kernel_size: Any, output_size: Any, random_samples: Any
) -> Any:
    return row("_fractional_max_pool", self, kernel_size, output_size, random_samples)


@by_hand
def fractional_max_pool3d(
    self: Any, kernel_size: Any, output_size: Any, random_samples: Any
) -> Any:
    return row("_fractional_max_pool", self, kernel_size, output_size, random_samples)
