"""Stores, by which processes meet: what they keep, queues, and what does not say how to meet."""

from __future__ import annotations

import socket
import threading
from datetime import timedelta
from pathlib import Path

import pytest

import torchlike.distributed as dist
from torchlike.distributed.rendezvous import register_rendezvous_handler, rendezvous


@pytest.mark.parametrize("kind", ["tcp", "hash", "prefix"])
def test_queues(kind: str) -> None:
    store: dist.Store = dist.HashStore()
    if kind == "tcp":
        store = dist.TCPStore("localhost", 0, 1, True)
    elif kind == "prefix":
        store = dist.PrefixStore("p", store)
    assert store.queue_len("q") == 0
    store.queue_push("q", "a")
    store.queue_push("q", b"b")
    assert store.queue_len("q") == 2 and store.check(["q"]) and "q" not in store.list_keys()
    assert (store.queue_pop("q"), store.queue_pop("q", block=False)) == (b"a", b"b")
    assert not store.check(["q"])
    with pytest.raises(dist.QueueEmptyError, match="queue is empty"):
        store.queue_pop("q", False)
    other = threading.Timer(
        0.05, store.queue_push if kind != "tcp" else store.clone().queue_push, ("q", "c")
    )  # type: ignore[attr-defined]
    other.start()
    assert store.queue_pop("q") == b"c"
    other.join()
    store.set_timeout(timedelta(milliseconds=20))
    with pytest.raises(dist.DistStoreError, match="wait timeout after 20ms"):
        store.queue_pop("q")


def test_a_file_has_no_queues(tmp_path: Path) -> None:
    store = dist.FileStore(tmp_path / "store", 1)
    for call in (
        lambda: store.queue_push("q", "a"),
        lambda: store.queue_pop("q"),
        lambda: store.queue_len("q"),
    ):
        with pytest.raises(NotImplementedError, match="queue support"):
            call()


def test_what_does_not_say_how_to_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="environment variable RANK expected, but not set"):
        dist.init_process_group("gloo")
    with pytest.raises(ValueError, match="tcp:// rendezvous: rank parameter missing"):
        dist.init_process_group("gloo", init_method="tcp://localhost:1234")
    with pytest.raises(RuntimeError, match="No rendezvous handler for ftp://"):
        dist.init_process_group("gloo", init_method="ftp://x")
    with pytest.raises(AssertionError, match="world_size must be positive"):
        dist.init_process_group("gloo", store=dist.HashStore())
    with pytest.raises(TypeError, match="timedelta, got 3"):
        dist.init_process_group("gloo", timeout=3)
    with pytest.raises(ValueError, match="no rank 2 in a world of 1"):
        dist.init_process_group("gloo", store=dist.HashStore(), rank=2, world_size=1)
    with pytest.raises(NotImplementedError, match="'nosuch' is not supported"):
        dist.init_process_group("nosuch", store=dist.HashStore(), rank=0, world_size=1)
    with pytest.raises(RuntimeError, match="already registered"):
        register_rendezvous_handler("env", lambda *_: iter(()))
    with pytest.raises(ValueError, match="world size parameter missing"):
        next(rendezvous("file:///nowhere", rank=0))


def exercised(store: dist.Store) -> None:
    store.set("a", "b")
    assert store.get("a") == b"b" and store.add("n", 2) == 2 and store.add("n", 3) == 5
    assert store.get("n") == b"5" and store.check(["a", "n"]) and not store.check(["a", "q"])
    store.append("a", "cd")
    assert store.multi_get(["a", "n"]) == [b"bcd", b"5"]
    assert store.compare_set("c", "", "d") == b"d" and store.compare_set("c", "d", "e") == b"e"
    assert store.compare_set("c", "x", "y") == b"e" and store.compare_set("new", "x", "y") == b"x"
    store.multi_set(["k1", "k2"], ["v1", b"v2"])
    store.wait(["k1", "k2"])
    assert store.num_keys() == 5 and set(store.list_keys()) >= {"k1", "k2"}
    assert store.delete_key("a") and not store.delete_key("a") and store.has_extended_api()
    with pytest.raises(dist.DistStoreError, match="wait timeout after 50ms, keys: /q"):
        store.wait(["q"], timedelta(milliseconds=50))
    store.set_timeout(timedelta(milliseconds=60))
    assert store.timeout == timedelta(milliseconds=60)
    with pytest.raises(RuntimeError, match="keys: /zz"):
        store.get("zz")
    with pytest.raises(TypeError):
        store.add("n", "x")  # type: ignore[arg-type]
    store.set_timeout(timedelta(seconds=20))
    threading.Timer(0.1, store.set, ("late", "r")).start()
    assert store.get("late") == b"r"


def test_stores(tmp_path: Path) -> None:
    exercised(dist.HashStore())
    memory = dist.HashStore()
    exercised(dist.PrefixStore("p", memory))
    assert memory.get("p/n") == b"5"
    file = dist.FileStore(tmp_path / "file", 1)
    exercised(file)
    assert dist.FileStore(file.path).get("n") == b"5"
    (tmp_path / "wrong").write_bytes(b"\1\0\0\0\3\0\0\0\0\0\0\0abc")
    with pytest.raises(RuntimeError, match="holds something else"):
        dist.FileStore(tmp_path / "wrong").num_keys()
    path = Path(file.path)
    del file
    assert not path.exists()
    served = dist.TCPStore("localhost", 0, 2, True, timedelta(seconds=20), wait_for_workers=False)
    client = dist.TCPStore("localhost", served.port, timeout=timedelta(seconds=20))
    exercised(client)
    assert served.get("n") == b"5" and client.clone().get("n") == b"5"
    with socket.create_connection(("localhost", served.port)) as stranger:
        stranger.sendall(b"\xff" * 64)
    assert client.get("n") == b"5"
    with pytest.raises(dist.DistNetworkError, match="failed to listen"):
        dist.TCPStore("localhost", served.port, 1, True)
    with pytest.raises(dist.DistStoreError, match="1/2 clients joined"):
        dist.TCPStore("localhost", 0, 2, True, timedelta(milliseconds=200))
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(dist.DistNetworkError, match="timed out"):
        dist.TCPStore("localhost", port, 2, False, timedelta(milliseconds=200))
