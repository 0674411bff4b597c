"""Training for long: what a step made is gone after it."""

from __future__ import annotations

import gc
import resource
import threading
import weakref

import torchlike as torch
from torchlike.autograd import Function
from torchlike.utils.checkpoint import checkpoint

nn = torch.nn


class Mark:
    """Something that lives as long as a node."""


class Scaled(Function):
    @staticmethod
    def forward(ctx, x, by):
        ctx.save_for_backward(x)
        ctx.by = by
        return x * by

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.by + 0 * x, None


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))
        self.register_full_backward_hook(lambda m, gi, go: None)

    def forward(self, x):
        x = self.layers[0](x)
        x = checkpoint(self.layers[1], x, use_reentrant=False)
        x = checkpoint(self.layers[2], x, use_reentrant=True)
        return Scaled.apply(x, 2.0)


def step(model, marks):
    out = model(torch.ones(4, 16, requires_grad=True))
    mark = out.grad_fn.metadata["mark"] = Mark()
    marks.append(weakref.ref(mark))
    # A hook that knows its own tensor is a cycle.
    out.register_hook(lambda g, out=out: g)
    base = out.clone()
    base[0].mul_(2)
    base.sum().backward()
    with torch.no_grad():
        for p in model.parameters():
            p.sub_(p.grad, alpha=1e-3)
            p.grad = None


def test_a_thousand_steps_leave_nothing():
    model, marks = Model(), []
    for _ in range(100):
        step(model, marks)
    gc.collect()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    objects = len(gc.get_objects())
    for _ in range(900):
        step(model, marks)
    gc.collect()
    assert not any(mark() for mark in marks)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 8 * 1024
    assert len(gc.get_objects()) - objects < 2000


def test_graphs_of_functions_and_views_are_freed():
    x = torch.ones(4, requires_grad=True)
    y = Scaled.apply(x, 3.0)
    base = y.clone()
    view = base[1:]
    view.mul_(y[1:])
    mark = y.grad_fn.mark = Mark()
    alive = weakref.ref(mark)
    del mark, y, base, view
    gc.collect()
    assert alive() is None


def test_chains_of_writes_through_views_are_dropped_on_a_small_stack():
    done = []

    def work():
        x = torch.ones(2, requires_grad=True)
        base = x.clone()
        view = base[:1]
        for _ in range(20_000):
            view.mul_(1.0)
        base.sum().backward()
        done.append(x.grad.tolist())

    threading.stack_size(256 * 1024)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(0)
    assert done == [[1, 1]]
