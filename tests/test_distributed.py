"""Worlds played in one process: groups, collectives, meshes, and tensors that lie on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import torchlike as torch
import torchlike.distributed as dist
from test_gloo import played
from torchlike.distributed import _functional_collectives as functional
from torchlike.distributed import tensor as dt
from torchlike.distributed.device_mesh import DeviceMesh, init_device_mesh
from torchlike.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_module,
    distribute_tensor,
)
from torchlike.distributed.tensor._utils import compute_local_shape_and_global_offset
from torchlike.distributed.tensor.debug import CommDebugMode
from torchlike.distributed.tensor.experimental import (
    implicit_replication,
    local_map,
    register_sharding,
)
from torchlike.distributed.tensor.placement_types import _StridedShard
from torchlike.testing._internal.distributed.fake_pg import FakeStore


@pytest.fixture(autouse=True)
def no_world() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def fake(rank: int, size: int) -> None:
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())


def local(size: int) -> None:
    dist.init_process_group("local", rank=0, world_size=size)


def test_a_mesh_needs_no_world() -> None:
    mesh = DeviceMesh("meta", torch.arange(8))
    t = distribute_tensor(torch.empty(16, 16, device="meta"), mesh, [Shard(0)])
    assert (t @ t).placements == (Shard(0),) and (t @ t).to_local().shape == (2, 16)
    wide = init_device_mesh("meta", (128, 8), mesh_dim_names=("dp", "tp"))
    assert wide["tp"].size() == 8 and wide["dp"].size() == 128 and wide.get_coordinate() == (0, 0)
    fake(3, 4)
    assert dist.get_rank() == 3 and dist.get_world_size() == 4 and dist.get_backend() == "fake"
    with pytest.raises(ValueError, match="twice"):
        fake(0, 2)
    with pytest.raises(RuntimeError, match="bigger than default world size 4"):
        DeviceMesh("cpu", list(range(5)))
    with pytest.raises(ValueError, match="Rank 7 is out of range"):
        DeviceMesh("cpu", [0, 7])


def test_groups_and_stores() -> None:
    fake(2, 4)
    group = dist.new_group([0, 2])
    assert isinstance(group, dist.ProcessGroup) and group.size() == 2 and group.rank() == 1
    assert dist.get_group_rank(group, 2) == 1 and dist.get_global_rank(group, 1) == 2
    assert dist.get_process_group_ranks(group) == [0, 2] and dist.get_world_size(group) == 2
    with pytest.raises(ValueError, match="not part of group"):
        dist.get_group_rank(group, 1)
    assert dist.new_group([1]) == dist.GroupMember.NON_GROUP_MEMBER
    work = dist.all_reduce(torch.ones(2), group=group, async_op=True)
    assert isinstance(work, dist.Work) and work.wait() and work.is_completed()
    store = dist.HashStore()
    part = dist.PrefixStore("a", store)
    part.set("k", "v")
    assert store.get("a/k") == b"v" and issubclass(FakeStore, dist.Store)


def test_collectives_move_nothing_but_are_counted() -> None:
    fake(1, 4)
    t = torch.ones(4, 2)
    with CommDebugMode() as comm:
        dist.all_reduce(t)
        dist.broadcast(t, 0)
        out = torch.empty(16, 2)
        dist.all_gather_into_tensor(out, t)
        dist.reduce_scatter_tensor(torch.empty(1, 2), t)
        functional.all_reduce(t, "sum", dist.group.WORLD)
        gathered = functional.all_gather_tensor(t, 0, dist.group.WORLD)
        scattered = functional.reduce_scatter_tensor(t, "sum", 0, dist.group.WORLD)
        functional.wait_tensor(gathered)
    assert gathered.shape == (16, 2) and scattered.shape == (1, 2)
    assert comm.get_total_counts() == 7
    dist.barrier()


def test_shapes_and_offsets_of_pieces() -> None:
    fake(2, 4)
    line = init_device_mesh("cpu", (4,))
    for size, shape, offset in ((10, 3, 6), (4, 1, 2), (2, 0, 2), (0, 0, 0)):
        found = compute_local_shape_and_global_offset((size, 5), line, [Shard(0)])
        assert found == ((shape, 5), (offset, 0))
    square = init_device_mesh("cpu", (2, 2))
    both = compute_local_shape_and_global_offset((7, 3), square, [Shard(0), Shard(0)])
    assert both == ((2, 3), (4, 0))
    strided = [_StridedShard(0, split_factor=2), Shard(0)]
    assert compute_local_shape_and_global_offset((8, 3), square, strided)[0] == (2, 3)


@pytest.mark.parametrize("shape", [(7, 5), (8, 4), (2, 3)])
def test_redistribution_on_all_ranks(shape: tuple[int, int]) -> None:
    """Between any two placements, the whole stays what it was."""
    local(4)
    whole = torch.arange(shape[0] * shape[1], dtype=torch.float64).view(shape)
    square = init_device_mesh("cpu", (2, 2))
    options = [Replicate(), Shard(0), Shard(1)]
    every = [(a, b) for a in options for b in options]
    for start in every:
        t = distribute_tensor(whole, square, start)
        assert [tuple(p.shape) for p in t._locals] == [tuple(s) for s in t._spec.locals()]
        assert torch.equal(t.full_tensor(), whole), start
        for goal in every:
            moved = t.redistribute(placements=goal)
            assert torch.equal(moved.full_tensor(), whole), (start, goal)
    parts = DTensor.from_local(whole, square, [Partial(), Replicate()], run_check=False)
    assert torch.equal(parts.full_tensor(), 2 * whole)
    assert torch.equal(parts.redistribute(placements=[Shard(1), Shard(0)]).full_tensor(), 2 * whole)


def test_bytes_of_redistribution_with_padding() -> None:
    fake(3, 4)
    mesh = init_device_mesh("cpu", (4,))
    t = distribute_tensor(torch.empty(10, 6), mesh, [Shard(0)])
    assert t.to_local().shape == (1, 6)
    with CommDebugMode() as comm:
        t.full_tensor()
    ops = torch.ops.c10d_functional
    assert comm.get_comm_counts() == {ops.all_gather_into_tensor: 1}


def test_collectives_are_counted_by_module() -> None:
    fake(1, 4)
    mesh, ops = init_device_mesh("cpu", (4,)), torch.ops.c10d_functional
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
    for name, param in list(net[0].named_parameters()):
        setattr(net[0], name, torch.nn.Parameter(distribute_tensor(param, mesh, [Shard(0)])))
    t = distribute_tensor(torch.ones(8, 8), mesh, [Shard(0)])
    with CommDebugMode() as comm:
        net(t).sum().full_tensor().backward()
    total = comm.get_comm_counts()
    assert total[ops.all_reduce] == 1 and total[ops.broadcast] == 0
    by_module = comm.comm_module_counts
    assert by_module["Sequential.0"]["forward"] == {ops.all_gather_into_tensor: 1}
    assert by_module["Sequential"]["forward"] == {ops.all_gather_into_tensor: 1}
    assert by_module["Global"]["forward"][ops.all_reduce] == 1 and "Sequential.1" not in by_module
    assert by_module["Global"]["backward"]
    assert comm.get_sharding_info()["Sequential.0.weight"] == (Shard(0),)
    assert list(comm.get_parameter_info()["Sequential.0"]) == ["weight", "bias"]


def test_collectives_of_ranks_are_those_of_their_group() -> None:
    fake(0, 4)
    ops, t = torch.ops.c10d_functional, torch.ones(4, 2, requires_grad=True)
    gathered = ops.all_gather_into_tensor(t, "", [0, 1], 2)
    assert ops.wait_tensor(gathered).shape == (8, 2) and gathered.requires_grad
    assert ops.reduce_scatter_tensor(t, "sum", "", [0, 1, 2, 3], 4).shape == (1, 2)
    assert ops.all_to_all_single(t, None, None, "", [0, 1], 2).shape == (4, 2)
    assert [x.shape for x in ops.all_reduce_coalesced([t], "sum", "", [0, 1], 2)] == [(4, 2)]


def test_old_modules_of_tensors_on_meshes() -> None:
    from torchlike.distributed._tensor.api import DTensor as found
    from torchlike.distributed._tensor.device_mesh import DeviceMesh

    from torchlike.distributed.tensor import DTensor, device_mesh

    assert found is DTensor and DeviceMesh is device_mesh.DeviceMesh


def test_plain_tensors_count_as_replicated_where_they_are_allowed_to() -> None:
    local(3)
    mesh = init_device_mesh("cpu", (3,))
    x, y, w = torch.randn(5, 2), torch.randn(5, 2), torch.randn(2, 3)
    t = distribute_tensor(x, mesh, [Shard(0)])
    for f in (lambda t: t + y, lambda t: y * t, lambda t: t @ w, lambda t: torch.cat([t, y])):
        for _ in range(2):
            with implicit_replication():
                torch.testing.assert_close(f(t).full_tensor(), f(x))
            with pytest.raises(RuntimeError, match="got mixed"):
                f(t)


def test_what_is_cut_is_what_the_first_rank_has(tmp_path: Path) -> None:
    body = """
    begin()
    from torchlike.distributed.tensor import Replicate, Shard, distribute_tensor, distribute_module
    mesh = dist.device_mesh.init_device_mesh("cpu", (2,))
    wanted = torch.arange(6.0).view(3, 2)
    for given in (Shard(0), Shard(1), Replicate()):
        mine = wanted + 10 * rank
        before = mine.clone()
        whole = distribute_tensor(mine, mesh, [given]).full_tensor()
        assert torch.equal(whole, wanted), (given, whole)
        assert torch.equal(mine, before)
        kept = distribute_tensor(mine, mesh, [given], src_data_rank=None).to_local()
        assert kept.flatten()[0] // 10 == rank
    torch.manual_seed(rank)
    net = distribute_module(torch.nn.Linear(2, 2), mesh)
    total = net.weight.to_local().detach().clone()
    dist.all_reduce(total)
    assert torch.equal(total, 2 * net.weight.to_local())
    print("done")
    """
    assert [out.strip() for out in played(tmp_path, body)] == ["done"] * 2


def test_the_same_numbers_as_on_one_device() -> None:
    """Factories, random numbers, dropout and initialisation on a mesh draw what one device would."""
    local(3)
    mesh = init_device_mesh("cpu", (3,))
    for placement in (Shard(0), Shard(1), Replicate()):
        torch.manual_seed(5)
        mine = [dt.rand(7, 4, device_mesh=mesh, placements=[placement])]
        mine.append(dt.randn(7, 4, device_mesh=mesh, placements=[placement]))
        mine.append(mine[0].clone().normal_())
        mine.append(torch.nn.functional.dropout(mine[0], 0.5))
        mine.append(torch.rand_like(mine[0]))
        torch.manual_seed(5)
        plain = [torch.rand(7, 4), torch.randn(7, 4)]
        plain.append(plain[0].clone().normal_())
        plain.append(torch.nn.functional.dropout(plain[0], 0.5))
        plain.append(torch.rand_like(plain[0]))
        for a, b in zip(mine, plain, strict=True):
            assert torch.equal(a.full_tensor(), b)
    made = {"empty": (), "zeros": (), "ones": (), "full": (2.0,)}
    for name, more in made.items():
        t = getattr(dt, name)((5, 2), *more, device_mesh=mesh, placements=[Shard(0)])
        assert t.shape == (5, 2) and t.placements == (Shard(0),)


def test_gradients_on_a_mesh() -> None:
    local(2)
    mesh = init_device_mesh("cpu", (2,))
    x, w = torch.randn(6, 4), torch.randn(3, 4, requires_grad=True)
    torch.nn.functional.linear(x, w).tanh().sum().backward()
    for place in (Shard(0), Shard(1), Replicate()):
        p = distribute_tensor(w.detach(), mesh, [place]).requires_grad_()
        torch.nn.functional.linear(
            distribute_tensor(x, mesh, [Shard(0)]), p
        ).tanh().sum().backward()
        assert p.grad is not None and w.grad is not None
        torch.testing.assert_close(p.grad.full_tensor(), w.grad)


def test_gradients_of_gradients_through_pieces() -> None:
    fake(0, 1)
    mesh = init_device_mesh("cpu", (1,))
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    whole = DTensor.from_local(x, mesh, [Shard(0)])
    there = whole.redistribute(placements=[Replicate()])
    piece = there.to_local()
    names = [t.grad_fn.name() for t in (whole, there, piece)]
    assert names == [
        "_FromTorchTensorBackward",
        "RedistributeBackward",
        "_ToTorchTensorBackward",
    ]
    assert piece._is_view() and piece.data_ptr() == x.data_ptr()
    with pytest.raises(RuntimeError, match="custom Function"):
        piece.add_(1)
    (grad,) = torch.autograd.grad((piece**3).sum(), x, create_graph=True)
    grad.sum().backward()
    assert grad.tolist() == [3.0, 12.0] and x.grad.tolist() == [6.0, 12.0]


def test_pieces_have_gradients_where_they_are_said_to_lie() -> None:
    local(2)
    mesh = init_device_mesh("cpu", (2,))
    whole = distribute_tensor(torch.arange(4.0), mesh, [Shard(0)]).requires_grad_()
    there = whole.redistribute(placements=[Replicate()], backward_dtype=torch.float64)
    there.backward(distribute_tensor(torch.ones(4), mesh, [Replicate()]))
    assert whole.grad.placements == (Shard(0),) and whole.grad.dtype == torch.float32
    half = whole.redistribute(placements=[Replicate()], forward_dtype=torch.float16)
    assert half.dtype == half.full_tensor().dtype == torch.float16
    x = torch.ones(2, requires_grad=True)
    # Each of the two ranks gave the same piece, whose gradient is that of both.
    DTensor.from_local(x, mesh, [Shard(0)]).sum().full_tensor().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_data_of_a_tensor_on_a_mesh() -> None:
    """What is put in the place of its data, with another type too, is what the tensor is from then on."""
    fake(0, 2)
    mesh = init_device_mesh("cpu", (2,))
    t = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)]).requires_grad_()
    t.data = t.detach().double() * 3
    assert t.dtype == t._spec.dtype == t.to_local().dtype == torch.float64
    assert (t * t).to_local().tolist() == [[9.0, 9.0]] * 2 and t.requires_grad
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        t.data = torch.ones(4, 2)


def test_local_pieces_and_modules() -> None:
    fake(0, 2)
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    t = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)])
    assert t.device_mesh is mesh and t.placements == (Shard(0),)
    assert isinstance(t, DTensor) and type(t.to_local()) is torch.Tensor

    def halves(a: Any) -> Any:
        return a * 2

    f = local_map(halves, out_placements=[Shard(0)], device_mesh=mesh)
    assert f(t).shape == (4, 2)
    layer = distribute_module(torch.nn.Linear(2, 2), mesh)
    assert isinstance(layer.weight, DTensor) and layer.weight.placements == (Replicate(),)
    with pytest.raises(RuntimeError, match=r"mixed torch\.Tensor and DTensor"):
        t + torch.ones(4, 2)
    other = init_device_mesh("cpu", (1, 2))
    with pytest.raises(RuntimeError, match="different meshes"):
        t + distribute_tensor(torch.ones(4, 2), other, [Replicate(), Shard(0)])
    with pytest.raises(
        RuntimeError, match=r"^aten\.masked_select\.default\n\nSharding propagation"
    ):
        t.masked_select(t > 0)
    with pytest.raises(RuntimeError, match=r"Sharding propagation failed for aten\.squeeze"):
        distribute_tensor(torch.ones(1, 2), mesh, [Shard(0)]).squeeze(0)


def test_names_of_the_core() -> None:
    """What the core offers for meshes."""
    mesh = torch._C._Mesh([2, 3], [1, 2], 8)
    shard, whole = Shard(0)._code, Replicate()._code
    assert mesh.local([5, 4], [shard, whole]) == ([2, 4], [3, 0])
    here, there = ([shard, whole], True), ([whole, whole], True)
    assert [step[0] for step in mesh.plan([5, 4], 4, here, there)] == [0]
    assert mesh.cost([5, 4], 4, here, there) > mesh.cost([5, 4], 4, there, here) == 0
    with pytest.raises(RuntimeError):
        mesh.choose([([shard, whole], True, [5, 4], 4)], [], 1, False, False)
    with pytest.raises(ValueError, match="a row of a sharding rule has 3 placements"):
        mesh.choose([([shard, whole], True, [5, 4], 4)], [[whole] * 3], 1, False, False)
    with pytest.raises(ValueError, match="1 placements on a mesh of 2 dimensions"):
        mesh.local([5, 4], [shard])
    with pytest.raises(ValueError, match="no placement"):
        mesh.local([5, 4], [shard, (2, 0, 1 << 40)])
    with pytest.raises(ValueError, match="no tensor on a mesh has the shape"):
        mesh.local([-5, 4], [shard, whole])
    assert "add" in {n.rpartition(".")[2] for n in torch._C._op_pointwise()}
    t = torch.ones(2).add_(1)
    t.untyped_storage().resize_(0)
    other = torch.ones(3)
    torch._C._empty_out([other])
    assert other.untyped_storage().nbytes() == 0
    torch._C._refill([t, other], [torch.tensor([3.0, 4.0]), torch.arange(3.0)])
    assert (t.tolist(), t._version) == ([3.0, 4.0], 1) and other.tolist() == [0.0, 1.0, 2.0]


def test_groups_have_names() -> None:
    fake(1, 4)
    group = dist.new_group([1, 3])
    assert dist.distributed_c10d._resolve_process_group(group.group_name) is group


def test_masks_of_rows_come_after_what_is_gathered() -> None:
    """Positions are brought to their place before rows of other ranks are masked."""
    local(4)
    square = init_device_mesh("cpu", (2, 2))
    table, places = torch.randn(8, 4), torch.tensor([0, 7, 3, 2, 6, 5])
    weight = distribute_tensor(table, square, [Shard(1), Shard(0)])
    index = distribute_tensor(places, square, [Shard(0), Replicate()])
    found = torch.nn.functional.embedding(index, weight)
    assert torch.equal(found.full_tensor(), table[places])


def test_rules_of_other_operators() -> None:
    """An operator of one's own has no rule until one is given, whatever its name."""
    fake(0, 2)
    mesh = init_device_mesh("cpu", (2,))

    @torch.library.custom_op("meshes::relu", mutates_args=())
    def relu(x: torch.Tensor, times: int) -> torch.Tensor:
        return x.relu() * times

    @relu.register_fake
    def _(x: Any, times: int) -> Any:
        return torch.empty_like(x)

    t = distribute_tensor(torch.ones(4, 2), mesh, [Shard(0)])
    with pytest.raises(NotImplementedError, match="does not have a sharding strategy"):
        torch.ops.meshes.relu(t, 2)

    @register_sharding(torch.ops.meshes.relu.default)
    def rule(x: Any, times: int) -> Any:
        return [([Shard(d)], [Shard(d), None]) for d in range(x.ndim)]

    assert torch.ops.meshes.relu(t, 2).placements == (Shard(0),) and rule(t, 1)
