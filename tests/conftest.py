"""Settings of all tests."""

from __future__ import annotations

import pytest

import torchlike


@pytest.fixture(autouse=True)
def _warnings_every_time() -> None:
    """What warns once in a process warns in each test: which one is first does not matter."""
    torchlike.set_warn_always(True)
