"""Messages of processes to a store: a few parts of bytes each, over a connection."""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

from torchlike import _lazy

if TYPE_CHECKING:
    import socket
    from collections.abc import Sequence
    from datetime import timedelta
else:
    socket = _lazy.module("socket")

#: Bytes that one message may have.
_LARGEST = 1 << 30


def packed(parts: Sequence[bytes]) -> bytes:
    """A message of some parts."""
    return b"".join(
        [struct.pack("<I", len(parts)), *(struct.pack("<Q", len(p)) + p for p in parts)]
    )


def receive_exactly(connection: socket.socket, count: int) -> bytes:
    """So many bytes of a connection.

    Raises:
        ConnectionError: if it ends before.
    """
    parts = []
    while count:
        part = connection.recv(min(count, 1 << 20))
        if not part:
            raise ConnectionError("the connection was closed")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def receive(connection: socket.socket) -> list[bytes]:
    """One message, which may not be larger than a store's values are.

    Raises:
        ConnectionError: if it is, or the connection ends before.
    """
    (count,) = struct.unpack("<I", receive_exactly(connection, 4))
    parts, total = [], 0
    for _ in range(count):
        (size,) = struct.unpack("<Q", receive_exactly(connection, 8))
        total += size + 8
        if total > _LARGEST:
            raise ConnectionError("a message that is too large")
        parts.append(receive_exactly(connection, size))
    return parts


def connect(host: str, port: int, timeout: timedelta) -> socket.socket:
    """A connection to a server, which may not be there yet.

    Raises:
        DistNetworkError: if none answers in time.
    """
    from torchlike.distributed import DistNetworkError

    end = time.monotonic() + timeout.total_seconds()
    while True:
        left = end - time.monotonic()
        try:
            connection = socket.create_connection((host, port), timeout=max(left, 0.01))
        except OSError as e:
            if left <= 0:
                wait = round(timeout.total_seconds() * 1000)
                raise DistNetworkError(
                    f"The client socket has timed out after {wait}ms while trying to connect to ({host}, {port}): {e}"
                ) from e
            time.sleep(min(0.05, max(left, 0)))
            continue
        connection.settimeout(
            max(timeout.total_seconds(), 1)
        )  # waits are the client's, answers come at once
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
