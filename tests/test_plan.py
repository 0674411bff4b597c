"""Plans: what a step needs, beside what it takes."""

import contextlib
import gc
import json
import subprocess
import sys
import threading

import pytest

import torchlike as torch
from torchlike import nn
from torchlike.plan._command import main
from torchlike.utils.checkpoint import checkpoint


def mlp():
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, q, k):
        return self.inner(q, k, k)[0]


MODELS = [(mlp, [(8, 16)]), (Attention, [(2, 5, 16)] * 2), (lambda: nn.LSTM(8, 8), [(5, 2, 8)])]


@pytest.mark.parametrize(("build", "shapes"), MODELS)
@pytest.mark.parametrize(
    ("step", "optimizer"), [("forward", None), ("train", None), ("train", "adamw")]
)
def test_the_peak_is_what_the_allocator_counts(build, shapes, step, optimizer):
    inputs = [torch.empty(s, device="meta") for s in shapes]
    plan = torch.plan(build(), inputs, step=step, optimizer=optimizer)
    done = plan.verify()
    assert isinstance(done, torch.plan.Verification) and done.equal, done


def test_a_plan_by_hand():
    plan = torch.plan(nn.Linear(16, 32, bias=False), torch.empty(8, 16, device="meta"))
    peak = plan.peak["cpu"]
    assert peak.by_class == {"parameters": 2048, "inputs": 512, "temporaries": 1024}
    assert (peak.bytes, plan.flops, peak.at.op) == (3584, 2 * 8 * 16 * 32, "nn.functional.linear")
    assert [v.name for v in peak.live[:1]] == ["weight"]
    kinds = torch.plan.Plan, torch.plan.Peak, torch.plan.Step, torch.plan.Live
    assert tuple(map(type, (plan, peak, peak.at, peak.live[0]))) == kinds


def test_classes_modules_and_phases():
    plan = torch.plan(mlp(), torch.empty(8, 16), step="train", optimizer="adam", device="cuda")
    peak = plan.peak["cuda:0"]
    weights = (16 * 32 + 32 + 32 * 4 + 4) * 4
    rounded = sum(-(-n // 512) * 512 for n in (16 * 32 * 4, 32 * 4, 32 * 4 * 4, 4 * 4))
    assert weights <= peak.by_class["parameters"] == rounded == peak.by_class["gradients"]
    assert peak.by_class["optimizer states"] >= 2 * rounded
    flops = plan.flops_by_module()
    assert flops["0"] == {"forward": 2 * 8 * 16 * 32, "backward": 2 * 8 * 16 * 32}
    assert flops["2"] == {"forward": 2 * 8 * 32 * 4, "backward": 4 * 8 * 32 * 4}
    assert {plan.step(i).phase for i in range(plan.steps)} == {"forward", "backward", "optimizer"}


def test_other_batches_and_differences():
    plan = torch.plan(mlp(), torch.empty(8, 16, device="meta"))
    larger = plan.what_if(batch=16)
    assert larger.flops == 2 * plan.flops
    assert larger.peak["cpu"].by_class["inputs"] == 2 * plan.peak["cpu"].by_class["inputs"]
    assert "inputs" in plan.diff(larger)


def test_cycles_are_left_alone_while_a_plan_is_made():
    told = []
    gc.callbacks.append(lambda *about: told.append(about))
    try:
        model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(64)))
        gc.collect()
        told.clear()
        torch.plan(model, torch.ones(2, 4), progress=lambda *_: [[] for _ in range(2000)])
        assert not told and gc.isenabled()
    finally:
        gc.callbacks.pop()


def test_the_model_is_left_as_it_was():
    with torch.device("meta"):
        model = mlp()
    before = list(model.parameters())
    torch.plan(model, torch.empty(8, 16), step="train", optimizer=torch.optim.SGD)
    assert all(
        a is b and a.is_meta and a.grad is None
        for a, b in zip(before, model.parameters(), strict=True)
    )


def test_questions_that_make_no_sense():
    with pytest.raises(ValueError, match="expected 'forward' or 'train'"):
        torch.plan(mlp(), torch.empty(8, 16), step="run")
    with pytest.raises(ValueError, match="unknown optimizer 'adm'"):
        torch.plan(mlp(), torch.empty(8, 16), step="train", optimizer="adm")
    with pytest.raises(RuntimeError):
        torch.plan(mlp(), torch.empty(8, 15))
    with pytest.raises(ValueError, match="runs on the CPU"):
        torch.plan(mlp(), torch.empty(8, 16), device="cuda").verify()


def test_outputs(tmp_path):
    plan = torch.plan(mlp(), torch.empty(8, 16), step="train")
    plan.save(tmp_path / "p.json")
    plan.svg(tmp_path / "p.svg")
    plan.html(tmp_path / "p.html")
    said = json.loads((tmp_path / "p.json").read_text())
    assert said["peak"]["cpu"]["bytes"] == plan.peak["cpu"].bytes
    sums = [sum(step) for step in zip(*said["timeline"]["cpu"].values(), strict=True)]
    assert max(sums) == plan.peak["cpu"].bytes
    assert (tmp_path / "p.svg").read_text().startswith("<svg")
    assert "http" not in (tmp_path / "p.html").read_text().replace("http://www.w3.org/2000/svg", "")
    assert "parameters" in plan._repr_html_() and str(plan).startswith(f"{plan.steps} steps")


def test_twins_of_models():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    twin = torch.plan.twin(model)
    assert twin[0].weight is twin[1].weight and twin[0].weight.is_meta
    assert isinstance(twin[0].weight, nn.Parameter)
    torch.materialize(twin)
    assert torch.equal(twin[0].weight, model[0].weight)


def test_the_command_line(capsys, tmp_path):
    spec = f"{__name__}:mlp"
    assert main(["plan", spec, "--input", "f32[8,16]", "--train", "adamw", "--verify"]) == 0
    assert "peak" in capsys.readouterr().out
    assert main(["validate", spec, "--input", "f32[8,16]", "--device", "cuda:7", "--train"]) == 0
    assert main(["validate", spec, "--input", "f32[8,15]"]) == 1
    assert "cannot be multiplied" in capsys.readouterr().err
    assert main(["validate", spec, "--input", "q8[3]"]) == 2
    assert main(["plan", "nowhere:model"]) == 2
    assert main(["plan", spec, "--input", "f32[8,16]", "--train", "adm"]) == 2
    assert main(["plan", spec, "--input", "f32[8,16]", "--device", "moon"]) == 2
    assert main(["plan", spec, "--input", "f32[8,16]", "--svg", str(tmp_path / "no" / "p")]) == 2
    assert main(["plan", f"{__name__}:pytest.fail"]) == 2
    capsys.readouterr()
    assert main(["plan", spec, "--input", "f32[8,16]", "--json", "-", "--verify"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 3
    path = tmp_path / "m.pt"
    torch.save(mlp().state_dict(), path)
    assert main(["check", spec, str(path)]) == 0
    torch.save({"0.weight": torch.ones(2), "a\x1b[31m": torch.ones(1), "2.bias": 3}, path)
    assert main(["check", spec, str(path)]) == 1
    said = capsys.readouterr().out
    assert "missing: 0.bias" in said and r"unexpected: a\x1b[31m" in said
    assert "differs: 2.bias is a tensor, the file has int" in said
    torch.save([torch.ones(1)], path)
    assert main(["check", spec, str(path)]) == main(["check", spec, "nowhere.pt"]) == 2


def test_nobody_has_to_read_what_a_command_prints():
    command = [sys.executable, "-m", "torchlike", "check", "torchlike.nn:Identity", "-"]
    for args, code in ((["--help"], 0), (command[3:], 2)):
        run = subprocess.Popen(
            [*command[:3], *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        run.stdout.close()
        said = run.stderr.read().decode()
        run.stderr.close()
        assert run.wait() == code and "Traceback" not in said and "Exception" not in said, said


class Odd(nn.Module):
    """Ties, things that are no modules, a module with a copy of its own, buffers of all kinds."""

    class Own(nn.Linear):
        copies = 0

        def __deepcopy__(self, memo):
            Odd.Own.copies += 1
            made = Odd.Own(self.in_features, self.out_features, bias=False)
            memo[id(self)] = made
            return made

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight
        self.again = self.a
        self.own = self.Own(4, 4, bias=False)
        self.register_buffer("kept", torch.ones(4))
        self.register_buffer("loose", torch.ones(4), persistent=False)
        self.register_buffer("none", None)
        self.scale, self.names, self.plain = 2, ["a", "b"], [torch.ones(4)]
        self.frozen = nn.Parameter(torch.ones(4), requires_grad=False)

    def forward(self, x):
        for name in self.names:
            x = getattr(self, name)(x) * self.scale
        assert self.again is self.a and self.b.weight is self.a.weight
        assert not self.frozen.requires_grad and list(self.state_dict()) == STATE
        return self.own(x) + self.kept + self.loose + self.frozen


STATE = ["frozen", "kept", "a.weight", "b.weight", "again.weight", "own.weight"]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_models_are_copied_as_they_are(device):
    model, before = Odd(), Odd.Own.copies
    model.names.append("b")
    plan = torch.plan(model, torch.empty(2, 4), step="train", device=device, allocator="requested")
    weights = plan.peak[plan.devices[0]].by_class
    assert (
        weights["parameters"] == (16 + 16 + 4) * 4
        and weights["buffers"] == (3 if device == "cpu" else 2) * 4 * 4
    )
    assert Odd.Own.copies == before + 1
    assert model.a.weight.device.type == "cpu" and torch.equal(model.kept, torch.ones(4))


def test_plain_layers_are_copied_without_deepcopy(monkeypatch):
    def refuse(value, memo=None):
        raise AssertionError(f"{type(value)} was copied as a stranger")

    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm((4,)), nn.BatchNorm1d(4), nn.Dropout(0.5))
    monkeypatch.setattr("copy.deepcopy", refuse)
    for device in ("cpu", "cuda"):
        plan = torch.plan(model, torch.empty(2, 4), step="train", device=device)
        assert plan.steps > 3
    with pytest.raises(AssertionError, match="Odd"):
        torch.plan(nn.Sequential(Odd.Own(4, 4)), torch.empty(2, 4))


def test_a_step_of_an_optimizer_is_one_call_on_every_device():
    for device in ("cpu", "cuda"):
        plan = torch.plan(mlp(), torch.empty(8, 16), step="train", optimizer="sgd", device=device)
        steps = [plan.step(i) for i in range(plan.steps)]
        (step,) = [s for s in steps if s.phase == "optimizer"]
        weights = (16 * 32 + 32 + 32 * 4 + 4) * 4
        assert step.op == "_optim.sgd" and (step.read, step.wrote) == (2 * weights, weights)


class Kept(nn.Module):
    """A part that is computed again, what a table of indices chooses, and rows that lie side by side."""

    def __init__(self):
        super().__init__()
        self.part = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.ReLU())
        self.table = nn.Parameter(torch.zeros(5, 8))
        self.register_buffer("index", torch.arange(4) + 1)
        self.head = nn.Linear(8, 300, bias=False)

    def forward(self, x):
        x = checkpoint(self.part, x, use_reentrant=False) + self.table[self.index]
        return self.head(x.transpose(0, 1))


@pytest.mark.parametrize("step", ["forward", "train"])
@pytest.mark.parametrize(
    "where", [contextlib.nullcontext(), torch.meta_init(), torch.device("meta")]
)
def test_what_waits_is_verified_too(step, where):
    with where:
        model = Kept()
    done = torch.plan(model, torch.empty(3, 4, 8), step=step).verify()
    assert done.equal, done


def test_groups_of_an_optimizer_are_its_own():
    model = mlp()
    weights, biases = [model[0].weight, model[2].weight], [model[0].bias, model[2].bias]
    optimizer = torch.optim.SGD([{"params": weights, "momentum": 0.9}, {"params": biases}], 0.1)
    plan = torch.plan(model, torch.empty(8, 16), step="train", optimizer=optimizer)
    kept = {v.name for v in plan.peak["cpu"].live if v.kind == "optimizer states"}
    assert kept == {"0.weight.momentum_buffer", "2.weight.momentum_buffer"}
    assert plan.verify().equal
    for given in (
        torch.optim.AdamW(model.parameters()),
        torch.optim.Adam(model.named_parameters(), lr=torch.tensor(0.1)),
    ):
        plan = torch.plan(model, torch.empty(8, 16), step="train", optimizer=given)
        assert plan.verify().equal
    some = torch.optim.Adam([*weights, nn.Parameter(torch.ones(1))])
    with pytest.raises(ValueError, match="parameters that the model has not"):
        torch.plan(model, torch.empty(8, 16), step="train", optimizer=some)
    like = torch.optim.SGD(mlp().parameters(), 0.1, momentum=0.9)
    plan = torch.plan(model, torch.empty(8, 16), step="train", optimizer=like)
    assert len([v for v in plan.live_at(plan.steps - 1) if v.kind == "optimizer states"]) == 4


def test_every_optimizer_that_is_named_can_be_planned():
    with pytest.raises(ValueError, match="one of adadelta") as refused:
        torch.plan(nn.Linear(4, 4), torch.empty(2, 4), step="train", optimizer="lbfgs")
    names = str(refused.value).partition("one of ")[2].split(", ")
    assert {"adamw", "adafactor", "muon"} <= set(names)
    for name in names:
        model = nn.Linear(4, 4, bias=False)
        plan = torch.plan(model, torch.empty(2, 4), step="train", optimizer=name)
        assert plan.verify().equal, name


class Loose(nn.Module):
    """What it has besides parameters and buffers."""

    def __init__(self):
        super().__init__()
        self.inner = nn.MultiheadAttention(8, 2, batch_first=True)
        self.index, self.rest = torch.arange(3), {"scale": torch.ones(8)}

    def forward(self, a, b):
        return self.inner(a, b, b)[0][:, self.index] * self.rest["scale"]


@pytest.mark.parametrize(
    "where", [contextlib.nullcontext(), torch.meta_init(), torch.device("meta")]
)
def test_attributes_and_inputs_that_are_one_tensor(where):
    x = torch.empty(2, 4, 8, device="meta")
    with where:
        model = Loose()
    plan = torch.plan(model, (x, x), step="train")
    assert plan.verify().equal
    assert plan.peak["cpu"].by_class["buffers"] == 3 * 8 + 8 * 4


class Heads(nn.Module):
    """Its parts leave what they make in a list that all of them hold."""

    def __init__(self):
        super().__init__()
        self.heads = [torch.rand(1)] * 2
        self.parts = nn.ModuleList(mlp() for _ in self.heads)
        for part in self.parts:
            part.heads, part.within = self.heads, {"heads": self.heads}
            part.register_forward_hook(lambda m, args, made: m.within["heads"].append(made))

    def forward(self, x):
        del self.heads[:]
        for part in self.parts:
            part(x)
        return self.parts[0].heads[0] + self.heads[1]


def test_lists_of_tensors_that_several_modules_hold_stay_one():
    plan = torch.plan(Heads(), torch.empty(2, 16, device="meta"), step="train")
    assert plan.verify().equal


def test_sparse_gradients_take_memory_where_their_parts_are():
    model = nn.Embedding(10, 8, sparse=True)
    x = torch.zeros(3, dtype=torch.long)
    plan = torch.plan(model, x, step="train", optimizer="sgd")
    assert plan.devices == ["cpu"] and plan.verify().predicted > 0


class Meanwhile(nn.Module):
    """Something else happens while it works."""

    def __init__(self, happens):
        super().__init__()
        self.first, self.second = mlp(), nn.Linear(4, 4)
        self.happens = happens

    def forward(self, x):
        x = self.first(x)
        self.happens()
        return self.second(x).relu()


def test_plans_of_other_threads_are_their_own():
    x = torch.empty(8, 16)
    begun, done = threading.Event(), threading.Event()

    def modules(happens):
        plan = torch.plan(Meanwhile(happens), x)
        return [plan.step(i).module for i in range(plan.steps)]

    def waits():
        begun.set()
        assert done.wait(60)

    theirs = []
    other = threading.Thread(target=lambda: theirs.append(modules(waits)))

    def begins():
        other.start()
        assert begun.wait(60)

    ours = modules(begins)
    done.set()
    other.join()
    assert [ours] == theirs == [modules(lambda: None)] and ours[-2:] == ["second", "Meanwhile"]


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("step", ["forward", "train"])
def test_results_that_modules_hold_on_to(step):
    norm = nn.utils.weight_norm
    layers = norm(nn.Conv1d(4, 8, 3)), nn.ReLU(), norm(nn.Conv1d(8, 2, 3), dim=None)
    dense = norm(nn.Linear(4, 3))
    for model, shape in ((nn.Sequential(*layers), (2, 4, 20)), (dense, (2, 4))):
        done = torch.plan(model, torch.zeros(shape), step=step).verify()
        assert done.equal, (model, done)
