"""Training steps of models that are cut into stages: when the ranks that have them wait, and what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torchlike as torch
from torchlike import _C
from torchlike.plan._make import faked, make
from torchlike.plan._plan import duration, human
from torchlike.plan._schedules import BACKWARD, FORWARD, SCHEDULES, WEIGHT, Action, Ran, orders, run
from torchlike.plan._stages import Cut, Recorded, Stage, balanced, blocks
from torchlike.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torchlike.plan._plan import Plan

__all__ = ["Pipeline", "RankLoad", "pipeline"]


class RankLoad(NamedTuple):
    """What a rank of a pipeline does in a step."""

    stages: tuple[int, ...]
    busy: float
    """Seconds in which it works."""
    peak: int
    """Bytes that it holds at most."""
    in_flight: int
    """Microbatches that are kept at most, of all of its stages."""


class Pipeline:
    """A training step on a pipeline of ranks: `print(pipeline)` is the report.

    Times are estimates by a profile's roofline, of kernels one after the other.

    Attributes:
        plan: the plan of one microbatch on one device, which was cut.
        schedule: the name of the schedule.
        microbatches: how many go through a step.
        stages: what each stage takes for one of them.
        order: the actions of each rank, in order.
        ran: all actions, with the times at which they run.
        seconds: how long the step takes, the optimizer's included.
        loads: what each rank does and holds.
    """

    def __init__(
        self,
        plan: Plan,
        stages: list[Stage],
        schedule: str,
        ranks: int,
        microbatches: int,
        link: float | None,
    ) -> None:
        found = SCHEDULES[schedule]
        self.plan, self.schedule, self.microbatches, self.stages = (
            plan,
            schedule,
            microbatches,
            stages,
        )
        self.order = orders(found, ranks, len(stages) // ranks, microbatches)
        self.ranks = ranks
        self._rank_of = [found.rank_of(s, ranks) for s in range(len(stages))]

        def transfer(a: int, b: int) -> float:
            same = self._rank_of[a] == self._rank_of[b]
            return 0.0 if link is None or same else stages[max(a, b)].given / link

        self.ran: list[Ran] = run(self.order, len(stages), self._seconds, transfer)
        self.loads = [self._load(rank) for rank in range(ranks)]
        update = [sum(stages[s].update for s in load.stages) for load in self.loads]
        last = max(r.end for r in self.ran)
        self.seconds = last + max(update)

    def _seconds(self, action: Action) -> float:
        stage = self.stages[action.stage]
        if action.kind == FORWARD:
            return stage.forward
        if action.kind == BACKWARD:
            return stage.backward
        return stage.weight if action.kind == WEIGHT else stage.backward - stage.weight

    def _load(self, rank: int) -> RankLoad:
        mine = tuple(s for s, r in enumerate(self._rank_of) if r == rank)
        held = static = sum(self.stages[s].static for s in mine)
        peak, flying, most, busy = held, 0, 0, 0.0
        for action in self.order[rank]:
            stage = self.stages[action.stage]
            busy += self._seconds(action)
            if action.kind == FORWARD:
                held += stage.kept
                flying += 1
                most = max(most, flying)
            peak = max(peak, held + stage.working[action.kind != FORWARD])
            # What the gradients of parameters need is kept until they are there.
            if action.kind in (BACKWARD, WEIGHT):
                held -= stage.kept
                flying -= 1
        assert held == static
        return RankLoad(mine, busy + sum(self.stages[s].update for s in mine), peak, most)

    @property
    def bubble(self) -> float:
        """The part of the step in which ranks wait, of all ranks."""
        return 1 - sum(load.busy for load in self.loads) / (self.ranks * self.seconds)

    @property
    def peak(self) -> int:
        """Bytes that the fullest rank holds at most, as they are asked for."""
        return max(load.peak for load in self.loads)

    def __str__(self) -> str:
        lines = [
            f"{len(self.stages)} stages on {self.ranks} ranks, {self.microbatches} microbatches, {self.schedule}: "
            f"{duration(self.seconds)} a step",
            f"{self.bubble:.1%} of it waiting; at most {human(self.peak)} a rank",
            "",
            "stage rank   forward  backward       given      static  microbatch  modules",
        ]
        lines += [
            f"{i:>5} {self._rank_of[i]:>4} {duration(s.forward):>9} {duration(s.backward):>9} "
            f"{human(s.given):>11} {human(s.static):>11} {human(s.kept):>11}  {s.modules[0]} ... {s.modules[1]}"
            for i, s in enumerate(self.stages)
        ]
        lines += ["", "rank   works        peak  kept at most"]
        lines += [
            f"{i:>4} {load.busy / self.seconds:>7.1%} {human(load.peak):>11} {load.in_flight:>13}"
            for i, load in enumerate(self.loads)
        ]
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        from torchlike.plan._pipeline_picture import svg

        return f"<pre>{escape(str(self))}</pre>{svg(self)}"

    def as_dict(self) -> dict[str, Any]:
        """The pipeline in values that JSON has."""
        return {
            "schedule": self.schedule,
            "ranks": self.ranks,
            "microbatches": self.microbatches,
            "seconds": self.seconds,
            "bubble": self.bubble,
            "stages": [s._asdict() for s in self.stages],
            "loads": [load._asdict() for load in self.loads],
            "order": [[str(a) for a in actions] for actions in self.order],
        }

    def svg(self, path: str | Path) -> None:
        """Writes a picture of what each rank does when."""
        from pathlib import Path

        from torchlike.plan._pipeline_picture import svg

        Path(path).write_text(svg(self))


def pipeline(
    model: Any,
    inputs: Any = (),
    *,
    ranks: int,
    microbatches: int,
    schedule: str = "1f1b",
    stages: int | Sequence[str] | None = None,
    profile: str = "h100",
    link: float | None = None,
    **options: Any,
) -> Pipeline:
    """What a training step of a model takes on a pipeline of ranks, before there are any: time, waiting and memory.

    Args:
        model: a module, as for `torchlike.plan`.
        inputs: one microbatch.
        ranks: how many there are.
        microbatches: how many a step has.
        schedule: `gpipe`, `1f1b`, `interleaved` (several stages a rank), `zero-bubble` (gradients of parameters wait)
            or `zbv` (that, with two stages a rank, from the first rank to the last and back). The orders are PyTorch's.
        stages: the modules at which further stages begin, or how many stages there are: the entries of the model's
            largest list of modules are shared out so that the slowest stage is as fast as can be. By default one
            stage a rank (two for `zbv`).
        profile: whose roofline says how long things take, as for `Plan.time`.
        link: bytes a second between ranks; None: what they send takes no time.
        **options: of `torchlike.plan`: `optimizer=`, `loss=`, `device=`, `kwargs=`.

    Raises:
        ValueError: for another schedule, numbers that do not fit, or modules that are not there.
    """
    if schedule not in SCHEDULES:
        raise ValueError(f"no schedule {schedule!r}: one of {', '.join(SCHEDULES)}")
    if ranks < 1 or microbatches < 1:
        raise ValueError(f"a pipeline needs ranks and microbatches, got {ranks} and {microbatches}")
    if options.pop("step", "train") != "train":
        raise ValueError("pipelines are of training steps: step='train'")
    if stages is None:
        stages = ranks * (SCHEDULES[schedule].local or 1)
    count = stages if isinstance(stages, int) else len(stages) + 1
    if count < 1 or count % ranks:
        raise ValueError(f"{count} stages cannot be shared out to {ranks} ranks")
    plan = make(model, inputs, step="train", **options)
    recorded = Recorded(plan, profile)
    starts = _starts(recorded, count) if isinstance(stages, int) else list(stages)
    given = _given(model, inputs, options.get("kwargs"), starts)
    measured = Cut(recorded, starts).measured([0, *given])
    return Pipeline(plan, measured, schedule, ranks, microbatches, link)


def _starts(recorded: Recorded, count: int) -> list[str]:
    """The modules that cut a model into stages of about the same time."""
    if count == 1:
        return []
    found = blocks(recorded)
    times, _ = Cut(recorded, found[1:]).times()
    return [found[i] for i in balanced([t.forward + t.backward for t in times], count)]


def _given(model: Any, inputs: Any, kwargs: Any, starts: Sequence[str]) -> list[int]:
    """Bytes of what modules are called with, by a forward on fake tensors."""
    found: dict[str, int] = {}
    mode, fake, args, named, _ = faked(model, inputs, kwargs, torch.device("cpu"))

    def note(name: str, module: Any) -> None:
        def seen(_: Any, given: Any, more: Any) -> None:
            tensors = {
                id(t): t for t in pytree.tree_leaves((given, more)) if isinstance(t, _C.Tensor)
            }
            found.setdefault(name, sum(t.nbytes for t in tensors.values()))

        module.register_forward_pre_hook(seen, with_kwargs=True)

    modules = dict(fake.named_modules())
    for name in starts:
        if name not in modules:
            raise ValueError(f"the model has no module {name!r}")
        note(name, modules[name])
    with mode, torch.no_grad():
        fake(*args, **named)
    missing = next((name for name in starts if name not in found), None)
    if missing is not None:
        raise ValueError(f"module {missing!r} does not run")
    return [found[name] for name in starts]
