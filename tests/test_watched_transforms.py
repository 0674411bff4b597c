"""Transforms below a dispatch mode: who watches changes nothing, whatever layers a call goes through before."""

from __future__ import annotations

import pytest

import torchlike as torch
from derivatives import direction
from test_gradients import STEADY, calls_of
from torchlike.func import grad, jvp, vmap
from torchlike.fx.experimental.proxy_tensor import make_fx
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


def calls(row):
    """The row's samples as functions of tensors, and such tensors."""
    for _, function, wanted in calls_of(row):

        def call(*given, function=function, wanted=wanted):
            at = {id(t): g for t, g in zip(wanted, given, strict=True)}
            made = function(lambda t: at.get(id(t), t))
            return tuple(o for o in made if isinstance(o, torch.Tensor))

        yield call, tuple(t.detach() for t in wanted)


# Derivatives of thousands of calls; tests/test_linearize.py has them.
LONG = {"_grad.mkldnn_rnn_layer_backward", "grid_sampler_2d", "linalg.householder_product"}


@pytest.mark.parametrize("row", [r for r in STEADY if r not in LONG])
def test_every_row(row):
    for call, primals in calls(row):
        for way in ways(call, primals):
            want = outcome(way)
            with Watch():
                got = outcome(way)
            if isinstance(want, type):
                assert got is want
            else:
                assert_close(got, want, equal_nan=True)


# Rows of the table alone, which their composites call where nobody watches.
UNSEEN = {
    "_adaptive_avg_pool2d", "_grad.grid_sampler", "_nn.update_running",
    "_nn.window_squares",
}  # fmt: skip


def traced(way, given):
    """The graph of a computation, or None if it looks at values."""
    try:
        return make_fx(way)(*(t.clone() for t in given))
    except RuntimeError as e:
        if "trying to get value out of a tracing tensor" not in str(e):
            raise
        return None


@pytest.mark.parametrize("row", [r for r in STEADY if r not in LONG | UNSEEN])
def test_the_graph_of_examples_and_of_tangents(row):
    for call, primals in calls(row):
        examples = tuple(torch.stack([p, p * 0.9]) for p in primals)
        for way, given in (
            (vmap(call), examples),
            (lambda *p, call=call: jvp(call, p, p), primals),
        ):
            others = [t * 0.95 for t in given]
            want = outcome(lambda way=way, others=others: way(*(t.clone() for t in others)))
            if isinstance(want, type):
                continue
            graph = traced(way, given)
            if graph is not None:
                got = outcome(lambda graph=graph, others=others: graph(*others))
                assert_close(tuple(got), want, equal_nan=True)
