"""Plans of models on meshes of ranks that are not there."""

import gc
import json
import sys
import weakref

import pytest

import torchlike as torch
from torchlike import distributed, nn
from torchlike.distributed.fsdp import fully_shard
from torchlike.plan._command import main
from torchlike.plan._mesh_picture import matrix
from torchlike.plan._rules import uncut

STYLES = {"layers.*.up": "colwise", "layers.*.down": "rowwise"}


class Layer(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


class Net(nn.Module):
    def __init__(self, count=2):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(count))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def planned(mesh, parallel, model=None, **more):
    x = torch.empty(3, 8, device="meta")
    more = {"step": "train", "optimizer": "adam", **more}
    return torch.plan(model or Net(), x, mesh=mesh, parallel=parallel, **more)


def test_parts_of_styles():
    plan = planned({"tp": 4}, {"tp": STYLES})
    assert plan.mesh == {"tp": 4} and isinstance(plan.sharding[0], torch.plan.Sharded)
    lie = {s.name: (s.placements, s.bytes, s.parts) for s in plan.sharding}
    assert lie["layers.0.up.weight"] == ("S(0)", 8 * 8 * 4, (0, 1, 2, 3))
    assert lie["layers.0.down.weight"] == ("S(1)", 8 * 8 * 4, (0, 1, 2, 3))
    assert lie["layers.0.down.bias"] == ("R", 8 * 4, (0, 0, 0, 0))
    # A reduction of the result of each layer, and of the gradient of its input; the first input wants none.
    assert isinstance(plan.comms[0], torch.plan.Comm)
    assert plan.traffic() == {("all_reduce", "tp"): (3, 3 * 3 * 8 * 4, 3 * 3 * 8 * 4 * 2 * 3 // 4)}
    assert [c.phase for c in plan.comms] == ["forward", "forward", "backward"]
    parameters = sum(s.bytes for s in plan.sharding)
    assert plan.peak["cpu"].by_class["parameters"] == parameters


def test_flops_are_those_of_one_rank():
    whole = torch.plan(Net(), torch.empty(3, 8, device="meta"), step="train")
    cut = planned({"tp": 4}, {"tp": STYLES}, optimizer=None)
    again = planned({"tp": 4}, {"tp": STYLES}, optimizer=None)
    assert cut.flops == again.flops == whole.flops // 4
    assert cut.devices == ["cpu"]


def test_flat_buffers_are_padded():
    model = nn.Sequential(nn.Linear(7, 5), nn.ReLU())
    x = torch.empty(2, 7, device="meta")
    plan = torch.plan(model, x, mesh={"dp": 4}, parallel={"dp": {"fsdp": ["0"]}}, step="train")
    gathers = [c for c in plan.comms if c.kind == "all_gather"]
    scatters = [c for c in plan.comms if c.kind == "reduce_scatter"]
    # 5 rows over 4 are 2 each, of 7 and of 1: (2 * 7 + 2) * 4 ranks.
    assert {(c.sent, c.received) for c in gathers} == {(16 * 4, 64 * 4)}
    assert {(c.sent, c.received) for c in scatters} == {(64 * 4, 16 * 4)}
    assert gathers[0].wire == 64 * 4 * 3 // 4 and gathers[0].ranks == 4
    assert gathers[0].dtype == "float32" and gathers[0].dim == "dp"


def test_both_at_once():
    how = {"tp": STYLES, "dp": {"fsdp": ["layers.*"]}}
    plan = planned({"dp": 2, "tp": 4}, how, device="cuda")
    kinds = {key: n for key, (n, _, _) in plan.traffic().items()}
    assert kinds[("all_reduce", "tp")] == 3
    assert kinds[("reduce_scatter", "dp")] == 2 and kinds[("all_gather", "dp")] == 4
    parts = {s.name: s.parts for s in plan.sharding}
    assert sorted(parts["layers.0.up.weight"]) == list(range(8))
    sent = matrix(plan)
    # Rank 5 is (1, 1): its ring along tp goes on with 6, that along dp with 1.
    assert {to for to, n in enumerate(sent[5]) if n} == {6, 1}
    assert "cuda:0" in plan.devices and "meta" not in plan.devices


def test_functions_and_worlds():
    def how(model, mesh):
        return distributed.fsdp.fully_shard(model, mesh=mesh)

    before = distributed.is_initialized()
    plan = planned({"dp": 1024}, how)
    assert distributed.is_initialized() == before
    assert len(plan.sharding[0].parts) == 64 and plan.peak["cpu"].bytes > 0
    assert planned({"dp": 1}, how).comms == []


def test_questions_that_make_no_sense():
    with pytest.raises(ValueError, match="say how the model lies"):
        planned({"tp": 2}, None)
    with pytest.raises(ValueError, match="no dimension 'x'"):
        planned({"tp": 2}, {"x": "fsdp"})
    with pytest.raises(ValueError, match="no style 'diagonal'"):
        planned({"tp": 2}, {"tp": {"layers.*.up": "diagonal"}})
    for mesh in ({"tp": 0}, 8, {"tp": "many"}):
        with pytest.raises(ValueError, match=r"plan\(mesh=\): expected sizes"):
            planned(mesh, {"tp": STYLES})


def test_pictures_and_files(tmp_path):
    plan = planned({"dp": 2, "tp": 4}, {"tp": STYLES, "dp": "fsdp"})
    for name in ("sharding", "traffic"):
        getattr(plan, f"{name}_svg")(tmp_path / name)
        text = (tmp_path / name).read_text()
        assert text.startswith("<svg") and text.count("<rect") >= 8 * 6
    plan.html(tmp_path / "page")
    assert (tmp_path / "page").read_text().count("<svg") == len(plan.devices) + 2
    plan.save(tmp_path / "plan")
    back = torch.plan.Plan.load(tmp_path / "plan")
    assert (back.comms, back.sharding, back.mesh) == (plan.comms, plan.sharding, plan.mesh)
    assert str(back) == str(plan) and "one rank of dp 2 x tp 4" in str(back)


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the command reads TOML, which needs 3.11")
def test_the_command_line(capsys, tmp_path, monkeypatch):
    (tmp_path / "netfile.py").write_text(
        "import torchlike.nn as nn\ndef net():\n    return nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 4))\n"
    )
    (tmp_path / "how.toml").write_text('[tp]\n"0" = "colwise"\n"1" = "rowwise"\n[dp]\nfsdp = []\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    ask = ["plan", "netfile:net", "--input", "f32[2,8]", "--train", "adamw"]
    assert main([*ask, "--mesh", "dp=128,tp=4", "--parallel", "how.toml", "--json", "out"]) == 0
    said = capsys.readouterr().out
    assert "one rank of dp 128 x tp 4" in said and "have no sharding rule" in said
    assert json.loads((tmp_path / "out").read_text())["mesh"] == {"dp": 128, "tp": 4}
    assert main([*ask, "--mesh", "dp=4"]) == 0
    assert "all_gather" in capsys.readouterr().out
    for wrong in ("dp", "dp=0", "dp=x", "=4"):
        assert main([*ask, "--mesh", wrong]) == 2
    assert main([*ask, "--mesh", "dp=4", "--parallel", "nowhere.toml"]) == 2


def test_few_operators_have_no_rule():
    found, count = uncut()
    assert "mm" not in found and "nonzero" in found
    assert len(found) <= 0.15 * count


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Adagrad", "NAdam"])
def test_a_step_of_an_optimizer_is_one_call_of_pieces(name):
    plan = planned({"tp": 4}, {"tp": STYLES}, optimizer=name.lower())
    steps = [plan.step(i) for i in range(plan.steps)]
    own = [s.op for s in steps if s.phase == "optimizer" and s.op.startswith("_optim.")]
    assert own.count(f"_optim.{name.lower().removesuffix('w')}") == 1 and len(own) <= 3


@pytest.mark.parametrize("name", ["SGD", "AdamW", "Adagrad", "NAdam"])
def test_pieces_are_stepped_as_plain_tensors_are(name):
    make = getattr(torch.optim, name)
    distributed.init_process_group("fake", rank=1, world_size=4)
    try:
        mesh = distributed.init_device_mesh("cpu", (4,))
        Shard = distributed.tensor.Shard
        whole = torch.arange(24.0).reshape(8, 3)
        p = nn.Parameter(distributed.tensor.distribute_tensor(whole, mesh, [Shard(0)]))
        q = nn.Parameter(p.to_local().detach().clone())
        steps = [make([t], lr=0.1, weight_decay=0.1) for t in (p, q)]
        for _ in range(3):
            q.grad = torch.full_like(q, 0.5)
            p.grad = distributed.tensor.DTensor.from_local(q.grad.clone(), mesh, [Shard(0)])
            for s in steps:
                s.step()
        assert torch.equal(p.to_local(), q)
    finally:
        distributed.destroy_process_group()


def test_models_of_plans_go_without_a_search_for_cycles():
    kept = []

    def shard(model, mesh):
        kept.append(weakref.ref(model))
        return fully_shard(model, mesh=mesh)

    gc.collect()
    gc.disable()
    try:
        planned({"dp": 4}, shard)
        assert kept[0]() is None
    finally:
        gc.enable()
