"""What code that is not TorchScript raises."""

from __future__ import annotations

from typing import Any


class FrontendError(RuntimeError):
    """Code cannot be TorchScript; the message ends with the file, the line and the text.

    A `RuntimeError`, as PyTorch's compiler raises for all but what its reader finds.
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(f"{message}\n{place}" if place else message)
        self.message = message
        self.place = place


class NotSupportedError(FrontendError):
    """A construct of Python that TorchScript has not."""


class UnsupportedNodeError(NotSupportedError):
    """A kind of expression or statement that TorchScript has not."""


class Error(Exception):
    """What code of TorchScript raises."""


class Raised(Exception):
    """An exception that code raises, until it leaves the code: its class by name, and its text."""


class CompilationUnitError(RuntimeError):
    """An archive's code is damaged, or asks for what archives do not hold."""


def indented(text: str) -> str:
    """A text with a tab before each line."""
    return "\n".join("\t" + line for line in text.splitlines())


_HEAD = (
    "The following operation failed in the TorchScript interpreter.\n"
    "Traceback of TorchScript (most recent call last):\n"
)


def note(error: Exception, line: int) -> None:
    """Notes on an exception which line of a function it came from; the innermost counts."""
    error.__dict__.setdefault("_line", line)


def passed(error: Exception, function: Any) -> None:
    """Notes on an exception that it leaves a function."""
    line = error.__dict__.pop("_line", function.tree.body[0].lineno)
    error.__dict__.setdefault("_frames", []).append((function, line))


def left(error: Exception) -> Exception | None:
    """What an exception is outside of the code: `Error` for what the code raised, else a `RuntimeError`, with the
    places of the code; nothing if it stays what it is, as those that are no exceptions of Python's.
    """
    if not isinstance(error, Raised) and type(error).__module__ != "builtins":
        return None
    text = _HEAD
    for function, line in reversed(error.__dict__.pop("_frames", [])):
        lines = function.text.splitlines()
        at = min(max(line - function.tree.lineno, 0), len(lines) - 1)
        shown = lines[at].strip()
        path = function.name.rpartition(".")[0].replace(".", "/")
        text += f'  File "code/{path}.py", in {function.tree.name}\n    {shown}\n    {"~" * len(shown)} <--- HERE\n'
    kind: type[Exception] = RuntimeError
    if isinstance(error, Raised):
        kind, name = Error, error.args[0] or "RuntimeError"
        return kind(f"{text}{name}: {error.args[1]}\n")
    if isinstance(error, NotImplementedError):
        kind = NotImplementedError
    said = f"KeyError: {error.args[0]}" if isinstance(error, KeyError) and error.args else error
    return kind(f"{text}RuntimeError: {said}\n")
