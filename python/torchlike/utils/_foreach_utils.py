"""Lists of tensors, sorted by where and of what type they are: what optimizers that people publish import."""

from __future__ import annotations

from typing import Any

from torchlike import _C


def _get_foreach_kernels_supported_devices() -> list[str]:
    """Where lists of tensors are one call."""
    return ["cuda"]


def _get_fused_kernels_supported_devices() -> list[str]:
    """Where a step of an optimizer is one call."""
    return ["cuda", "cpu"]


def _group_tensors_by_device_and_dtype(
    tensorlistlist: list[list[Any]], with_indices: bool = False
) -> dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]]:
    """Parts of lists of the same length, by the device and type of what stands in the first; with the places."""
    found: dict[tuple[Any, Any], tuple[list[list[Any]], list[int]]] = {}
    for place, items in enumerate(zip(*(v for v in tensorlistlist if v), strict=True)):
        key = (items[0].device, items[0].dtype)
        lists, places = found.setdefault(key, ([[] for _ in tensorlistlist], []))
        given = iter(items)
        for part, whole in zip(lists, tensorlistlist, strict=True):
            if whole:
                part.append(next(given))
        if with_indices:
            places.append(place)
    return found


def _device_has_foreach_support(device: Any) -> bool:
    return device.type in ("cuda", "cpu")


def _has_foreach_support(tensors: list[Any], device: Any) -> bool:
    plain = all(t is None or type(t) is _C.Tensor for t in tensors)
    return plain and _device_has_foreach_support(device)
