"""Where storages in files were, and where they go: what `torchlike.serialization` says of devices."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

import torchlike

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "check_module_version_greater_or_equal",
    "default_restore_location",
    "location_tag",
    "register_package",
    "storage_to_tensor_type",
    "validate_cuda_device",
    "validate_hpu_device",
]

_registry: list[tuple[int, Callable[..., Any], Callable[..., Any]]] = []


def register_package(priority: int, tagger: Any, deserializer: Any) -> None:
    """Adds a function that names a storage's place, and one that brings a storage to a place; lower numbers first."""
    _registry.append((priority, tagger, deserializer))
    _registry.sort(key=lambda entry: entry[0])


def location_tag(storage: Any) -> str:
    """The name of the place where a storage lies.

    Raises:
        RuntimeError: if no function that was registered knows it.
    """
    for _, tagger, _ in _registry:
        location = tagger(storage)
        if location:
            return str(location)
    raise RuntimeError(
        "don't know how to determine data location of " + torchlike.typename(storage)
    )


def default_restore_location(storage: Any, location: str) -> Any:
    """The storage, brought to the place of this name.

    Raises:
        RuntimeError: if no function that was registered knows it.
    """
    for _, _, restore in _registry:
        result = restore(storage, location)
        if result is not None:
            return result
    raise RuntimeError(
        f"don't know how to restore data location of {torchlike.typename(storage)} (tagged with {location})"
    )


def has_packages() -> bool:
    """Whether a program registered functions of its own."""
    return len(_registry) > _OWN


def _device(location: str, kind: str) -> torchlike.device:
    """The device of this name, which has to be there."""
    module = getattr(torchlike, kind, None)
    advice = (
        "If you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu') "
        "to map your storages to the CPU."
    )
    if module is None:
        raise RuntimeError(f"The {kind.upper()} device module is not registered. {advice}")
    device = torchlike.device(location)
    index = device.index or 0
    if not module.is_available():
        raise RuntimeError(
            f"Attempting to deserialize object on a {kind.upper()} device but torch.{kind}.is_available() is False. "
            + advice
        )
    if index >= module.device_count():
        raise RuntimeError(
            f"Attempting to deserialize object on {kind.upper()} device {index} but torch.{kind}.device_count() is "
            f"{module.device_count()}. Please use torch.load with map_location to map your storages to an existing "
            "device."
        )
    return torchlike.device(kind, index)


def validate_cuda_device(location: str) -> int:
    """The number of a GPU by its name, if it is there."""
    return int(_device(location, "cuda").index or 0)


def validate_hpu_device(location: str) -> int:
    """The number of a device by its name, if it is there."""
    return int(_device(location, "hpu").index or 0)


def _add(priority: int, kind: str) -> None:
    """Registers devices of a kind."""

    def tag(storage: Any) -> str | None:
        device = storage.device
        return str(device) if device.type == kind else None

    def restore(storage: Any, location: str) -> Any:
        if kind == "cpu":
            return storage if location == kind else None
        if kind == "meta":
            if location != kind:
                return None
            return torchlike.UntypedStorage(storage.nbytes(), device="meta")
        if location == kind or re.match(f"{kind}(:|[0-9]+)", location):
            device = _device(location, kind)
            return storage.to(device=device)
        return None

    register_package(priority, tag, restore)


for _priority, _kind in [
    (10, "cpu"),
    (20, "cuda"),
    (21, "mps"),
    (22, "meta"),
    (24, "hpu"),
    (25, "xpu"),
    (26, "mtia"),
]:
    _add(_priority, _kind)
_OWN = len(_registry)


def storage_to_tensor_type(storage: Any) -> Any:
    """The old type of tensors whose elements lie in storages of this type."""
    from importlib import import_module

    kind = type(storage)
    return getattr(import_module(kind.__module__), kind.__name__.replace("Storage", "Tensor"))


def check_module_version_greater_or_equal(
    module: Any, req_version_tuple: tuple[Any, ...], error_if_malformed: bool = True
) -> bool:
    """Whether the version of a module is at least this one.

    Raises:
        RuntimeError: if the version is not made of such parts, unless that is to be a warning.
    """
    try:
        parts = module.__version__.split(".")
        found = tuple(type(wanted)(parts[i]) for i, wanted in enumerate(req_version_tuple))
        return bool(found >= req_version_tuple)
    except Exception as error:
        text = (
            f"'{module.__name__}' module version string is malformed '{module.__version__}' and cannot be compared "
            f"with tuple {req_version_tuple}"
        )
        if error_if_malformed:
            raise RuntimeError(text) from error
        warnings.warn(f"{text}, but continuing assuming that requirement is met", stacklevel=2)
        return True
