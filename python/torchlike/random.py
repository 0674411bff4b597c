"""The random state of the CPU, and blocks that restore it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike._C import manual_seed as manual_seed

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


@contextlib.contextmanager
def fork_rng(
    devices: Any = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str = "cuda",
) -> Iterator[None]:
    """Restores the random state of the CPU, and of some GPUs (all by default), at the end of the block."""
    if not enabled:
        yield
        return
    from torchlike import cuda

    if devices is None:
        devices = range(cuda.device_count())
    before = get_rng_state()
    others = [(d, cuda.get_rng_state(d)) for d in devices if device_type == "cuda"]
    try:
        yield
    finally:
        set_rng_state(before)
        for device, state in others:
            cuda.set_rng_state(state, device)
