"""Which modules are at work: in the forward pass, and in the backward pass of what they computed."""

from __future__ import annotations

import logging
import weakref
from typing import TYPE_CHECKING, Any

from torchlike import _C
from torchlike.autograd.graph import register_multi_grad_hook
from torchlike.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """Follows modules while it is entered. `parents` are the names of those at work, and "Global".

    A module is named by its class if it is called first, and by its path below the one that was called first else.

    >>> with ModuleTracker() as tracker:
    ...     model(x)  # inside a layer's forward, tracker.parents is {"Global", "Model", "Model.layer"}
    """

    parents: set[str]

    def __init__(self) -> None:
        self.parents = {"Global"}
        self._known: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._hooks: list[Any] = []
        self._has_callback = False

    def __enter__(self) -> ModuleTracker:
        self._before = register_module_forward_pre_hook(self._enter_module)
        self._after = register_module_forward_hook(self._leave_module, always_call=True)
        return self

    def __exit__(self, *_: Any) -> None:
        self._before.remove()
        self._after.remove()
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    @property
    def is_bw(self) -> bool:
        """Whether a backward pass runs."""
        return _C._current_graph_task_id() != -1

    def name_of(self, module: Any) -> str:
        """The name of a module; those below it are named by their paths from now on."""
        name = self._known.setdefault(module, type(module).__name__)
        if module not in self._seen:
            for child, inner in module.named_children():
                self._known[inner] = f"{name}.{child}"
                self.name_of(inner)
            self._seen.add(module)
        return name

    def _when_done(self) -> None:
        """The set is as before once the pass that runs is done."""
        if not self._has_callback:
            self._has_callback = True
            _C._queue_callback(self._reset)

    def _reset(self) -> None:
        self.parents = {"Global"}
        self._has_callback = False

    def _append(self, name: str, backward: bool) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            if backward:
                self._when_done()
            if name in self.parents:
                logger.info(
                    "The module hierarchy tracking seems to be broken as this Module was already entered. "
                    "%s during %s",
                    name,
                    "backward" if backward else "forward",
                )
            self.parents.add(name)

        return enter

    def _remove(self, name: str) -> None:
        self.parents.remove(name)

    def _pop(self, name: str, backward: bool) -> Callable[..., None]:
        def leave(*_: Any) -> None:
            if name in self.parents:
                self._remove(name)
            else:
                self._never_entered(name, backward)

        return leave

    def _never_entered(self, name: str, backward: bool) -> None:
        logger.info(
            "The Module hierarchy tracking is confused as we're exiting a Module that was never entered. %s during %s",
            name,
            "backward" if backward else "forward",
        )

    def _on_gradients(self, values: Any, act: Callable[..., None]) -> bool:
        """Acts once the tensors have their gradients; False if none will get one."""
        leaves = pytree.tree_leaves(values)
        tensors = [t for t in leaves if isinstance(t, _C.Tensor) and t.requires_grad]
        if tensors and _C.is_grad_enabled():
            self._hooks.append(register_multi_grad_hook(tensors, act))
        return bool(tensors)

    def _never_left(self, leave: Callable[..., None]) -> None:
        """A module begins whose inputs get no gradients: the set is as before once the pass is done."""

    def _tell(self, moment: str, *args: Any) -> None:
        """What those do who want to know of moments in the life of a module: nothing here."""

    def _enter_module(self, module: Any, input: Any) -> None:
        name = self.name_of(module)
        self._append(name, False)()
        self._tell("pre_fw_hook", module, input)
        leave, held = self._pop(name, True), weakref.ref(module)  # the graph keeps no module alive

        def left(grads: Any = None) -> None:
            self._tell("post_bw_hook", held(), grads)
            leave()

        if not self._on_gradients(input, left):
            self._never_left(left)

    def _leave_module(self, module: Any, input: Any, output: Any) -> None:
        name = self.name_of(module)
        self._tell("post_fw_hook", module, input, output)
        self._pop(name, False)()
        enter, held = self._append(name, True), weakref.ref(module)

        def entered(grads: Any = None) -> None:
            enter()
            self._tell("pre_bw_hook", held(), grads)

        self._on_gradients(output, entered)
