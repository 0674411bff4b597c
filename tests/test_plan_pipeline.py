"""Pipelines: orders of actions, when they run, stages of a plan, and what ranks hold."""

from __future__ import annotations

import json
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.plan import Pipeline, RankLoad, Stage, pipeline
from torchlike.plan._command import main
from torchlike.plan._schedules import SCHEDULES, Action, orders, run
from torchlike.plan._stages import Cut, Recorded, balanced, blocks

# What the schedules of PyTorch 2.13 give for these ranks, stages of a rank, and microbatches.
RECORDED = {
    ("interleaved", 2, 2, 4): [
        "0F0 0F1 2F0 2F1 0F2 2B0 0F3 2B1 2F2 0B0 2F3 0B1 2B2 2B3 0B2 0B3",
        "1F0 1F1 3F0 3B0 3F1 3B1 1F2 1B0 1F3 1B1 3F2 3B2 3F3 3B3 1B2 1B3",
    ],
    ("zero-bubble", 3, 1, 4): [
        "0F0 0F1 0F2 0I0 0W0 0F3 0I1 0W1 0I2 0W2 0I3 0W3",
        "1F0 1F1 1I0 1F2 1I1 1W0 1F3 1I2 1W1 1I3 1W2 1W3",
        "2F0 2I0 2F1 2I1 2F2 2I2 2W0 2F3 2I3 2W1 2W2 2W3",
    ],
    ("zbv", 2, 2, 3): [
        "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2",
        "1F0 2F0 1F1 2F1 2I0 2W0 1F2 1I0 1W0 2F2 2I1 2W1 1I1 2I2 1I2 1W1 2W2 1W2",
    ],
    ("1f1b", 2, 1, 3): ["0F0 0F1 0B0 0F2 0B1 0B2", "1F0 1B0 1F1 1B1 1F2 1B2"],
    ("gpipe", 2, 1, 2): ["0F0 0F1 0B0 0B1", "1F0 1F1 1B0 1B1"],
}


@pytest.mark.parametrize(("case", "want"), RECORDED.items())
def test_orders_are_pytorchs(case: Any, want: list[str]) -> None:
    name, *numbers = case
    assert [" ".join(map(str, o)) for o in orders(SCHEDULES[name], *numbers)] == want


def at_once(a: int, b: int) -> float:
    return 0.0


def unit(action: Action) -> float:
    return 2.0 if action.kind == "B" else 1.0


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("ranks", [1, 2, 4])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_everything_runs_once_and_in_time(name: str, ranks: int, count: int) -> None:
    local = SCHEDULES[name].local or 2
    order = orders(SCHEDULES[name], ranks, local, count)
    ran = {r.action: r for r in run(order, ranks * local, unit, at_once)}
    stages, ms = range(ranks * local), range(count)
    split = any(a.kind == "W" for a in order[0])
    assert set(ran) == {
        Action(s, k, m) for s in stages for m in ms for k in ("FIW" if split else "FB")
    }
    assert sum(map(len, order)) == len(ran)
    for action, r in ran.items():
        stage, kind, m = action
        before = {"F": (stage - 1, "F"), "W": (stage, "I")}.get(kind, (stage + 1, kind))
        if 0 <= before[0] < len(stages):
            assert ran[Action(*before, m)].end <= r.start
        if kind != "F":
            assert ran[Action(stage, "F", m)].end <= r.start
    for rank, actions in enumerate(order):
        times = [ran[a] for a in actions]
        assert all(a.end <= b.start for a, b in pairwise(times))
        assert {SCHEDULES[name].rank_of(a.stage, ranks) for a in actions} == {rank}


def total(name: str, ranks: int, local: int, count: int, transfer: Any = at_once) -> float:
    order = orders(SCHEDULES[name], ranks, local, count)
    return max(r.end for r in run(order, ranks * local, unit, transfer))


def test_waiting_is_what_the_papers_say() -> None:
    # Of equal stages, p - 1 forwards and backwards wait; interleaving divides that by the stages of a rank.
    for p, m in ((4, 8), (8, 32)):
        assert total("1f1b", p, 1, m) == total("gpipe", p, 1, m) == 3 * (m + p - 1)
        assert total("interleaved", p, 2, m) == 3 * (2 * m + p - 1)
        assert total("zero-bubble", p, 1, m) == 3 * m + (p - 1)
        assert total("zbv", p, 2, m) < total("interleaved", p, 2, m)
    assert total("gpipe", 2, 1, 1, lambda a, b: 0.5) == 1 + 0.5 + 1 + 2 + 0.5 + 2


def test_what_waits_for_each_other_is_an_error() -> None:
    order = [[Action(0, "B", 0), Action(0, "F", 0)]]
    with pytest.raises(ValueError, match="wait for each other"):
        run(order, 1, unit, at_once)


def test_cuts_are_the_best() -> None:
    for weights in ([1, 2, 3, 4, 5], [5, 1, 1, 1, 5], [1.0] * 7, [9, 1, 1, 1, 1, 1, 9, 2]):
        for count in range(1, len(weights) + 1):

            def worst(cuts: Any, weights: Any = weights) -> float:
                ends = [0, *cuts, len(weights)]
                return max(sum(weights[a:b]) for a, b in pairwise(ends))

            found = balanced(weights, count)
            assert len(found) == count - 1
            inner = range(1, len(weights))
            assert worst(found) == min(worst(c) for c in combinations(inner, count - 1))
    with pytest.raises(ValueError, match="2 blocks cannot be 3 stages"):
        balanced([1, 1], 3)


class Block(nn.Module):
    """A network with a way around it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any, scale: Any = None) -> Any:
        """The same shape."""
        y = self.down(torch.relu(self.up(self.norm(x))))
        return x + (y if scale is None else y * scale)


class Model(nn.Module):
    """Words, blocks, words."""

    def __init__(self, count: int = 6, width: int = 64) -> None:
        super().__init__()
        self.words = nn.Embedding(100, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(count))
        self.head = nn.Linear(width, 100)

    def forward(self, ids: Any) -> Any:
        """Scores."""
        x = self.words(ids)
        scale = x[:, :1]
        for block in self.blocks:
            x = block(x, scale=scale)
        return self.head(x)


def ids() -> Any:
    return torch.empty(8, 32, dtype=torch.int64, device="meta")


def made(**options: Any) -> Pipeline:
    with torch.device("meta"):
        model = Model()
    return pipeline(
        model,
        ids(),
        **{"ranks": 2, "microbatches": 4, "optimizer": "adamw", "device": "cuda", **options},
    )


def test_stages_are_the_whole() -> None:
    pipe = made(ranks=3)
    plan = pipe.plan
    assert all(isinstance(s, Stage) for s in pipe.stages)
    assert [s.modules for s in pipe.stages] == [
        ("words", "blocks.1"),
        ("blocks.2.norm", "blocks.3"),
        ("blocks.4.norm", "head"),
    ]
    times = sum(s.forward + s.backward + s.update for s in pipe.stages)
    assert times == pytest.approx(plan.time("h100"))
    assert all(0 < s.weight < s.backward for s in pipe.stages)
    values = [plan._program.value(i) for i in range(plan.values)]
    kinds = torch._C._Program.classes()
    lasting = {"parameters", "buffers", "gradients", "optimizer states"}
    assert sum(s.static for s in pipe.stages) == sum(v[0] for v in values if kinds[v[6]] in lasting)
    back = next(i for i in range(plan.steps) if plan.step(i).phase == "backward")
    living = [values[i] for i in plan._program.live(plan.devices[0], back)]
    live = sum(v[0] for v in living if kinds[v[6]] not in lasting)
    born = sum(v[0] for v in values if v[4] == back)
    given = sum(s.given for s in pipe.stages)
    assert sum(s.kept for s in pipe.stages) - given == live - born
    # A block is called with what the one before gives, and with the scale, which is a view of the first.
    assert [s.given for s in pipe.stages] == [0, *[8 * 32 * 64 * 4 + 8 * 64 * 4] * 2]


def test_one_rank_holds_what_a_plan_says() -> None:
    pipe = made(ranks=1, microbatches=1)
    before = pipe.plan.memory(allocator="requested").requested
    load = pipe.loads[0]
    assert isinstance(load, RankLoad)
    # A plan begins without gradients and states, a pipeline has them from the step before.
    assert before <= load.peak <= before + pipe.stages[0].static
    assert (pipe.bubble, load.in_flight) == (pytest.approx(0), 1)
    assert pipe.seconds == pytest.approx(pipe.plan.time("h100"))


def test_schedules_hold_and_wait() -> None:
    common = {"ranks": 3, "microbatches": 6}
    by_name = {
        name: made(**common, schedule=name, stages=6 if name == "interleaved" else None)
        for name in SCHEDULES
    }
    assert [load.in_flight for load in by_name["gpipe"].loads] == [6, 6, 6]
    assert [load.in_flight for load in by_name["1f1b"].loads] == [3, 2, 1]
    assert by_name["1f1b"].peak < by_name["gpipe"].peak
    assert by_name["zero-bubble"].bubble < by_name["1f1b"].bubble
    assert by_name["interleaved"].bubble < by_name["1f1b"].bubble
    assert by_name["zbv"].loads[0].stages == (0, 5)
    assert by_name["interleaved"].loads[0].stages == (0, 3)
    slow = made(**common, link=1e6)
    assert slow.seconds > by_name["1f1b"].seconds
    assert made(**common, link=1e30).seconds == pytest.approx(by_name["1f1b"].seconds)


def test_stages_by_name_and_plans_that_say_where() -> None:
    pipe = made(stages=["blocks.5"])
    assert [s.modules for s in pipe.stages] == [("words", "blocks.4"), ("blocks.5.norm", "head")]
    recorded = Recorded(pipe.plan, "h100")
    assert blocks(recorded) == [f"blocks.{i}" for i in range(6)]
    with pytest.raises(ValueError, match=r"'blocks.1' runs after the stage before it"):
        Cut(recorded, ["blocks.4", "blocks.1"])
    cut = Cut(recorded, ["blocks.2"])
    assert [cut.owner(n) for n in ("words.weight", "blocks.1.x", "blocks.3.scale.grad")] == [
        0,
        0,
        1,
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "2f2b"}, "no schedule '2f2b': one of gpipe, 1f1b"),
        ({"ranks": 0}, "needs ranks and microbatches, got 0 and 4"),
        ({"stages": 3}, "3 stages cannot be shared out to 2 ranks"),
        ({"stages": 4}, "'1f1b' has 1 stages a rank, not 2"),
        ({"stages": ["nowhere"]}, "no module 'nowhere'|no step of 'nowhere'"),
        ({"ranks": 8}, "6 blocks cannot be 8 stages"),
        ({"step": "forward"}, "pipelines are of training steps"),
        (
            {"schedule": "interleaved", "stages": 4, "microbatches": 5},
            "multiple of the number of rounds, 2",
        ),
    ],
)
def test_what_does_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        made(**options)
    with pytest.raises(ValueError, match="no list of modules runs"):
        pipeline(nn.Linear(2, 2), torch.empty(1, 2), ranks=2, microbatches=2)


def test_texts_and_pictures(tmp_path: Path) -> None:
    pipe = made()
    report = str(pipe)
    assert report.startswith("2 stages on 2 ranks, 4 microbatches, 1f1b: ")
    assert "blocks.3.norm ... head" in report
    pipe.svg(tmp_path / "p.svg")
    picture = (tmp_path / "p.svg").read_text()
    assert picture.count("<rect") == len(pipe.ran) == 16
    assert "1B3: " in picture
    assert picture in pipe._repr_html_()
    found = json.loads(json.dumps(pipe.as_dict()))
    assert found["order"][1][:2] == ["1F0", "1B0"]
    assert found["seconds"] == pipe.seconds


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["plan", "test_plan_pipeline:Model", "--input", "i64[8,32]", "--train", "adamw"]
    files = ["--svg", str(tmp_path / "p.svg"), "--json", str(tmp_path / "p.json")]
    asked = "ranks=2,microbatches=4,schedule=interleaved,stages=4,profile=a100"
    assert main([*call, "--pipeline", asked, *files]) == 0
    assert "4 stages on 2 ranks" in capsys.readouterr().out
    assert json.loads((tmp_path / "p.json").read_text())["ranks"] == 2
    assert (tmp_path / "p.svg").read_text().startswith("<svg")
    for wrong, message in (
        ("ranks=2", "needs ranks and microbatches"),
        ("ranks=two,microbatches=2", "got 'ranks=two'"),
        ("ranks=2,microbatches=4,speed=3", "got 'speed=3'"),
    ):
        assert main([*call, "--pipeline", wrong]) == 2
        assert message in capsys.readouterr().err
    assert main([*call, "--pipeline", asked, "--mesh", "dp=2"]) == 2
    assert main([*call, "--pipeline", "ranks=2,microbatches=4,schedule=x"]) == 1
