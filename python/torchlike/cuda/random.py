"""Generators of GPUs."""

from torchlike.cuda import manual_seed, manual_seed_all
from torchlike.cuda._more import (
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)

__all__ = [
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]
