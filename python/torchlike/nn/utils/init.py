"""Making modules without filling them."""

from __future__ import annotations

from typing import Any

__all__ = ["skip_init"]


def skip_init(module_cls: Any, *args: Any, **kwargs: Any) -> Any:
    """A module whose parameters have memory (on ``device``, by default the CPU) but no values."""
    import inspect

    from torchlike.deferred import _not_recorded
    from torchlike.nn.modules.module import Module

    if not issubclass(module_cls, Module):
        raise RuntimeError(f"Expected a Module; got {module_cls}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise RuntimeError("Module must support a 'device' arg to skip initialization")
    device = kwargs.pop("device", "cpu")
    kwargs["device"] = "meta"
    # On meta nothing is drawn, so that what comes next has the same numbers as without the module.
    with _not_recorded():
        made = module_cls(*args, **kwargs)
    return made.to_empty(device=device)
