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


def test_functions_that_write_if_asked_are_operators_too():
    x = torch.rand(3) - 0.5
    want = torch.nn.functional.silu(x)
    with Passing():
        assert torch.nn.functional.silu(x, inplace=True) is x
    assert torch.equal(x, want)


def test_grouped_heads_come_down_to_products():
    from torchlike.utils.flop_counter import FlopCounterMode

    q, k = torch.rand(1, 4, 5, 8, device="meta"), torch.rand(1, 2, 5, 8, device="meta")
    with FlopCounterMode(display=False) as counter:
        torch.nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    assert counter.get_total_flops() == 2 * (2 * 4 * 5 * 5 * 8)


def test_results_of_one_integer_each_are_tensors():
    with Passing():
        made = torch.meshgrid(torch.tensor(3), indexing="ij")
    assert isinstance(made[0], torch.Tensor) and made[0].tolist() == [3]
