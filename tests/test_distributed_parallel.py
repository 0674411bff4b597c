"""Modules on meshes: parallel styles, parallel losses, and parameters that are cut and gathered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import torchlike as torch
import torchlike.distributed as dist
from torchlike import nn
from torchlike.distributed.device_mesh import init_device_mesh
from torchlike.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    UnshardHandle,
    fully_shard,
    register_fsdp_forward_method,
)
from torchlike.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torchlike.distributed.tensor.debug import CommDebugMode
from torchlike.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torchlike.testing._internal.distributed.fake_pg import FakeStore


@pytest.fixture(autouse=True)
def no_world() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def fake(rank: int, size: int) -> None:
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())


def counts(mode: CommDebugMode) -> dict[str, int]:
    found: Counter[str] = Counter()
    for op, n in mode.get_comm_counts().items():
        found[str(op).rpartition(".")[2]] += n
    return dict(found)


class Block(nn.Module):
    def __init__(self, device: str = "cpu") -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8, device=device)
        self.up, self.down = nn.Linear(8, 12, device=device), nn.Linear(12, 8, device=device)

    def forward(self, x: Any) -> Any:
        return self.down(self.up(self.norm(x)).relu())


def test_tensor_parallel_results_and_gradients_are_the_plain_ones() -> None:
    dist.init_process_group("local", rank=0, world_size=3)
    mesh = init_device_mesh("cpu", (3,), mesh_dim_names=("tp",))
    torch.manual_seed(0)
    plain, cut = Block(), Block()
    cut.load_state_dict(plain.state_dict())
    plan: dict[str, ParallelStyle] = {
        "norm": SequenceParallel(use_local_output=False),
        "up": ColwiseParallel(input_layouts=Shard(1), use_local_output=False),
        "down": RowwiseParallel(use_local_output=False),
    }
    parallelize_module(cut, mesh, plan)
    x = torch.randn(2, 6, 8)
    got = cut(distribute_tensor(x, mesh, [Shard(1)]))
    assert isinstance(got, DTensor)
    torch.testing.assert_close(got.full_tensor(), plain(x))
    got.sum().backward()
    plain(x).sum().backward()
    for (name, p), q in zip(cut.named_parameters(), plain.parameters(), strict=True):
        assert isinstance(p.grad, DTensor), name
        torch.testing.assert_close(p.grad.full_tensor(), q.grad, msg=name)


def test_tensor_parallel_on_meta() -> None:
    mesh = init_device_mesh("meta", (4,), mesh_dim_names=("tp",))
    block = parallelize_module(
        Block("meta"), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()}
    )
    assert [tuple(p.placements) for p in block.up.parameters()] == [(Shard(0),)] * 2
    assert block.down.weight.to_local().shape == (8, 3)
    with CommDebugMode() as comm:
        block(torch.empty(2, 8, device="meta")).sum().backward()
    assert counts(comm) == {"all_reduce": 2}
    assert comm.get_total_counts() == 2


def test_styles_of_inputs_and_outputs() -> None:
    mesh = init_device_mesh("meta", (4,))
    x = torch.empty(8, 8, device="meta")

    def run(style: ParallelStyle) -> Any:
        return parallelize_module(nn.Identity(), mesh, style)(x)

    assert run(
        PrepareModuleInput(input_layouts=Shard(0), desired_input_layouts=Replicate())
    ).shape == (32, 8)
    kept = PrepareModuleInput(
        input_layouts=Shard(0), desired_input_layouts=Replicate(), use_local_output=False
    )
    assert run(kept).placements == (Replicate(),)
    assert run(
        PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0))
    ).shape == (2, 8)
    both = PrepareModuleInputOutput(
        input_layouts=Shard(0),
        desired_input_layouts=Replicate(),
        output_layouts=Replicate(),
        desired_output_layouts=Shard(1),
    )
    assert run(both).shape == (32, 2)


def test_loss_parallel() -> None:
    dist.init_process_group("local", rank=0, world_size=3)
    mesh = init_device_mesh("cpu", (3,))
    logits, target = torch.randn(5, 7), torch.tensor([0, 6, 3, 2, 6])
    want = logits.clone().requires_grad_()
    nn.functional.cross_entropy(want, target).backward()
    mine = distribute_tensor(logits, mesh, [Shard(1)]).requires_grad_()
    with loss_parallel():
        loss = nn.functional.cross_entropy(mine, distribute_tensor(target, mesh, [Replicate()]))
        loss.backward()
    assert isinstance(mine.grad, DTensor)
    torch.testing.assert_close(mine.grad.full_tensor(), want.grad)
    plain = nn.functional.cross_entropy(logits, target)
    torch.testing.assert_close(loss.full_tensor(), plain)


def model(device: str) -> Any:
    return nn.Sequential(
        *(
            nn.Linear(7, 5, device=device) if i % 2 == 0 else nn.Linear(5, 7, device=device)
            for i in range(3)
        )
    )


def test_fully_shard_on_meta_counts_its_collectives() -> None:
    fake(1, 4)
    net = model("meta")
    for layer in net:
        fully_shard(layer)
    assert fully_shard(net) is net and isinstance(net, FSDPModule)
    assert net[0].weight.placements == (Shard(0),) and net[0].weight.to_local().shape == (2, 7)
    with CommDebugMode() as comm:
        net(torch.empty(2, 7, device="meta")).sum().backward()
    assert counts(comm) == {"_allgather_base_": 6, "_reduce_scatter_base_": 3}
    assert all(isinstance(p.grad, DTensor) for p in net.parameters())


def test_reshard_after_forward_and_hybrid_sharding() -> None:
    fake(0, 8)
    net = model("meta")
    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replicate", "shard"))
    fully_shard(net, mesh=mesh, reshard_after_forward=False)
    with CommDebugMode() as comm:
        net(torch.empty(2, 7, device="meta")).sum().backward()
    assert counts(comm) == {"_allgather_base_": 1, "_reduce_scatter_base_": 1, "allreduce_": 1}
    net.set_requires_all_reduce(False)
    net.set_reshard_after_forward(True)
    net.set_reshard_after_backward(True)
    with CommDebugMode() as comm:
        net(torch.empty(2, 7, device="meta")).sum().backward()
    assert counts(comm) == {"_allgather_base_": 2, "_reduce_scatter_base_": 1}
    net.set_requires_gradient_sync(False)
    with CommDebugMode() as comm:
        net(torch.empty(2, 7, device="meta")).sum().backward()
    assert counts(comm) == {"_allgather_base_": 2}
    net.reset_iter_state()


@pytest.mark.parametrize("settings", ["plain", "mixed", "scaled"])
def test_fully_shard_trains_as_the_plain_model(settings: str) -> None:
    """One rank: nothing is missing, and every number is the plain model's."""
    fake(0, 1)
    torch.manual_seed(0)
    plain, cut = model("cpu"), model("cpu")
    cut.load_state_dict(plain.state_dict())
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32)
    policy = policy if settings == "mixed" else MixedPrecisionPolicy()
    for layer in cut:
        fully_shard(layer, mp_policy=policy, offload_policy=OffloadPolicy())
    fully_shard(cut, mp_policy=policy)
    factor = 2.0 if settings == "scaled" else 1.0
    if settings == "scaled":
        for layer in cut:
            layer.set_gradient_divide_factor(factor)
            layer.set_force_sum_reduction_for_comms(True)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, foreach=False) for m in (plain, cut)]
    for step in range(3):
        x = torch.randn(4, 7)
        for m, o in zip((plain, cut), optimizers, strict=True):
            cut.set_is_last_backward(True)
            (m(x).square().mean() / (1.0 if m is cut else factor)).backward()
            o.step()
            o.zero_grad()
        loose = {"rtol": 3e-2, "atol": 3e-2} if settings == "mixed" else {}
        for p, q in zip(cut.parameters(), plain.parameters(), strict=True):
            assert isinstance(p, DTensor)
            torch.testing.assert_close(p.full_tensor(), q, **loose, msg=f"step {step}")


def test_methods_of_sharded_modules() -> None:
    fake(2, 4)
    net = model("meta")
    for layer in net:
        fully_shard(layer, reshard_after_forward=2)
    fully_shard(net)
    handle = net[0].unshard(async_op=True)
    assert isinstance(handle, UnshardHandle)
    handle.wait()
    assert not isinstance(net[0].weight, DTensor) and net[0].weight.shape == (5, 7)
    net[0].reshard()
    assert isinstance(net[0].weight, DTensor)
    net[0].set_modules_to_forward_prefetch([net[1]])
    net[2].set_modules_to_backward_prefetch([net[1]])
    net[1].set_unshard_in_backward(True)
    net.set_reduce_scatter_unused_params(True)
    with CommDebugMode() as comm:
        net(torch.empty(2, 7, device="meta")).sum().backward()
    assert counts(comm)["_reduce_scatter_base_"] == 3
    assert type(type(net[0])(7, 5)) is nn.Linear
    with pytest.raises(AssertionError, match="does not support deepcopy"):
        __import__("copy").deepcopy(net)
    with pytest.raises(NotImplementedError, match="CPUOffloadPolicy is not supported"):
        fully_shard(nn.Linear(2, 2), offload_policy=CPUOffloadPolicy())
    with pytest.raises(ValueError, match="do not implement forward"):
        fully_shard(nn.ModuleList([nn.Linear(2, 2)]))
    with pytest.raises(ValueError, match="factor of 4"):
        fully_shard(nn.Linear(4, 4), reshard_after_forward=3)


def test_other_methods_gather_too() -> None:
    fake(0, 2)

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(4, 4))

        def twice(self, x: Any) -> Any:
            return x @ self.w * 2

    net = fully_shard(Two())
    register_fsdp_forward_method(net, "twice")
    with CommDebugMode() as comm:
        assert net.twice(torch.ones(1, 4)).shape == (1, 4)
    assert counts(comm) == {"_allgather_base_": 1}


def test_sharded_and_parallel() -> None:
    """Parameters of tensor parallel modules are cut once more, along the other dimension of the mesh."""
    fake(0, 4)
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    block = Block("meta")
    parallelize_module(block, mesh["tp"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    fully_shard(block, mesh=mesh["dp"])
    assert block.up.weight.to_local().shape == (3, 8) and block.down.weight.to_local().shape == (
        4,
        6,
    )
    with CommDebugMode() as comm:
        block(torch.empty(2, 8, device="meta")).sum().backward()
    assert counts(comm)["_reduce_scatter_base_"] == 1 and counts(comm)["all_reduce"] == 2


@pytest.mark.parametrize("assign", [True, False])
def test_parts_that_were_loaded_are_gathered(assign: bool) -> None:
    """What a state dict puts in the place of a part, or copies into it, is what the next forward pass uses."""
    fake(0, 1)
    net = nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))
    fully_shard(net[0])
    fully_shard(net)
    x = torch.randn(4, 3)
    net(x).sum().backward()
    net.zero_grad()
    new = {name: p.full_tensor() + 1 for name, p in net.state_dict().items()}
    old = net[0].weight
    cut = {n: distribute_tensor(t, old.device_mesh, old.placements) for n, t in new.items()}
    net.load_state_dict(cut, assign=assign)
    assert (net[0].weight is old) is not assign
    wanted = x
    for i in "01":
        wanted = wanted @ new[f"{i}.weight"].T + new[f"{i}.bias"]
    result = net(x)
    torch.testing.assert_close(result, wanted)
    result.sum().backward()
    assert all(isinstance(p.grad, DTensor) for p in net.parameters())


@pytest.mark.parametrize("trained", [False, True])
def test_parts_can_have_another_type(trained: bool) -> None:
    fake(0, 2)
    net = nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2))
    fully_shard(net)
    before = list(net.parameters())
    if trained:
        net(torch.randn(3, 4)).sum().backward()
    net.double()
    assert all(p is old for p, old in zip(net.parameters(), before, strict=True))
    out = net(torch.randn(3, 4).double())
    out.sum().backward()
    assert out.dtype == torch.float64
    for p in net.parameters():
        assert p.dtype == p._local_tensor.dtype == p.grad.dtype == torch.float64
        assert p.grad._local_tensor.dtype == torch.float64
    torch.optim.AdamW(net.parameters()).step()


def test_a_parameter_with_two_names_in_a_module_is_one() -> None:
    fake(0, 1)

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.ones(2, 2))
            self.b = self.a

        def forward(self, x: Any) -> Any:
            return x @ self.a + x @ self.b

    net = fully_shard(Twice())
    assert net.a is net.b and isinstance(net.b, DTensor)
    net(torch.ones(1, 2)).sum().backward()
    assert net.a is net.b and net.a.grad.full_tensor().tolist() == [[2.0, 2.0]] * 2


def test_data_of_parameters_on_a_mesh_are_their_pieces() -> None:
    fake(0, 4)
    mesh = init_device_mesh("cpu", (4,))
    net = nn.Linear(4, 8, bias=False)
    weight = net.weight = nn.Parameter(distribute_tensor(net.weight, mesh, [Shard(0)]))
    net(distribute_tensor(torch.ones(2, 4), mesh, [Replicate()])).sum().backward()
    for dtype in (torch.bfloat16, torch.float64):
        assert net.to(dtype).weight is weight and weight.grad.to_local().dtype == dtype
        assert weight.dtype == weight.to_local().dtype == dtype
        assert (
            net(distribute_tensor(torch.ones(2, 4, dtype=dtype), mesh, [Replicate()])).dtype
            == dtype
        )
    before = weight.to_local().clone()
    weight.data = weight.data * 2
    assert torch.equal(weight.to_local(), before * 2)
    weight.data = distribute_tensor(torch.ones(8, 4), mesh, [Shard(1)])
    assert weight.placements == (Shard(1),) and weight.to_local().shape == (8, 1)
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        weight.data = torch.ones(8, 4)


@pytest.mark.parametrize("padding", [0, 3, 9, -1])
def test_rows_of_an_embedding_that_are_left_out_may_be_on_any_rank(padding: int) -> None:
    dist.init_process_group("local", world_size=4)
    mesh = init_device_mesh("cpu", (4,))
    whole = nn.Embedding(10, 3, padding_idx=padding)
    cut = nn.Embedding.from_pretrained(whole.weight.detach().clone(), False, padding)
    layouts = {"input_layouts": Replicate(), "output_layouts": Replicate()}
    parallelize_module(cut, mesh, RowwiseParallel(**layouts, use_local_output=False))
    places = torch.tensor([[1, 2, 9], [3, 6, 0]])
    got = cut(distribute_tensor(places, mesh, [Replicate()]))
    torch.testing.assert_close(got.full_tensor(), whole(places))
    got.pow(2).sum().backward()
    whole(places).pow(2).sum().backward()
    torch.testing.assert_close(cut.weight.grad.full_tensor(), whole.weight.grad)
