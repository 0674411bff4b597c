"""What dispatch modes do to gradients: nothing."""

import pytest

import torchlike as torch
from torchlike.utils._python_dispatch import TorchDispatchMode


class Passing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.repeat_interleave(2, 1),
        lambda x: x.tile(2),
        lambda x: torch.outer(x[0], x[1]),
        lambda x: torch.stack([x, x]).flatten(),
        lambda x: torch.cat([p.sigmoid_() for p in torch.unsafe_split(x * 1, 1, 1)]),
    ],
)
def test_composites_keep_their_history(f):
    x = torch.rand(2, 3, requires_grad=True)
    (plain,) = torch.autograd.grad(f(x).pow(2).sum(), x)
    with Passing():
        (seen,) = torch.autograd.grad(f(x).pow(2).sum(), x)
    assert torch.equal(plain, seen)
