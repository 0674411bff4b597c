"""Samples into batches."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import torchlike as torch

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert"]

np_str_obj_array_pattern = re.compile(r"[SaUO]")

default_collate_err_msg_format = (
    "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
)

_SHARED_FROM = 1 << 16
"""Bytes from which a worker stacks samples where the main process can map them; fewer are copied when they are sent."""

_Map = dict[Any, Callable[..., Any]]


def _is_numpy(value: Any) -> bool:
    return type(value).__module__ == "numpy" and not isinstance(value, (str, bytes))


def _mapping_like(sample: Any, items: dict[Any, Any]) -> Any:
    """``items`` in a mapping of the sample's type, or a dict if none can be made."""
    try:
        if not isinstance(sample, MutableMapping):
            return type(sample)(items)
        made = copy.copy(sample)
        made.update(items)
        return made
    except TypeError:
        return items


def _sequence_like(sample: Any, items: list[Any]) -> Any:
    """``items`` in a sequence of the sample's type, or a list if none can be made."""
    try:
        if not isinstance(sample, MutableSequence):
            return type(sample)(items)
        made = copy.copy(sample)
        for i, item in enumerate(items):
            made[i] = item
        return made
    except TypeError:
        return items


def default_convert(data: Any) -> Any:
    """NumPy arrays inside ``data`` as tensors, all else as it is."""
    if isinstance(data, (torch.Tensor, str, bytes)):
        return data
    if _is_numpy(data):
        kind = getattr(getattr(data, "dtype", None), "kind", "O")
        return data if np_str_obj_array_pattern.search(kind) else torch.as_tensor(data)
    if isinstance(data, Mapping):
        return _mapping_like(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(d) for d in data))
    if isinstance(data, tuple):
        return [default_convert(d) for d in data]
    if isinstance(data, Sequence):
        return _sequence_like(data, [default_convert(d) for d in data])
    return data


def _collate_fn(sample: Any, known: _Map) -> Callable[..., Any] | None:
    """The function for a sample's own type, or for the first type that it is an instance of."""
    if type(sample) in known:
        return known[type(sample)]
    for kind, function in known.items():
        if isinstance(sample, kind):
            return function
    return None


def collate(batch: Any, *, collate_fn_map: _Map | None = None) -> Any:
    """Samples together: by the function for their type, and in containers item by item."""
    sample = batch[0]
    if collate_fn_map is not None:
        function = _collate_fn(sample, collate_fn_map)
        if function is not None:
            return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(sample, Mapping):
        merged = {
            key: collate([d[key] for d in batch], collate_fn_map=collate_fn_map) for key in sample
        }
        return _mapping_like(sample, merged)
    if isinstance(sample, tuple) and hasattr(sample, "_fields"):
        columns = zip(*batch, strict=False)
        return type(sample)(*(collate(c, collate_fn_map=collate_fn_map) for c in columns))
    if isinstance(sample, Sequence):
        if any(len(item) != len(sample) for item in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        parts = [
            collate(column, collate_fn_map=collate_fn_map) for column in zip(*batch, strict=False)
        ]
        return parts if isinstance(sample, tuple) else _sequence_like(sample, parts)
    raise TypeError(default_collate_err_msg_format.format(type(sample)))


def collate_tensor_fn(batch: Any, *, collate_fn_map: _Map | None = None) -> Any:
    """Tensors stacked; large ones, in a worker, in memory that the main process maps."""
    sample = batch[0]
    if sample.is_nested:
        raise RuntimeError(
            "Batches of nested tensors are not currently supported by the default collate_fn; "
            "please provide a custom collate_fn to handle them appropriately."
        )
    if sample.layout is not torch.strided:
        raise RuntimeError(
            "Batches of sparse tensors are not currently supported by the default collate_fn; "
            "please provide a custom collate_fn to handle them appropriately."
        )
    nbytes = sample.numel() * sample.element_size() * len(batch)
    if nbytes < _SHARED_FROM or sample.device.type != "cpu" or not _in_worker():
        return torch.stack(batch, 0)
    if torch.is_grad_enabled() and any(t.requires_grad for t in batch):
        return torch.stack(batch, 0)
    storage = torch.UntypedStorage._new_using_fd_cpu(nbytes)
    out = torch.empty(0, dtype=sample.dtype).set_(storage, 0, (len(batch), *sample.shape))
    return torch.stack(batch, 0, out=out)


def _in_worker() -> bool:
    from torchlike.utils.data._utils.worker import get_worker_info

    return get_worker_info() is not None


def collate_numpy_array_fn(batch: Any, *, collate_fn_map: _Map | None = None) -> Any:
    """NumPy arrays stacked."""
    sample = batch[0]
    if np_str_obj_array_pattern.search(sample.dtype.str):
        raise TypeError(default_collate_err_msg_format.format(sample.dtype))
    return collate([torch.as_tensor(b) for b in batch], collate_fn_map=collate_fn_map)


def collate_numpy_scalar_fn(batch: Any, *, collate_fn_map: _Map | None = None) -> Any:
    """NumPy numbers in a tensor."""
    return torch.as_tensor(batch)


def collate_float_fn(batch: Any, *, collate_fn_map: _Map | None = None) -> Any:
    """Python's floats in a tensor of doubles."""
    return torch.tensor(batch, dtype=torch.float64)


def collate_int_fn(batch: Any, *, collate_fn_map: _Map | None = None) -> Any:
    """Integers in a tensor."""
    return torch.tensor(batch)


def collate_str_fn(batch: Any, *, collate_fn_map: _Map | None = None) -> Any:
    """Texts as they are."""
    return batch


default_collate_fn_map: _Map = {torch.Tensor: collate_tensor_fn}
"""What :func:`default_collate` does, by type; entries may be added."""

try:
    import numpy as np
except ImportError:
    pass
else:
    default_collate_fn_map[np.ndarray] = collate_numpy_array_fn
    default_collate_fn_map[(np.bool_, np.number, np.object_)] = collate_numpy_scalar_fn
default_collate_fn_map[float] = collate_float_fn
default_collate_fn_map[int] = collate_int_fn
default_collate_fn_map[str] = collate_str_fn
default_collate_fn_map[bytes] = collate_str_fn


def default_collate(batch: Any) -> Any:
    """Samples stacked: tensors, numbers, strings, and containers of these."""
    return collate(batch, collate_fn_map=default_collate_fn_map)
