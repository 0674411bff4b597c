"""Planning without data: what a step of a model needs, before there is memory or a device for it.

>>> plan = torchlike.plan(model, torch.empty(8, 128, dtype=torch.int64, device="meta"), step="train", optimizer="adamw")
>>> print(plan)
>>> plan.peak["cpu"].bytes

The model runs on fake tensors, forward, backward and the optimizer's step as they are; `src/layers/program.rs` records
what it comes down to and how long everything lives.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchlike.plan._allocator import Memory
    from torchlike.plan._explain import Explanation, assert_initialized, explain, uninitialised
    from torchlike.plan._make import make, twin
    from torchlike.plan._mesh import Comm, Sharded
    from torchlike.plan._pipeline import Pipeline, RankLoad, pipeline
    from torchlike.plan._plan import Live, Peak, Plan, Step, Verification
    from torchlike.plan._profile import Profile, profile
    from torchlike.plan._stages import Stage

__all__ = [
    "Comm",
    "Explanation",
    "Live",
    "Memory",
    "Peak",
    "Pipeline",
    "Plan",
    "Profile",
    "RankLoad",
    "Sharded",
    "Stage",
    "Step",
    "Verification",
    "assert_initialized",
    "explain",
    "make",
    "pipeline",
    "profile",
    "twin",
    "uninitialised",
]

_WHERE = {
    "make": "_make", "twin": "_make", "explain": "_explain", "assert_initialized": "_explain",
    "uninitialised": "_explain",
    "Explanation": "_explain", "Memory": "_allocator", "Profile": "_profile", "profile": "_profile",
    "Comm": "_mesh", "Sharded": "_mesh", "Stage": "_stages",
    "Pipeline": "_pipeline", "RankLoad": "_pipeline", "pipeline": "_pipeline",
}  # fmt: skip


class _Module(ModuleType):
    """The module is the function `make` too: `torchlike.plan(model, inputs)`. Its parts are loaded when asked for."""

    def __call__(self, *args: Any, **kwargs: Any) -> Plan:
        return self.make(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'torchlike.plan' has no attribute '{name}'")
        where = _WHERE.get(name, "_plan")
        return getattr(import_module(f"torchlike.plan.{where}"), name)


sys.modules[__name__].__class__ = _Module
