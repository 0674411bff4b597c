"""Where the numbers come from that nobody seeded, and states of generators."""

from __future__ import annotations

import subprocess
import sys

import torchlike as torch


def test_a_process_begins_with_a_seed_that_nobody_knows() -> None:
    ask = "import torchlike as t; print(t.initial_seed(), t.rand(1).item(), t.Generator().initial_seed())"
    (a, b) = (
        subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
        for _ in "ab"
    )
    (seed, number, made), (other, another, again) = a.stdout.split(), b.stdout.split()
    assert seed != other and number != another and made == again == "67280421310721"


def test_random_state_goes_back_and_forth() -> None:
    torch.manual_seed(7)
    assert torch.initial_seed() == torch.random.initial_seed() == 7
    state = torch.random.get_rng_state()
    first = torch.rand(3)
    torch.random.set_rng_state(state)
    assert torch.equal(torch.rand(3), first)
