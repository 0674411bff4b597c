"""Collectives on a world that moves nothing: results are made of this rank's own input, and arguments are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import torchlike as torch
import torchlike.distributed as dist
from torchlike.distributed import _functional_collectives as functional
from torchlike.distributed.device_mesh import init_device_mesh
from torchlike.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torchlike.nn import functional as F
from torchlike.utils._python_dispatch import TorchDispatchMode


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    dist.init_process_group("fake", rank=1, world_size=3)
    yield
    dist.destroy_process_group()


def line(n: int) -> Any:
    return torch.arange(1.0, n + 1)


def written(call: Callable[[Any], Any], n: int) -> list[float]:
    out = torch.full((n,), -7.0)
    call(out)
    made: list[float] = out.tolist()
    return made


def test_results_are_made_of_what_this_rank_has() -> None:
    thrice = [1.0, 2.0] * 3
    world = dist.group.WORLD
    for _ in range(3):  # memory that was used before shows through nothing
        assert functional.all_gather_tensor(line(2), 0, world).tolist() == thrice
        assert functional.reduce_scatter_tensor(line(6), "sum", 0, world).tolist() == [3.0, 4.0]
        split = functional.all_to_all_single(line(4), [3, 4, 0], [1, 1, 2], world)
        assert split.tolist() == [1, 2, 3, 1, 2, 3, 4]
    assert written(lambda o: dist.all_gather_into_tensor(o, line(2)), 6) == thrice
    assert written(lambda o: dist.reduce_scatter_tensor(o, line(6)), 2) == [3, 4]
    parts = [line(2), line(2) * 2, line(2) * 3]
    assert written(lambda o: dist.reduce_scatter(o, parts), 2) == [2, 4]
    assert written(lambda o: dist.all_to_all_single(o, line(6)), 6) == [1, 2, 3, 4, 5, 6]
    assert written(lambda o: dist.scatter(o, parts, src=1), 2) == [2, 4]
    places = [torch.zeros(2) for _ in range(3)]
    dist.gather(line(2), places, dst=1)
    assert [t.tolist() for t in places] == [[1.0, 2.0]] * 3


def test_positions_that_were_gathered_lie_within() -> None:
    mesh = init_device_mesh("cpu", (3,))
    index = DTensor.from_local(torch.tensor([2, 3]), mesh, [Shard(0)])
    table = DTensor.from_local(torch.randn(4, 3), mesh, [Replicate()])
    assert table.index_select(0, index.redistribute(placements=[Replicate()])).shape == (6, 3)


def test_groups_without_this_rank_do_nothing() -> None:
    outside = dist.new_group([0, 2])
    assert dist.get_rank(outside) == dist.get_world_size(outside) == -1
    t = line(2)
    with pytest.warns(UserWarning, match="Running all_reduce on global rank 1 which does not"):
        assert dist.all_reduce(t, group=outside) is None
    with pytest.warns(UserWarning, match="Running irecv"):
        assert dist.recv(t, 0, outside) == -1
    assert t.tolist() == [1, 2]


WRONG: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: dist.all_reduce([1]), TypeError, "Expected parameter `tensor` of type torch.Tensor"),
    (
        lambda: dist.all_gather(line(2), line(2)),
        TypeError,
        "`tensor_list` of type List\\[torch.Tensor",
    ),
    (
        lambda: dist.all_gather([torch.zeros(2, dtype=torch.int32)] * 3, line(2)),
        ValueError,
        "tensors with different dtypesFound torchlike.int32 and  torchlike.float32",
    ),
    (
        lambda: dist.broadcast(line(2)),
        ValueError,
        "Must specify global_rank or group_rank",
    ),
    (lambda: dist.broadcast(line(2), 0, group_src=0), ValueError, "Can't specify both group_rank"),
    (
        lambda: dist.scatter(line(2), None, src=1),
        ValueError,
        "``scatter_list`` must be specified on source",
    ),
    (
        lambda: dist.scatter(line(2), [line(2)] * 3, src=0),
        ValueError,
        "``scatter_list`` must NOT be",
    ),
    (
        lambda: dist.gather(line(2), [line(2)] * 3, dst=0),
        ValueError,
        "``gather_list`` must NOT be",
    ),
    (
        lambda: dist.all_to_all_single(line(6), line(5)),
        RuntimeError,
        "dim 0 does not divide equally",
    ),
    (
        lambda: dist.all_to_all_single(line(7), line(4), [3, 3, 0], [1, 1, 2]),
        RuntimeError,
        "Split sizes doesn't match total dim 0 size",
    ),
    (
        lambda: dist.reduce_scatter_tensor(line(2), line(5)),
        RuntimeError,
        "same size as output size times world size",
    ),
    (
        lambda: functional.all_reduce(line(2), "foo", dist.group.WORLD),
        RuntimeError,
        "Unrecognized reduce_op: foo",
    ),
    (
        lambda: dist.new_group([0, 5]),
        ValueError,
        "Rank 5 is out of range. Valid ranks are 0 to 2 \\(world_size=3\\)",
    ),
    (lambda: dist.new_group([0, 0]), ValueError, "must not contain duplicate entries, got \\[0, 0"),
    (dist.monitored_barrier, ValueError, "monitored_barrier is only implemented for GLOO backend"),
    (
        lambda: dist.broadcast(line(2), 0, dist.new_group([1, 2])),
        ValueError,
        "Global rank 0 is not part of group",
    ),
]


@pytest.mark.parametrize(("call", "kind", "text"), WRONG)
def test_arguments_are_checked(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()


def sharded(*shape: int, dim: int = 0) -> Any:
    mesh = init_device_mesh("cpu", (3,))
    return distribute_tensor(torch.ones(shape, device="meta"), mesh, [Shard(dim)])


def test_elements_stay_where_they_are() -> None:
    few = sharded(2, 4)
    assert (2 - few).placements == torch.rsub(few, 2, alpha=3).placements == (Shard(0),)
    hot = F.one_hot(sharded(6, 4).long(), 5)
    assert hot.placements == (Shard(0),) and hot.to_local().shape == (2, 4, 5)
    slope = sharded(1).redistribute(placements=[Replicate()])
    # a slope's rule is that of the formula, which takes no parts without elements
    assert F.prelu(few, slope).placements == (Replicate(),)
    assert F.prelu(sharded(6, 4), slope).placements == (Shard(0),)


def test_attention_of_16_bits_gathers_single_precision() -> None:
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            if any(issubclass(t, DTensor) for t in types):
                return NotImplemented
            if "all_gather" in str(func):
                seen.append(args[0].dtype)
            return func(*args, **(kwargs or {}))

    q = sharded(6, 8).bfloat16()
    with Watch():
        made = F.scaled_dot_product_attention(q, q, q)
    assert made.dtype == torch.bfloat16 and seen == [torch.float32] * 2


def test_calls_that_cannot_be_sharded() -> None:
    t = sharded(6, 4)
    with pytest.raises(RuntimeError, match=r"^aten.masked_select.default\n\nSharding propagation"):
        t.masked_select(t > 0)
    text = r"^aten.eq.Tensor got mixed torch.Tensor and DTensor, need to convert all torch.Tensor"
    with pytest.raises(RuntimeError, match=text):
        torch.eq(t, torch.ones(6, 4, device="meta"))
