"""What the library calls itself: `torchlike`, or `torch` while `compat.install_as_torch()` holds."""

from __future__ import annotations

OWN = "torchlike"

#: The name in reprs. `compat` sets it.
shown = OWN


def own(module: str | None) -> str:
    """The name of a module of ours whichever name it goes by; other modules' names as they are."""
    if module == "torch" or (module or "").startswith("torch."):
        return OWN + str(module)[len("torch") :]
    return module or ""
