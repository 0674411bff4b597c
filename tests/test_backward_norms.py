"""Backward operators of norms against numerical derivatives."""

from __future__ import annotations

import pytest

import torchlike as torch
from test_backward_losses import agree, drawn

F = torch.nn.functional
aten = torch.ops.aten


def parts(made, *others):
    """The results of a row that are asked for one at a time equal those asked for together."""
    for k, call in enumerate(others):
        single = call([k == j for j in range(len(made))])
        assert [t is None for t in single] == [k != j for j in range(len(made))]
        assert torch.allclose(single[k], made[k])


@pytest.mark.parametrize(
    ("shape", "dims"), [((3, 4), 1), ((2, 3, 4), 2), ((6,), 1), ((40, 5), 1), ((3, 70), 1)]
)
def test_layer_norm(shape, dims):
    x, own = drawn(*shape), shape[-dims:]
    w, b = drawn(*own, seed=1), drawn(*own, seed=2)
    g = drawn(*shape, seed=3)
    _, mean, rstd = torch.native_layer_norm(x, own, w, b, 1e-5)
    call = lambda m: aten.native_layer_norm_backward(g, x, own, mean, rstd, w, b, m)  # noqa: E731
    made = call([True] * 3)
    agree(made[0], lambda x: F.layer_norm(x, own, w, b), x, g)
    agree(made[1], lambda w: F.layer_norm(x, own, w, b), w, g)
    agree(made[2], lambda b: F.layer_norm(x, own, w, b), b, g)
    parts(made, call, call, call)
    assert call([False] * 3) == (None, None, None)
    _, rstd = torch._fused_rms_norm(x, own, w, 1e-5)
    call = lambda m: aten._fused_rms_norm_backward(g, x, own, rstd, w, m)  # noqa: E731
    made = call([True, True])
    agree(made[0], lambda x: F.rms_norm(x, own, w, 1e-5), x, g)
    agree(made[1], lambda w: F.rms_norm(x, own, w, 1e-5), w, g)
    parts(made, call, call)


@pytest.mark.parametrize(("shape", "groups"), [((2, 4, 3), 2), ((3, 6), 3), ((2, 4, 2, 3), 1)])
def test_group_norm(shape, groups):
    x, g = drawn(*shape), drawn(*shape, seed=3)
    n, c = shape[:2]
    w, b, size = drawn(c, seed=1), drawn(c, seed=2), x[0, 0].numel()
    _, mean, rstd = torch.native_group_norm(x, w, b, n, c, size, groups, 1e-5)

    def call(mask, x=x, g=g):
        return aten.native_group_norm_backward(g, x, mean, rstd, w, n, c, size, groups, mask)

    made = call([True] * 3)
    agree(made[0], lambda x: F.group_norm(x, groups, w, b), x, g)
    agree(made[1], lambda w: F.group_norm(x, groups, w, b), w, g)
    agree(made[2], lambda b: F.group_norm(x, groups, w, b), b, g)
    parts(made, call, call, call)
    if len(shape) == 4:
        last = [t.to(memory_format=torch.channels_last) for t in (x, g)]
        again = call([True] * 3, *last)
        assert again[0].stride() == last[0].stride()
        assert all(torch.allclose(a, b) for a, b in zip(again, made, strict=True))


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 4), (3, 4, 2, 3), (70, 2)])
@pytest.mark.parametrize("train", [True, False])
def test_batch_norm(shape, train):
    x, g, c = drawn(*shape), drawn(*shape, seed=3), shape[1]
    w, b, mean = drawn(c, seed=1), drawn(c, seed=2), drawn(c, seed=4)
    var = drawn(c, seed=5).abs() + 0.5
    _, m, s = torch.native_batch_norm(x, w, b, mean.clone(), var.clone(), train, 0.1, 1e-5)

    def call(mask, x=x, g=g):
        return aten.native_batch_norm_backward(g, x, w, mean, var, m, s, train, 1e-5, mask)

    def forward(x, w, b):
        return F.batch_norm(x, mean.clone(), var.clone(), w, b, train)

    made = call([True] * 3)
    agree(made[0], lambda x: forward(x, w, b), x, g)
    agree(made[1], lambda w: forward(x, w, b), w, g)
    agree(made[2], lambda b: forward(x, w, b), b, g)
    parts(made, call, call, call)
    if len(shape) == 4:
        last = x.to(memory_format=torch.channels_last)
        again = call([True] * 3, last)
        assert again[0].stride() == last.stride()
        assert all(torch.allclose(a, b) for a, b in zip(again, made, strict=True))


def test_sums_over_many_rows_do_not_depend_on_how_they_are_cut():
    x, g, w = drawn(3000, 64), drawn(3000, 64, seed=1), drawn(64, seed=2)
    _, mean, rstd = torch.native_layer_norm(x, [64], w, w, 1e-5)
    made = aten.native_layer_norm_backward(g, x, [64], mean, rstd, w, w, [True] * 3)
    assert torch.allclose(made[1], (g * (x - mean) * rstd).sum(0))
    assert torch.allclose(made[2], g.sum(0))
    _, mean, s = torch.native_batch_norm(x, w, w, None, None, True, 0.1, 1e-5)
    made = aten.native_batch_norm_backward(g, x, w, None, None, mean, s, True, 1e-5, [True] * 3)
    assert torch.allclose(made[1], (g * (x - mean) * s).sum(0))
