"""Programs in spite of what cannot be exported, with a report of what was taken to be constant."""

from __future__ import annotations

import logging
import os
import traceback
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import torchlike
from torchlike.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger(__name__)
_HOME = os.path.dirname(torchlike.__file__) + os.sep


class FailureType(IntEnum):
    """Why a program is not valid for all inputs that were asked for."""

    MISSING_FAKE_KERNEL = 1
    DATA_DEPENDENT_ERROR = 2
    GUARD_ADDED = 3
    MISMATCHED_FAKE_KERNEL = 4

    def __str__(self) -> str:
        return self.name


@dataclass
class FailureReport:
    """One thing that was taken to be constant: what, its value, and where."""

    failure_type: FailureType
    data: dict[str, Any]
    xfail: bool = False

    def print(self, str_to_filename: dict[int, str]) -> str:
        """What happened, and what can be done.

        Args:
            str_to_filename: names of files by the numbers that stand for them.
        """
        lines = [
            f"    File {f['filename']}, lineno {f['line']}, in {f['name']}"
            for f in self.data["user_stack"]
        ]
        where = "\n".join(["This happened at", *lines]) if lines else "It is not known where."
        if self.failure_type is FailureType.GUARD_ADDED:
            return (
                f"Sizes that do not vary.\n{self.data['expr']}\n"
                f"The program is therefore only valid where {self.data['result']}.\n"
            )
        return (
            f"Data dependent error.\nThe program read the value of `{self.data['expr']}` "
            f"{self.data['occurrences']} times. {where}\n"
            f"The value, {self.data['result']} the first time, became a constant of the program, which "
            "is wrong for inputs that give another one.\n"
        )


@dataclass
class DraftExportReport:
    """What was taken to be constant in a program."""

    failures: list[FailureReport] = field(default_factory=list)
    str_to_filename: dict[int, str] = field(default_factory=dict)
    expressions_created: dict[int, dict[str, Any]] = field(default_factory=dict)
    op_profiles: dict[str, set[Any]] = field(default_factory=dict)

    def successful(self) -> bool:
        """Whether `export` would have given the same program."""
        return all(f.xfail for f in self.failures)

    def __str__(self) -> str:
        if self.successful():
            return (
                "No issues: the program is valid for all inputs that were asked for, and "
                "torch.export.export() gives the same one."
            )
        head = f"{len(self.failures)} issue(s): the program is not valid for all inputs."
        shown = [f"{i}. {f.print(self.str_to_filename)}" for i, f in enumerate(self.failures, 1)]
        return "\n".join([head, "", *shown])

    def apply_suggested_fixes(self) -> None:
        """Not supported: a program's source is not changed."""
        raise NotImplementedError("apply_suggested_fixes is not supported by torchlike")

    def note_read(self, name: str, tensors: Iterable[Any]) -> None:
        """Notes that a value was read by an operator."""
        stack = [
            {"filename": f.filename, "line": f.lineno, "name": f.name, "loc": f.line}
            for f in traceback.extract_stack()
            if not f.filename.startswith((_HOME, "<"))
        ]
        for known in self.failures:
            if known.data["expr"] == name and known.data["user_stack"] == stack:
                known.data["occurrences"] += 1
                return
        first = next(iter(tensors))
        with disable_proxy_modes_tracing():
            shown = repr(first.item()) if first.numel() == 1 else f"of shape {tuple(first.shape)}"
        data = {"expr": name, "result": shown, "user_stack": stack, "occurrences": 1}
        self.failures.append(FailureReport(FailureType.DATA_DEPENDENT_ERROR, data))

    def note_constant_size(self, name: str, value: int, error: Exception) -> None:
        """Notes that a size does not vary."""
        data = {
            "expr": str(error),
            "result": f"{name} == {value}",
            "user_stack": [],
            "occurrences": 1,
        }
        self.failures.append(FailureReport(FailureType.GUARD_ADDED, data))
