"""Summaries: what TensorBoard shows of a value, as its own messages."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from tensorboard.compat.proto.summary_pb2 import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
    HistogramProto,
    Summary,
    SummaryMetadata,
)
from tensorboard.compat.proto.tensor_pb2 import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
    TensorProto,
)
from tensorboard.compat.proto.tensor_shape_pb2 import (  # type: ignore[import-untyped,import-not-found,unused-ignore]
    TensorShapeProto,
)

import torchlike

__all__ = ["histogram", "histogram_raw", "image", "scalar", "tensor_proto", "text"]


def array(x: Any) -> Any:
    """A value as an array of NumPy.

    Raises:
        NotImplementedError: for what is no number, array or tensor.
    """
    if isinstance(x, np.ndarray):
        return x
    if np.isscalar(x):
        return np.array([x])
    if isinstance(x, torchlike.Tensor):
        x = x.detach().cpu()
        return (x.float() if x.dtype is torchlike.bfloat16 else x).numpy()
    raise NotImplementedError(f"Got {type(x)}, but numpy array or torch tensor are expected.")


def _one(**value: Any) -> Any:
    return Summary(value=[Summary.Value(**value)])


def scalar(name: str, value: Any, new_style: bool = False, double_precision: bool = False) -> Any:
    """One number."""
    found = array(value).squeeze()
    if found.ndim:
        raise AssertionError(
            f"Tensor should contain one element (0 dimensions). Was given size: {found.size} and {found.ndim} "
            "dimensions."
        )
    number = float(found)
    if not new_style:
        return _one(tag=name, simple_value=number)
    if double_precision:
        tensor = TensorProto(double_val=[number], dtype="DT_DOUBLE")
    else:
        tensor = TensorProto(float_val=[number], dtype="DT_FLOAT")
    plugin = SummaryMetadata.PluginData(plugin_name="scalars")
    return _one(tag=name, tensor=tensor, metadata=SummaryMetadata(plugin_data=plugin))


def _default_bins() -> Any:
    """Limits that grow by a tenth, on both sides of zero."""
    limits, at = [], 1e-12
    while at < 1e20:
        limits.append(at)
        at *= 1.1
    return np.array([-v for v in reversed(limits)] + [0.0] + limits)


def histogram(name: str, values: Any, bins: Any, max_bins: int | None = None) -> Any:
    """How often values lie between limits: those of `bins`, which NumPy takes, or the usual ones."""
    found = array(values).astype(float).reshape(-1)
    if found.size == 0:
        raise ValueError("The input has no element.")
    limits: Any = _default_bins() if isinstance(bins, str) and bins == "tensorflow" else bins
    counts, limits = np.histogram(found, bins=limits)
    step = len(counts) // max_bins if max_bins is not None and len(counts) > max_bins else 1
    if step > 1:
        padded = np.pad(counts, (0, -len(counts) % step))
        counts = padded.reshape(-1, step).sum(1)
        limits = np.append(limits[:-1][::step], limits[-1])
    filled = np.flatnonzero(counts)
    first, last = (filled[0], filled[-1] + 1) if filled.size else (0, 0)
    kept = [0, *counts[first:last]] if first == 0 else list(counts[first - 1 : last])
    edges = limits[max(first, 0) : last + 1]
    return histogram_raw(
        name, found.min(), found.max(), len(found), found.sum(), found.dot(found), edges, kept
    )


def histogram_raw(
    name: str,
    min: float,
    max: float,
    num: float,
    sum: float,
    sum_squares: float,
    bucket_limits: Any,
    bucket_counts: Any,
) -> Any:
    """A histogram that is there already."""
    made = HistogramProto(
        min=min,
        max=max,
        num=num,
        sum=sum,
        sum_squares=sum_squares,
        bucket_limit=list(bucket_limits),
        bucket=list(bucket_counts),
    )
    return _one(tag=name, histo=made)


def _pixels(x: Any, dataformats: str) -> Any:
    """An image, or a grid of several, as bytes `[height, width, 3 or 4]`."""
    scale = 1 if x.dtype == np.uint8 else 255
    order = dataformats.upper()
    if len(order) != x.ndim or len(set(order)) != len(order):
        raise AssertionError(
            f"size of input tensor and input format are different. tensor shape: {x.shape}, input_format: {dataformats}"
        )
    if "N" in order:
        x = x.transpose([order.index(c) for c in "NHWC"])
        count, h, w, c = x.shape
        columns = min(count, 8)
        rows = -(-count // columns)
        grid = np.zeros((rows * columns, h, w, c), x.dtype)
        grid[:count] = x
        grid = grid.reshape(rows, columns, h, w, c).transpose(0, 2, 1, 3, 4)
        x = grid.reshape(rows * h, columns * w, c)
    elif "C" in order:
        x = x.transpose([order.index(c) for c in "HWC"])
    else:
        x = x.transpose([order.index(c) for c in "HW"])[..., None]
    if x.shape[2] == 1:
        x = np.repeat(x, 3, 2)
    return (x.astype(np.float32) * scale).clip(0, 255).astype(np.uint8)


def image(name: str, value: Any, dataformats: str = "NCHW") -> Any:
    """A picture: numbers of 0 to 1, or bytes."""
    from PIL import Image  # type: ignore[import-untyped,import-not-found,unused-ignore]

    pixels = _pixels(array(value), dataformats)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    height, width, channels = pixels.shape
    made = Summary.Image(
        height=height, width=width, colorspace=channels, encoded_image_string=file.getvalue()
    )
    return _one(tag=name, image=made)


def text(name: str, value: str) -> Any:
    """Words, as Markdown."""
    plugin = SummaryMetadata.PluginData(plugin_name="text", content=b"")
    tensor = TensorProto(
        dtype="DT_STRING",
        string_val=[value.encode()],
        tensor_shape=TensorShapeProto(dim=[TensorShapeProto.Dim(size=1)]),
    )
    metadata = SummaryMetadata(plugin_data=plugin)
    return _one(tag=name + "/text_summary", metadata=metadata, tensor=tensor)


_TYPES = {"float16": "DT_HALF", "float32": "DT_FLOAT", "float64": "DT_DOUBLE", "int8": "DT_INT8",
          "uint8": "DT_UINT8", "int16": "DT_INT16", "int32": "DT_INT32", "int64": "DT_INT64", "bool": "DT_BOOL",
          "complex64": "DT_COMPLEX64", "complex128": "DT_COMPLEX128"}  # fmt: skip


def tensor_proto(name: str, value: Any) -> Any:
    """All numbers of a tensor.

    Raises:
        ValueError: for a type that TensorBoard has not.
    """
    found = array(value)
    if str(found.dtype) not in _TYPES:
        raise ValueError(f"{name} has unsupported tensor dtype {found.dtype}")
    dims = [TensorShapeProto.Dim(size=n) for n in found.shape]
    tensor = TensorProto(
        dtype=_TYPES[str(found.dtype)],
        tensor_shape=TensorShapeProto(dim=dims),
        tensor_content=np.ascontiguousarray(found).tobytes(),
    )
    plugin = SummaryMetadata.PluginData(plugin_name="tensor")
    metadata = SummaryMetadata(plugin_data=plugin)
    return _one(tag=name, metadata=metadata, tensor=tensor)
