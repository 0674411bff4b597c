"""GPUs, under PyTorch's names."""

from __future__ import annotations


def is_available() -> bool:
    """True if there is a GPU with a driver."""
    return device_count() > 0


def device_count() -> int:
    """How many GPUs there are."""
    return 0


def is_initialized() -> bool:
    """True once a GPU was used."""
    return False


def current_device() -> int:
    """The number of the GPU in use."""
    raise AssertionError("Torch not compiled with CUDA enabled")


def synchronize(device: object = None) -> None:
    """Waits for the GPU."""
    if device_count() == 0:
        raise AssertionError("Torch not compiled with CUDA enabled")


def manual_seed_all(seed: int) -> None:
    """Seeds the generators of all GPUs: none, none to seed."""


manual_seed = manual_seed_all


def empty_cache() -> None:
    """Gives cached device memory back."""
