"""The CPU's random state."""

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
def fork_rng(devices: Any = None, enabled: bool = True, **_: Any) -> Iterator[None]:
    """Restores the random state at the end of the block."""
    if not enabled:
        yield
        return
    before = get_rng_state()
    try:
        yield
    finally:
        set_rng_state(before)
