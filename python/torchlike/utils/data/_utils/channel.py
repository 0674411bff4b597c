"""Objects between two processes. Tensors go by memory that both map, everything else as a pickle."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import pickle
import select
import socket
import struct
import threading
import time
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torchlike as torch
from torchlike import _C

__all__ = ["Channel", "Closed", "TooManyFiles"]

_HEAD = struct.Struct("<QI")
_ALIGN = 64
_FILES = 200
"""Files in one message; the system allows 253."""

NON_LEAF = (
    "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does not "
    "support crossing process boundaries.  If you just want to transfer the data, call detach() "
    "on the tensor before serializing (e.g., putting it on the queue)."
)


class Closed(Exception):
    """The other end is gone."""


class TooManyFiles(RuntimeError):
    """This process may open no more files, of which each message with tensors is one."""

    def __init__(self) -> None:
        super().__init__(
            "Too many open files. Communication with the workers is no longer possible. Please increase the limit "
            "using `ulimit -n` in the shell or change the sharing strategy by calling "
            "`torch.multiprocessing.set_sharing_strategy('file_system')` at the beginning of your code"
        )


class _Reading(threading.local):
    """The message that a thread reads: its storages, and how each of its tensors is made of them."""

    storages: list[Any]
    meant: list[Any]


_reading = _Reading()


def _pending(at: int) -> Any:
    """A tensor of the message that is read."""
    place, dtype, shape, stride, offset, grad, kind = _reading.meant[at]
    made = _C._from_storage(_reading.storages[place], dtype, shape, stride, offset)
    if kind is not torch.Tensor:
        return kind(made, grad)
    return made.requires_grad_(grad) if grad else made


def sendable(tensor: Any) -> Any:
    """The tensor as it can be sent by its memory, or nothing if it is not a plain one on the host.

    Raises:
        RuntimeError: if its gradient leads to other tensors.
    """
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError(NON_LEAF)
    plain = tensor.layout is torch.strided and not tensor.is_quantized and not tensor.is_nested
    if tensor.device.type != "cpu" or not plain:
        return None
    lazy = tensor.is_conj() or tensor.is_neg()
    return tensor.resolve_conj().resolve_neg() if lazy else tensor


class _Pickler(ForkingPickler):
    """Puts tensors aside; what their bytes are is known once all are."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.tensors: list[Any] = []
        self.spans: dict[int, tuple[Any, int, int]] = {}

    def reducer_override(self, obj: Any) -> Any:
        """Tensors by their place among those of the message; other objects as ever."""
        if type(obj) not in (torch.Tensor, torch.nn.Parameter):
            return NotImplemented
        obj = sendable(obj)
        if obj is None:
            return NotImplemented
        storage = obj.untyped_storage()
        key = storage._cdata
        size = obj.element_size()
        first = obj.storage_offset() * size
        last = first
        if obj.numel():
            steps = zip(obj.shape, obj.stride(), strict=True)
            last += (1 + sum((n - 1) * s for n, s in steps)) * size
        known = self.spans.get(key)
        if known is not None:
            first, last = min(first, known[1]), max(last, known[2])
        self.spans[key] = (storage, first, last)
        self.tensors.append(obj)
        return _pending, (len(self.tensors) - 1,)


def _pack(obj: Any) -> tuple[bytes, list[int], list[Any]]:
    """A message: its bytes, files to send with it, and what keeps these open."""
    file = io.BytesIO()
    pickler = _Pickler(file)
    pickler.dump(obj)
    places: dict[int, tuple[int, int]] = {}
    storages: list[tuple[int, int]] = []
    files: list[int] = []
    kept: list[Any] = []
    copied = []
    total = 0
    for key, (storage, first, last) in pickler.spans.items():
        if storage.is_shared() and len(files) < _FILES:
            fd, nbytes = storage._share_fd_cpu_()
            places[key] = (len(storages), 0)
            storages.append((len(files), nbytes))
            files.append(fd)
            kept.append(storage)
            continue
        first -= first % _ALIGN
        places[key] = (-1, first - total)
        copied.append((storage, first, last, total))
        total += -(-(last - first) // _ALIGN) * _ALIGN
    arena = None
    if copied:
        arena = torch.UntypedStorage._new_using_fd_cpu(total)
        room = arena._as_tensor()
        for storage, first, last, at in copied:
            if last > first:
                room[at : at + last - first].copy_(storage._as_tensor()[first:last])
        files.append(arena._share_fd_cpu_()[0])
        kept.append(arena)
    whole = len(storages)
    if arena is not None:
        storages.append((len(files) - 1, total))
    meant = []
    for t in pickler.tensors:
        place, shift = places[t.untyped_storage()._cdata]
        place = whole if place < 0 else place
        offset = t.storage_offset() - shift // t.element_size()
        about = (place, t.dtype, tuple(t.shape), tuple(t.stride()), offset, t.requires_grad)
        meant.append((*about, type(t)))
    return _headed(storages, meant) + file.getvalue(), files, kept


def _headed(storages: list[Any], meant: list[Any]) -> bytes:
    """What stands before an object: the tensors in it."""
    head = pickle.dumps((storages, meant), pickle.HIGHEST_PROTOCOL)
    return struct.pack("<Q", len(head)) + head


_NO_TENSORS = _headed([], [])


def _check_room(fd: int) -> None:
    """Raises `TooManyFiles` if there cannot be another descriptor of a file."""
    try:
        os.close(os.dup(fd))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise TooManyFiles from None


def _unpack(data: bytes, files: list[int]) -> Any:
    (length,) = struct.unpack_from("<Q", data)
    view = memoryview(data)
    try:
        storages, meant = pickle.loads(view[8 : 8 + length])
        made = [
            torch.UntypedStorage._new_shared_fd_cpu(files[at], nbytes) for at, nbytes in storages
        ]
    except OSError:
        _check_room(files[0])
        raise
    finally:
        for fd in files:
            os.close(fd)
    # Messages can hold messages (a sample that unpickles a queue), so what is being read is put back.
    before = dict(_reading.__dict__)
    _reading.storages, _reading.meant = made, meant
    try:
        return pickle.loads(view[8 + length :])
    finally:
        _reading.__dict__.clear()
        _reading.__dict__.update(before)


class Channel:
    """One of the two ends."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        self._process = os.getpid()
        self._waiting: list[memoryview] = []

    @staticmethod
    def pair() -> tuple[Channel, Channel]:
        """Two ends of a new way."""
        one, two = socket.socketpair()
        return Channel(one), Channel(two)

    def fileno(self) -> int:
        """The descriptor, for waiting."""
        return self.end.fileno()

    def close(self) -> None:
        """Gives up this process's descriptor; the other end notices when nobody has one any more."""
        self.end.close()

    def hang_up(self) -> None:
        """Ends the way, whoever else has a copy of this end; in a fork of the process that made it, no more than
        `close`."""
        if os.getpid() == self._process:
            with contextlib.suppress(OSError):
                self.end.shutdown(socket.SHUT_RDWR)
        self.end.close()

    def send(self, obj: Any) -> None:
        """Sends an object, and waits until the system has all of it.

        Raises:
            Closed: if there is nobody.
        """
        data, files, kept = _pack(obj)
        try:
            head = _HEAD.pack(len(data), len(files)) + data[:65536]
            sent = socket.send_fds(self.end, [head], files) if files else self.end.send(head)
            rest = memoryview(data)[sent - _HEAD.size :]
            if rest:
                self.end.settimeout(None)
                self.end.sendall(rest)
        except OSError:
            raise Closed from None
        del kept

    def post(self, obj: Any) -> None:
        """Sends an object without tensors, and never waits: :meth:`flush` sends what is left."""
        data = _NO_TENSORS + pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)
        self._waiting.append(memoryview(_HEAD.pack(len(data), 0) + data))
        self.flush()

    def flush(self) -> bool:
        """Sends what waits, as far as there is room; true if nothing is left."""
        while self._waiting:
            try:
                sent = self.end.send(self._waiting[0], socket.MSG_DONTWAIT)
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                self._waiting.clear()  # whoever waits for an answer learns that nobody is there
                return True
            if sent < len(self._waiting[0]):
                self._waiting[0] = self._waiting[0][sent:]
            else:
                self._waiting.pop(0)
        return True

    def receive(self, timeout: float | None = None) -> Any:
        """The next object; nothing if none begins to arrive in time.

        Raises:
            Closed: if the other end is gone.
            TooManyFiles: if its tensors cannot be opened.
        """
        if timeout is not None and not _readable(self.end, timeout):
            return None
        try:
            head, files, flags, _ = socket.recv_fds(self.end, _HEAD.size, _FILES + 1)
            if not head:
                raise Closed
            head += self._exactly(_HEAD.size - len(head))
            length, count = _HEAD.unpack(head)
            if len(files) != count:
                for fd in files:
                    os.close(fd)
                raise TooManyFiles if flags & socket.MSG_CTRUNC else Closed
            return _unpack(self._exactly(length), files)
        except OSError:
            raise Closed from None

    def _exactly(self, count: int) -> bytes:
        if count == 0:
            return b""
        data = bytearray(count)
        view = memoryview(data)
        while view:
            got = self.end.recv_into(view)
            if got == 0:
                raise Closed
            view = view[got:]
        return bytes(data)


def _readable(end: Any, timeout: float) -> bool:
    poll = select.poll()
    poll.register(end, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def wait(
    channels: list[Channel], sentinels: list[int], timeout: float | None
) -> tuple[list[Channel], list[int]] | None:
    """Channels with something to read, and processes that ended; nothing if the time passed first."""
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        poll = select.poll()
        by_file = {channel.fileno(): channel for channel in channels}
        for fd, channel in by_file.items():
            poll.register(fd, select.POLLIN | (0 if channel.flush() else select.POLLOUT))
        for fd in sentinels:
            poll.register(fd, select.POLLIN)
        left = None if end is None else max(0.0, end - time.monotonic()) * 1000
        events = poll.poll(left)
        reads = select.POLLIN | select.POLLHUP | select.POLLERR
        ready = [by_file[fd] for fd, what in events if fd in by_file and what & reads]
        ended = [fd for fd, _ in events if fd not in by_file]
        if ready or ended:
            return ready, ended
        if not events and end is not None and time.monotonic() >= end:
            return None
