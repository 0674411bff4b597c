"""What plans say besides their peak: lines, allocators, times, files for other programs; where values come from."""

import json
import pickle
from pathlib import Path

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.distributed._tools.runtime_estimator import RuntimeEstimator
from torchlike.plan import _allocator, assert_initialized, explain, profile, uninitialised

MIB = 1 << 20


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)

    def forward(self, x):
        y = self.layer(x)
        return torch.relu(y) * 2  # the line of the activations


def planned(**how):
    return torch.plan(Net(), torch.empty(32, 64, device="meta"), step="train", **how)


def test_bytes_by_line():
    lines = planned().by_line()
    mine = {k.rpartition(":")[2]: n for k, n in lines.items() if k.startswith(__file__)}
    source = Path(__file__).read_text().splitlines()
    at = next(i for i, text in enumerate(source, 1) if "the line of the activations" in text)
    assert mine[str(at)] >= 32 * 64 * 4 and "(parameters)" in lines
    plan = planned(lines=True)
    assert {plan.step(i).line.rpartition("/")[2].partition(":")[0] for i in range(2)} == {
        "test_plan_outputs.py"
    }
    assert {plan.step(i).module for i in range(plan.steps)} >= {"Net", "layer"}
    assert plan.flops_by_module() == planned().flops_by_module()


def test_progress():
    seen = []
    planned(progress=lambda name, count: seen.append((name, count)))
    assert seen == [("Net", 1), ("layer", 2)]


@pytest.mark.parametrize(
    ("size", "block", "segment"),
    [(1, 512, 2 * MIB), (513, 1024, 2 * MIB), (MIB, MIB, 2 * MIB), (MIB + 1, MIB + 512, 20 * MIB),
     (10 * MIB - 512, 10 * MIB - 512, 20 * MIB), (10 * MIB, 10 * MIB, 10 * MIB),
     (11 * MIB + 1, 11 * MIB + 512, 12 * MIB)],
)  # fmt: skip
def test_sizes_of_pytorchs_allocator(size, block, segment):
    assert _allocator.rounded(size) == block and _allocator.segment_size(block) == segment


def test_blocks_are_split_joined_and_taken_by_best_fit():
    cache = _allocator.Cache()
    a, b, c = cache.take(512 * 1024), cache.take(512 * 1024), cache.take(1024 * 1024)
    assert cache.reserved == 2 * MIB and cache.allocated == 2 * MIB
    cache.give_back(a)
    cache.give_back(c)
    assert cache.take(1000).address == a.address, "the smallest free block that is large enough"
    cache.give_back(b)
    whole = cache.take(1024 * 1024 + 512 * 1024 - 1024)
    assert whole.size == 1024 * 1024 + 512 * 1024 - 1024 or cache.reserved > 2 * MIB
    large = cache.take(19 * MIB + 600 * 1024)
    assert large.size == 20 * MIB, "what remains of a large block is not worth a split below 1 MiB"
    assert (cache.most_allocated, cache.most_reserved) == (cache.allocated, cache.reserved)


def test_two_models_of_allocators():
    plan = planned(device="cuda", optimizer="adam")
    ours = planned(device="cuda", optimizer="adam", allocator="torchlike-cpu")
    memory = plan.memory()
    assert (
        isinstance(memory, torch.plan.Memory)
        and memory.requested <= memory.allocated <= memory.reserved
    )
    assert memory.reserved % (2 * MIB) == 0 and memory.segments > 0
    assert ours.memory().allocated == ours.peak["cuda:0"].bytes != plan.peak["cuda:0"].bytes
    assert plan.memory(allocator="requested").requested == memory.requested
    for call in (lambda: plan.memory(allocator="other"), lambda: planned(allocator="other")):
        with pytest.raises(ValueError, match="allocator 'other'"):
            call()


def test_rooflines(tmp_path):
    plan = planned(device="cuda")
    assert plan.time("h100") >= plan.steps * profile("h100").launch
    assert profile("cpu").seconds(10**12, 0, "float32") > profile("h200").seconds(
        10**12, 0, "float32"
    )
    assert plan.time("cpu") > 0 and profile("a100").peak["bfloat16"] == 312e12
    own = tmp_path / "mine.json"
    one = {
        "name": "x",
        "peak": {"float32": 1.0},
        "bandwidth": 1e30,
        "launch": 0.0,
        "efficiency": 1.0,
    }
    own.write_text(json.dumps(one))
    assert isinstance(profile(str(own)), torch.plan.Profile)
    assert plan.time(str(own)) == pytest.approx(plan.flops)
    with pytest.raises(ValueError, match="no profile 'nothing'"):
        plan.time("nothing")


def test_a_plan_comes_back(tmp_path):
    plan = planned(optimizer="adamw")
    plan.save(tmp_path / "plan.json")
    back = torch.plan.Plan.load(tmp_path / "plan.json")
    assert str(back) == str(plan) and back.peak == plan.peak and back.timeline() == plan.timeline()
    assert back.memory(allocator="torch-cuda") == plan.memory(allocator="torch-cuda")
    back.svg(tmp_path / "plan.svg")
    noted = planned(optimizer="adamw", lines=True)
    assert str(noted) == str(plan)
    noted.save(tmp_path / "plan.json")
    assert torch.plan.Plan.load(tmp_path / "plan.json").by_line() == noted.by_line()
    for call in (back.verify, lambda: back.what_if(batch=3), back.by_line):
        with pytest.raises(RuntimeError, match="read back"):
            call()
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(ValueError, match="not a plan"):
        torch.plan.Plan.load(tmp_path / "other.json")


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_every_sum_is_the_peak(device):
    model = nn.Sequential(nn.Linear(700, 700), nn.LayerNorm(700))
    plan = torch.plan(model, torch.empty(3, 700), step="train", optimizer="adamw", device=device)
    on = plan.devices[0]
    peak = plan.peak[on]
    parts = (peak.by_class, plan.by_module(), plan.by_line())
    assert [sum(p.values()) for p in parts] == [peak.bytes] * 3
    assert sum(v.bytes for v in peak.live) == peak.bytes
    assert peak.bytes > plan.memory(on).requested


def test_files_for_other_programs(tmp_path):
    plan = planned(lines=True, device="cuda")
    plan.snapshot(tmp_path / "s.pickle")
    snapshot = pickle.loads((tmp_path / "s.pickle").read_bytes())
    trace = snapshot["device_traces"][0]
    made = sum(e["action"] == "alloc" for e in trace)
    freed = sum(e["action"] == "free_completed" for e in trace)
    assert made >= freed > 0 and trace[-1]["time_us"] >= trace[0]["time_us"]
    alive = sum(b["state"] == "active_allocated" for s in snapshot["segments"] for b in s["blocks"])
    assert alive == made - freed
    assert any(f["filename"] == __file__ for e in trace for f in e["frames"])
    plan.perfetto(tmp_path / "p.json", profile="h100")
    events = json.loads((tmp_path / "p.json").read_text())["traceEvents"]
    assert sum(e["ph"] == "X" and e["tid"] == 1 for e in events) == plan.steps
    assert any(e["ph"] == "C" and e["args"]["parameters"] for e in events)


def test_where_values_come_from(tmp_path):
    assert explain(torch.ones(2)).kind == "real"
    assert explain(torch.empty(2)).kind == "uninitialised"
    assert explain(torch.zeros(2, device="meta")).kind == "none"
    torch.save({"w": torch.ones(4)}, tmp_path / "c.pt")
    found = explain(torch.load(tmp_path / "c.pt", map_location="meta")["w"])
    assert isinstance(found, torch.plan.Explanation)
    assert found.kind == "file" and "c.pt" in found.files[0] and "bytes" in str(found)
    with torch.meta_init():
        w = torch.empty(3, 2)
        torch.nn.init.normal_(w, std=0.5)
        v = w @ w.T + 1
    found = explain(v)
    assert found.kind == "recipe" and found.made >= (6 + 9) * 4 and v.is_meta
    names = [c.partition(" = ")[2].partition("(")[0] for c in found.calls]
    assert names[0] == "empty" and "normal_" in names and names[-1].rstrip("_") == "add"
    assert "replayed" in str(found) and "std=0.5" in str(found)
    with pytest.raises(TypeError, match="expected a tensor"):
        explain(3)


def test_what_becoming_real_takes(tmp_path):
    torch.save({str(i): torch.ones(4096) for i in range(4)}, tmp_path / "c.pt")
    state = torch.load(tmp_path / "c.pt", map_location="meta")
    for t in (state["0"].half(), state["1"][5:9] * 2, state["2"].mul_(2).add_(state["3"])):
        said = explain(t).made
        torch.cpu.reset_peak_memory_stats()
        before = torch.cpu.memory_stats()["allocated_bytes.all.current"]
        torch.materialize(t)
        assert torch.cpu.memory_stats()["allocated_bytes.all.peak"] - before == said


def test_what_nobody_has_written(tmp_path):
    for make in (
        torch.empty,
        lambda *s: torch.zeros(()).new_empty(s),
        lambda *s: torch.empty_like(torch.ones(*s)),
    ):
        module = nn.Module()
        module.a, module.b = nn.Parameter(make(2, 2)), nn.Parameter(torch.zeros(2))
        module.register_buffer("c", make(2, 2))
        assert uninitialised(module) == ["a", "c"]
        with pytest.raises(AssertionError, match="2 tensors: a, c"):
            assert_initialized(module)
        module.a.data.fill_(1)
        with torch.no_grad():
            module.c.t().copy_(torch.ones(2, 2))
        assert_initialized(module)
    meta = nn.Linear(2, 2, device="meta")
    assert uninitialised(meta) == ["weight", "bias"] == uninitialised(meta.to_empty(device="cpu"))
    torch.save(nn.Linear(2, 2).state_dict(), tmp_path / "w.pt")
    meta.load_state_dict(torch.load(tmp_path / "w.pt"))
    assert_initialized(meta)
    assert_initialized(nn.LSTM(3, 3))
    with torch.meta_init():
        assert_initialized(nn.Linear(2, 2))


def test_times_of_modules(capsys):
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256)).to("meta")
    with RuntimeEstimator(profile="a100")("operator-level-cost-model") as estimator:
        model(torch.empty(64, 256, device="meta")).sum().backward()
    runtimes = estimator.mod_runtimes
    assert estimator.total_runtime == pytest.approx(sum(runtimes["Global"].values()))
    assert (
        runtimes["Sequential"]["fw"]
        >= runtimes["Sequential.0"]["fw"] + runtimes["Sequential.2"]["fw"]
        > 0
    )
    assert estimator.mod_fw_pre_order == [
        "Sequential",
        "Sequential.0",
        "Sequential.1",
        "Sequential.2",
    ]
    assert (
        estimator.mod_bw_pre_order[0].startswith("Sequential")
        and estimator.mod_fw_post_order[-1] == "Sequential"
    )
    assert estimator.mod_bw_post_order
    estimator.display_modulewise_stats(depth=1)
    assert "Sequential fw:" in capsys.readouterr().out
    with pytest.raises(NotImplementedError, match="needs the device"):
        estimator("operator-level-benchmark")
    with pytest.raises(ValueError, match="not supported"):
        estimator("by-guessing")


def test_programs_stream_their_weights(tmp_path):
    with torch.meta_init():
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    program = torch.export.export(model, (torch.empty(3, 4, device="meta"),))
    torch.export.save(program, tmp_path / "m.pt2")
    assert model[0].weight.is_meta
    loaded = torch.export.load(tmp_path / "m.pt2").module()
    torch.materialize(model)
    x = torch.randn(3, 4)
    assert torch.equal(loaded(x), model(x))
