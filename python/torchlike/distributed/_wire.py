"""Connections between the processes of one host: each sends any other bytes under a key, and takes what it was sent.

Every process has one thread that moves bytes, so that nobody waits for a reader. Who takes something waits no longer
than the time-out, and not at all for a process that has gone.
"""

from __future__ import annotations

import contextlib
import secrets
import selectors
import socket
import struct
import threading
import time
import weakref
from collections import deque
from multiprocessing.util import Finalize
from typing import TYPE_CHECKING

from torchlike.distributed._messages import receive_exactly

if TYPE_CHECKING:
    from torchlike.distributed._stores import Store

_HEAD = struct.Struct("<QQQ")
#: Bytes that are read at once.
_PIECE = 1 << 20

Key = tuple[int, int]
"""Which group a message belongs to, and which of its messages it is."""


class _Peer:
    """A connection to another rank: what is to be sent, and what has come."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.out: deque[memoryview] = deque()
        self.head = bytearray()
        self.body: bytearray | None = None
        self.key: Key = (0, 0)
        self.filled = 0
        self.gone: str | None = None
        self.inbox: dict[Key, deque[bytearray]] = {}


class Wire:
    """The connections of one rank to all others, which meet by a store.

    Raises:
        RuntimeError: if a rank does not come in time, or is on another host.
    """

    def __init__(self, store: Store, rank: int, size: int, timeout: float) -> None:
        self.rank, self.size, self.timeout = rank, size, timeout
        self._changed = threading.Condition()
        self._peers: dict[int, _Peer] = {}
        self._closed = False
        self._meet(store)
        self._wake, self._woken = socket.socketpair()
        self._wake.setblocking(False)
        self._woken.setblocking(False)
        # Children of `multiprocessing` end without `atexit`.
        self._last = Finalize(None, _end, (weakref.ref(self),), exitpriority=20)
        self._thread = threading.Thread(
            target=self._move, daemon=True, name="torchlike.distributed"
        )
        self._thread.start()

    # Meeting

    def _meet(self, store: Store) -> None:
        end = time.monotonic() + self.timeout
        token = secrets.token_bytes(16)
        with socket.create_server(("127.0.0.1", 0), backlog=self.size + 8) as listener:
            port = listener.getsockname()[1]
            here = f"{socket.gethostname()} {port} {token.hex()}"
            store.set(f"gloo/{self.rank}", here)
            try:
                for rank in range(self.rank):
                    self._peers[rank] = _Peer(
                        self._call(store.get(f"gloo/{rank}").decode(), rank, end)
                    )
                while len(self._peers) < self.size - 1:
                    self._answer(listener, token, end)
            except (OSError, struct.error) as e:
                for peer in self._peers.values():
                    peer.connection.close()
                raise RuntimeError(
                    f"Gloo connectFullMesh failed: {self.size - 1 - len(self._peers)} of {self.size} ranks did not "
                    f"come within {self.timeout:g} seconds ({e})"
                ) from e

    def _call(self, address: str, rank: int, end: float) -> socket.socket:
        host, port, token = address.split(" ")
        if host != socket.gethostname():
            raise RuntimeError(
                f"rank {rank} is on the host {host}, and rank {self.rank} on {socket.gethostname()}: torchlike's gloo "
                "connects the processes of one host"
            )
        left = max(end - time.monotonic(), 0.01)
        connection = socket.create_connection(("127.0.0.1", int(port)), timeout=left)
        connection.sendall(bytes.fromhex(token) + struct.pack("<Q", self.rank))
        return connection

    def _answer(self, listener: socket.socket, token: bytes, end: float) -> None:
        listener.settimeout(max(end - time.monotonic(), 0.01))
        connection, _ = listener.accept()
        connection.settimeout(max(end - time.monotonic(), 0.01))
        said = receive_exactly(connection, len(token) + 8)
        (rank,) = struct.unpack("<Q", said[len(token) :])
        known = rank in self._peers or not self.rank < rank < self.size
        if known or not secrets.compare_digest(said[: len(token)], token):
            connection.close()
            return
        self._peers[rank] = _Peer(connection)

    # Sending and taking

    def post(self, rank: int, key: Key, data: bytes) -> None:
        """Sends bytes to a rank, which may take them later.

        Raises:
            RuntimeError: if the rank has gone.
        """
        with self._changed:
            peer = self._peers[rank]
            if peer.gone is not None:
                raise RuntimeError(peer.gone)
            peer.out.append(memoryview(_HEAD.pack(*key, len(data))))
            if data:
                peer.out.append(memoryview(data))
        self._rouse()

    def _rouse(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full of calls already
            self._wake.send(b"x")

    def here(self, rank: int, key: Key) -> bool:
        """Whether something of a key has come from a rank."""
        with self._changed:
            return key in self._peers[rank].inbox

    def take(self, rank: int, key: Key, timeout: float | None = None) -> bytearray:
        """What a rank sent under a key.

        Raises:
            RuntimeError: if it does not come in time, or the rank has gone.
        """
        limit = self.timeout if timeout is None else timeout
        end = time.monotonic() + limit
        peer = self._peers[rank]
        with self._changed:
            while key not in peer.inbox:
                left = end - time.monotonic()
                if peer.gone is not None:
                    raise RuntimeError(peer.gone)
                if left <= 0:
                    raise RuntimeError(
                        f"Timed out waiting {round(limit * 1000)}ms for recv operation to complete (from rank {rank})"
                    )
                self._changed.wait(min(left, threading.TIMEOUT_MAX))
            return _taken(peer, key)

    def take_any(self, ranks: list[int], key: Key) -> tuple[int, bytearray]:
        """What the first of some ranks sent under a key, and which it was.

        Raises:
            RuntimeError: if nothing comes in time, or all ranks have gone.
        """
        end = time.monotonic() + self.timeout
        with self._changed:
            while True:
                for rank in ranks:
                    if key in self._peers[rank].inbox:
                        return rank, _taken(self._peers[rank], key)
                left = end - time.monotonic()
                if left <= 0 or all(self._peers[r].gone for r in ranks):
                    wait = round(self.timeout * 1000)
                    raise RuntimeError(f"Timed out waiting {wait}ms for recv operation to complete")
                self._changed.wait(min(left, 1.0))

    def flush(self) -> None:
        """Waits until all that was sent has left this process, or nobody takes it in time."""
        end = time.monotonic() + min(self.timeout, 30)
        with self._changed:
            while any(p.out and p.gone is None for p in self._peers.values()):
                left = end - time.monotonic()
                if left <= 0 or not self._thread.is_alive():
                    return
                self._changed.wait(left)

    def close(self) -> None:
        """Ends all connections."""
        if self._closed:
            return
        self.flush()
        self._closed = True
        self._last.cancel()
        self._rouse()
        self._thread.join(timeout=5)
        # Not by the thread, which may end before it is called.
        if not self._thread.is_alive():
            self._wake.close()
            self._woken.close()

    # The thread

    def _move(self) -> None:
        with selectors.DefaultSelector() as wanted:
            wanted.register(self._woken, selectors.EVENT_READ, None)
            for peer in self._peers.values():
                peer.connection.setblocking(False)
                peer.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                wanted.register(peer.connection, selectors.EVENT_READ, peer)
            while not self._closed:
                for event, mask in wanted.select():
                    if event.data is None:
                        self._drain()
                        continue
                    self._serve(event.data, mask)
                self._choose(wanted)
        for peer in self._peers.values():
            peer.connection.close()

    def _drain(self) -> None:
        try:
            while self._woken.recv(4096):
                pass
        except BlockingIOError:
            return

    def _choose(self, wanted: selectors.BaseSelector) -> None:
        """Listens to those that have gone no more, and to whether there is room where something is to be sent."""
        for peer in self._peers.values():
            known = wanted.get_map().get(peer.connection)
            if known is None:
                continue
            if peer.gone is not None:
                wanted.unregister(peer.connection)
                continue
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if peer.out else 0)
            if known.events != events:
                wanted.modify(peer.connection, events, peer)

    def _serve(self, peer: _Peer, mask: int) -> None:
        try:
            if mask & selectors.EVENT_READ:
                self._read(peer)
            if mask & selectors.EVENT_WRITE:
                self._write(peer)
        except BlockingIOError:
            return
        except (OSError, ConnectionError, MemoryError) as e:
            rank = next(r for r, p in self._peers.items() if p is peer)
            with self._changed:
                peer.gone = f"Connection closed by peer: rank {rank} has gone ({e})"
                peer.out.clear()
                self._changed.notify_all()

    def _write(self, peer: _Peer) -> None:
        while True:
            with self._changed:
                if not peer.out:
                    self._changed.notify_all()
                    return
                first = peer.out[0]
            sent = peer.connection.send(first)
            with self._changed:
                if sent == len(first):
                    peer.out.popleft()
                else:
                    peer.out[0] = first[sent:]

    def _read(self, peer: _Peer) -> None:
        if peer.body is None:
            part = peer.connection.recv(_HEAD.size - len(peer.head))
            if not part:
                raise ConnectionError("the connection was closed")
            peer.head += part
            if len(peer.head) < _HEAD.size:
                return
            group, number, size = _HEAD.unpack(peer.head)
            peer.key, peer.body, peer.filled = (group, number), bytearray(size), 0
            peer.head.clear()
        while peer.filled < len(peer.body):
            room = memoryview(peer.body)[peer.filled : peer.filled + _PIECE]
            count = peer.connection.recv_into(room)
            if not count:
                raise ConnectionError("the connection was closed")
            peer.filled += count
        with self._changed:
            peer.inbox.setdefault(peer.key, deque()).append(peer.body)
            peer.body = None
            self._changed.notify_all()


def _end(wire: weakref.ref[Wire]) -> None:
    """Sends what is left before the process ends."""
    found = wire()
    if found is not None:
        found.flush()


def _taken(peer: _Peer, key: Key) -> bytearray:
    queue = peer.inbox[key]
    first = queue.popleft()
    if not queue:
        del peer.inbox[key]
    return first
