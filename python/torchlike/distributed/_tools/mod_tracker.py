"""Which modules are at work, with hooks on their coming and going in both passes."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike.utils import _pytree as pytree
from torchlike.utils.module_tracker import ModuleTracker

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ModTracker"]

_HOOKS = ("pre_fw_hook", "post_fw_hook", "pre_bw_hook", "post_bw_hook")


class ModTracker(ModuleTracker):
    """A `ModuleTracker` that calls functions when modules begin and end.

    >>> with ModTracker() as tracker:
    ...     tracker.register_user_hooks(pre_fw_hook=lambda module, inputs: print(tracker.parents))
    """

    def __init__(self) -> None:
        super().__init__()
        self._user: dict[str, Any] = dict.fromkeys(_HOOKS)
        self._at_the_end: list[Callable[..., None]] = []
        self._times: Counter[str] = Counter()

    def register_user_hooks(
        self,
        pre_fw_hook: Callable[..., None] | None = None,
        post_fw_hook: Callable[..., None] | None = None,
        pre_bw_hook: Callable[..., None] | None = None,
        post_bw_hook: Callable[..., None] | None = None,
    ) -> None:
        """Sets what is called: before and after a module's forward with `(module, inputs)` and `(module, inputs,
        outputs)`, and in the backward pass with `(module, gradients)`.

        Raises:
            AssertionError: if one of them is set already.
        """
        given = (pre_fw_hook, post_fw_hook, pre_bw_hook, post_bw_hook)
        for name, hook in zip(_HOOKS, given, strict=True):
            if hook is None:
                continue
            if self._user[name] is not None:
                raise AssertionError(f"{name} already set")
            self._user[name] = hook

    def clear_user_hooks(self) -> None:
        """Forgets what is called."""
        self._user = dict.fromkeys(_HOOKS)

    def get_known_fqn(self, mod: Any) -> str | None:
        """The name of a module, if it was met."""
        return self._known.get(mod)

    def _on_gradients(self, values: Any, act: Callable[..., None]) -> bool:
        # What is computed again in the backward pass belongs to a module that is at work already.
        return self.is_bw or not _C.is_grad_enabled() or super()._on_gradients(values, act)

    def _append(self, name: str, backward: bool) -> Callable[..., None]:
        enter = super()._append(name, backward)

        def counted(*_: Any) -> None:
            if name not in self.parents:
                self._times[name] = 0
            self._times[name] += 1
            enter()

        return counted

    def _remove(self, name: str) -> None:
        # A module that is computed again in the backward pass is entered twice.
        self._times[name] -= 1
        if self._times[name] <= 0:
            super()._remove(name)

    def _never_left(self, leave: Callable[..., None]) -> None:
        self._at_the_end.append(leave)

    def _when_done(self) -> None:
        if not self._has_callback:
            for leave in reversed(self._at_the_end):
                _C._queue_callback(leave)
            self._at_the_end.clear()
        super()._when_done()

    def _tell(self, moment: str, *args: Any) -> None:
        hook = self._user[moment]
        if hook is not None:
            hook(*args)


def tensors_in(values: Any) -> list[Any]:
    """The tensors in a tree of values."""
    return [t for t in pytree.tree_leaves(values) if isinstance(t, _C.Tensor)]
