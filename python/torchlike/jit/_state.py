"""Whether scripting is on, and what was scripted: it always is, and nothing is kept."""

from __future__ import annotations

from typing import Any


class EnabledProxy:
    """Scripting is on until it is switched off."""

    def __init__(self) -> None:
        self.enabled = True

    def __bool__(self) -> bool:
        return self.enabled


_enabled = EnabledProxy()
_script_classes: dict[Any, Any] = {}
