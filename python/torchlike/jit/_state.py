"""Whether scripting is on, what was scripted (nothing is kept), and who watches the run of a thread."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_running = threading.local()


def watcher() -> Any:
    """Who writes down what is called on this thread; None if nothing is traced."""
    return getattr(_running, "watch", None)


@contextlib.contextmanager
def watched(watch: Any) -> Iterator[None]:
    """Somebody writes down what is called on this thread until the context ends."""
    before = watcher()
    _running.watch = watch
    try:
        yield
    finally:
        _running.watch = before


class EnabledProxy:
    """Scripting is on until it is switched off."""

    def __init__(self) -> None:
        self.enabled = True

    def __bool__(self) -> bool:
        return self.enabled


_enabled = EnabledProxy()
_script_classes: dict[Any, Any] = {}
