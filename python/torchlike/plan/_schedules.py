"""In which order the ranks of a pipeline work, and when that makes them work."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FORWARD, BACKWARD, INPUT, WEIGHT = "F", "B", "I", "W"
"""A forward; a backward whole, of what the stage was given, and of its parameters."""


class Action(NamedTuple):
    """What a rank does: a microbatch on one of its stages."""

    stage: int
    kind: str
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{self.microbatch}"


class Ran(NamedTuple):
    """An action, and when it runs, in seconds."""

    rank: int
    action: Action
    start: float
    end: float


class Schedule(NamedTuple):
    """A kind of schedule."""

    name: str
    local: int | None
    """Stages of a rank; None: any number."""
    order: Callable[[int, int, int, int], list[Action]]
    """The actions of a rank: of rank, ranks, stages of a rank, microbatches."""
    folded: bool = False
    """Whether the second stages of the ranks follow each other from the last rank back to the first."""

    def rank_of(self, stage: int, ranks: int) -> int:
        """Which rank has a stage."""
        turn, at = divmod(stage, ranks)
        return ranks - 1 - at if self.folded and turn % 2 else at


def _gpipe(rank: int, ranks: int, local: int, count: int) -> list[Action]:
    stages = [rank + i * ranks for i in range(local)]
    ahead = [Action(s, FORWARD, m) for s in stages for m in range(count)]
    return ahead + [Action(s, BACKWARD, m) for s in reversed(stages) for m in range(count)]


def _one_by_one(rank: int, ranks: int, local: int, count: int) -> list[Action]:
    first = min(count, ranks - rank)
    made = [Action(rank, FORWARD, m) for m in range(first)]
    for m in range(count):
        made.append(Action(rank, BACKWARD, m))
        if first + m < count:
            made.append(Action(rank, FORWARD, first + m))
    return made


def _rounds(ranks: int, count: int) -> int:
    """Microbatches that go through a stage before the rank's next one has its turn."""
    rounds = max(1, count // ranks)
    if count % rounds:
        raise ValueError(
            f"interleaved schedules need a multiple of the number of rounds, {rounds}, of microbatches, got {count}"
        )
    return count // rounds


def _turns(rank: int, ranks: int, local: int, count: int, ahead: int) -> tuple[int, list[Action]]:
    """How many forwards come first, and all forwards in order."""
    each = _rounds(ranks, count)
    first = min((local - 1) * each + ahead * (ranks - 1 - rank), local * count)
    met: Counter[int] = Counter()
    forwards = []
    for step in range(local * count):
        stage = step // each % local * ranks + rank
        forwards.append(Action(stage, FORWARD, met[stage]))
        met[stage] += 1
    return first, forwards


def _backwards(rank: int, ranks: int, local: int, count: int, kind: str) -> list[Action]:
    each = _rounds(ranks, count)
    met: Counter[int] = Counter()
    made = []
    for step in range(local * count):
        stage = (local - 1 - step // each % local) * ranks + rank
        made.append(Action(stage, kind, met[stage]))
        met[stage] += 1
    return made


def _interleaved(rank: int, ranks: int, local: int, count: int) -> list[Action]:
    # Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters Using Megatron-LM", 2021.
    first, forwards = _turns(rank, ranks, local, count, 2)
    made = forwards[:first]
    for i, back in enumerate(_backwards(rank, ranks, local, count, BACKWARD)):
        made += [*forwards[first + i : first + i + 1], back]
    return made


def _zero_bubble(rank: int, ranks: int, local: int, count: int) -> list[Action]:
    # Qi et al., "Zero Bubble Pipeline Parallelism", 2023: gradients of parameters fill the time in which a rank waits.
    first, forwards = _turns(rank, ranks, local, count, 1)
    backs = _backwards(rank, ranks, local, count, INPUT)
    made, late = forwards[:first], 0
    for i, back in enumerate(backs):
        made += [*forwards[first + i : first + i + 1], back]
        if i >= rank:
            made.append(backs[late]._replace(kind=WEIGHT))
            late += 1
    return made + [back._replace(kind=WEIGHT) for back in backs[late:]]


def _folded(rank: int, ranks: int, local: int, count: int) -> list[Action]:
    # The same paper's schedule ZB-V: stages go from the first rank to the last and back.
    near, far = rank, 2 * ranks - 1 - rank
    most = max(2 * ranks - 1, count)
    met: Counter[tuple[int, str]] = Counter()
    made: list[Action] = []

    def add(stage: int, *kinds: str) -> None:
        for kind in kinds:
            made.append(Action(stage, kind, met[stage, kind]))
            met[stage, kind] += 1

    for _ in range(2 * (ranks - rank) - 1):
        add(near, FORWARD)
    for _ in range(rank):
        add(far, FORWARD)
        add(near, FORWARD)
    for _ in range(ranks - rank):
        add(far, FORWARD, INPUT, WEIGHT)
    while met[far, FORWARD] < met[near, FORWARD] or met[near, FORWARD] < most:
        if met[near, FORWARD] < most:
            add(near, FORWARD)
        add(near, INPUT, WEIGHT)
        add(far, FORWARD, INPUT, WEIGHT)
    for _ in range(rank):
        add(near, INPUT)
        add(far, INPUT)
    for _ in range(ranks - rank):
        add(near, INPUT, WEIGHT)
    for stage in (far, near):
        for _ in range(met[stage, INPUT] - met[stage, WEIGHT]):
            add(stage, WEIGHT)
    return [a for a in made if a.microbatch < count]


SCHEDULES = {
    s.name: s
    for s in (
        Schedule("gpipe", None, _gpipe),
        Schedule("1f1b", 1, _one_by_one),
        Schedule("interleaved", None, _interleaved),
        Schedule("zero-bubble", None, _zero_bubble),
        Schedule("zbv", 2, _folded, folded=True),
    )
}


def orders(schedule: Schedule, ranks: int, local: int, count: int) -> list[list[Action]]:
    """What each rank does, in order.

    Raises:
        ValueError: for a number of stages of a rank, or of microbatches, that the schedule has not.
    """
    if schedule.local not in (None, local):
        raise ValueError(
            f"the schedule {schedule.name!r} has {schedule.local} stages a rank, not {local}"
        )
    return [schedule.order(rank, ranks, local, count) for rank in range(ranks)]


def run(
    order: Sequence[Sequence[Action]],
    stages: int,
    seconds: Callable[[Action], float],
    transfer: Callable[[int, int], float],
) -> list[Ran]:
    """When everything runs: each rank does its next action as soon as it is free and has what it needs.

    Args:
        order: the actions of each rank.
        stages: how many stages there are.
        seconds: how long an action takes.
        transfer: how long what one stage gives is on its way to another.

    Raises:
        ValueError: if ranks wait for each other.
    """
    done: dict[Action, float] = {}
    free = [0.0] * len(order)
    at = [0] * len(order)
    ran: list[Ran] = []
    left = sum(map(len, order))
    while left:
        before = left
        for rank, actions in enumerate(order):
            while at[rank] < len(actions):
                action = actions[at[rank]]
                ready = _ready(action, stages, done, transfer)
                if ready is None:
                    break
                start = max(free[rank], ready)
                done[action] = free[rank] = start + seconds(action)
                ran.append(Ran(rank, action, start, free[rank]))
                at[rank] += 1
                left -= 1
        if left == before:
            raise ValueError("the ranks of this schedule wait for each other")
    return sorted(ran, key=lambda r: (r.start, r.rank))


def _ready(
    action: Action, stages: int, done: dict[Action, float], transfer: Callable[[int, int], float]
) -> float | None:
    """When an action has what it needs; None if something of it has not run."""
    stage, kind, m = action
    if kind == WEIGHT:
        return done.get(Action(stage, INPUT, m))
    if kind == FORWARD:
        if stage == 0:
            return 0.0
        given = done.get(Action(stage - 1, FORWARD, m))
        return None if given is None else given + transfer(stage - 1, stage)
    own = done.get(Action(stage, FORWARD, m))
    if own is None or stage == stages - 1:
        return own
    given = done.get(Action(stage + 1, kind, m))
    return None if given is None else max(own, given + transfer(stage + 1, stage))
