"""Gradients beside numerical derivatives, in double precision."""

from __future__ import annotations

import torchlike as torch
from torchlike.autograd import Function

STEP = 1e-5


def rand(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def leaf(*values):
    """Numbers that gradients are wanted of."""
    return torch.tensor(values, requires_grad=True)


class SavesInputs(Function):
    """A function whose parts see its inputs, under `vmap` too."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)


def derivative(forward, x, cotangent):
    """The derivative of `sum(forward(x) * cotangent)` by central differences."""
    flat = x.clone().contiguous().reshape(-1)
    out = torch.empty_like(flat)
    for i in range(flat.numel()):
        sides = []
        for step in (STEP, -STEP):
            moved = flat.clone()
            moved[i] += step
            sides.append((forward(moved.reshape(x.shape)) * cotangent).sum().item())
        out[i] = (sides[0] - sides[1]) / (2 * STEP)
    return out.reshape(x.shape)


def check(forward, x, backward):
    """The gradient that `backward` makes of a random cotangent is the derivative of `forward` at `x`."""
    cotangent = torch.randn_like(forward(x))
    got = backward(cotangent)
    assert got.shape == x.shape
    assert got.dtype == x.dtype
    torch.testing.assert_close(got, derivative(forward, x, cotangent), rtol=1e-6, atol=1e-7)


def inner(a, b):
    """The real inner product."""
    both = (a.conj() * b).sum() if a.dtype.is_complex or b.dtype.is_complex else (a * b).sum()
    return (both.real if both.dtype.is_complex else both).item()


def direction(t):
    """A random tensor like another."""
    return torch.randn(t.shape, dtype=t.dtype)


def slopes(function, leaves, step=1e-6):
    """How fast the results of a function change, in a random direction, if its leaves move in one.

    By their gradients, and by differences; nothing if no result has a gradient.
    """
    torch.manual_seed(1)
    made = [(i, o) for i, o in enumerate(function()) if o is not None and o.requires_grad]
    if not made or not leaves:
        return None
    cotangents = [(i, direction(o)) for i, o in made]
    steps = [direction(t) for t in leaves]
    grads = torch.autograd.grad(
        [o for _, o in made], leaves, [c for _, c in cotangents], allow_unused=True
    )
    got = sum(inner(s, g) for s, g in zip(steps, grads, strict=True) if g is not None)
    sides = []
    for size in (step, -step):
        move(leaves, steps, size)
        moved = function()
        sides.append(sum(inner(c, moved[i].detach()) for i, c in cotangents))
        move(leaves, steps, -size)
    return got, (sides[0] - sides[1]) / (2 * step)


def move(leaves, steps, size):
    with torch.no_grad():
        for t, s in zip(leaves, steps, strict=True):
            t.add_(s, alpha=size)


def twice(function, leaves):
    """The gradients of a function, as a function of its leaves and of the gradients that it is given: leaves, too."""
    torch.manual_seed(2)
    with torch.enable_grad():
        made = [o for o in function() if o is not None and o.requires_grad]
        given = [direction(o).requires_grad_() for o in made]

    def back():
        made = [o for o in function() if o is not None and o.requires_grad]
        return torch.autograd.grad(made, leaves, given, create_graph=True, allow_unused=True)

    return back, leaves + given


def made(forward, backward=lambda ctx, *grads: grads[0], name="Made", **more):
    """A function of the user's, of these two and other static methods."""
    methods = {"forward": forward, "backward": backward, **more}
    body = {n: staticmethod(f) for n, f in methods.items()}
    return type(Function)(name, (Function,), body).apply
