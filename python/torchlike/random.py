"""The random state of the CPU, and blocks that restore it."""

from __future__ import annotations

import contextlib
import warnings
from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike._C import manual_seed as manual_seed
from torchlike._tensor import get_device_module

if TYPE_CHECKING:
    from collections.abc import Iterator

default_generator = _C._default_generator()


def initial_seed() -> int:
    """The seed that the default generator was given last."""
    return default_generator.initial_seed()


def seed() -> int:
    """Seeds the default generator from the system and returns the seed."""
    return default_generator.seed()


def get_rng_state() -> _C.Tensor:
    """The state of the default generator as 5056 bytes."""
    return default_generator.get_state()


def set_rng_state(new_state: _C.Tensor) -> None:
    """Puts the default generator into a state."""
    default_generator.set_state(new_state)


def thread_safe_generator() -> _C.Generator | None:
    """The generator of a loader's worker that is a thread: None, as workers are processes with states of their own."""
    return None


_told = False


def _all_devices(module: Any, kind: str, caller: str, keyword: str) -> range:
    """The numbers of all devices; said once where there are several, as all of them are opened."""
    global _told
    count = module.device_count()
    if count > 1 and not _told:
        _told = True
        upper = kind.upper()
        warnings.warn(
            f"{upper} reports that you have {count} available devices, and you have used {caller} without "
            f"explicitly specifying which devices are being used. For safety, we initialize *every* {upper} "
            f"device by default, which can be quite slow if you have a lot of {upper}s. If you know that you are "
            f"only making use of a few {upper} devices, set the environment variable {upper}_VISIBLE_DEVICES or "
            f"the '{keyword}' keyword argument of {caller} with the set of devices you are actually using.",
            stacklevel=5,
        )
    return range(count)


@contextlib.contextmanager
def fork_rng(
    devices: Any = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str | None = None,
) -> Iterator[None]:
    """Restores the random state of the CPU, and of some devices (all by default), at the end of the block.

    Of `device_type` "meta" there is none, and nothing is restored.
    """
    if not enabled or device_type == "meta":
        yield
        return
    kind = device_type or "cuda"
    module = get_device_module(kind)
    if devices is None:
        devices = _all_devices(module, kind, _caller, _devices_kw)
    before = get_rng_state()
    others = [(d, module.get_rng_state(d)) for d in devices]
    try:
        yield
    finally:
        set_rng_state(before)
        for device, state in others:
            module.set_rng_state(state, device)
