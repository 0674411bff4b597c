"""Results that come later."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any, NoReturn

import torchlike

if TYPE_CHECKING:
    import concurrent.futures

__all__ = ["Future", "collect_all", "wait_all"]


class Future:
    """A result that comes later, with what is to be done then."""

    __class_getitem__: Any = classmethod(types.GenericAlias)

    def __init__(self, *, devices: list[int | str | torchlike.device] | None = None) -> None:
        # What few programs need is read late: `torchlike.Future` is there from the beginning.
        from concurrent.futures import Future as Promise

        for device in map(torchlike.device, devices or []):
            if device.index is None:
                raise ValueError(f"Expected devices to have indices, got {device}")
        self._future: concurrent.futures.Future[Any] = Promise()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise RuntimeError("Can not pickle torch.futures.Future")

    def done(self) -> bool:
        """Whether the result is there."""
        return self._future.done()

    def wait(self) -> Any:
        """The result, once it is there."""
        return self._future.result()

    def value(self) -> Any:
        """The result, which has to be there.

        Raises:
            RuntimeError: if it is not.
        """
        if not self.done():
            raise RuntimeError("value() called on a Future that is not completed")
        return self._future.result()

    def _complete(self, put: Any, result: Any) -> None:
        if self.done():
            raise RuntimeError(
                "Attempting to mark a completed Future as complete again. Note that a Future can only be marked "
                "completed once."
            )
        put(result)

    def set_result(self, result: Any) -> None:
        """Gives the result.

        Raises:
            RuntimeError: if there is one.
        """
        self._complete(self._future.set_result, result)

    def set_exception(self, result: Any) -> None:
        """Gives an error in place of the result.

        Raises:
            RuntimeError: if there is a result.
        """
        if not isinstance(result, Exception):
            raise AssertionError(f"{result} is of type {type(result)}, not an Exception.")
        self._complete(self._future.set_exception, result)

    def then(self, callback: Any) -> Future:
        """The result of a function of this future, called when it is done.

        Its error is a RuntimeError of the result that says what the function raised, and where.
        """
        _checked("then", self, callback, "torch._C.Future")
        made = Future()

        def run(_: Any) -> None:
            try:
                made.set_result(callback(self))
            except Exception as e:
                made._future.set_exception(_told(e))

        self._future.add_done_callback(run)
        return made

    def add_done_callback(self, callback: Any) -> None:
        """Calls a function of this future when it is done; an error of it is logged and ends there."""
        _checked("add_done_callback", self, callback, "None")

        def run(_: Any) -> None:
            try:
                callback(self)
            except Exception as e:
                import logging

                logging.getLogger(__name__).error("%s", _told(e))

        self._future.add_done_callback(run)


def _checked(name: str, future: Future, callback: Any, result: str) -> None:
    """An error unless the callback can be called."""
    if not callable(callback):
        raise TypeError(
            f"{name}(): incompatible function arguments. The following argument types are supported:\n"
            f"    1. (self: torch._C.Future, arg0: collections.abc.Callable) -> {result}\n\n"
            f"Invoked with: {future!r}, {callback!r}"
        )


def _told(error: Exception) -> RuntimeError:
    """What a callback raised, with the lines of the program that led there, as an error of the future."""
    import traceback

    text = f"Got the following error when running the callback: {type(error).__name__}: {error}"
    lines = [
        f"  {frame.filename}({frame.lineno}): {frame.name}\n"
        for frame in reversed(traceback.extract_tb(error.__traceback__)[1:])
    ]
    told = RuntimeError(text + "\n\nAt:\n" + "".join(lines) if lines else text)
    told.__cause__ = error
    return told


def collect_all(futures: list[Future]) -> Future:
    """A future of the list, done when all are; its error is that of the first that has one."""
    import threading

    if any(future is None for future in futures):
        raise RuntimeError("Future can't be None")
    made = Future()
    lock = threading.Lock()
    left = len(futures)
    if not left:
        made.set_result([])

    def one(_: Future) -> None:
        nonlocal left
        with lock:
            left -= 1
            done = not left
        if done:
            errors = (future._future.exception() for future in futures)
            error = next((e for e in errors if e is not None), None)
            if error is None:
                made.set_result(list(futures))
            else:
                made._future.set_exception(error)

    for future in futures:
        future.add_done_callback(one)
    return made


def wait_all(futures: list[Future]) -> list[Any]:
    """The results of all."""
    return [future.wait() for future in collect_all(futures).wait()]
