"""Results that come later."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import concurrent.futures

__all__ = ["Future", "collect_all", "wait_all"]


class Future:
    """A result that comes later, with what is to be done then."""

    __class_getitem__: Any = classmethod(types.GenericAlias)

    def __init__(self, *, devices: Any = None) -> None:
        # What few programs need is read late: `torchlike.Future` is there from the beginning.
        from concurrent.futures import Future as Promise

        self._future: concurrent.futures.Future[Any] = Promise()

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

    def set_result(self, result: Any) -> None:
        """Gives the result.

        Raises:
            RuntimeError: if there is one.
        """
        if self.done():
            raise RuntimeError(
                "Attempting to mark a completed Future as complete again. Note that a Future can only be marked "
                "completed once."
            )
        self._future.set_result(result)

    def set_exception(self, result: BaseException) -> None:
        """Gives an error in place of the result."""
        self._future.set_exception(result)

    def then(self, callback: Any) -> Future:
        """The result of a function of this future, called when it is done."""
        made = Future()

        def run(_: Any) -> None:
            try:
                made.set_result(callback(self))
            except BaseException as e:
                made.set_exception(e)

        self._future.add_done_callback(run)
        return made

    def add_done_callback(self, callback: Any) -> None:
        """Calls a function of this future when it is done."""
        self._future.add_done_callback(lambda _: callback(self))


def collect_all(futures: list[Future]) -> Future:
    """A future of the list, done when all are."""
    made = Future()
    left = len(futures)
    if not left:
        made.set_result([])

    def one(_: Future) -> None:
        nonlocal left
        left -= 1
        if not left:
            made.set_result(list(futures))

    for future in futures:
        future.add_done_callback(one)
    return made


def wait_all(futures: list[Future]) -> list[Any]:
    """The results of all."""
    return [future.wait() for future in collect_all(futures).wait()]
