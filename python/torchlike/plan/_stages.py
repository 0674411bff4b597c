"""A step of a model cut into stages: what each of them takes of time and memory for a microbatch."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from torchlike.plan._plan import CLASSES, PHASES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchlike.plan._plan import Plan

_FORWARD, _BACKWARD, _OPTIMIZER = (number for _, number in PHASES)
_STATIC = [
    CLASSES.index(name) for name in ("parameters", "buffers", "gradients", "optimizer states")
]
_GRADIENTS, _INPUTS = CLASSES.index("gradients"), CLASSES.index("inputs")


class Stage(NamedTuple):
    """A part of a model that runs on one rank, for one microbatch."""

    modules: tuple[str, str]
    """The first and the last module that works in it."""
    forward: float
    """Seconds, by a profile's roofline."""
    backward: float
    weight: float
    """Those of `backward` that only gradients of parameters need."""
    update: float
    """Seconds of the optimizer's step."""
    given: int
    """Bytes that the stage is given by the one before, and gives a gradient of."""
    static: int
    """Bytes of parameters, buffers, their gradients and the states of the optimizer."""
    kept: int
    """Bytes that a microbatch leaves between its forward and its backward, `given` included."""
    working: tuple[int, int]
    """Bytes more than `kept` that live at most while a forward, and a backward, runs."""


class Times(NamedTuple):
    """Seconds of a stage: of its forward, its backward, and what of that only gradients of parameters need."""

    forward: float
    backward: float
    weight: float


class Recorded:
    """The steps and storages of a plan, read once.

    Args:
        plan: a training step on one microbatch.
        profile: whose roofline says how long a step takes.
    """

    def __init__(self, plan: Plan, profile: str) -> None:
        program = plan._program
        rows = [program.step(i) for i in range(plan.steps)]
        self.phases = [row[1] for row in rows]
        self.modules = [row[2].partition("\0")[0] for row in rows]
        self.flops = [row[3] for row in rows]
        self.seconds = [plan.seconds(i, profile) for i in range(plan.steps)]
        self.values = [program.value(i) for i in range(plan.values)]
        kinds: dict[int, set[bool]] = {}
        for _, _, _, _, born, _, kind, _ in self.values:
            if born is not None:
                kinds.setdefault(born, set()).add(kind == _GRADIENTS)
        self.late = {step for step, found in kinds.items() if found == {True}}
        """The steps all of whose results are gradients of parameters."""

    @property
    def forward(self) -> list[str]:
        """The modules of the steps of the forward, in order."""
        return self.modules[: bisect_right(self.phases, _FORWARD)]


class Cut:
    """The steps of a plan by stage.

    Args:
        recorded: the plan.
        starts: the modules at which a further stage begins.

    Raises:
        ValueError: for a module that does not run after the one before.
    """

    def __init__(self, recorded: Recorded, starts: Sequence[str]) -> None:
        self.of, self.count = recorded, len(starts) + 1
        self.stages = self._forward(starts)
        found: dict[str, set[int]] = {}
        self.owners: dict[str, int] = {}
        for module, stage in zip(recorded.forward, self.stages, strict=True):
            if stage not in found.setdefault(module, set()):
                found[module].add(stage)
                for outer in _outwards(module):
                    self.owners.setdefault(outer, stage)
        now, begun = self.count - 1, len(self.stages)
        for module, phase in zip(recorded.modules[begun:], recorded.phases[begun:], strict=True):
            # Modules that work in several stages are in the one whose turn it is.
            mine = found.get(module, {now})
            if phase == _BACKWARD and now not in mine:
                now = max((s for s in mine if s < now), default=now)
            self.stages.append(now)

    def _forward(self, starts: Sequence[str]) -> list[int]:
        stages, now = [], 0
        for module in self.of.forward:
            if now < len(starts) and starts[now] in _outwards(module):
                now += 1
            stages.append(now)
        if now < len(starts):
            raise ValueError(f"no step of {starts[now]!r} runs after the stage before it has begun")
        return stages

    def owner(self, name: str) -> int:
        """The stage of a parameter, or of what belongs to one, by its name."""
        return next((self.owners[n] for n in _outwards(name) if n in self.owners), 0)

    def times(self) -> tuple[list[Times], float]:
        """Seconds of each stage, and of the optimizer's step for all."""
        sums = [[0.0, 0.0, 0.0] for _ in range(self.count)]
        update = 0.0
        for i, (phase, stage) in enumerate(zip(self.of.phases, self.stages, strict=True)):
            if phase == _OPTIMIZER:
                update += self.of.seconds[i]
                continue
            sums[stage][phase] += self.of.seconds[i]
            if i in self.of.late:
                sums[stage][2] += self.of.seconds[i]
        return [Times(*row) for row in sums], update

    def measured(self, given: Sequence[int]) -> list[Stage]:
        """The stages, of which `given` says the bytes that each is given by the one before."""
        times, update = self.times()
        static, parameters, kept, working = self._memory(given)
        total = sum(parameters) or 1
        return [
            Stage(
                self._ends(n),
                *times[n],
                update=update * parameters[n] / total,
                given=given[n],
                static=static[n],
                kept=kept[n],
                working=working[n],
            )
            for n in range(self.count)
        ]

    def _ends(self, stage: int) -> tuple[str, str]:
        """The first and the last module of a stage's forward."""
        found = [m for m, s in zip(self.of.forward, self.stages, strict=False) if s == stage and m]
        return (found[0], found[-1]) if found else ("", "")

    def _memory(
        self, given: Sequence[int]
    ) -> tuple[list[int], list[int], list[int], list[tuple[int, int]]]:
        """Bytes of each stage: static, of parameters alone, kept, and beyond that."""
        static, parameters, kept = [0] * self.count, [0] * self.count, list(given)
        back, end = (bisect_right(self.of.phases, n) for n in (_FORWARD, _BACKWARD))
        change: list[Counter[int]] = [Counter() for _ in range(self.count)]
        for size, _, _, _, born, died, kind, name in self.of.values:
            start, last = born or 0, end if died is None else min(died, end)
            if kind in _STATIC:
                stage = self.owner(name) if name else self.stages[start]
                static[stage] += size
                parameters[stage] += size * (kind == _STATIC[0])
            elif start < last and (born is not None or kind == _INPUTS):
                stage = self.stages[start]
                kept[stage] += size * (start < back < last)
                change[stage][start] += size
                change[stage][last] -= size
        working = []
        for stage, deltas in enumerate(change):
            most = self._most(stage, deltas, end)
            beyond = [max(0, n + given[stage] - kept[stage]) for n in most]
            working.append((beyond[_FORWARD], beyond[_BACKWARD]))
        return static, parameters, kept, working

    def _most(self, stage: int, change: Counter[int], end: int) -> list[int]:
        """The most bytes that live in the steps of a stage, by phase."""
        most, now = [0, 0], 0
        for i in range(end):
            now += change[i]
            if self.stages[i] == stage:
                most[self.of.phases[i]] = max(most[self.of.phases[i]], now)
        return most


def _outwards(name: str) -> list[str]:
    """A module and those around it, the innermost first."""
    parts = name.split(".") if name else []
    return [".".join(parts[:n]) for n in range(len(parts), 0, -1)]


def blocks(recorded: Recorded) -> list[str]:
    """The modules at which a model may be cut: the entries of the list of modules that takes most FLOPs.

    Raises:
        ValueError: if no list of modules runs.
    """
    sums: Counter[str] = Counter()
    order: dict[str, dict[str, None]] = {}
    for module, flops in zip(recorded.forward, recorded.flops, strict=False):
        for block in _outwards(module):
            group, _, number = block.rpartition(".")
            if number.isdecimal():
                sums[group] += flops + 1
                order.setdefault(group, {})[block] = None
    if not sums:
        raise ValueError("no list of modules runs in this model: say by stages= where stages begin")
    # The outermost of equals.
    return list(order[max(sums, key=lambda g: (sums[g], -len(g)))])


def balanced(weights: Sequence[float], count: int) -> list[int]:
    """Where to cut a row of weights so that the heaviest of `count` parts is as light as can be.

    Raises:
        ValueError: for more parts than weights.
    """
    n = len(weights)
    if count > n:
        raise ValueError(f"{n} blocks cannot be {count} stages")
    sums = [0.0, *accumulate(weights)]
    best = [sums[: n + 1]]
    cuts: list[list[int]] = [[0] * (n + 1)]
    for parts in range(1, count):
        row, where = [float("inf")] * (n + 1), [0] * (n + 1)
        for end in range(parts + 1, n + 1):
            for at in range(parts, end):
                heaviest = max(best[parts - 1][at], sums[end] - sums[at])
                if heaviest < row[end]:
                    row[end], where[end] = heaviest, at
        best.append(row)
        cuts.append(where)
    found, end = [], n
    for parts in range(count - 1, 0, -1):
        end = cuts[parts][end]
        found.append(end)
    return found[::-1]
