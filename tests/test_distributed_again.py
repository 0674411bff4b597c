"""Calls of tensors on meshes run again as they ran before: without Python, and with the same meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import torchlike as torch
import torchlike.distributed as dist
import torchlike.nn.functional as F
from torchlike import _C
from torchlike.distributed import _ops
from torchlike.distributed.device_mesh import DeviceMesh
from torchlike.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    _dispatch,
    _moves,
    distribute_tensor,
)
from torchlike.distributed.tensor.parallel import loss_parallel


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    _dispatch.clear()
    dist.init_process_group("local", rank=0, world_size=3)
    yield
    dist.destroy_process_group()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators that Python was asked about."""
    found: list[str] = []
    real = _dispatch.dispatch

    def noted(func: Any, args: Any, kwargs: Any) -> Any:
        found.append(func._opname)
        return real(func, args, kwargs)

    monkeypatch.setattr(_dispatch, "dispatch", noted)
    return found


def line() -> DeviceMesh:
    return DeviceMesh("cpu", [0, 1, 2])


def cut(t: Any, *placements: Any) -> DTensor:
    return distribute_tensor(t, line(), placements or [Shard(0)])


def again(f: Callable[..., Any], asked: list[str], *turns: tuple[Any, ...]) -> list[Any]:
    """The results of calls, of which only the first ones may reach Python."""
    made = [f(*turns[0]), f(*turns[0])]
    asked.clear()
    made += [f(*turn) for turn in turns[1:]]
    assert not asked
    return made[2:]


def test_second_calls_do_not_reach_python(asked: list[str]) -> None:
    a, b = torch.randn(7, 4), torch.randn(7, 4)
    got = again(lambda x: (x * 2).sum(0), asked, (cut(a),), (cut(b),))[0]
    assert got.placements == (Partial(),)
    torch.testing.assert_close(got.full_tensor(), (b * 2).sum(0))


def test_numbers_kinds_and_layouts_are_told_apart() -> None:
    t = torch.randn(6, 4)
    for scale in (2, 2.0, True, 3):
        assert torch.equal((cut(t) * scale).full_tensor(), t * scale)
    for p in (Shard(0), Shard(1), Replicate()):
        for dtype in (torch.float32, torch.float64):
            for whole in (t.to(dtype), t.to(dtype)[:5]):
                got = cut(whole, p).exp()
                assert got.placements == (p,) and got.dtype == dtype
                torch.testing.assert_close(got.full_tensor(), whole.exp())


def test_pieces_that_are_the_same_are_not_taken_for_others(asked: list[str]) -> None:
    a, b = cut(torch.randn(5, 4)), cut(torch.randn(5, 4))
    for x, y in ((a, a), (a, b), (b, b), (b, a)) * 2:
        assert torch.equal((x - y).full_tensor(), x.full_tensor() - y.full_tensor())


def test_writes_in_place(asked: list[str]) -> None:
    wholes = [torch.randn(5, 4) for _ in range(3)]

    def write(t: Any) -> Any:
        t.add_(1)
        t.mul_(t)
        return t

    made = again(write, asked, *[(cut(w),) for w in wholes])
    for got, whole in zip(made, wholes[1:], strict=True):
        assert torch.equal(got.full_tensor(), (whole + 1) ** 2)


def test_views_share_memory(asked: list[str]) -> None:
    wholes = [cut(torch.randn(6, 4)) for _ in range(2)]
    got = again(lambda t: t.t(), asked, *[(w,) for w in wholes])[0]
    wholes[1].zero_()
    assert got.placements == (Shard(1),) and not got.full_tensor().any()


def test_gradients_of_composites(asked: list[str]) -> None:
    x, w, b = torch.randn(2, 6, 4), torch.randn(5, 4), torch.randn(5)
    x2, w2, b2 = x.flip(0), w.flip(0), b.flip(0)

    def step(*plain: Any) -> list[Any]:
        places = ([Shard(1)], [Replicate()], [Replicate()])
        leaves = [
            distribute_tensor(t, line(), p).requires_grad_()
            for t, p in zip(plain, places, strict=True)
        ]
        F.gelu(F.linear(*leaves)).square().sum().backward()
        return [t.grad.full_tensor() for t in leaves]

    step(x, w, b)
    step(x, w, b)
    got = again(step, asked, (x, w, b), (x2, w2, b2))[0]
    leaves = [t.clone().requires_grad_() for t in (x2, w2, b2)]
    F.gelu(F.linear(*leaves)).square().sum().backward()
    for mine, t in zip(got, leaves, strict=True):
        torch.testing.assert_close(mine, t.grad, rtol=1e-4, atol=1e-5)


def test_random_numbers_go_on(asked: list[str]) -> None:
    t = torch.ones(9, 4)
    torch.manual_seed(1)
    want = [F.dropout(t) for _ in range(4)]
    torch.manual_seed(1)
    got = [F.dropout(cut(t)).full_tensor() for _ in range(4)]
    assert all(map(torch.equal, got, want)) and not torch.equal(got[2], got[3])


def test_values_that_are_read_are_read_each_time() -> None:
    for _ in range(3):
        a, b = cut(torch.randn(5)), cut(torch.randn(5))
        assert torch.equal(a, a) and not torch.equal(a, b)
        assert a.sum().item() == pytest.approx(a.full_tensor().sum().item(), abs=1e-5)
        w, i = torch.randn(8, 4), torch.randint(0, 8, (3, 5))
        got = F.embedding(cut(i, Replicate()), cut(w))
        assert torch.equal(got.full_tensor(), F.embedding(i, w))


def test_results_have_objects_that_stay() -> None:
    for _ in range(3):
        t = cut(torch.randn(6, 4))
        made = t + 1
        assert type(made) is DTensor and made._spec == t._spec and len(made._locals) == 3
        assert made._locals[0] is made._locals[0]
        assert torch.equal(made._locals[1], t._locals[1] + 1)


def test_errors_are_the_same_each_time() -> None:
    for _ in range(3):
        with pytest.raises(RuntimeError, match="unevenly"):
            cut(torch.randn(7, 4)).view(28)
        with pytest.raises(RuntimeError):
            cut(torch.randn(6, 4)) + cut(torch.randn(5, 4))


def test_what_a_context_changes_is_asked_again() -> None:
    logits, target = torch.randn(5, 6), torch.randint(0, 6, (5,))
    for _ in range(2):
        for inside in (False, True):
            x = distribute_tensor(logits, line(), [Shard(1)])
            y = distribute_tensor(target, line(), [Replicate()])
            if inside:
                with loss_parallel():
                    got = F.cross_entropy(x, y)
                    assert F.log_softmax(x, 1).placements == (Shard(1),)
            else:
                got = F.cross_entropy(x, y)
                assert F.log_softmax(x, 1).placements != (Shard(1),)
            torch.testing.assert_close(got.full_tensor(), F.cross_entropy(logits, target))


def test_collectives_are_told_of_each_time(asked: list[str]) -> None:
    dist.destroy_process_group()
    dist.init_process_group("fake", rank=0, world_size=3)
    told: list[Any] = []

    def listen(kind: str, group: Any, inputs: list[Any], outputs: list[Any]) -> None:
        told.append((kind, group.size(), [tuple(t.shape) for t in (*inputs, *outputs)]))

    def call(t: Any) -> Any:
        return (t.sum(0) + 1).exp()

    wholes = [distribute_tensor(torch.randn(6, 4), line(), [Shard(0)]) for _ in range(2)]
    _ops.watchers.append(listen)
    try:
        again(call, asked, *[(w,) for w in wholes])
    finally:
        _ops.watchers.remove(listen)
    assert told == [("all_reduce", 3, [(4,), (4,)])] * 3


def test_kinds_are_forgotten() -> None:
    cut(torch.randn(6, 4)).exp()
    assert _C._known_calls() > 0
    _dispatch.clear()
    assert _C._known_calls() == 0


def test_pieces_are_brought_elsewhere_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    real = _moves.step

    def noted(*args: Any) -> Any:
        steps.append("step")
        return real(*args)

    monkeypatch.setattr(_moves, "step", noted)
    for turn in range(5):
        t = torch.randn(7, 4)
        for p in (Replicate(), Shard(1)):
            got = cut(t).redistribute(placements=[p])
            assert torch.equal(got.full_tensor(), t) and got.placements == (p,)
        if turn == 2:
            steps.clear()
    assert not steps
    # Of other types and sizes, and where gradients are asked for.
    for whole in (torch.arange(7), torch.randn(3, 4), torch.randn(7, 4, requires_grad=True)):
        assert torch.equal(cut(whole).redistribute(placements=[Replicate()]).full_tensor(), whole)
    assert steps


def test_composites_that_python_passes_on_are_one_call() -> None:
    def gradients(x: Any, w: Any) -> list[Any]:
        a, b = cut(x, Replicate()).requires_grad_(), cut(w).requires_grad_()
        return [g.full_tensor() for g in torch.autograd.grad(F.linear(a, b).sum(), (a, b))]

    for _ in range(4):
        x, w = torch.randn(2, 4), torch.randn(6, 4)
        wanted = (w.sum(0).expand(2, 4), x.sum(0).expand(6, 4))
        for got, want in zip(gradients(x, w), wanted, strict=True):
            torch.testing.assert_close(got, want)
    known = _C._known_calls()
    gradients(torch.randn(2, 4), torch.randn(6, 4))
    assert _C._known_calls() == known
