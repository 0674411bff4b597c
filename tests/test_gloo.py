"""Processes that meet by a store and exchange tensors: two of them, and one alone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import torchlike as torch
import torchlike.distributed as dist
from torchlike.distributed.algorithms.ddp_comm_hooks import (
    DDPCommHookType,
    default_hooks,
    register_ddp_comm_hook,
)
from torchlike.distributed.algorithms.join import Join, Joinable, JoinHook

HEAD = """
import os, sys
from datetime import timedelta
import torchlike as torch
import torchlike.distributed as dist
rank, size, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
def begin(seconds=30):
    dist.init_process_group("gloo", store=dist.FileStore(path, size), rank=rank, world_size=size,
                            timeout=timedelta(seconds=seconds))
def same(t, *wanted):
    assert t.tolist() == list(wanted), (rank, t, wanted)
"""


@pytest.fixture(autouse=True)
def no_world() -> Iterator[None]:
    yield
    if dist.is_initialized():
        dist.destroy_process_group()


def played(
    tmp_path: Path, body: str, size: int = 2, env: dict[str, str] | None = None
) -> list[str]:
    """Runs a program in several processes; gives what each printed."""
    script = HEAD + textwrap.dedent(body)
    began = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(rank), str(size), str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(env or {}), "RANK": str(rank), "WORLD_SIZE": str(size)},
        )
        for rank in range(size)
    ]
    said = []
    try:
        said.extend(process.communicate(timeout=120)[0] for process in began)
    finally:
        for process in began:
            process.kill()
    for process, text in zip(began, said, strict=True):
        assert process.returncode == 0, text
    return said


def test_collectives_of_three_processes(tmp_path: Path) -> None:
    played(
        tmp_path,
        """
        begin()
        assert (dist.get_rank(), dist.get_world_size(), dist.get_backend()) == (rank, size, "gloo")
        x = torch.arange(3.0) + rank
        dist.all_reduce(x)
        same(x, 3, 6, 9)
        for op, wanted in (("MAX", 2), ("MIN", 0), ("PRODUCT", 0), ("AVG", 1)):
            t = torch.tensor([float(rank)])
            dist.all_reduce(t, getattr(dist.ReduceOp, op))
            same(t, wanted)
        bits = torch.tensor([1 << rank])
        work = dist.all_reduce(bits, dist.ReduceOp.BOR, async_op=True)
        assert work.wait() and work.is_completed() and work.result()[0] is bits
        same(bits, 7)
        b = torch.full((2, 2), rank, dtype=torch.bfloat16)
        dist.broadcast(b, 1)
        same(b.flatten(), 1, 1, 1, 1)
        r = torch.tensor([rank + 1])
        dist.reduce(r, 2)
        same(r, 6 if rank == 2 else rank + 1)
        parts = [torch.zeros(2, dtype=torch.int64) for _ in range(size)]
        dist.all_gather(parts, torch.tensor([rank, -rank]))
        same(torch.stack(parts)[:, 1], 0, -1, -2)
        whole = torch.zeros(size, 2)
        dist.all_gather_into_tensor(whole, torch.full((1, 2), float(rank)))
        same(whole[:, 0], 0, 1, 2)
        own = torch.zeros(2)
        dist.reduce_scatter_tensor(own, torch.arange(6.0))
        same(own, 6 * rank, 6 * rank + 3)
        dist.reduce_scatter(own, [torch.full((2,), float(i)) for i in range(size)])
        same(own, 3 * rank, 3 * rank)
        swapped = torch.zeros(size)
        dist.all_to_all_single(swapped, torch.arange(3.0) + 10 * rank)
        same(swapped, rank, 10 + rank, 20 + rank)
        uneven = torch.zeros(3 if rank == 0 else 0)
        dist.all_to_all_single(uneven, torch.full((1,), float(rank)), [1] * 3 if rank == 0 else [0] * 3, [1, 0, 0])
        same(uneven, *([0, 1, 2] if rank == 0 else []))
        lists = [torch.zeros(1) for _ in range(size)]
        dist.all_to_all(lists, [torch.tensor([10.0 * rank + i]) for i in range(size)])
        same(torch.cat(lists), rank, 10 + rank, 20 + rank)
        gathered = [torch.zeros(1) for _ in range(size)] if rank == 1 else None
        dist.gather(torch.tensor([float(rank)]), gathered, 1)
        if rank == 1:
            same(torch.cat(gathered), 0, 1, 2)
        got = torch.zeros(1)
        dist.scatter(got, [torch.tensor([float(i)]) for i in range(size)] if rank == 0 else None, 0)
        same(got, rank)
        dist.barrier()
        dist.monitored_barrier()
        dist.destroy_process_group()
        assert not dist.is_initialized()
        """,
        size=3,
    )


def test_messages_objects_and_groups(tmp_path: Path) -> None:
    played(
        tmp_path,
        """
        begin()
        other = 1 - rank
        got = torch.zeros(4)
        if rank == 0:
            dist.send(torch.arange(4.0), 1, tag=5)
            dist.send(torch.ones(4), 1, tag=6)
            assert dist.recv(got) == 1
        else:
            assert dist.recv(got, 0, tag=6) == 0
            same(got, 1, 1, 1, 1)
            dist.irecv(got, 0, tag=5).wait()
            same(got, 0, 1, 2, 3)
            dist.isend(got, 0).wait()
        same(got, 0, 1, 2, 3)
        big, into = torch.full((1 << 20,), float(rank)), torch.zeros(1 << 20)
        ops = [dist.P2POp(dist.irecv, into, other), dist.P2POp(dist.isend, big, other)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert into.eq(other).all()
        everyone = [None, None]
        dist.all_gather_object(everyone, {"rank": rank, "t": torch.ones(rank + 1)})
        assert [o["rank"] for o in everyone] == [0, 1] and everyone[1]["t"].shape == (2,)
        at_one = [None, None]
        dist.gather_object(rank, at_one if rank == 1 else None, 1)
        assert at_one == ([0, 1] if rank == 1 else [None, None])
        said = ["a", 1] if rank == 0 else [None, None]
        dist.broadcast_object_list(said, 0)
        assert said == ["a", 1]
        mine = [None]
        dist.scatter_object_list(mine, ["x", "y"] if rank == 0 else None, 0)
        assert mine == [["x", "y"][rank]]
        if rank == 0:
            dist.send_object_list(["from", 0], 1)
        else:
            objects = [None, None]
            assert dist.recv_object_list(objects, 0) == 0 and objects == ["from", 0]
        alone = dist.new_group([1])
        both = dist.new_group([0, 1])
        assert both.group_name == "2" and (rank == 1) == (alone != dist.GroupMember.NON_GROUP_MEMBER)
        t = torch.ones(1)
        if rank == 1:
            dist.all_reduce(t, group=alone)
        dist.all_reduce(t, group=both)
        same(t, 2)
        mine, all_groups = dist.new_subgroups(1)
        assert mine.ranks == (rank,) and len(all_groups) == 2
        """,
    )


def test_shards_and_functional_collectives_between_processes(tmp_path: Path) -> None:
    played(
        tmp_path,
        """
        from torchlike.distributed import _functional_collectives as functional
        from torchlike.distributed.tensor import Replicate, Shard, distribute_tensor
        begin()
        mesh = dist.init_device_mesh("cpu", (2,))
        whole = torch.arange(12.0).view(4, 3)
        d = distribute_tensor(whole, mesh, [Shard(0)])
        assert d.to_local().tolist() == whole[2 * rank : 2 * rank + 2].tolist()
        assert d.redistribute(placements=[Shard(1)]).to_local().shape == (4, 2 - rank)
        assert d.full_tensor().tolist() == whole.tolist()
        assert (d.t() @ d).full_tensor().tolist() == (whole.t() @ whole).tolist()
        x = torch.full((2,), float(rank + 1), requires_grad=True)
        y = functional.all_gather_tensor_autograd(x, 0, mesh.get_group())
        same(y.detach(), 1, 1, 2, 2)
        (y * torch.arange(4.0)).sum().backward()
        same(x.grad, *([0, 2] if rank == 0 else [4, 6]))
        """,
    )


def test_gradients_are_averaged(tmp_path: Path) -> None:
    played(
        tmp_path,
        """
        from torchlike.nn.parallel import DistributedDataParallel
        begin()
        torch.manual_seed(rank)
        plain = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 2))
        model = DistributedDataParallel(plain)
        weights = [None, None]
        dist.all_gather_object(weights, plain[0].weight.tolist())
        assert weights[0] == weights[1] and "module.0.weight" in model.state_dict()
        torch.manual_seed(10 + rank)
        x = torch.randn(4, 3)
        plain.eval()
        own = torch.autograd.grad(plain(x).square().sum(), plain[0].weight)[0]
        both = [None, None]
        dist.all_gather_object(both, own)
        model(x).square().sum().backward()
        assert torch.allclose(plain[0].weight.grad, (both[0] + both[1]) / 2, atol=1e-6)
        before = plain[0].weight.grad.clone()
        with model.no_sync():
            model(x).square().sum().backward()
        assert torch.allclose(plain[0].weight.grad, before + own, atol=1e-5)
        model(x).square().sum().backward()
        assert torch.allclose(plain[0].weight.grad, before * 3, atol=1e-5)

        class Either(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = torch.nn.ModuleList(torch.nn.Linear(1, 1) for _ in range(3))
            def forward(self, x):
                return self.parts[rank](x)

        either = DistributedDataParallel(Either(), find_unused_parameters=True)
        for _ in range(2):
            either.zero_grad()
            either(torch.ones(1, 1)).sum().backward()
        grads = [p.bias.grad for p in either.module.parts]
        assert [None if g is None else g.item() for g in grads] == [0.5, 0.5, None]
        strict = DistributedDataParallel(Either())
        strict(torch.ones(1, 1)).sum().backward()
        try:
            strict(torch.ones(1, 1))
        except RuntimeError as e:
            assert "Expected to have finished reduction in the prior iteration" in str(e)
        else:
            raise AssertionError
        """,
    )


def test_models_that_need_no_averaging() -> None:
    from torchlike.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = DistributedDataParallel(torch.nn.Linear(2, 2))
    model(torch.ones(1, 2)).sum().backward()
    assert torch.equal(model.module.weight.grad, torch.ones(2, 2))
    with pytest.raises(
        RuntimeError, match="is not needed when a module doesn't have any parameter"
    ):
        DistributedDataParallel(torch.nn.ReLU())
    with pytest.raises(TypeError, match="must be callable"):
        model.register_comm_hook(None, None)
    with pytest.raises(KeyError, match="bucket"):
        model.register_comm_hook(None, lambda state, x: x)

    def wrong(state: object, bucket: int) -> None: ...

    with pytest.raises(ValueError, match=r"should be dist\.GradBucket"):
        model.register_comm_hook(None, wrong)
    register_ddp_comm_hook(DDPCommHookType.NOOP, model)
    with pytest.raises(RuntimeError, match="can only be called once"):
        model.register_comm_hook(None, default_hooks.allreduce_hook)
    with pytest.raises(ValueError, match="at least one joinable"):
        Join([])
    with pytest.raises(AssertionError, match="constructor"):
        Join.notify_join_context(object())  # type: ignore[arg-type]
    assert issubclass(DistributedDataParallel, Joinable) and isinstance(model.join_hook(), JoinHook)
    assert model.join_process_group.size() == 1 and model.join_device == torch.device("cpu")


def test_hooks_of_gradients(tmp_path: Path) -> None:
    played(
        tmp_path,
        """
        from torchlike.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, default_hooks
        from torchlike.distributed.algorithms.ddp_comm_hooks import register_ddp_comm_hook
        from torchlike.nn.parallel import DistributedDataParallel as DDP
        begin()
        def model():
            torch.manual_seed(0)
            return DDP(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)))
        x = torch.arange(6.0).view(2, 3) + rank
        def grads(m):
            m(x).square().sum().backward()
            return [p.grad for p in m.parameters()]
        want = grads(model())
        K = DDPCommHookType
        for kind, within in ((K.ALLREDUCE, 1e-6), (K.FP16_COMPRESS, 1e-2), (K.BF16_COMPRESS, 1e-1)):
            m = model()
            register_ddp_comm_hook(kind, m, dist.group.WORLD)
            for a, b in zip(grads(m), want):
                torch.testing.assert_close(a, b, rtol=within, atol=within)
        m = model()
        register_ddp_comm_hook(K.NOOP, m)
        assert not torch.allclose(grads(m)[0], want[0])
        seen = []
        wrapped = default_hooks.bf16_compress_wrapper(default_hooks.allreduce_hook)
        def hook(state, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            assert [tuple(g.shape) for g in bucket.gradients()] == [tuple(p.shape) for p in bucket.parameters()]
            state.append((bucket.index(), bucket.is_last(), bucket.buffer().numel()))
            return default_hooks.fp16_compress_wrapper(wrapped)(None, bucket)
        m = model()
        m.register_comm_hook(seen, hook)
        torch.testing.assert_close(grads(m)[0], want[0], rtol=1e-1, atol=1e-1)
        assert seen == [(0, True, 26)]
        try:
            register_ddp_comm_hook(K.POWER_SGD, model())
        except NotImplementedError as e:
            assert "powerSGD_hook" in str(e), e
        else:
            raise AssertionError
        """,
    )


@pytest.mark.parametrize("by_all", [True, False])
def test_unequal_numbers_of_batches(tmp_path: Path, by_all: bool) -> None:
    played(
        tmp_path,
        f"by_all = {by_all}\n"
        + textwrap.dedent("""
        from torchlike.nn.parallel import DistributedDataParallel as DDP
        begin()
        def net():
            torch.manual_seed(0)
            return torch.nn.Linear(2, 1, bias=False)
        batches = [[torch.full((1, 2), 1.0 + i + 10 * r) for i in range(1 + 2 * r)] for r in range(2)]
        plain = net()
        for i in range(3):
            has = [b[i] for b in batches if i < len(b)]
            plain.zero_grad()
            (sum(plain(b).sum() for b in has) / (2 if by_all else len(has))).backward()
            plain.weight.data -= 0.01 * plain.weight.grad
        for find_unused in (False, True):
            model = DDP(net(), find_unused_parameters=find_unused)
            with model.join(divide_by_initial_world_size=by_all):
                for x in batches[rank]:
                    model.zero_grad()
                    model(x).sum().backward()
                    model.module.weight.data -= 0.01 * model.module.weight.grad
            torch.testing.assert_close(model.module.weight, plain.weight)
        norm = DDP(torch.nn.Sequential(torch.nn.BatchNorm1d(2)))
        with norm.join():
            for x in batches[rank]:
                norm(torch.cat([x, -x])).sum().backward()
        assert norm.module[0].num_batches_tracked == 3
        try:
            with norm.join(throw_on_early_termination=True):
                for x in batches[rank]:
                    norm(torch.cat([x, -x])).sum().backward()
        except RuntimeError as e:
            assert ("exhausted all inputs" if rank == 0 else "Throwing across all ranks") in str(e)
        else:
            raise AssertionError
        """),
    )


def test_groups_of_a_group(tmp_path: Path) -> None:
    played(
        tmp_path,
        """
        begin()
        first, others = dist.new_subgroups_by_enumeration([[0, 2], [1]])
        assert len(others) == 2 and dist.get_process_group_ranks(first) == ([1] if rank == 1 else [0, 2])
        part = dist.split_group(None, [[0, 1]])
        assert (part is None) == (rank == 2)
        if part is not None:
            t = torch.ones(1)
            dist.all_reduce(t, group=part)
            same(t, 2.0)
        for bad in (None, [[0], [0]], [[7]]):
            try:
                dist.split_group(None, bad)
            except ValueError:
                pass
            else:
                raise AssertionError
        for bad in (None, [[0], [0]]):
            try:
                dist.new_subgroups_by_enumeration(bad)
            except ValueError:
                pass
            else:
                raise AssertionError
        """,
        3,
    )


def test_who_does_not_come_or_goes_is_an_error(tmp_path: Path) -> None:
    said = played(
        tmp_path,
        """
        import time
        begin(4)
        began = time.monotonic()
        if rank == 0:
            try:
                dist.recv(torch.zeros(1), 1)
            except RuntimeError as e:
                print(e, time.monotonic() - began > 3.5)
            try:
                dist.monitored_barrier(timeout=timedelta(seconds=30))
            except RuntimeError as e:
                print(e)
        else:
            time.sleep(6)
        os._exit(0)
        """,
    )
    assert "Timed out waiting 4000ms for recv operation to complete (from rank 1) True" in said[0]
    assert "Connection closed by peer: rank 1 has gone" in said[0]
    began = time.monotonic()
    with pytest.raises(RuntimeError, match="1 of 2 ranks did not come within 1 seconds"):
        dist.init_process_group(
            "gloo",
            store=dist.HashStore(),
            rank=0,
            world_size=2,
            timeout=timedelta(seconds=1),
        )
    assert time.monotonic() - began < 20 and not dist.is_initialized()


def test_meeting_by_the_environment(tmp_path: Path) -> None:
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    body = """
    dist.init_process_group(timeout=timedelta(seconds=30))
    t = torch.tensor([rank + 1])
    dist.all_reduce(t)
    same(t, 3)
    """
    played(tmp_path, body, env={"MASTER_ADDR": "localhost", "MASTER_PORT": str(port)})


def test_one_process_alone(tmp_path: Path) -> None:
    for how in (
        {"store": dist.FileStore(tmp_path / "a", 1), "rank": 0, "world_size": 1},
        {"store": dist.TCPStore("localhost", 0, 1, True), "rank": 0, "world_size": 1},
        {"init_method": f"file://{tmp_path}/b?rank=0&world_size=1"},
    ):
        dist.init_process_group("gloo", **how)  # type: ignore[arg-type]
        t = torch.tensor([3.0, 4.0])
        dist.all_reduce(t, dist.ReduceOp.AVG)
        out = [torch.zeros(2)]
        dist.all_gather(out, t)
        assert out[0].tolist() == [3, 4] and dist.get_backend_config() == "cpu:gloo"
        with pytest.raises(RuntimeError, match="broadcast: invalid root rank: 3"):
            dist.broadcast(t, 3)
        with pytest.raises(RuntimeError, match="invalid tensor size at index 0"):
            dist.all_gather([torch.zeros(3)], t)
        with pytest.raises(ValueError, match="Invalid destination rank"):
            dist.send(t, 0)
        with pytest.raises(ValueError, match="``gather_list`` must be specified"):
            dist.gather(t, None, 0)
        with pytest.raises(RuntimeError, match="device type meta"):
            dist.all_reduce(t.to("meta"))
        with pytest.raises(ValueError, match="twice"):
            dist.init_process_group("gloo")
        future = dist.all_reduce(t, async_op=True).get_future()
        assert future.wait()[0] is t
        with pytest.raises(NotImplementedError, match="'nccl'"):
            dist.new_group([0], backend="nccl")
        with pytest.raises(RuntimeError, match="PREMUL_SUM with Gloo"):
            dist.all_reduce(t, dist.ReduceOp.PREMUL_SUM)
        dist.destroy_process_group()
