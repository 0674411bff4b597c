"""How processes find the store by which they meet: by environment variables, an address or a file."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlparse

from torchlike.distributed._stores import DEFAULT_TIMEOUT, FileStore, Store, TCPStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from urllib.parse import ParseResult

__all__ = ["register_rendezvous_handler", "rendezvous"]

_Found = tuple[Store, int, int]
_handlers: dict[str, Callable[..., Iterator[_Found]]] = {}


def register_rendezvous_handler(scheme: str, handler: Callable[..., Iterator[_Found]]) -> None:
    """Says who answers addresses of a scheme: a function of the address that yields store, rank and size.

    Raises:
        RuntimeError: if somebody does already.
    """
    if scheme in _handlers:
        raise RuntimeError(f"Rendezvous handler for {scheme}:// already registered")
    _handlers[scheme] = handler


def rendezvous(url: str, rank: int = -1, world_size: int = -1, **kwargs: Any) -> Iterator[_Found]:
    """Yields the store, this process's rank and the number of processes that an address says.

    Raises:
        RuntimeError: if nobody answers its scheme.
        ValueError: if it does not say everything.
    """
    if not isinstance(url, str | bytes):
        raise RuntimeError(f"`url` must be a string. {type(url)}: {url}")
    parsed = urlparse(url if isinstance(url, str) else url.decode())
    query = {k: v[0] for k, v in parse_qs(parsed.query).items()}
    if rank != -1:
        query["rank"] = str(rank)
    if world_size != -1:
        query["world_size"] = str(world_size)
    if parsed.scheme not in _handlers:
        raise RuntimeError(f"No rendezvous handler for {parsed.scheme}://")
    return _handlers[parsed.scheme](parsed, query, **kwargs)


def _asked(query: dict[str, str], scheme: str, *names: tuple[str, str]) -> list[int]:
    """Numbers of an address."""
    for name, said in names:
        if name not in query:
            raise ValueError(
                f"Error initializing torch.distributed using {scheme}:// rendezvous: {said} parameter missing"
            )
    return [int(query[name]) for name, _ in names]


def _by_file(
    url: ParseResult, query: dict[str, str], timeout: timedelta = DEFAULT_TIMEOUT, **_: Any
) -> Iterator[_Found]:
    if not url.path:
        raise ValueError(
            "Error initializing torch.distributed using file:// rendezvous: path missing"
        )
    rank, size = _asked(query, "file", ("rank", "rank"), ("world_size", "world size"))
    store = FileStore(url.path, size)
    store.set_timeout(timeout)
    yield store, rank, size


def _by_address(
    url: ParseResult, query: dict[str, str], timeout: timedelta = DEFAULT_TIMEOUT, **_: Any
) -> Iterator[_Found]:
    if not url.port:
        raise ValueError(
            "Error initializing torch.distributed using tcp:// rendezvous: port number missing"
        )
    rank, size = _asked(query, "tcp", ("rank", "rank"), ("world_size", "world_size"))
    yield TCPStore(url.hostname or "localhost", url.port, size, rank == 0, timeout), rank, size


def _by_environment(
    url: ParseResult, query: dict[str, str], timeout: timedelta = DEFAULT_TIMEOUT, **_: Any
) -> Iterator[_Found]:
    def said(name: str) -> str:
        if not os.environ.get(name):
            raise ValueError(
                f"Error initializing torch.distributed using env:// rendezvous: environment variable {name} expected, "
                "but not set"
            )
        return os.environ[name]

    rank = int(query["rank"]) if "rank" in query else int(said("RANK"))
    size = int(query["world_size"]) if "world_size" in query else int(said("WORLD_SIZE"))
    host, port = said("MASTER_ADDR"), int(said("MASTER_PORT"))
    # A launcher that made this process serves the store itself, and says so.
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    yield TCPStore(host, port, size, rank == 0 and not served, timeout), rank, size


register_rendezvous_handler("tcp", _by_address)
register_rendezvous_handler("env", _by_environment)
register_rendezvous_handler("file", _by_file)
