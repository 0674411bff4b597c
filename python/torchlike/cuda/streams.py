"""Streams and events of GPUs. All work of a GPU is done in one order, so every stream is that one."""

from __future__ import annotations

from typing import Any

from torchlike import _C, cuda

__all__ = ["Event", "ExternalStream", "Stream", "StreamContext", "current_stream", "default_stream"]


class Stream:
    """The order of a GPU's work; streams of one GPU are equal."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        index = cuda._index(device)
        _C._cuda_check(index)
        self.device = _C.device("cuda", index)
        self.device_index = index
        self.priority = 0

    cuda_stream = 0
    stream_id = 0

    def synchronize(self) -> None:
        """Waits for all work."""
        cuda.synchronize(self.device_index)

    def query(self) -> bool:
        """Waits for all work, after which it is done."""
        self.synchronize()
        return True

    def wait_stream(self, stream: Any) -> None:
        """Work that follows waits for another GPU's stream; for its own it does so anyway."""
        if stream != self:
            stream.synchronize()

    def wait_event(self, event: Event) -> None:
        """Work that follows waits for an event."""
        event.wait(self)

    def record_event(self, event: Event | None = None) -> Event:
        """Records an event after the work so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.device_index == other.device_index

    def __hash__(self) -> int:
        return hash(("cuda stream", self.device_index))

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream=0x0>"


class ExternalStream(Stream):
    """Another library's stream: its work is waited for by `synchronize` only."""

    def __init__(self, stream_ptr: int, device: Any = None, **_: Any) -> None:
        raise NotImplementedError(
            "torch.cuda.ExternalStream is not supported by torchlike: a GPU's work is one stream"
        )


class Event:
    """A place in the order of a GPU's work."""

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        **_: Any,
    ) -> None:
        if interprocess:
            raise NotImplementedError(
                "torch.cuda.Event(interprocess=True) is not supported by torchlike"
            )
        self.enable_timing = enable_timing
        self._stream: Stream | None = None
        self._time = 0.0

    def record(self, stream: Stream | None = None) -> None:
        """Places the event after the work so far; one with a time waits for that work."""
        self._stream = current_stream() if stream is None else stream
        if self.enable_timing:
            import time

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
        """Milliseconds between two events.

        Raises:
            ValueError: if one of them was not recorded, or has no time.
        """
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._stream is None or end_event._stream is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._time - self._time) * 1e3

    def __repr__(self) -> str:
        return "<torch.cuda.Event uninitialized>" if self._stream is None else "<torch.cuda.Event>"


class StreamContext:
    """Makes the GPU of a stream the current one for a block; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._inside: Any = None

    def __enter__(self) -> None:
        if self.stream is not None:
            self._inside = cuda.device(self.stream.device_index)
            self._inside.__enter__()

    def __exit__(self, *exc: object) -> None:
        if self._inside is not None:
            self._inside.__exit__(*exc)


def current_stream(device: Any = None) -> Stream:
    """The stream of a GPU."""
    return Stream(device)


def default_stream(device: Any = None) -> Stream:
    """The stream of a GPU."""
    return Stream(device)
