"""Transforms below a dispatch mode: who watches changes nothing, whatever layers a call goes through before."""

from __future__ import annotations

import pytest

import torchlike as torch
from derivatives import direction
from test_gradients import STEADY, calls_of
from torchlike.func import grad, jvp, vmap
from torchlike.testing import assert_close
from torchlike.utils._python_dispatch import TorchDispatchMode


class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def outcome(way):
    """What a computation gives, or the class of its error."""
    torch.manual_seed(0)
    try:
        return way()
    except Exception as e:
        return type(e)


def ways(call, primals):
    """The call of examples, and tangents of its gradients."""
    examples = [torch.stack([p, p * 0.9]) for p in primals]
    torch.manual_seed(1)
    tangents = tuple(direction(p) for p in primals)

    def size(*given):
        floating = [o for o in call(*given) if o.is_floating_point() or o.is_complex()]
        return sum((o.abs() ** 2).sum() for o in floating)

    gradient = grad(size, tuple(range(len(primals))))
    return lambda: vmap(call)(*examples), lambda: jvp(gradient, primals, tangents)


@pytest.mark.parametrize("row", STEADY)
def test_every_row(row):
    for _, function, wanted in calls_of(row):

        def call(*given, function=function, wanted=wanted):
            at = {id(t): g for t, g in zip(wanted, given, strict=True)}
            made = function(lambda t: at.get(id(t), t))
            return tuple(o for o in made if isinstance(o, torch.Tensor))

        for way in ways(call, tuple(t.detach() for t in wanted)):
            want = outcome(way)
            with Watch():
                got = outcome(way)
            if isinstance(want, type):
                assert got is want
            else:
                assert_close(got, want, equal_nan=True)
