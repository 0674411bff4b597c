"""What code that is not TorchScript raises."""

from __future__ import annotations


class FrontendError(Exception):
    """Code cannot be TorchScript; the message ends with the file, the line and the text."""

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(f"{message}\n{place}" if place else message)
        self.message = message
        self.place = place


class NotSupportedError(FrontendError):
    """A construct of Python that TorchScript has not."""


class Error(RuntimeError):
    """What an archive's code raises; `RaiseException` of another class says which."""


class CompilationUnitError(RuntimeError):
    """An archive's code is damaged, or asks for what archives do not hold."""
