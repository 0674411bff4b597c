"""torchvision's operators under their names, in place of its library in C++, which torchlike cannot load.

What works on quantised tensors says so when it is called.
"""

from __future__ import annotations

from typing import Any, NoReturn

import torchlike
from torchlike.compat import _regions, _rotated
from torchlike.library import Library

_BINS = "Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_GRAD = "float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_SIZES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_CONV = (
    "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)
_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    f"roi_align({_BINS}, int sampling_ratio, bool aligned) -> Tensor",
    f"qroi_align({_BINS}, int sampling_ratio, bool aligned) -> Tensor",
    f"_roi_align_backward(Tensor grad, Tensor rois, {_GRAD}, {_SIZES}, int sampling_ratio, bool aligned) -> Tensor",
    f"roi_pool({_BINS}) -> (Tensor, Tensor)",
    f"_roi_pool_backward(Tensor grad, Tensor rois, Tensor argmax, {_GRAD}, {_SIZES}) -> Tensor",
    f"ps_roi_align({_BINS}, int sampling_ratio) -> (Tensor, Tensor)",
    f"_ps_roi_align_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_GRAD}, int sampling_ratio, "
    f"{_SIZES}) -> Tensor",
    f"ps_roi_pool({_BINS}) -> (Tensor, Tensor)",
    f"_ps_roi_pool_backward(Tensor grad, Tensor rois, Tensor channel_mapping, {_GRAD}, {_SIZES}) -> Tensor",
    f"deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, {_CONV}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
    f"{_CONV}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
    "_cuda_version() -> int",
)


def _nms(dets: Any, scores: Any, iou_threshold: float) -> Any:
    """The boxes that no box of a higher score overlaps by more than the threshold, best first."""
    torchlike._check(dets.dim() == 2, lambda: f"boxes should be a 2d tensor, got {dets.dim()}D")
    torchlike._check(
        dets.size(1) == 4,
        lambda: f"boxes should have 4 elements in dimension 1, got {dets.size(1)}",
    )
    torchlike._check(
        scores.dim() == 1, lambda: f"scores should be a 1d tensor, got {scores.dim()}D"
    )
    torchlike._check(
        dets.size(0) == scores.size(0),
        lambda: (
            "boxes and scores should have same number of elements in dimension 0, got "
            f"{dets.size(0)} and {scores.size(0)}"
        ),
    )
    dets, scores = dets.detach(), scores.detach()
    order = scores.sort(dim=0, descending=True, stable=True)[1]
    boxes = dets[order]
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[int] = []
    alive = torchlike.ones(len(order), dtype=torchlike.bool)
    for i in range(len(order)):
        if not alive[i]:
            continue
        kept.append(i)
        rest = boxes[i + 1 :]
        low = torchlike.maximum(boxes[i, :2], rest[:, :2])
        high = torchlike.minimum(boxes[i, 2:], rest[:, 2:])
        sides = (high - low).clamp(min=0)
        inside = sides[:, 0] * sides[:, 1]
        overlap = inside / (areas[i] + areas[i + 1 :] - inside)
        alive[i + 1 :] &= ~(overlap > iou_threshold)
    return order[torchlike.tensor(kept, dtype=torchlike.int64)]


def _sampled(image: Any, y: Any, x: Any) -> Any:
    """Bilinear values of images `[N, C, H, W]` at places `[N, P]`, zero outside: `[N, C, P]`."""
    n, c, h, w = image.shape
    flat = image.reshape(n, c, h * w)
    y0, x0 = y.floor(), x.floor()
    total: Any = 0
    for dy in (0, 1):
        for dx in (0, 1):
            yi, xi = y0 + dy, x0 + dx
            weight = (1 - (y - yi).abs()) * (1 - (x - xi).abs())
            inside = (yi >= 0) & (yi <= h - 1) & (xi >= 0) & (xi <= w - 1)
            index = (yi.clamp(0, h - 1) * w + xi.clamp(0, w - 1)).long()
            values = flat.gather(2, index.unsqueeze(1).expand(n, c, index.shape[1]))
            total = total + values * (weight * inside).unsqueeze(1)
    return total


def _deform_conv2d(
    input: Any,
    weight: Any,
    offset: Any,
    mask: Any,
    bias: Any,
    stride_h: int,
    stride_w: int,
    pad_h: int,
    pad_w: int,
    dilation_h: int,
    dilation_w: int,
    groups: int,
    offset_groups: int,
    use_mask: bool,
) -> Any:
    """A convolution that looks beside its places, where the offsets say."""
    n, c, h, w = input.shape
    out_c, per_group, kh, kw = weight.shape
    oh = (h + 2 * pad_h - (dilation_h * (kh - 1) + 1)) // stride_h + 1
    ow = (w + 2 * pad_w - (dilation_w * (kw - 1) + 1)) // stride_w + 1
    points = kh * kw
    moved = offset.reshape(n, offset_groups, points, 2, oh, ow)
    options = {"dtype": input.dtype, "device": input.device}
    rows = torchlike.arange(oh, **options) * stride_h - pad_h
    columns = torchlike.arange(ow, **options) * stride_w - pad_w
    taps_y = (torchlike.arange(kh, **options) * dilation_h).repeat_interleave(kw)
    taps_x = (torchlike.arange(kw, **options) * dilation_w).repeat(kh)
    y = moved[:, :, :, 0] + taps_y.view(points, 1, 1) + rows.view(1, oh, 1)
    x = moved[:, :, :, 1] + taps_x.view(points, 1, 1) + columns.view(1, 1, ow)
    share = c // offset_groups
    images = input.reshape(n * offset_groups, share, h, w)
    places = (n * offset_groups, points * oh * ow)
    values = _sampled(images, y.reshape(places), x.reshape(places))
    values = values.view(n, offset_groups, share, points, oh, ow)
    if use_mask:
        values = values * mask.reshape(n, offset_groups, 1, points, oh, ow)
    values = values.reshape(n, groups, c // groups * points, oh * ow)
    kernel = weight.reshape(groups, out_c // groups, per_group * points)
    out: Any = torchlike.functional.einsum("gok,ngkp->ngop", kernel, values).reshape(
        n, out_c, oh, ow
    )
    return out + bias.view(1, out_c, 1, 1)


def _gradients(kernel: Any, inputs: list[Any], grad: Any, rest: tuple[Any, ...]) -> Any:
    """The gradients of a kernel made of other operators, by its first arguments."""
    with torchlike.enable_grad():
        leaves = [t.detach().requires_grad_() for t in inputs]
        result = kernel(*leaves, *rest)
    if not result.requires_grad:  # no region, so nothing was read
        return tuple(torchlike.zeros_like(t) for t in inputs)
    found = torchlike.autograd.grad(result, leaves, grad, allow_unused=True)
    return tuple(
        torchlike.zeros_like(t) if g is None else g for t, g in zip(inputs, found, strict=True)
    )


def _roi_align_backward(
    grad: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    image = grad.new_zeros(batch_size, channels, height, width)
    rest = (rois, spatial_scale, pooled_height, pooled_width, sampling_ratio, aligned)
    return _gradients(_regions.roi_align, [image], grad, rest)[0]


def _ps_backward(kernel: Any, samples: int) -> Any:
    """The gradient of a pooling whose bins have channels of their own, which is linear in its images."""

    def backward(grad: Any, rois: Any, _: Any, *args: Any) -> Any:
        bins, sizes = args[: 3 + samples], args[3 + samples :]
        image = grad.new_zeros(*sizes)
        return _gradients(lambda t: kernel(t, rois, *bins)[0], [image], grad, ())[0]

    return backward


def _deform_conv2d_backward(grad: Any, *args: Any) -> Any:
    return _gradients(_deform_conv2d, list(args[:5]), grad, args[5:])


def _refused(name: str) -> Any:
    def kernel(*_: Any) -> NoReturn:
        raise NotImplementedError(
            f"torchvision::{name} is not supported by torchlike: torchvision's library in C++ cannot be loaded"
        )

    return kernel


_KERNELS: dict[str, Any] = {
    "nms": _nms,
    "roi_align": _regions.roi_align,
    "_roi_align_backward": _roi_align_backward,
    "roi_pool": _regions.roi_pool,
    "_roi_pool_backward": _regions.roi_pool_backward,
    "ps_roi_align": _regions.ps_roi_align,
    "_ps_roi_align_backward": _ps_backward(_regions.ps_roi_align, 1),
    "ps_roi_pool": _regions.ps_roi_pool,
    "_ps_roi_pool_backward": _ps_backward(_regions.ps_roi_pool, 0),
    "deform_conv2d": _deform_conv2d,
    "_deform_conv2d_backward": _deform_conv2d_backward,
    "box_iou_rotated": _rotated.box_iou_rotated,
    "_cuda_version": lambda: -1,
}
_registered: list[Library] = []


def register() -> None:
    """Defines the operators, once."""
    if _registered:
        return
    library = Library("torchvision", "DEF")
    for schema in _SCHEMAS:
        name = library.define(schema)
        library.impl(name, _KERNELS.get(name, _refused(name)), "CompositeImplicitAutograd")
    _registered.append(library)
