"""A step of a model cut into stages: what each of them takes of time and memory for a microbatch."""

from __future__ import annotations

import re
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


class Cut:
    """The steps of a plan by stage.

    Args:
        plan: a training step on one microbatch.
        starts: the modules at which a further stage begins.

    Raises:
        ValueError: for a module that does not run after the one before.
    """

    def __init__(self, plan: Plan, starts: Sequence[str]) -> None:
        self.plan, self.count = plan, len(starts) + 1
        rows = [plan._program.step(i) for i in range(plan.steps)]
        self.phases = [row[1] for row in rows]
        self.modules = [row[2].partition("\0")[0] for row in rows]
        self.stages = self._forward(starts)
        of: dict[str, set[int]] = {}
        for module, stage in zip(self.modules, self.stages, strict=False):
            of.setdefault(module, set()).add(stage)
        self.owners = {module: min(found) for module, found in of.items()}
        now = self.count - 1
        for module, phase in list(zip(self.modules, self.phases, strict=True))[len(self.stages) :]:
            # Modules that work in several stages are in the one whose turn it is.
            found = of.get(module, {now})
            if phase == _BACKWARD and now not in found:
                now = max((s for s in found if s < now), default=now)
            self.stages.append(now)

    def _forward(self, starts: Sequence[str]) -> list[int]:
        stages, now = [], 0
        for module, phase in zip(self.modules, self.phases, strict=True):
            if phase != _FORWARD:
                break
            if now < len(starts) and _within(module, starts[now]):
                now += 1
            stages.append(now)
        if now < len(starts):
            raise ValueError(f"no step of {starts[now]!r} runs after the stage before it has begun")
        return stages

    def owner(self, name: str) -> int:
        """The stage of a parameter, or of what belongs to one, by its name."""
        while name:
            if name in self.owners:
                return self.owners[name]
            name = name.rpartition(".")[0]
        return 0

    def times(self, profile: str) -> tuple[list[Times], float]:
        """Seconds of each stage by a profile's roofline, and of the optimizer's step for all."""
        late = self._only_weights()
        sums = [[0.0, 0.0, 0.0] for _ in range(self.count)]
        update = 0.0
        for i, (phase, stage) in enumerate(zip(self.phases, self.stages, strict=True)):
            took = self.plan.seconds(i, profile)
            if phase == _OPTIMIZER:
                update += took
                continue
            sums[stage][phase] += took
            if i in late:
                sums[stage][2] += took
        return [Times(*row) for row in sums], update

    def measured(self, profile: str, given: Sequence[int]) -> list[Stage]:
        """The stages.

        Args:
            profile: whose roofline says how long a step takes.
            given: the bytes that each stage is given by the one before.
        """
        times, update = self.times(profile)
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
        rows = zip(self.modules, self.phases, self.stages, strict=True)
        found = [m for m, phase, s in rows if (phase, s) == (_FORWARD, stage) and m]
        return (found[0], found[-1]) if found else ("", "")

    def _only_weights(self) -> set[int]:
        """The steps whose results are gradients of parameters, all of them."""
        kinds: dict[int, set[bool]] = {}
        for i in range(self.plan.values):
            _, _, _, _, born, _, kind, _ = self.plan._program.value(i)
            if born is not None:
                kinds.setdefault(born, set()).add(kind == _GRADIENTS)
        return {step for step, found in kinds.items() if found == {True}}

    def _memory(
        self, given: Sequence[int]
    ) -> tuple[list[int], list[int], list[int], list[tuple[int, int]]]:
        """Bytes of each stage: static, of parameters alone, kept, and beyond that."""
        static, parameters, kept = [0] * self.count, [0] * self.count, list(given)
        back, end = bisect_right(self.phases, _FORWARD), bisect_right(self.phases, _BACKWARD)
        change: list[Counter[int]] = [Counter() for _ in range(self.count)]
        for i in range(self.plan.values):
            size, _, _, _, born, died, kind, name = self.plan._program.value(i)
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
                most[self.phases[i]] = max(most[self.phases[i]], now)
        return most


def _within(module: str, start: str) -> bool:
    return module == start or module.startswith(start + ".")


def blocks(plan: Plan) -> list[str]:
    """The modules at which a model may be cut: the entries of the list of modules that takes most FLOPs.

    Raises:
        ValueError: if no list of modules runs.
    """
    sums: Counter[str] = Counter()
    order: dict[str, list[str]] = {}
    for i in range(plan.steps):
        step = plan.step(i)
        if step is None or step.phase != "forward":
            break
        for match in re.finditer(r"(?:^|\.)\d+(?=\.|$)", step.module):
            block = step.module[: match.end()]
            group = block.rpartition(".")[0]
            sums[group] += step.flops + 1
            if block not in order.setdefault(group, []):
                order[group].append(block)
    if not sums:
        raise ValueError("no list of modules runs in this model: say by stages= where stages begin")
    # The outermost of equals.
    best = max(sums, key=lambda g: (sums[g], -len(g)))
    return order[best]


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
