"""Streams and events of whichever device: all work of a device is done in one order, so they only wait for it."""

from __future__ import annotations

import time
from typing import Any

from torchlike import _C

__all__ = ["AcceleratorError", "Event", "Stream"]


class AcceleratorError(RuntimeError):
    """An error that an accelerator reports."""


def _device(device: Any) -> Any:
    """The device that is meant: the accelerator, if none is said.

    Raises:
        RuntimeError: if there is none, or the device has no streams.
    """
    device = _C.device("cuda" if device is None else device)
    if device.type == "cuda":
        from torchlike import cuda

        index = cuda._index(device)
        _C._cuda_check(index)
        return _C.device("cuda", index)
    if device.type != "cpu":
        raise RuntimeError(f"Device {device} has no streams")
    return device


class Stream:
    """The order of a device's work; streams of one device are equal."""

    def __init__(self, device: Any = None, *, priority: int = 0, **_: Any) -> None:
        self.device = _device(device)
        self.device_index = -1 if self.device.index is None else self.device.index
        self.device_type = self.device.type
        self.priority = 0

    stream_id = 0

    def synchronize(self) -> None:
        """Waits for all work."""
        if self.device.type == "cuda":
            _C._cuda_synchronize(self.device_index)

    def query(self) -> bool:
        """Waits for all work, after which it is done."""
        self.synchronize()
        return True

    def wait_stream(self, stream: Any) -> None:
        """Work that follows waits for another device's stream; for its own it does so anyway."""
        if stream != self:
            stream.synchronize()

    def wait_event(self, event: Any) -> None:
        """Work that follows waits for an event."""
        event.wait(self)

    def record_event(self, event: Any = None) -> Any:
        """Records an event after the work so far."""
        event = Event(self.device) if event is None else event
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.device == other.device

    def __hash__(self) -> int:
        return hash(("stream", self.device))

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __repr__(self) -> str:
        return f"torch.Stream device_type={self.device_type}, device_index={self.device_index}, stream_id=0"


class Event:
    """A place in the order of a device's work."""

    def __init__(
        self,
        device: Any = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
    ) -> None:
        self.device = _C.device("cuda" if device is None else device)
        self.enable_timing = enable_timing
        self._stream: Stream | None = None
        self._time = 0.0

    event_id = 0

    def record(self, stream: Stream | None = None) -> None:
        """Places the event after the work so far; one with a time waits for that work."""
        self._stream = Stream(self.device) if stream is None else stream
        if self.enable_timing:
            self._stream.synchronize()
            self._time = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        """Lets work that follows wait for the event."""
        if self._stream is not None and stream != self._stream:
            self._stream.synchronize()

    def synchronize(self) -> None:
        """Waits for the work before the event."""
        if self._stream is not None:
            self._stream.synchronize()

    def query(self) -> bool:
        """Waits for the work before the event, after which it is done."""
        self.synchronize()
        return True

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between what two events recorded.

        Raises:
            ValueError: if an event was not recorded, or does not take times.
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._stream is None or end_event._stream is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._time - self._time) * 1e3

    def __repr__(self) -> str:
        index = -1 if self.device.index is None else self.device.index
        return (
            f"torch.Event device_type={self.device.type}, device_index={index}, "
            f"event_flag={int(self.enable_timing)}, event_id=0"
        )
