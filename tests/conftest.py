"""Settings of all tests."""

from __future__ import annotations

import pytest

import torchlike


@pytest.fixture(autouse=True)
def _warnings_every_time() -> None:
    """What warns once in a process warns in each test: which one is first does not matter."""
    torchlike.set_warn_always(True)


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    """A process begins with a seed that nobody knows; tests draw what they drew before, in any order."""
    torchlike.manual_seed(0)
