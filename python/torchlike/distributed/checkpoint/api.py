"""Errors of several processes."""

from __future__ import annotations

import traceback
from typing import Any

__all__ = ["CheckpointException"]


class CheckpointException(BaseException):
    """Saving or loading failed on some ranks: `failures` has the error and where it was raised, by rank."""

    def __init__(self, msg: str, failures: dict[int, Any]) -> None:
        super().__init__(msg, failures)
        self._failures = failures

    @property
    def failures(self) -> dict[int, Any]:
        """`(error, stack)` by rank."""
        return self._failures

    def __str__(self) -> str:
        shown = [f"CheckpointException ranks:{self._failures.keys()}\n"]
        for rank, (error, stack) in self._failures.items():
            shown.append(f"Traceback (most recent call last): (RANK {rank})\n")
            shown += traceback.format_list(stack or [])
            shown += traceback.format_exception_only(type(error), value=error)
        return "".join(shown)


def _wrap_exception(error: BaseException) -> Any:
    """An error as it is sent to other ranks."""
    return error, traceback.extract_tb(error.__traceback__)


def _is_wrapped_exception(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], BaseException)
        and isinstance(value[1], traceback.StackSummary)
    )
