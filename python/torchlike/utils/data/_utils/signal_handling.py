"""Deaths of workers: who reads what they send notices, so no signals are handled."""

from __future__ import annotations

from typing import Any


def _nothing(*_: Any) -> None:
    """Nothing is to be set up."""


_set_worker_signal_handlers = _set_worker_pids = _remove_worker_pids = _nothing
_set_SIGCHLD_handler = _error_if_any_worker_fails = _nothing
