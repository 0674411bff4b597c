"""Counting what happens in a program, in windows of time, and telling those who want to know."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from datetime import datetime, timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

__all__ = [
    "Aggregation",
    "Event",
    "EventHandlerHandle",
    "Stat",
    "TensorboardEventHandler",
    "data_value_t",
    "log_event",
    "register_event_handler",
    "unregister_event_handler",
]

STAT_EVENT = "torch.monitor.Stat"
data_value_t = str | float | int | bool
"""What events hold."""


class Aggregation(Enum):
    """What is kept of the numbers of a window."""

    VALUE = 1
    MEAN = 2
    COUNT = 3
    SUM = 4
    MAX = 5
    MIN = 6

    def __str__(self) -> str:
        return f"Aggregation.{self.name}"


class Event:
    """Something that happened: its name, when, and what is known of it."""

    def __init__(self, name: str, timestamp: datetime, data: Mapping[str, data_value_t]) -> None:
        if not isinstance(name, str) or not isinstance(timestamp, datetime):
            raise TypeError("Event(name: str, timestamp: datetime, data: dict[str, data_value_t])")
        for key, value in data.items():
            if not isinstance(key, str) or not isinstance(value, str | float | int):
                raise TypeError(
                    f"Event: {key!r} is {value!r}, which is neither a text nor a number"
                )
        self.name = name
        self.timestamp = timestamp
        self.data = dict(data)


class EventHandlerHandle:
    """Stands for a handler that was registered."""

    def __init__(self, handler: Callable[[Event], Any]) -> None:
        self._handler = handler


_handlers: list[EventHandlerHandle] = []
_lock = threading.Lock()


def register_event_handler(callback: Callable[[Event], Any]) -> EventHandlerHandle:
    """Calls a function with each event from now on."""
    if not callable(callback):
        raise TypeError(f"register_event_handler: {callback!r} cannot be called")
    handle = EventHandlerHandle(callback)
    with _lock:
        _handlers.append(handle)
    return handle


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    """Calls a function no more.

    Raises:
        ValueError: if it is not registered.
    """
    with _lock:
        if handler not in _handlers:
            raise ValueError("unregister_event_handler: the handler is not registered")
        _handlers.remove(handler)


def log_event(event: Event) -> None:
    """Tells all handlers of an event."""
    with _lock:
        handlers = list(_handlers)
    for handle in handlers:
        handle._handler(event)


class Stat:
    """Numbers over windows of time; at the end of each an event says what became of them.

    A window ends with its time, which the next number notices, or with `max_samples` numbers; more in it are let go.

    Args:
        name: the first part of the names in events.
        aggregations: what is kept.
        window_size: how long a window is.
        max_samples: the most numbers of a window.
    """

    def __init__(
        self,
        name: str,
        aggregations: Sequence[Aggregation],
        window_size: timedelta,
        max_samples: int = sys.maxsize,
    ) -> None:
        self._name = name
        self._kinds = sorted(set(aggregations), key=lambda a: a.value)
        self._length = window_size.total_seconds()
        self._most = max_samples
        self._guard = threading.RLock()
        self._window = self._now()
        self._told = False
        self._values: list[float] = []
        self._before = self._summary([])

    @property
    def name(self) -> str:
        """The name."""
        return self._name

    @property
    def count(self) -> int:
        """How many numbers the window has that is open."""
        return len(self._values)

    def _now(self) -> int:
        return int(time.monotonic() // self._length)

    def add(self, v: float) -> None:
        """Adds a number."""
        if isinstance(v, str):
            raise TypeError(f"Stat.add: {v!r} is no number")
        number = float(v)
        with self._guard:
            now = self._now()
            if now != self._window:
                self._tell()
                self._window, self._told = now, False
            if self._told:
                return
            self._values.append(number)
            if len(self._values) >= self._most:
                self._tell()
                self._told = True

    def get(self) -> dict[Aggregation, float]:
        """What became of the window that was closed last."""
        return dict(self._before)

    def _summary(self, values: list[float]) -> dict[Aggregation, float]:
        total = math.fsum(values)
        found = {
            Aggregation.VALUE: values[-1] if values else 0.0,
            Aggregation.MEAN: total / len(values) if values else 0.0,
            Aggregation.COUNT: float(len(values)),
            Aggregation.SUM: total,
            Aggregation.MAX: max(values, default=0.0),
            Aggregation.MIN: min(values, default=0.0),
        }
        return {kind: found[kind] for kind in self._kinds}

    def _tell(self) -> None:
        """Closes the window."""
        if not self._values:
            return
        self._before = self._summary(self._values)
        self._values = []
        data = {f"{self._name}.{k.name.lower()}": v for k, v in self._before.items()}
        log_event(Event(STAT_EVENT, datetime.now(), data))

    def __del__(self) -> None:
        if getattr(self, "_values", None):
            self._tell()


class TensorboardEventHandler:
    """Writes what became of windows as curves: `register_event_handler(TensorboardEventHandler(writer))`."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def __call__(self, event: Event) -> None:
        """Writes the numbers of an event of a `Stat`."""
        if event.name == STAT_EVENT:
            for name, value in event.data.items():
                self._writer.add_scalar(name, value, walltime=event.timestamp.timestamp())


class _WaitCounter:
    """Names a kind of waiting; nobody asks how long it takes."""

    def __init__(self, key: str) -> None:
        self.key = key

    @contextlib.contextmanager
    def guard(self) -> Iterator[None]:
        """A block that waits."""
        yield
