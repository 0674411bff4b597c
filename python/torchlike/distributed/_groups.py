"""Process groups: which ranks talk to each other, and the world they are taken from.

Two backends make groups in one process. `fake` plays one rank of a world of any size and moves nothing: shapes, and
what would be sent, are right, values are not. `local` plays all ranks at once, and data moves between their pieces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["FakeStore", "HashStore", "PrefixStore", "ProcessGroup", "Store", "Work"]

_NOT_INITIALISED = (
    "Default process group has not been initialized, please make sure to call init_process_group."
)
BACKENDS = ("fake", "local")


class Store:
    """Keys and values that processes share; here within one process."""

    def __init__(self) -> None:
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: str | bytes) -> None:
        """Notes the value of a key."""
        self._values[key] = value.encode() if isinstance(value, str) else bytes(value)

    def get(self, key: str) -> bytes:
        """The value of a key.

        Raises:
            KeyError: if nobody has noted one.
        """
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        """Adds to a number, which begins at 0, and gives the sum."""
        total = int(self._values.get(key, b"0")) + amount
        self._values[key] = str(total).encode()
        return total

    def num_keys(self) -> int:
        """How many keys there are."""
        return len(self._values)

    def delete_key(self, key: str) -> bool:
        """Forgets a key; whether there was one."""
        return self._values.pop(key, None) is not None


class HashStore(Store):
    """A store in this process's memory."""


class FakeStore(Store):
    """The store of a world that moves nothing."""


class PrefixStore(Store):
    """A part of another store: its keys begin with a prefix."""

    def __init__(self, prefix: str, store: Store) -> None:
        super().__init__()
        self.prefix, self.underlying_store = prefix, store

    def set(self, key: str, value: str | bytes) -> None:
        """Notes the value of a key."""
        self.underlying_store.set(f"{self.prefix}/{key}", value)

    def get(self, key: str) -> bytes:
        """The value of a key."""
        return self.underlying_store.get(f"{self.prefix}/{key}")


class Work:
    """A collective under way: here it is done when it is made."""

    def __init__(self, result: Any = None) -> None:
        self._result = result

    def wait(self, timeout: Any = None) -> bool:
        """True: it is done."""
        return True

    def is_completed(self) -> bool:
        """True: it is done."""
        return True

    def is_success(self) -> bool:
        """True: nothing went wrong."""
        return True

    def result(self) -> Any:
        """The tensors that it wrote."""
        return self._result


class ProcessGroup:
    """Some ranks of the world, in order."""

    def __init__(self, ranks: Sequence[int], name: str, backend: str, desc: str = "") -> None:
        self.ranks = tuple(ranks)
        self.group_name, self.backend, self.group_desc = name, backend, desc or "undefined"

    def size(self) -> int:
        """How many ranks there are."""
        return len(self.ranks)

    def rank(self) -> int:
        """This process's place among them; -1 if it has none."""
        rank = world().rank
        return self.ranks.index(rank) if rank in self.ranks else -1

    def name(self) -> str:
        """The backend's name."""
        return self.backend

    def _get_backend_name(self) -> str:
        return self.backend

    def __repr__(self) -> str:
        return f"<torchlike.distributed.ProcessGroup {self.group_name} of {len(self.ranks)} ranks>"


class World:
    """All ranks, and the groups that were made of them. `rank` is the one that this process plays. A world that nobody
    asked for grows with the meshes that are made in it."""

    def __init__(self, backend: str, rank: int, size: int, store: Any, asked: bool = True) -> None:
        self.backend, self.rank, self.size, self.store = backend, rank, size, store
        self.asked = asked
        self.groups: dict[str, ProcessGroup] = {}
        self.default = self.add(range(size), "default_pg")

    def grow(self, size: int) -> None:
        """Adds ranks."""
        self.size = size
        self.default = self.add(range(size), "default_pg")

    @property
    def here(self) -> tuple[int, ...]:
        """The ranks that this process plays."""
        return tuple(range(self.size)) if self.backend == "local" else (self.rank,)

    def add(self, ranks: Sequence[int], desc: str = "", backend: str | None = None) -> ProcessGroup:
        """A group of these ranks."""
        group = ProcessGroup(ranks, str(len(self.groups)), backend or self.backend, desc)
        self.groups[group.group_name] = group
        return group


class _State:
    world: World | None = None


_state = _State()


def is_initialized() -> bool:
    """Whether there is a world."""
    return _state.world is not None


def world() -> World:
    """The world.

    Raises:
        ValueError: if `init_process_group` was not called.
    """
    if _state.world is None:
        raise ValueError(_NOT_INITIALISED)
    return _state.world


def at_least(size: int) -> World:
    """The world. Where none was asked for it is one that moves nothing, with so many ranks or more."""
    if _state.world is None:
        _state.world = World("fake", 0, size, None, asked=False)
    elif not _state.world.asked and _state.world.size < size:
        _state.world.grow(size)
    return _state.world


def create(backend: str | None, rank: int, size: int, store: Any) -> None:
    """Makes the world.

    Raises:
        ValueError: if there is one, or the rank lies outside.
        NotImplementedError: for backends that connect processes.
    """
    if _state.world is not None and _state.world.asked:
        raise ValueError("trying to initialize the default process group twice!")
    name = (backend or "local").lower().rpartition(":")[2]
    if name not in BACKENDS:
        raise NotImplementedError(
            f"torch.distributed.init_process_group: the backend {name!r} is not supported by torchlike, which has "
            "'fake' (one rank of any world, nothing moves) and 'local' (all ranks in this process)"
        )
    if size < 1 or not 0 <= rank < size:
        raise ValueError(f"no rank {rank} in a world of {size}")
    _state.world = World(name, rank, size, store)


def destroy(group: ProcessGroup | None = None) -> None:
    """Forgets a group, or the world.

    Raises:
        AssertionError: if there is none.
    """
    current = _state.world
    if current is None:
        raise AssertionError("Process group cannot be None")
    if group is None or group is current.default:
        _state.world = None
    else:
        current.groups.pop(group.group_name, None)


def resolve(name: str) -> ProcessGroup:
    """The group of a name.

    Raises:
        RuntimeError: if there is none.
    """
    found = world().groups.get(name)
    if found is None:
        raise RuntimeError(f"Could not resolve the process group registered under the name {name}")
    return found


def group_of(group: ProcessGroup | None) -> ProcessGroup:
    """The group, or that of all ranks."""
    return world().default if group is None else group
