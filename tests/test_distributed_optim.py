"""Optimizers of several processes, held against one process that does all."""

from __future__ import annotations

from pathlib import Path

import pytest

import torchlike as torch
import torchlike.distributed as dist
from test_gloo import played
from torchlike.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torchlike.distributed.algorithms.model_averaging.utils import get_params_to_average
from torchlike.distributed.optim import ZeroRedundancyOptimizer
from torchlike.distributed.tensor import DTensor, Shard

BEGIN = """
import copy, warnings
from torchlike.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torchlike.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
begin()
def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(a, b) for a, b in ((4, 8), (8, 3), (3, 3))))
def train(net, optimizer, seed):
    optimizer.zero_grad()
    (net(torch.randn(5, 4, generator=torch.Generator().manual_seed(seed))) ** 2).sum().backward()
    return optimizer.step()
def alike(a, b):
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters())), rank
"""


def run(tmp_path: Path, body: str) -> None:
    assert [out.strip() for out in played(tmp_path, BEGIN + body + '\nprint("done")\n')] == [
        "done"
    ] * 2


def test_each_process_holds_a_part_of_the_state(tmp_path: Path) -> None:
    body = """
mine, whole = model(), model()
zero = ZeroRedundancyOptimizer(mine.parameters(), torch.optim.Adam, lr=0.1)
one = torch.optim.Adam(whole.parameters(), lr=0.1)
shapes = [tuple(p.shape) for p in zero.optim.param_groups[0]["params"]]
assert shapes == [[(8, 4), (8,)], [(3, 8), (3, 3), (3,), (3,)]][rank], shapes
for seed in range(3):
    train(mine, zero, seed), train(whole, one, seed)
    alike(mine, whole)
assert len(zero.optim.state) == [2, 4][rank]
# a schedule changes all options
zero.param_groups[0]["lr"] = one.param_groups[0]["lr"] = 0.01
train(mine, zero, 7), train(whole, one, 7)
alike(mine, whole)
try:
    zero.state_dict()
except RuntimeError as e:
    assert f"consolidate_state_dict(to={rank})" in str(e)
else:
    raise AssertionError
zero.consolidate_state_dict(to=1)
if rank == 1:
    found, wanted = zero.state_dict(), one.state_dict()
    assert found["param_groups"] == wanted["param_groups"]
    assert list(found["state"]) == list(wanted["state"])
    for i, state in wanted["state"].items():
        assert all(torch.equal(found["state"][i][k], v) for k, v in state.items())
# and goes on from a state of all
third = model()
third.load_state_dict(whole.state_dict())
again = ZeroRedundancyOptimizer(third.parameters(), torch.optim.Adam, lr=5.0)
again.load_state_dict(copy.deepcopy(one.state_dict()))
assert again.param_groups[0]["lr"] == again.optim.param_groups[0]["lr"] == 0.01
assert len(again.optim.state) == [2, 4][rank]
train(third, again, 9), train(whole, one, 9)
alike(third, whole)
"""
    run(tmp_path, body)


def test_groups_closures_and_unequal_numbers_of_batches(tmp_path: Path) -> None:
    body = """
from torchlike.distributed.algorithms.join import Join
mine, whole = model(), model()
groups = lambda net: [{"params": [p], "lr": 0.1 * i} for i, p in enumerate(net.parameters())]
zero = ZeroRedundancyOptimizer(groups(mine), torch.optim.SGD, lr=1.0, momentum=0.9)
one = torch.optim.SGD(groups(whole), lr=1.0, momentum=0.9)
for seed in range(2):
    train(mine, zero, seed), train(whole, one, seed)
alike(mine, whole)
assert zero.step(closure=lambda: 5.0) == 5.0
extra = [torch.nn.Parameter(torch.ones(100)), torch.nn.Parameter(torch.ones(3))]
zero.add_param_group({"params": extra, "lr": 0.5})
assert sum(len(g["params"]) for g in zero.optim.param_groups) + 0 in (4, 5)
for p in extra:
    p.grad = torch.ones_like(p)
zero.step()
assert all(torch.equal(p, torch.full_like(p, 0.5)) for p in extra)
zero.consolidate_state_dict()
if rank == 0:
    found = zero.state_dict()
    assert sorted(found["state"]) == list(range(8)) and found["param_groups"][-1]["params"] == [6, 7]
# a process without batches takes part in the others' steps
with Join([zero]):
    for seed in range(1 + rank):
        train(mine, zero, seed)
"""
    run(tmp_path, body)


def test_parameters_become_the_mean(tmp_path: Path) -> None:
    body = """
kept = torch.nn.Parameter(torch.full((2,), float(rank)))
param = torch.nn.Parameter(torch.zeros(2))
averager = PeriodicModelAverager(period=2, warmup_steps=1)
optimizer = PostLocalSGDOptimizer(torch.optim.SGD([param, kept], lr=1.0), averager)
seen = []
for i in range(4):
    param.grad = torch.ones(2)
    with torch.no_grad():
        param.fill_(rank + i + 1.0)
    optimizer.step()
    seen.append(param[0].item())
assert seen == [[0.0, 1.5, 2.0, 3.5], [1.0, 1.5, 3.0, 3.5]][rank], seen
assert kept[0].item() == rank  # it has no gradient
state = optimizer.state_dict()
assert state["step"] == 4
averager.step = 0
optimizer.load_state_dict(state)
assert averager.step == 4
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    del state["step"]
    optimizer.load_state_dict(state)
assert averager.step == 0
assert "does not contain a step counter" in str(said[-1].message), [str(w.message) for w in said]
optimizer.zero_grad()
optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
assert param.grad is None and len(optimizer.param_groups) == 2 and "SGD" in repr(optimizer)
"""
    run(tmp_path, body)


def test_what_is_refused(tmp_path: Path) -> None:
    dist.init_process_group(
        "gloo", store=dist.FileStore(str(tmp_path / "s"), 1), rank=0, world_size=1
    )
    try:
        sgd, param = torch.optim.SGD, torch.nn.Parameter(torch.ones(1))
        for given, kind, text in (
            ([], ValueError, "got an empty parameter list"),
            (3, TypeError, "should be an iterable of Tensors or dicts, but got int"),
            ([1], TypeError, "should be an iterable of Tensors or dicts"),
            (param, TypeError, "should be an iterable of Tensors, but got"),
        ):
            with pytest.raises(kind, match=text):
                ZeroRedundancyOptimizer(given, sgd, lr=0.1)
        with pytest.raises(NotImplementedError, match="overlap_with_ddp=True"):
            ZeroRedundancyOptimizer([param], sgd, overlap_with_ddp=True, lr=0.1)
        for options, text in (
            ({"period": 0}, "period"),
            ({"period": 2, "warmup_steps": -1}, "warmup"),
        ):
            with pytest.raises(ValueError, match=text):
                PeriodicModelAverager(**options)
        with pytest.warns(UserWarning, match="When period is 1"):
            PeriodicModelAverager(1)
        with pytest.raises(NotImplementedError, match="Parameter input of type <class 'int'>"):
            get_params_to_average([3])
        with pytest.raises(NotImplementedError, match="DistributedOptimizer"):
            dist.optim.DistributedOptimizer()
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    "name",
    [
        "ASGD",
        "SGD",
        "Adam",
        "AdamW",
        "Adagrad",
        "Adadelta",
        "NAdam",
        "RAdam",
        "RMSprop",
        "Rprop",
        "Adamax",
    ],
)
def test_a_step_on_a_mesh_is_that_of_the_pieces(name: str) -> None:
    dist.init_process_group("fake", rank=1, world_size=4)
    try:
        mesh = dist.device_mesh.init_device_mesh("cpu", (4,))
        mine = torch.nn.Parameter(torch.randn(2, 3))
        whole = torch.nn.Parameter(DTensor.from_local(mine.detach().clone(), mesh, [Shard(0)]))
        steps = [getattr(torch.optim, name)([p], lr=0.1) for p in (mine, whole)]
        for _ in range(2):
            mine.grad = torch.randn(2, 3)
            whole.grad = DTensor.from_local(mine.grad, mesh, [Shard(0)])
            for step in steps:
                step.step()
        assert torch.equal(whole.to_local(), mine)
    finally:
        dist.destroy_process_group()
