"""torchvision's poolings of regions: each bin of one gives a value a channel.

Means over bins are products with a matrix a side, as a place's weight is that of its row times that of its column.
Regions are `[K, 5]`: the number of an image, and the corners `x1, y1, x2, y2`.
"""

from __future__ import annotations

from typing import Any

import torchlike


def _checked(input: Any, rois: Any) -> None:
    torchlike._check(rois.size(1) == 5, lambda: "Tensor rois should have shape as Tensor[K, 5]")
    torchlike._check(
        input.dtype == rois.dtype,
        lambda: (
            f"Expected tensor for argument #1 'input' to have the same type as tensor for argument #2 'rois'; but type "
            f"{input.dtype} does not equal {rois.dtype}"
        ),
    )


def _rounded(x: Any) -> Any:
    """The nearest whole number, halves away from zero."""
    return torchlike.where(x < 0, (x - 0.5).ceil(), (x + 0.5).floor())


def _edges(
    start: Any, size: Any, count: int, limit: int, offset_first: bool
) -> list[tuple[int, int]]:
    """Where the bins of one side of a region begin and end."""
    at = torchlike.arange(count + 1, dtype=start.dtype) * (size / count)
    low, high = at[:-1], at[1:]
    if offset_first:
        low, high = (low + start).floor(), (high + start).ceil()
    else:
        low, high = low.floor() + start, high.ceil() + start
    pairs = zip(low.clamp(0, limit).tolist(), high.clamp(0, limit).tolist(), strict=True)
    return [(int(a), int(b)) for a, b in pairs]


def roi_pool(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int
) -> Any:
    """The largest value of each bin, `[K, C, height, width]`, and where in its image it is (-1: the bin is empty)."""
    _checked(input, rois)
    _, c, h, w = input.shape
    shape = (rois.size(0), c, pooled_height, pooled_width)
    if input.is_meta or rois.is_meta or not rois.size(0):
        return input.new_zeros(shape), input.new_zeros(shape, dtype=torchlike.int32)
    values, places = [], []
    corners = _rounded(rois.detach()[:, 1:].cpu() * spatial_scale)
    for image, (x1, y1, x2, y2) in zip(rois[:, 0].tolist(), corners, strict=True):
        rows = _edges(y1, (y2 - y1 + 1).clamp(min=1), pooled_height, h, False)
        columns = _edges(x1, (x2 - x1 + 1).clamp(min=1), pooled_width, w, False)
        value, place = _largest(input[int(image)], rows, columns)
        values.append(value)
        places.append(place)
    return torchlike.stack(values), torchlike.stack(places).to(torchlike.int32)


def _largest(x: Any, rows: list[tuple[int, int]], columns: list[tuple[int, int]]) -> Any:
    """The largest values `[C, rows, columns]` of blocks of an image, and their places in it."""
    c, _, w = x.shape
    nothing = x.new_zeros(c), x.new_full((c,), -1, dtype=torchlike.int64)
    found: list[Any] = []
    for low, high in columns:
        best = x[:, :, low:high].max(2) if high > low else None
        for top, bottom in rows:
            if best is None or bottom <= top:
                found.append(nothing)
                continue
            value, row = best[0][:, top:bottom].max(1)
            column = best[1].gather(1, (row + top).unsqueeze(1)).squeeze(1)
            found.append((value, (row + top) * w + column + low))
    shape = (len(columns), len(rows))
    values, places = (torchlike.stack(side, 1) for side in zip(*found, strict=True))
    return tuple(t.unflatten(1, shape).transpose(1, 2) for t in (values, places))


def roi_pool_backward(
    grad: Any,
    rois: Any,
    argmax: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    batch_size: int,
    channels: int,
    height: int,
    width: int,
) -> Any:
    """The gradient of the images, by the places that `roi_pool` gave."""
    image = rois[:, 0].long().view(-1, 1, 1, 1)
    channel = torchlike.arange(channels, device=grad.device).view(1, -1, 1, 1)
    index = (image * channels + channel) * (height * width) + argmax.clamp(min=0)
    flat = grad.new_zeros(batch_size * channels * height * width)
    flat = flat.index_add(0, index.reshape(-1), (grad * (argmax >= 0)).reshape(-1))
    return flat.view(batch_size, channels, height, width)


# Each bin has channels of its own


def _own_channels(input: Any, rois: Any, height: int, width: int) -> tuple[int, Any]:
    """How many channels a result has, and which channel of the input each of its bins looks at."""
    _checked(input, rois)
    bins = height * width
    torchlike._check(
        input.size(1) % bins == 0,
        lambda: "input channels must be a multiple of pooling height * pooling width",
    )
    count = input.size(1) // bins
    channels = torchlike.arange(input.size(1), dtype=torchlike.int32, device=input.device)
    return count, channels.view(1, count, height, width).expand(
        rois.size(0), -1, -1, -1
    ).contiguous()


def _means(input: Any, rois: Any, sides: Any, count: int, height: int, width: int) -> Any:
    """`[K, count, height, width]`: bins, weighted by `sides(corners)`, a matrix for rows and one for columns."""
    if input.is_meta or rois.is_meta or not rois.size(0):
        return input.new_zeros(rois.size(0), count, height, width)
    made = []
    for image, corners in zip(rois[:, 0].tolist(), rois.detach()[:, 1:].cpu(), strict=True):
        down, across = (m.to(input) for m in sides(corners))
        own = input[int(image)].view(count, height, width, *input.shape[2:])
        columns = (own * across[None, None, :, None, :]).sum(-1)
        made.append((columns * down[None, :, None, :]).sum(-1))
    return torchlike.stack(made)


def _bilinear(start: Any, size: Any, count: int, limit: int, samples: int) -> Any:
    """`[count, limit]`: what each place counts in the mean of the samples of a bin."""
    step = size / count
    number = samples if samples > 0 else max(int(step.ceil()), 0)  # none for a region of no size
    if number == 0:
        return start.new_zeros(count, limit)
    bins = torchlike.arange(count, dtype=start.dtype).unsqueeze(1) * step + start
    at = bins + (torchlike.arange(number, dtype=start.dtype) + 0.5) * step / number
    seen = ((at >= -1) & (at <= limit)).to(start.dtype)
    at = at.clamp(0, limit - 1)
    places = torchlike.arange(limit, dtype=start.dtype)
    weights = (1 - (at.unsqueeze(-1) - places).abs()).clamp(min=0)
    return (weights * seen.unsqueeze(-1)).sum(1) / number


def roi_align(
    input: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Any:
    """Means of bilinear samples of each bin, `[K, C, height, width]`; `aligned` takes pixels by their middles."""
    _checked(input, rois)
    _, c, h, w = input.shape
    if input.is_meta or rois.is_meta or not rois.size(0):
        return input.new_zeros(rois.size(0), c, pooled_height, pooled_width)
    made = []
    for image, corners in zip(rois[:, 0].tolist(), rois.detach()[:, 1:].cpu(), strict=True):
        x1, y1, x2, y2 = corners * spatial_scale - (0.5 if aligned else 0.0)
        tall, wide = (
            (y2 - y1, x2 - x1) if aligned else ((y2 - y1).clamp(min=1), (x2 - x1).clamp(min=1))
        )
        down = _bilinear(y1, tall, pooled_height, h, sampling_ratio).to(input)
        across = _bilinear(x1, wide, pooled_width, w, sampling_ratio).to(input)
        made.append(down @ (input[int(image)] @ across.mT))
    return torchlike.stack(made)


def ps_roi_align(
    input: Any,
    rois: Any,
    spatial_scale: float,
    pooled_height: int,
    pooled_width: int,
    sampling_ratio: int,
) -> Any:
    """Means of bilinear samples of each bin, `[K, C / bins, height, width]`, and the channel each looked at."""
    count, mapping = _own_channels(input, rois, pooled_height, pooled_width)
    h, w = input.shape[2:]

    def sides(corners: Any) -> Any:
        x1, y1, x2, y2 = corners * spatial_scale - 0.5
        return (
            _bilinear(y1, y2 - y1, pooled_height, h, sampling_ratio),
            _bilinear(x1, x2 - x1, pooled_width, w, sampling_ratio),
        )

    return _means(input, rois, sides, count, pooled_height, pooled_width), mapping


def _shares(edges: list[tuple[int, int]], limit: int, like: Any) -> Any:
    made = like.new_zeros(len(edges), limit)
    for row, (low, high) in zip(made, edges, strict=True):
        if high > low:
            row[low:high] = 1 / (high - low)
    return made


def ps_roi_pool(
    input: Any, rois: Any, spatial_scale: float, pooled_height: int, pooled_width: int
) -> Any:
    """Means of each bin, `[K, C / bins, height, width]`, and the channel each looked at."""
    count, mapping = _own_channels(input, rois, pooled_height, pooled_width)
    h, w = input.shape[2:]

    def sides(corners: Any) -> Any:
        x1, y1, x2, y2 = _rounded(corners * spatial_scale)
        rows = _edges(y1, (y2 - y1).clamp(min=1), pooled_height, h - 1, True)
        columns = _edges(x1, (x2 - x1).clamp(min=1), pooled_width, w - 1, True)
        return _shares(rows, h, corners), _shares(columns, w, corners)

    return _means(input, rois, sides, count, pooled_height, pooled_width), mapping
