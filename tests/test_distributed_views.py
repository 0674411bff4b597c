"""Views of tensors on meshes, written in place: gradients are the plain tensors'."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import torchlike as torch
import torchlike.distributed as dist
import torchlike.nn.functional as F
from torchlike.distributed.device_mesh import DeviceMesh
from torchlike.distributed.tensor import Replicate, Shard, distribute_tensor

X, V = torch.randn(4, 3), torch.randn(2, 3)
Places = tuple[Any, ...]


@pytest.fixture(autouse=True)
def world() -> Iterator[None]:
    dist.init_process_group("local", rank=0, world_size=3)
    yield
    dist.destroy_process_group()


def placed(t: Any, places: Places | None = None) -> Any:
    return distribute_tensor(t, DeviceMesh("cpu", [0, 1, 2]), places or (Replicate(),))


def added(x: Any, v: Any) -> Any:
    y = x * 2
    y[0:2].add_(v)
    return y


def assigned(x: Any, v: Any) -> Any:
    y = x * 2
    y[0:2] = v
    return y


def one_row(x: Any, v: Any) -> Any:
    y = x * 2
    y[1].mul_(v[0])
    return y


def turned(x: Any, v: Any) -> Any:
    y = x * 2
    y.t().mul_(3)
    return y


def view_of_views(x: Any, v: Any) -> Any:
    y = x * 2
    y.t()[0:2].t()[1:3].exp_()
    return y


def siblings(x: Any, v: Any) -> Any:
    y = x * 2
    a, b = y[0:2], y[1:3]
    a.mul_(v)
    return torch.cat([b, a, y])


def root_written(x: Any, v: Any) -> Any:
    y = x * 2
    a = y[0:2]
    y.mul_(3)
    return a * v


def written_again(x: Any, v: Any) -> Any:
    y = x * 2
    a = y[0:2]
    a.mul_(v)
    a.add_(v)
    y[1].exp_()
    return y


def of_constants(x: Any, v: Any) -> Any:
    y = x.detach() * 0
    y[0:2].copy_(v)
    return y + x


def columns(x: Any, v: Any) -> Any:
    y = x * 2
    y[:, 0:2].mul_(2.0)
    return y


WRITES = [
    added, assigned, one_row, turned, view_of_views, siblings, root_written, written_again, of_constants, columns,
]  # fmt: skip


def gradients(f: Callable[..., Any], given: list[Any], weight: Callable[[Any], Any]) -> list[Any]:
    xs = [t.detach().requires_grad_(True) for t in given]
    y = f(*xs)
    made = torch.autograd.grad((y * weight(y)).sum(), xs, allow_unused=True)
    return [y.detach(), *made]


def line(y: Any) -> Any:
    return torch.arange(y.numel(), dtype=torch.float32).reshape(y.shape) + 1


@pytest.mark.parametrize("f", WRITES)
def test_gradients_go_through_writes_into_views(f: Callable[..., Any]) -> None:
    want = gradients(f, [X.clone(), V.clone()], line)
    got = gradients(f, [placed(X), placed(V)], lambda y: placed(line(y)))
    for a, b in zip(want, got, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(b.full_tensor(), a)


# Others look at a view again after another one, or the whole, was written.
AT_ONCE = [f for f in WRITES if f not in (siblings, root_written)]


@pytest.mark.parametrize(
    ("f", "places"),
    [(siblings, (Shard(1),)), *((f, (Shard(d),)) for f in AT_ONCE for d in range(2))],
)
def test_so_they_do_where_dimensions_are_cut(f: Callable[..., Any], places: Places) -> None:
    want = gradients(f, [X.clone(), V.clone()], line)
    got = gradients(f, [placed(X, places), placed(V, places)], lambda y: placed(line(y), places))
    for a, b in zip(want, got, strict=True):
        if a is not None:
            torch.testing.assert_close(b.full_tensor(), a)


def test_writes_reach_what_had_to_be_gathered_for_a_view() -> None:
    x = torch.arange(12.0).view(6, 2)
    for places in ((Shard(0),), (Shard(1),)):
        t, want = placed(x, places), x.clone()
        for y in (t, want):
            y[1] = 7.0
            y[2:4].t()[0].add_(1)
            y.flatten()[-1:].zero_()
            first, last = y[0:1], y[5:6]
            first.fill_(3.0)
            last.mul_(2)
            y[0, 1] = 5
        assert torch.equal(t.full_tensor(), want), places
        assert t.placements == places


def test_triangles_are_cut_out_in_place() -> None:
    x = torch.randn(4, 3)
    t = placed(x, (Shard(0),))
    assert t.tril_() is t
    assert torch.equal(t.full_tensor(), x.tril())


def test_circular_padding_has_its_gradient() -> None:
    x = torch.randn(2, 3, 4)

    def padded(x: Any) -> Any:
        return F.pad(x, (1, 1), mode="circular")

    want = gradients(padded, [x], line)
    got = gradients(padded, [placed(x)], lambda y: placed(line(y)))
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(b.full_tensor(), a)


def test_views_know_what_they_are_of() -> None:
    y = placed(X)
    assert y[0:2]._base is y
    assert y[0:2]._is_view()
    assert not y._is_view()
    assert y._base is None


def test_writes_that_cannot_be_followed_are_refused() -> None:
    x = placed(X).requires_grad_(True)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        x[0:1].add_(1.0)
    y = x * 2
    with pytest.raises(RuntimeError, match="the output of a function that returns multiple views"):
        y.chunk(2)[0].mul_(2)
    with torch.no_grad():
        a = y[0:2]
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode"):
        a.mul_(placed(V).requires_grad_(True))


def test_nothing_stays_once_all_is_forgotten() -> None:
    y = placed(X) * 1
    v = placed(V).requires_grad_(True)
    a = y[0:2]
    a.exp_()
    a.mul_(v)
    (y * a.sum()).sum().backward()
    seen = [weakref.ref(y), weakref.ref(a)]
    del y, a
    gc.collect()
    assert [r() for r in seen] == [None, None]
