"""Samples into batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torchlike as torch

__all__ = ["default_collate", "default_convert"]

_UNKNOWN = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)


def _is_numpy(value: Any) -> bool:
    return type(value).__module__ == "numpy" and not isinstance(value, (str, bytes))


def _like(sample: Any, items: list[Any]) -> Any:
    """``items`` in a container of the sample's type where that can be made of a list."""
    try:
        return type(sample)(items)
    except TypeError:
        return items


def default_convert(data: Any) -> Any:
    """NumPy arrays inside ``data`` as tensors, all else as it is."""
    if isinstance(data, (torch.Tensor, str, bytes)):
        return data
    if _is_numpy(data):
        kind = getattr(getattr(data, "dtype", None), "kind", "O")
        return data if kind in "SaUO" else torch.as_tensor(data)
    if isinstance(data, Mapping):
        return _like(data, {k: default_convert(v) for k, v in data.items()})  # type: ignore[arg-type]
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, Sequence):
        return _like(data, [default_convert(d) for d in data])
    return data


def default_collate(batch: Any) -> Any:
    """Samples stacked: tensors, numbers, strings, and containers of these."""
    sample = batch[0]
    if isinstance(sample, torch.Tensor):
        return torch.stack(batch, 0)
    if _is_numpy(sample):
        if getattr(sample, "shape", None):
            if sample.dtype.kind in "SaUO":
                raise TypeError(_UNKNOWN.format(sample.dtype))
            return default_collate([torch.as_tensor(b) for b in batch])
        return torch.as_tensor(batch)
    if isinstance(sample, float):
        return torch.tensor(batch, dtype=torch.float64)
    if isinstance(sample, int):
        return torch.tensor(batch)
    if isinstance(sample, (str, bytes)):
        return batch
    if isinstance(sample, Mapping):
        merged = {key: default_collate([d[key] for d in batch]) for key in sample}
        return _like(sample, merged)  # type: ignore[arg-type]
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        return type(sample)(*(default_collate(s) for s in zip(*batch, strict=True)))
    if isinstance(sample, Sequence):
        if any(len(item) != len(sample) for item in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        columns = [default_collate(list(s)) for s in zip(*batch, strict=True)]
        return columns if isinstance(sample, tuple) else _like(sample, columns)
    raise TypeError(_UNKNOWN.format(type(sample)))
