"""What `torch.compile` gives: modules, which run as they are, in a wrapper that names their state as PyTorch does."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Sized
from typing import Any

from torchlike.nn import Module
from torchlike.nn._hooks import everywhere


@dataclasses.dataclass(frozen=True)
class OptimizeContext:
    """How something was to be compiled."""

    backend: Any = None
    mode: str | None = None
    options: Any = None
    fullgraph: bool = False
    dynamic: bool | None = None

    def __call__(self, fn: Any) -> Any:
        """A module around a module, which is wrapped once however often it is compiled; anything else as it is."""
        if isinstance(fn, OptimizedModule):
            fn = fn._orig_mod
        return OptimizedModule(fn, self) if isinstance(fn, Module) else fn


class OptimizedModule(Module):
    """A module that was to be compiled, its only child ``_orig_mod``: names of its state begin with that.

    Whatever else is asked of it or written to it, the child has: its mode of training and its attributes. Both have
    hooks of their own, which a call runs.
    """

    _own = frozenset(("_orig_mod", "dynamo_ctx"))

    def __init__(self, mod: Any, dynamo_ctx: Any = None) -> None:
        super().__init__()
        del self._state_["training"]
        self._orig_mod = mod
        self.dynamo_ctx = dynamo_ctx

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._orig_mod(*args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if everywhere.hooks:
            warnings.warn(
                "Using `torch.compile(module)` when there are global hooks on modules (e.g., from "
                "`register_module_forward_hook`); this will cause the hooks to fire an extra time for the "
                "`OptimizedModule` created by `torch.compile(module)`. If this causes undesired behavior, please try "
                "using `module.compile()`, or use the per-module hooks instead",
                stacklevel=2,
            )
        return super().__call__(*args, **kwargs)

    def __len__(self) -> int:
        if isinstance(self._orig_mod, Sized):
            return len(self._orig_mod)
        raise TypeError(f"{type(self._orig_mod).__name__} does not support len()")

    def __reduce__(self) -> Any:
        return type(self), (self._orig_mod, self.dynamo_ctx)

    @property
    def training(self) -> bool:
        return self._orig_mod.training

    @training.setter
    def training(self, value: bool) -> None:
        self._orig_mod.training = value

    def __getattr__(self, name: str) -> Any:
        state = self._state_
        if "_orig_mod" not in state:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return state[name] if name == "_orig_mod" else getattr(state["_orig_mod"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self._own or hasattr(type(self), name):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        if name in self._own or hasattr(type(self), name):
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return list(dict.fromkeys((*dir(self._orig_mod), *super().__dir__())))


def is_dynamo_supported() -> bool:
    """Whether Python code is compiled: it is not."""
    return False
