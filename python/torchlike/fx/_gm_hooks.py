"""Functions that are told of changes to the graph of a module."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def _checked(f: Any, what: str) -> Any:
    if not callable(f):
        raise AssertionError(f"{what} hook must be a callable.")
    return f


class GraphHooks:
    """Lists of functions: called with nodes that are replaced, made and erased, and with copies of the module."""

    _replace_hooks: list[Callable[..., Any]]
    _create_node_hooks: list[Callable[..., Any]]
    _erase_node_hooks: list[Callable[..., Any]]
    _deepcopy_hooks: list[Callable[..., Any]]

    @contextlib.contextmanager
    def _set_replace_hook(self, f: Callable[..., Any]) -> Iterator[None]:
        if not callable(f):
            raise AssertionError("Replace hook must be a callable.")
        self._register_replace_node_hook(f)
        try:
            yield
        finally:
            self._unregister_replace_node_hook(f)

    def _register_replace_node_hook(self, f: Callable[..., Any]) -> None:
        self._replace_hooks.append(_checked(f, "create_node"))

    def _unregister_replace_node_hook(self, f: Callable[..., Any]) -> None:
        self._replace_hooks.remove(_checked(f, "create_node"))

    def _register_create_node_hook(self, f: Callable[..., Any]) -> None:
        self._create_node_hooks.append(_checked(f, "create_node"))

    def _unregister_create_node_hook(self, f: Callable[..., Any]) -> None:
        self._create_node_hooks.remove(_checked(f, "create_node"))

    def _register_erase_node_hook(self, f: Callable[..., Any]) -> None:
        self._erase_node_hooks.append(_checked(f, "erase_node"))

    def _unregister_erase_node_hook(self, f: Callable[..., Any]) -> None:
        self._erase_node_hooks.remove(_checked(f, "erase_node"))

    def _register_deepcopy_hook(self, f: Callable[..., Any]) -> None:
        self._deepcopy_hooks.append(_checked(f, "deepcopy"))

    def _unregister_deepcopy_hook(self, f: Callable[..., Any]) -> None:
        self._deepcopy_hooks.remove(_checked(f, "deepcopy"))
