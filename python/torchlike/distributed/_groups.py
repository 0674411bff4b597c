"""Process groups: which ranks talk to each other, and the world they are taken from.

Two backends make groups in one process. `fake` plays one rank of a world of any size and moves nothing: shapes, and
what would be sent, are right, values are not. `local` plays all ranks at once, and data moves between their pieces.
`gloo` connects the processes of one host (`_wire`), each of which plays a rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchlike.distributed._wire import Wire

__all__ = ["ProcessGroup", "Work"]

_NOT_INITIALISED = (
    "Default process group has not been initialized, please make sure to call init_process_group."
)
BACKENDS = ("fake", "local", "gloo")


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

    def get_future(self) -> Any:
        """What it gives, as a future that is done."""
        from torchlike.futures import Future

        self.wait()
        made: Any = Future()
        made.set_result(self.result())
        return made


class ProcessGroup:
    """Some ranks of the world, in order."""

    bound_device_id: Any = None

    def __init__(self, ranks: Sequence[int], name: str, backend: str, desc: str = "") -> None:
        self.ranks = tuple(ranks)
        self.group_name, self.backend, self.group_desc = name, backend, desc or "undefined"
        self.number, self._exchanges = int(name), 0

    @property
    def connected(self) -> bool:
        """Whether its ranks are processes of their own."""
        return self.backend == "gloo"

    def next_number(self) -> int:
        """The number of its next exchange, which all ranks count alike."""
        self._exchanges += 1
        return self._exchanges

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
        self.asked, self.made = asked, 0
        self._wire: Wire | None = None
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

    @property
    def wire(self) -> Wire:
        """The connections to the other ranks."""
        if self._wire is None:
            raise RuntimeError("the ranks of this world are not connected")
        return self._wire

    def connect(self, timeout: float) -> None:
        """Meets the other ranks by the store.

        Raises:
            RuntimeError: if they do not come in time.
        """
        if self.size > 1:
            from torchlike.distributed._wire import Wire

            self._wire = Wire(self.store, self.rank, self.size, timeout)

    def close(self) -> None:
        """Leaves the other ranks."""
        if self._wire is not None:
            self._wire.close()

    def add(self, ranks: Sequence[int], desc: str = "", backend: str | None = None) -> ProcessGroup:
        """A group of these ranks. All processes count all groups, so that they are called alike."""
        group = ProcessGroup(ranks, str(self.made), backend or self.backend, desc)
        self.made += 1
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


def create(backend: str, rank: int, size: int, store: Any, timeout: float = 1800.0) -> None:
    """Makes the world; `timeout` is how many seconds connected ranks wait for each other.

    Raises:
        ValueError: if the rank lies outside.
        NotImplementedError: for backends that are not there.
    """
    if backend not in BACKENDS:
        raise NotImplementedError(
            f"torch.distributed.init_process_group: the backend {backend!r} is not supported by torchlike, which has "
            "'fake' (one rank of any world, nothing moves), 'local' (all ranks in this process) and 'gloo' (the "
            "processes of one host)"
        )
    if size < 1 or not 0 <= rank < size:
        raise ValueError(f"no rank {rank} in a world of {size}")
    made = World(backend, rank, size, store)
    if backend == "gloo":
        made.connect(timeout)
    _state.world = made


def unmade() -> None:
    """Asks that there is no world yet.

    Raises:
        ValueError: if there is one.
    """
    if _state.world is not None and _state.world.asked:
        raise ValueError("trying to initialize the default process group twice!")


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
        current.close()
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


def among(ranks: Sequence[int]) -> ProcessGroup:
    """A group of these ranks: the first one there is, or a new one."""
    made = world().groups.values()
    return next((g for g in made if g.ranks == tuple(ranks)), None) or world().add(ranks)


def group_of(group: ProcessGroup | None) -> ProcessGroup:
    """The group, or that of all ranks."""
    return world().default if group is None else group
