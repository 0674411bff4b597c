"""Gradients beside numerical derivatives, in double precision."""

from __future__ import annotations

import torchlike as torch

STEP = 1e-5


def rand(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def leaf(*values):
    """Numbers that gradients are wanted of."""
    return torch.tensor(values, requires_grad=True)


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
