"""Streams and events of GPUs. All work of a GPU is done in one order, so every stream is that one."""

from __future__ import annotations

from typing import Any

from torchlike import _C, _streams, cuda

__all__ = ["Event", "ExternalStream", "Stream", "StreamContext", "current_stream", "default_stream"]


class Stream(_streams.Stream):
    """The order of a GPU's work; streams of one GPU are equal."""

    def __init__(self, device: Any = None, priority: int = 0, **_: Any) -> None:
        super().__init__(_C.device("cuda", cuda._index(device)))

    cuda_stream = 0

    def record_event(self, event: Any = None) -> Any:
        """Records an event after the work so far."""
        return super().record_event(Event() if event is None else event)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream=0x0>"


class ExternalStream(Stream):
    """Another library's stream: its work is waited for by `synchronize` only."""

    def __init__(self, stream_ptr: int, device: Any = None, **_: Any) -> None:
        raise NotImplementedError(
            "torch.cuda.ExternalStream is not supported by torchlike: a GPU's work is one stream"
        )


class Event(_streams.Event):
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
        super().__init__("cuda", enable_timing=enable_timing, blocking=blocking)

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
