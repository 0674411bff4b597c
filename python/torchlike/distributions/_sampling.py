"""Samplers of the core."""

from __future__ import annotations

from typing import Any

import torchlike


def core(name: str) -> Any:
    """The sampler of this name.

    Raises:
        NotImplementedError: if the core has none, by its name.
    """
    found = getattr(torchlike, name, None)
    if found is None:
        raise NotImplementedError(
            f"torch.{name} is not supported by torchlike yet: values of this distribution cannot be drawn"
        )
    return found
