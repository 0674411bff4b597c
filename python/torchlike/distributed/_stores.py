"""Keys and values that processes share: in memory, in a file, or served by one of them.

Every store has the same operations (`_Operation`), which a table of keys (`_Table`) answers under a lock; where the
table is says the class. Whoever waits for a key waits no longer than the store's time-out.
"""

from __future__ import annotations

import contextlib
import copy
import os
import struct
import threading
import time
import weakref
from collections import deque
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from torchlike import _lazy
from torchlike.distributed._messages import connect, packed, receive

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence
else:
    socket = _lazy.module("socket")

DEFAULT_TIMEOUT = timedelta(minutes=5)
#: Seconds between two looks into a file.
_POLL = 0.005


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def checked_timeout(timeout: Any) -> timedelta:
    """A time-out that is one.

    Raises:
        TypeError: if it is no `timedelta`.
    """
    if not isinstance(timeout, timedelta):
        raise TypeError(
            f"Expected timeout argument to be of type datetime.timedelta, got {timeout}"
        )
    return timeout


class _Table:
    """The values of keys, and what stores do with them: arguments and answers are bytes."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.queues: dict[bytes, deque[bytes]] = {}

    def set(self, key: bytes, value: bytes) -> list[bytes]:
        self.values[key] = value
        return []

    def append(self, key: bytes, value: bytes) -> list[bytes]:
        self.values[key] = self.values.get(key, b"") + value
        return []

    def add(self, key: bytes, amount: bytes) -> list[bytes]:
        self.values[key] = b"%d" % (int(self.values.get(key, b"0")) + int(amount))
        return [self.values[key]]

    def compare_set(self, key: bytes, expected: bytes, desired: bytes) -> list[bytes]:
        known = self.values.get(key)
        if known == expected or (known is None and not expected):
            known = self.values[key] = desired
        return [expected if known is None else known]

    def delete(self, key: bytes) -> list[bytes]:
        return [b"1"] if self.values.pop(key, None) is not None else []

    def find(self, *keys: bytes) -> list[bytes]:
        """The values of all keys, or none at all."""
        found = [b"" if key in self.queues else self.values.get(key) for key in keys]
        return [] if None in found else [b"", *(v for v in found if v is not None)]

    def push(self, key: bytes, value: bytes) -> list[bytes]:
        self.queues.setdefault(key, deque()).append(value)
        return []

    def pop(self, key: bytes) -> list[bytes]:
        queue = self.queues.get(key)
        if queue is None:
            return []
        value = queue.popleft()
        if not queue:
            del self.queues[key]
        return [value]

    def length(self, key: bytes) -> list[bytes]:
        return [b"%d" % len(self.queues.get(key, ()))]

    def keys(self) -> list[bytes]:
        return list(self.values)

    def run(self, name: str, args: Sequence[bytes]) -> list[bytes]:
        """One operation by name."""
        return _OPERATIONS[name](self, *args)


_OPERATIONS: dict[str, Callable[..., list[bytes]]] = {
    name: getattr(_Table, name)
    for name in (
        "set", "append", "add", "compare_set", "delete", "find", "keys", "push", "pop", "length",
    )
}  # fmt: skip
_WRITES = ("set", "append", "add", "compare_set", "delete", "push")


class Store:
    """Keys and values that processes share."""

    def __init__(self, timeout: timedelta = DEFAULT_TIMEOUT) -> None:
        self._timeout = checked_timeout(timeout)

    def _run(self, name: str, *args: bytes) -> list[bytes]:
        raise NotImplementedError(f"{type(self).__name__} has no operations")

    def _find(self, keys: Sequence[str], timeout: timedelta | None) -> list[bytes]:
        """The values of keys, once all are there."""
        names = [key.encode() for key in keys]
        limit = self._timeout if timeout is None else checked_timeout(timeout)
        end = time.monotonic() + limit.total_seconds()
        while not (found := self._run("find", *names)):
            if time.monotonic() >= end:
                self._late(limit, keys)
            self._rest(end)
        return found[1:]

    @staticmethod
    def _late(limit: timedelta, keys: Sequence[str]) -> NoReturn:
        from torchlike.distributed import DistStoreError

        wait = round(limit.total_seconds() * 1000)
        raise DistStoreError(
            f"wait timeout after {wait}ms, keys: {', '.join('/' + k for k in keys)}"
        )

    def _rest(self, end: float) -> None:
        """Waits for a change, if the store can tell of one."""
        time.sleep(_POLL)

    @property
    def timeout(self) -> timedelta:
        """How long a key is waited for."""
        return self._timeout

    def set_timeout(self, timeout: timedelta) -> None:
        """Says how long a key is waited for."""
        self._timeout = checked_timeout(timeout)

    def set(self, key: str, value: str | bytes) -> None:
        """Notes the value of a key."""
        self._run("set", key.encode(), _bytes(value))

    def get(self, key: str) -> bytes:
        """The value of a key, once there is one.

        Raises:
            DistStoreError: if nobody notes one in time.
        """
        return self._find([key], None)[0]

    def add(self, key: str, amount: int) -> int:
        """Adds to a number, which begins at 0, and gives the sum."""
        if not isinstance(amount, int):
            raise TypeError(f"add() takes an integer, got {type(amount).__name__}")
        return int(self._run("add", key.encode(), b"%d" % amount)[0])

    def append(self, key: str, value: str | bytes) -> None:
        """Puts bytes behind those of a key."""
        self._run("append", key.encode(), _bytes(value))

    def compare_set(
        self, key: str, expected_value: str | bytes, desired_value: str | bytes
    ) -> bytes:
        """Notes a value if the key has the expected one, or none and none is expected; gives what the key then has."""
        args = (key.encode(), _bytes(expected_value), _bytes(desired_value))
        return self._run("compare_set", *args)[0]

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Waits until all keys have values.

        Raises:
            DistStoreError: if they have not in time.
        """
        self._find(keys, timeout)

    def barrier(self, key: str, world_size: int, timeout: timedelta | None = None) -> None:
        """Waits until so many have come here with this key.

        Raises:
            DistStoreError: if they have not in time.
        """
        if self.add(f"{key}/came", 1) >= world_size:
            self.set(f"{key}/all", b"1")
        self.wait([f"{key}/all"], timeout)

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all keys have values."""
        return bool(self._run("find", *(key.encode() for key in keys)))

    def multi_set(self, keys: Sequence[str], values: Sequence[str | bytes]) -> None:
        """Notes values of several keys."""
        for key, value in zip(keys, values, strict=True):
            self.set(key, value)

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """The values of several keys, once all are there."""
        return self._find(keys, None)

    def num_keys(self) -> int:
        """How many keys there are."""
        return len(self._run("keys"))

    def list_keys(self) -> list[str]:
        """All keys."""
        return [key.decode() for key in self._run("keys")]

    def delete_key(self, key: str) -> bool:
        """Forgets a key; whether there was one."""
        return bool(self._run("delete", key.encode()))

    def queue_push(self, key: str, value: str | bytes) -> None:
        """Puts a value at the end of a queue, which is there as long as it holds one."""
        self._run("push", key.encode(), _bytes(value))

    def queue_pop(self, key: str, block: bool = True) -> bytes:
        """Takes the first value of a queue.

        Raises:
            DistStoreError: if none comes in time.
            QueueEmptyError: without `block`, if there is none.
        """
        end = time.monotonic() + self._timeout.total_seconds()
        while not (found := self._run("pop", key.encode())):
            if not block:
                from torchlike.distributed import QueueEmptyError

                raise QueueEmptyError("queue is empty")
            if time.monotonic() >= end:
                self._late(self._timeout, [key])
            self._rest(end)
        return found[0]

    def queue_len(self, key: str) -> int:
        """How many values a queue holds."""
        return int(self._run("length", key.encode())[0])

    def has_extended_api(self) -> bool:
        """True: several keys can be read and noted at once, and values be appended to."""
        return True


class HashStore(Store):
    """A store in this process's memory, for its threads."""

    def __init__(self) -> None:
        super().__init__()
        self._table, self._changed = _Table(), threading.Condition()

    def clone(self) -> HashStore:
        """The same store as another object."""
        return copy.copy(self)

    def _run(self, name: str, *args: bytes) -> list[bytes]:
        with self._changed:
            made = self._table.run(name, args)
            if name in _WRITES:
                self._changed.notify_all()
        return made

    def _rest(self, end: float) -> None:
        with self._changed:
            self._changed.wait(min(_POLL * 10, max(end - time.monotonic(), 0)))


class FakeStore(HashStore):
    """The store of a world that moves nothing."""


class PrefixStore(Store):
    """A part of another store: its keys begin with a prefix."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__(store.timeout)
        self.prefix, self.underlying_store = prefix, store

    def _run(self, name: str, *args: bytes) -> list[bytes]:
        if name == "keys":
            start = f"{self.prefix}/".encode()
            found = self.underlying_store._run("keys")
            return [k.removeprefix(start) for k in found if k.startswith(start)]
        own = [f"{self.prefix}/".encode() + key for key in (args if name == "find" else args[:1])]
        return self.underlying_store._run(name, *own, *args[len(own) :])

    def _rest(self, end: float) -> None:
        self.underlying_store._rest(end)


class FileStore(Store):
    """A store in a file, for processes that see one file system: a log that is read and written under a lock.

    The last of `world_size` stores that goes takes the file away.
    """

    def __init__(self, file_name: str | os.PathLike[str], world_size: int = -1) -> None:
        super().__init__()
        self._path = os.path.abspath(os.fspath(file_name))
        self._table, self._read, self._lock = _Table(), 0, threading.Lock()
        Path(self._path).touch()
        if world_size > 0:
            weakref.finalize(self, _leave, self._path, world_size)

    @property
    def path(self) -> str:
        """Where the file is."""
        return self._path

    def _run(self, name: str, *args: bytes) -> list[bytes]:
        import fcntl

        if name in ("push", "pop", "length"):
            raise NotImplementedError("queue support is not implemented.")
        with self._lock, open(self._path, "a+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(self._read)
            log = file.read()
            end = 0
            for parts, at in _records(log):
                self._table.run(parts[0].decode(), parts[1:])
                end = at
            self._read += end
            made = self._table.run(name, args)
            if name in _WRITES:
                record = packed([name.encode(), *args])
                file.truncate(self._read)
                file.seek(0, os.SEEK_END)
                file.write(record)
                self._read += len(record)
        return made


def _records(log: bytes) -> list[tuple[list[bytes], int]]:
    """The messages in some bytes, each with where it ends; what is cut off at the end is left out."""
    found: list[tuple[list[bytes], int]] = []
    at = 0
    while at + 4 <= len(log):
        (count,), next_at, parts = struct.unpack_from("<I", log, at), at + 4, []
        for _ in range(count):
            if next_at + 8 > len(log):
                return found
            (size,) = struct.unpack_from("<Q", log, next_at)
            if next_at + 8 + size > len(log):
                return found
            parts.append(log[next_at + 8 : next_at + 8 + size])
            next_at += 8 + size
        if not parts or parts[0].decode(errors="replace") not in _WRITES:
            raise RuntimeError("the file of a FileStore holds something else")
        found.append((parts, next_at))
        at = next_at
    return found


def _leave(path: str, world_size: int) -> None:
    """Counts a store that goes."""
    if os.path.exists(path):
        try:
            if FileStore(path).add("/left", 1) >= world_size:
                os.unlink(path)
        except (OSError, RuntimeError):
            return


class _Server:
    """Answers the clients of a store, a thread for each; it ends with the process, or with whoever made it."""

    def __init__(self, host: str, port: int) -> None:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        self.listener = socket.create_server(("", port), family=family, backlog=128)
        self.port: int = self.listener.getsockname()[1]
        self._store = HashStore()
        threading.Thread(target=_accept, args=(self.listener, self._store), daemon=True).start()

    def close(self) -> None:
        """Answers nobody new."""
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)  # wakes who waits there
        self.listener.close()


def _accept(listener: socket.socket, store: HashStore) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_answer, args=(connection, store), daemon=True).start()


def _answer(connection: socket.socket, store: HashStore) -> None:
    with connection:
        try:
            while True:
                name, *args = receive(connection)
                connection.sendall(packed(store._run(name.decode(), *args)))
        except (OSError, KeyError, ValueError, TypeError, struct.error):
            return


class TCPStore(Store):
    """A store that the process with `is_master` serves, on `port` (0: one that is free)."""

    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = DEFAULT_TIMEOUT,
        wait_for_workers: bool = True,
        multi_tenant: bool = False,
        master_listen_fd: int | None = None,
        use_libuv: bool = True,
    ) -> None:
        super().__init__(timeout)
        if master_listen_fd is not None:
            raise NotImplementedError(
                "torch.distributed.TCPStore: master_listen_fd is not supported by torchlike"
            )
        self.host, self._world_size, self._lock = host_name, world_size, threading.Lock()
        self._server = _serve(host_name, port, multi_tenant) if is_master else None
        self.port = port if self._server is None else self._server.port
        self._connection = connect(host_name, self.port, timeout)
        weakref.finalize(self, self._connection.close)
        if self._server is not None:
            weakref.finalize(self, self._server.close)
        if wait_for_workers and world_size is not None and world_size > 0:
            self._meet(world_size, is_master)

    def _meet(self, world_size: int, is_master: bool) -> None:
        """The master waits until all have come."""
        self.add("/workers", 1)
        end = time.monotonic() + self._timeout.total_seconds()
        while is_master and self.add("/workers", 0) < world_size:
            if time.monotonic() >= end:
                from torchlike.distributed import DistStoreError

                here = self.add("/workers", 0)
                raise DistStoreError(
                    f"Timed out after {self._timeout.total_seconds():g} seconds waiting for clients. "
                    f"{here}/{world_size} clients joined."
                )
            time.sleep(_POLL)

    def _run(self, name: str, *args: bytes) -> list[bytes]:
        with self._lock:
            try:
                self._connection.sendall(packed([name.encode(), *args]))
                return receive(self._connection)
            except (OSError, struct.error) as e:
                from torchlike.distributed import DistNetworkError

                raise DistNetworkError(f"the store at {self.host}:{self.port} is gone: {e}") from e

    def list_keys(self) -> list[str]:
        """All keys but the store's own."""
        return [key for key in super().list_keys() if key != "/workers"]

    def clone(self) -> TCPStore:
        """Another connection to the same store."""
        return TCPStore(self.host, self.port, timeout=self._timeout)

    def __repr__(self) -> str:
        kind = "server and client" if self._server is not None else "client"
        return f"TCPStore({kind} of {self.host}:{self.port})"


def _serve(host: str, port: int, shared: bool) -> _Server | None:
    from torchlike.distributed import DistNetworkError

    try:
        return _Server(host, port)
    except OSError as e:
        if shared:
            return None
        raise DistNetworkError(
            f"The server socket has failed to listen on any local network address. port: {port}, {e}"
        ) from e
